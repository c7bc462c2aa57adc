"""History of device readings for a day."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from engine.contract.devices import CPU, Gpu, NvLink, Pcie, device_key
from engine.gpus.quantities import QUANTITIES
from gui.sources.devices.history import BUDGET_BYTES, DeviceHistory
from gui.sources.devices.timeline import INITIAL_ROWS
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot

MIB = 1 << 20


def make_complete_gpu(uuid: str, number: int = 0, nvlinks: tuple[NvLink, ...] = ()) -> Gpu:
    """Return a GPU with all quantities, including NVLinks if `nvlinks` is given."""
    percents = {q.id: 50.0 for q in QUANTITIES if q.id.endswith("_percent")}
    return gpu(
        0, uuid=uuid, nvml_index=number, cuda_index=number, memory_temperature_c=70.0, sm_clock_mhz=1980.0,
        memory_clock_mhz=3201.0, pcie=Pcie(received_bytes_per_s=1e9, sent_bytes_per_s=2e9), nvlinks=nvlinks, **percents,
    )  # fmt: skip


def test_history_keeps_all_gpu_quantities() -> None:
    history = DeviceHistory()
    received = make_complete_gpu(UUIDS[0])
    history.add(snapshot(received))
    for quantity in QUANTITIES:
        value = quantity.read(received)
        assert history.has_data(UUIDS[0], quantity.id) == (value is not None)
        assert history.values(UUIDS[0], quantity.id).tolist() == pytest.approx([value or np.nan], nan_ok=True)
    assert history.gpu(UUIDS[0]) is received
    assert history.gpu(CPU) is None


def test_history_cpu_load_is_utilization() -> None:
    history = DeviceHistory()
    history.add(snapshot(load=37.0))
    history.add(snapshot(load=0.0))
    assert history.values(CPU, "utilization_percent").tolist() == [37, 0]
    assert history.values(CPU, "memory_used_bytes").tolist() == [8 << 30] * 2
    assert not history.has_data(CPU, "power_w")
    assert history.cpu(CPU) is not None


def test_history_unreported_quantity_is_nan() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(power_w=None)))
    assert np.isnan(history.values(UUIDS[0], "power_w")).all()
    assert np.isnan(history.values(CPU, "power_w")).all()


def test_history_lost_gpu_leaves_gap() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(0), gpu(1), time=1.0))
    history.add(snapshot(gpu(0, lost=True), time=2.0))
    history.add(snapshot(gpu(0), gpu(1), time=3.0))
    for uuid in UUIDS[:2]:
        assert np.isnan(history.values(uuid, "memory_used_bytes")).tolist() == [False, True, False]
        assert history.times(uuid).tolist() == [1.0, 2.0, 3.0]
        assert history.x(uuid).tolist() == [0.0, 1.0, 2.0]


def test_history_orders_devices_by_cuda() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(0), gpu(1)))
    assert history.devices == (UUIDS[1], UUIDS[0], CPU)
    assert [history.titles[device] for device in history.devices] == ["GPU 0", "GPU 1", "CPU"]
    history.add(snapshot(gpu(0), time=1_700_000_001.0))
    assert history.devices == (UUIDS[0], CPU, UUIDS[1])


def test_history_forgets_devices_without_readings() -> None:
    history = DeviceHistory(budget_bytes=1)
    for hour in range(300):
        history.add(snapshot(gpu(0), gpu(1, uuid=f"MIG-{hour}"), time=1000.0 + 3600 * hour))
    assert 24 <= len(history.devices) < 100
    assert "MIG-299" in history.devices
    assert "MIG-0" not in history.devices
    assert history.gpu("MIG-0") is None


def test_history_separates_hosts() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(0, utilization_percent=5.0), time=100.0), host="ws2")
    history.add(snapshot(gpu(0), time=90.0))
    key = device_key("ws2", UUIDS[0])
    assert history.devices == (UUIDS[0], CPU, key, device_key("ws2", CPU))
    assert history.titles[key] == "ws2 GPU 1"
    assert history.values(key, "utilization_percent").tolist() == [5]
    assert history.values(UUIDS[0], "utilization_percent").tolist() == [87]
    assert (history.times(key).tolist(), history.times(UUIDS[0]).tolist()) == ([100.0], [90.0])
    assert (history.host(key), history.host(CPU)) == ("ws2", "")


def test_history_restores_readings_within_its_retention() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(0, power_w=9.0), time=1000.0))
    history.set_retention(200.0)
    restored = [801.0, 892.0, 981.0, 1000.0]
    past = [(time, {UUIDS[0]: {"power_w": time}, "GPU-gone": {"power_w": 1.0}}) for time in (799.0, *restored)]
    history.restore([past[0], (800.5, {UUIDS[0]: {}}), *past[1:]])
    times, values = history.times(UUIDS[0]), history.values(UUIDS[0], "power_w")
    known = np.isfinite(values)
    assert times[known].tolist() == restored
    assert values[known].tolist() == [*restored[:-1], 9.0]
    gaps = [bool(((times > start) & (times < end)).any()) for start, end in pairwise(restored)]
    assert gaps == [True, False, False]
    for host in ("", "ws2"):
        history.add(snapshot(gpu(0), time=1001.0), host=host)
        history.add(snapshot(gpu(0), time=1300.0), host=host)
        assert history.times(device_key(host, UUIDS[0]))[0] >= 1100.0


def test_history_shares_its_budget_between_hosts() -> None:
    history = DeviceHistory(budget_bytes=MIB)
    for host in ("", "ws2", "ws3"):
        history.add(snapshot(gpu(0)), host=host)
    assert history.allocated_bytes <= MIB
    history.add(snapshot(*(gpu(number) for number in range(8)), time=1_700_000_001.0))
    assert history.allocated_bytes <= MIB


def test_history_forgets_removed_host() -> None:
    history = DeviceHistory()
    history.add(snapshot(gpu(0)), host="ws2")
    history.add(snapshot(gpu(1)))
    history.forget("ws2")
    history.forget("never known")
    assert history.devices == (UUIDS[1], CPU)
    assert history.gpu(device_key("ws2", UUIDS[0])) is None
    history.add(snapshot(gpu(0)), host="ws2")
    assert len(history.times(device_key("ws2", UUIDS[0]))) == 1


def test_history_eight_gpus_need_no_thinning() -> None:
    history = DeviceHistory()
    links = (NvLink(link=0, received_bytes_per_s=1.0, sent_bytes_per_s=1.0),)
    history.add(snapshot(*(make_complete_gpu(uuid, n, nvlinks=links) for n, uuid in enumerate(UUIDS))))
    assert all(history.has_data(uuid, quantity.id) for uuid in UUIDS for quantity in QUANTITIES)
    per_row = history.allocated_bytes // INITIAL_ROWS
    assert history.allocated_bytes == per_row * INITIAL_ROWS  # enough for a day at the full rate
    assert history.allocated_bytes <= BUDGET_BYTES


@pytest.mark.long
def test_history_thins_past_beyond_budget() -> None:
    history = DeviceHistory(budget_bytes=MIB)
    uuids = [f"GPU-{number}" for number in range(16)]
    hot = {700, 5000, 9000}
    for second in range(10_000):
        heat = 99.0 if second in hot else 50.0
        gpus = [gpu(0, uuid=uuid, temperature_c=heat) for uuid in uuids]
        history.add(snapshot(*gpus, time=1000.0 + second), host="ws2" if second % 2 else "")
        assert history.allocated_bytes <= MIB
    for uuid in uuids:
        times, heat = history.times(uuid), history.values(uuid, "temperature_c")
        assert times[0] == 1000
        assert times[-1] == 10_998
        assert heat.max() == 99
        assert abs(times[heat.argmax()] - 1700) < 600
