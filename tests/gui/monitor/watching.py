"""Monitor page with its data sources, and snapshots of GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from PySide6.QtWidgets import QLabel, QWidget

from engine.contract.devices import Ecc, Gpu, NvLink, Nvml, Pcie, RetiredMemory, Snapshot, Xid
from gui.alerts.watcher import Alerts
from gui.monitor.gpus.watched_gpu import WatchedGpu
from gui.monitor.page import MonitorPage
from gui.sources.devices.history import DeviceHistory
from gui.sources.devices.hosts import Hosts
from gui.sources.run_intervals import RunIntervals
from tests.gui.sources.devices.snapshots import gpu, snapshot

START = 1_700_000_000.0
GIB = 1 << 30


def plain_gpu(n: int = 0, **changes: object) -> Gpu:
    """Return GPU `n` (in CUDA and NVML) with only the quantities that every GPU reports.

    `changes` override its fields.
    """
    uuid = f"GPU-{n:08x}-1111-2222-3333-444444444444"
    return gpu(n % 8, **({"uuid": uuid, "nvml_index": n, "cuda_index": n} | changes))


def full_gpu(n: int = 0, **changes: object) -> Gpu:
    """Return GPU `n` (in CUDA and NVML) with all quantities. `changes` override its fields."""
    received: dict[str, object] = {
        "memory_busy_percent": 31.0,
        "sm_active_percent": 64.0,
        "tensor_active_percent": 22.0,
        "encoder_percent": 0.0,
        "decoder_percent": 12.0,
        "memory_reserved_bytes": GIB // 2,
        "memory_free_bytes": 99 * GIB,
        "memory_temperature_c": 70.0,
        "slowdown_c": 87.0,
        "shutdown_c": 92.0,
        "memory_max_c": 95.0,
        "fan_percent": 35.0,
        "energy_j": 1_000_000.0,
        "sm_clock_mhz": 1755.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "memory_clock_max_mhz": 3201.0,
        "throttled": ("power_cap",),
        "performance_state": 0,
        "pci_bus_id": "00000000:1B:00.0",
        "pcie": Pcie(
            generation=4, max_generation=5, width=16, max_width=16, received_bytes_per_s=1.2e9, sent_bytes_per_s=4e8,
            replays=3,
        ),
        "nvlinks": tuple(
            NvLink(link=link, active=link != 1, version=4, received_bytes_per_s=3e9, sent_bytes_per_s=1e9, peer="0:2:0")
            for link in range(4)
        ),
        "ecc": Ecc(enabled=True, corrected=0, uncorrected=0, total_corrected=2, total_uncorrected=0),
        "retired": RetiredMemory(rows_corrected=1, rows_uncorrected=0, rows_pending=False, rows_failed=False),
        "compute_mode": "default",
        "persistence": True,
        "mig_enabled": False,
        "xids": (Xid(START - 7200, 31),),
    }  # fmt: skip
    return plain_gpu(n, **(received | changes))


def make_watched_gpu(sample: Gpu, **changes: object) -> WatchedGpu:
    """Return a local GPU with the readings `sample`, in the form in which views receive it.

    `changes` override its fields.
    """
    values: dict[str, object] = {"key": sample.uuid, "title": "GPU 0", "host": "", "gpu": sample, "time": START}
    return WatchedGpu(**(values | changes))  # type: ignore[arg-type]


def make_history(*sample: Gpu, seconds: int = 60) -> DeviceHistory:
    """Return a history in which each GPU of `sample` has constant readings, one per second for `seconds`."""
    history = DeviceHistory()
    for second in range(seconds):
        history.add(snapshot(*sample, time=START + second))
    return history


@dataclass
class Watching:
    """Monitor page with its data sources. No sampler is running, so tests deliver snapshots with `deliver`."""

    hosts: Hosts
    history: DeviceHistory
    intervals: RunIntervals
    alerts: Alerts
    page: MonitorPage

    def deliver(self, *gpus: Gpu, at: float = 0.0, host: str = "", nvml: Nvml | None = None) -> Snapshot:
        """Deliver a snapshot of `gpus` on `host` to the views, and return it. Its time is `at` seconds after `START`."""
        sample = msgspec.structs.replace(
            snapshot(*gpus, time=START + at), nvml=nvml or Nvml("ok", "", "570.86", "12.8")
        )
        self.hosts.add_snapshot(host, sample)
        return sample


def read_texts(widget: QWidget) -> str:
    """Return the texts of all labels that aren't hidden."""
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisibleTo(widget))
