"""The devices' last hour."""

from __future__ import annotations

import numpy as np

from engine.contract.devices import CPU
from gui.devices.history import DeviceHistory
from tests.gui.devices.snapshots import UUIDS, gpu, snapshot


def test_that_at_least_ten_minutes_are_kept_at_one_hertz() -> None:
    history = DeviceHistory()
    for second in range(4000):
        history.add(snapshot(gpu(), time=float(second)))
    times = history.times(UUIDS[0])
    assert len(times) >= 600
    assert times[-1] == 3999
    assert (np.diff(times) == 1).all()
    assert history.values(UUIDS[0], "utilization_percent")[-1] == 87


def test_that_what_a_device_cannot_tell_is_a_gap_and_not_zero() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(power_w=None)))
    assert np.isnan(history.values(UUIDS[0], "power_w")).all()
    assert np.isnan(history.values(CPU, "power_w")).all()


def test_that_a_lost_or_absent_gpu_leaves_a_gap_and_keeps_its_past() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(0), gpu(1), time=1.0))
    history.add(snapshot(gpu(0, lost=True), time=2.0))
    history.add(snapshot(gpu(0), gpu(1), time=3.0))
    for uuid in UUIDS[:2]:
        assert np.isnan(history.values(uuid, "memory_used_bytes")).tolist() == [False, True, False]
        assert history.times(uuid).tolist() == [1.0, 2.0, 3.0]


def test_that_devices_stand_in_the_order_of_cuda_with_the_cpu_last() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(0), gpu(1)))
    assert history.devices == (UUIDS[1], UUIDS[0], CPU)
    assert [history.titles[device] for device in history.devices] == ["GPU 0", "GPU 1", "CPU"]
