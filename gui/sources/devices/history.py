"""Readings of all devices on all hosts, by default over the last 24 hours."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from engine.contract.device_history import SPACING_S
from engine.contract.devices import CPU, Cpu, Gpu, Snapshot, device_key, gpu_title
from engine.gpus.quantities import QUANTITIES, read_values
from gui.sources.columns import Floats
from gui.sources.devices.device_format import gpu_sort_key
from gui.sources.devices.timeline import RETENTION_S, Timeline, Values

BUDGET_BYTES = 64 << 20
"""Memory for all readings: enough for a day of one reading per second from eight GPUs with all quantities."""


_GAP_STEPS = 3
"""Number of sampling intervals without a saved reading after which graphs show a gap."""


class DeviceHistory:
    """Time series of all `QUANTITIES` for each device, at the full rate for a day, within a memory budget.

    Devices are identified by `device_key`. Values are float32 (256 GiB in bytes is exact to 16 KiB), and NaN if
    unknown, for example for a lost device. A CPU's load is stored as its utilization. Times come from the clock of each
    host. If the readings exceed the budget (many GPUs, fast sampling), the older half is thinned; see `Timeline`.

    Attributes:
        titles: Titles of the devices by key. This machine's come first, by CUDA number, and removed devices last.
        origin: Time at which `x` is 0, in seconds since the epoch.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._timelines: dict[str, Timeline] = {}  # by host
        self._titles: dict[str, dict[str, str]] = {}  # by host and key
        self._hosts: dict[str, str] = {}  # by key
        self._gpus: dict[str, Gpu] = {}  # latest state by key
        self._cpus: dict[str, Cpu] = {}  # latest state by key
        self.titles: dict[str, str] = {}  # of all devices, by key
        self._retention_s = RETENTION_S
        self.origin = 0.0  # time of the first snapshot in seconds since the epoch; `x` is relative to it

    def set_retention(self, seconds: float) -> None:
        """Limit the age of readings to `seconds`. This takes effect with the next snapshot."""
        self._retention_s = seconds
        for timeline in self._timelines.values():
            timeline.retention_s = seconds

    @property
    def devices(self) -> tuple[str, ...]:
        """Keys of all devices, in the order of `titles`."""
        return tuple(self.titles)

    @property
    def allocated_bytes(self) -> int:
        """Bytes that are reserved for the readings."""
        return sum(timeline.allocated_bytes for timeline in self._timelines.values())

    def add(self, snapshot: Snapshot, host: str = "") -> None:
        """Add a snapshot of `host` ("" for this machine). The first snapshot of all sets `origin`."""
        if host not in self._timelines:
            self.origin = self.origin or snapshot.time
            self._timelines[host] = Timeline()
            self._timelines[host].retention_s = self._retention_s
            self._titles[host] = {}
        timeline = self._timelines[host]
        row_bytes = timeline.row_bytes
        self._gpus |= {device_key(host, gpu.uuid): gpu for gpu in snapshot.gpus}
        self._cpus[device_key(host, CPU)] = snapshot.cpu
        timeline.append(snapshot.time - self.origin, _make_row(snapshot, host))
        self._update_titles(snapshot, host)
        if timeline.row_bytes != row_bytes:  # new devices or quantities
            self._distribute_budget()

    def restore(self, past: Iterable[tuple[float, Mapping[str, Mapping[str, float]]]]) -> None:
        """Insert readings of this machine from earlier sessions before those of this session.

        `past` contains times in seconds since the epoch, in ascending order, with known values by device and quantity.
        """
        if "" not in self._timelines:  # "" is this machine
            return
        rows = [(time - self.origin, devices) for time, devices in past]
        first = float(self._timelines[""].x[0])
        rows = [(time_s, devices) for time_s, devices in rows if first - self._retention_s < time_s < first]
        columns: dict[Hashable, Values] = {}
        for index, (_time_s, devices) in enumerate(rows):
            for device, values in devices.items():
                if device in self._titles[""]:  # not a device that has been removed
                    for quantity, value in values.items():
                        column = columns.setdefault((device, quantity), np.full(len(rows), np.nan, np.float32))
                        column[index] = value
        self._timelines[""].prepend(np.array([time_s for time_s, _devices in rows]), columns, _GAP_STEPS * SPACING_S)
        self._distribute_budget()

    def forget(self, host: str) -> None:
        """Delete the readings of a removed host."""
        if self._timelines.pop(host, None) is not None:
            self._remove_devices(self._titles.pop(host))
            self._join_titles()
            self._distribute_budget()

    def host(self, key: str) -> str:
        """Return the host of a device, or "" for this machine."""
        return self._hosts[key]

    def gpu(self, key: str) -> Gpu | None:
        """Return the last known state of a GPU, or None if the key belongs to another device."""
        return self._gpus.get(key)

    def cpu(self, key: str) -> Cpu | None:
        """Return the last known state of a CPU, or None if the key belongs to another device."""
        return self._cpus.get(key)

    def times(self, key: str) -> Floats:
        """Return a copy of the times of a device's readings, in seconds since the epoch, oldest first."""
        return self.x(key) + self.origin

    def x(self, key: str) -> Floats:
        """Return a view of the times in seconds since `origin`, oldest first. All devices of a host share it."""
        return self._timelines[self._hosts[key]].x

    def values(self, key: str, quantity: str) -> Values:
        """Return a float32 view of a quantity's readings in its base unit, at the times `x(key)`."""
        timeline = self._timelines[self._hosts[key]]
        column = timeline.column((key, quantity))
        return np.full(len(timeline), np.nan, np.float32) if column is None else column

    def has_data(self, key: str, quantity: str) -> bool:
        """Return True if the device has reported this quantity within the retention time."""
        return self._timelines[self._hosts[key]].column((key, quantity)) is not None

    def _update_titles(self, snapshot: Snapshot, host: str) -> None:
        """Set the titles of a host's devices: those in `snapshot`, then removed devices that still have readings."""
        prefix = f"{host} " if host else ""
        gpus = sorted(snapshot.gpus, key=gpu_sort_key)
        titles = {device_key(host, gpu.uuid): prefix + gpu_title(gpu) for gpu in gpus}
        titles[device_key(host, CPU)] = prefix + "CPU"
        previous_titles = self._titles[host]
        titles |= {
            key: title for key, title in previous_titles.items() if key not in titles and self._has_readings(key)
        }
        if list(titles.items()) != list(previous_titles.items()):
            self._titles[host] = titles
            self._remove_devices(previous_titles.keys() - titles)
            self._hosts |= dict.fromkeys(titles, host)
            self._join_titles()

    def _has_readings(self, key: str) -> bool:
        """Return True if the device has reported any quantity within the retention time."""
        return any(self.has_data(key, quantity.id) for quantity in QUANTITIES)

    def _remove_devices(self, keys: Iterable[str]) -> None:
        """Forget the hosts and states of devices."""
        for key in keys:
            for mapping in (self._hosts, self._gpus, self._cpus):
                mapping.pop(key, None)

    def _join_titles(self) -> None:
        """Set `titles` to those of all hosts, with this machine ("") first."""
        hosts = sorted(self._titles, key=lambda host: host != "")
        self.titles = {key: title for host in hosts for key, title in self._titles[host].items()}

    def _distribute_budget(self) -> None:
        """Divide the memory budget so that every host gets the same number of rows."""
        row_bytes = sum(timeline.row_bytes for timeline in self._timelines.values())
        for timeline in self._timelines.values():
            timeline.limit_rows(self._budget_bytes // row_bytes)


def _make_row(snapshot: Snapshot, host: str) -> dict[Hashable, float | None]:
    """Return all readings in a snapshot by (device key, quantity). Unknown readings are None."""
    return {
        (device_key(host, device), quantity): value
        for device, values in read_values(snapshot).items()
        for quantity, value in values.items()
    }
