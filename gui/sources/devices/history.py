"""What the devices of this machine and of others have done in the last 24 hours."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from engine.contract.devices import CPU, Cpu, Gpu, Snapshot, device_key, gpu_title
from engine.gpus.quantities import QUANTITIES
from gui.sources.columns import Floats
from gui.sources.devices.device_format import card_order
from gui.sources.devices.timeline import KEPT_S, Timeline, Values

BUDGET_BYTES = 64 << 20
"""What all numbers together may take: a day at one a second for eight GPUs that tell every quantity."""


class DeviceHistory:
    """Times and all of `QUANTITIES` for each device, at full rate for a day, and never more than the budget.

    Devices are known by `device_key`. Numbers are float32 (memory in bytes is exact to 16 KiB at 256 GiB); what a
    device could not tell is NaN, and so is everything of one that is lost or missing from a snapshot. The processor's
    load is kept as its utilization. Times are those of each host's own clock. Past the budget (many GPUs, fast
    sampling) the older part is thinned to lowest and highest values; see `Timeline`.

    `titles` names each device as its card does now (CUDA's numbers come a little after the first snapshot), with the
    host's name before it where that is another; this machine first, in the order of the cards, those no longer there
    last, until nothing is left of them. `additions` counts the snapshots taken in. `origin` is where `x` count from,
    in seconds since the epoch.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._timelines: dict[str, Timeline] = {}
        self._titles: dict[str, dict[str, str]] = {}
        self._hosts: dict[str, str] = {}
        self._gpus: dict[str, Gpu] = {}
        self._cpus: dict[str, Cpu] = {}
        self.titles: dict[str, str] = {}
        self.additions = 0
        self._kept_s = KEPT_S
        self.origin = 0.0

    def keep(self, seconds: float) -> None:
        """Keeps what is so long past, from the next snapshot on."""
        self._kept_s = seconds
        for timeline in self._timelines.values():
            timeline.kept_s = seconds

    @property
    def devices(self) -> tuple[str, ...]:
        """The keys of the devices seen so far, in the order of `titles`."""
        return tuple(self.titles)

    @property
    def allocated_bytes(self) -> int:
        """How much room the numbers take, whether it is filled already or not."""
        return sum(timeline.allocated_bytes for timeline in self._timelines.values())

    def add(self, snapshot: Snapshot, host: str = "") -> None:
        """Takes in what the sampler of `host` saw; "" is this machine."""
        if host not in self._timelines:
            self.origin = self.origin or snapshot.time
            self._timelines[host] = Timeline()
            self._timelines[host].kept_s = self._kept_s
            self._titles[host] = {}
        timeline = self._timelines[host]
        row_bytes = timeline.row_bytes
        timeline.append(snapshot.time - self.origin, self._row(snapshot, host))
        self.additions += 1
        self._name(snapshot, host)
        if timeline.row_bytes != row_bytes or len(timeline) == 1:
            self._share_out()

    def forget(self, host: str) -> None:
        """Gives up all of a host that is not watched any more."""
        if self._timelines.pop(host, None) is not None:
            self._forget(self._titles.pop(host))
            self._join_titles()
            self.additions += 1
            self._share_out()

    def host(self, key: str) -> str:
        """The host that a device belongs to; "" is this machine."""
        return self._hosts[key]

    def gpu(self, key: str) -> Gpu | None:
        """What was last heard of a GPU; None for one that is not known, or for a processor."""
        return self._gpus.get(key)

    def cpu(self, key: str) -> Cpu | None:
        """What was last heard of a processor; None for one that is not known, or for a GPU."""
        return self._cpus.get(key)

    def times(self, key: str) -> Floats:
        """Seconds since the epoch, oldest first; a copy."""
        return self.x(key) + self.origin

    def x(self, key: str) -> Floats:
        """Seconds since `origin`, oldest first: what graphs are drawn over. A view that only grows old, in common to
        all devices of a host.
        """
        return self._timelines[self._hosts[key]].x

    def values(self, key: str, quantity: str) -> Values:
        """One of `QUANTITIES` by its id, in its basic unit, at `x(key)`: float32, and a view that only grows old."""
        timeline = self._timelines[self._hosts[key]]
        column = timeline.column((key, quantity))
        return np.full(len(timeline), np.nan, np.float32) if column is None else column

    def tells(self, key: str, quantity: str) -> bool:
        """Whether the device has told this quantity at all in the last 24 hours."""
        return self._timelines[self._hosts[key]].column((key, quantity)) is not None

    def _row(self, snapshot: Snapshot, host: str) -> dict[Hashable, float | None]:
        row: dict[Hashable, float | None] = {}
        for gpu in snapshot.gpus:
            key = device_key(host, gpu.uuid)
            self._gpus[key] = gpu
            if not gpu.lost:
                for quantity in QUANTITIES:
                    row[key, quantity.id] = quantity.read(gpu)
        key = device_key(host, CPU)
        cpu = self._cpus[key] = snapshot.cpu
        row[key, "utilization_percent"] = cpu.load_percent
        row[key, "memory_used_bytes"] = cpu.memory_used_bytes
        row[key, "temperature_c"] = cpu.temperature_c
        return row

    def _name(self, snapshot: Snapshot, host: str) -> None:
        """Sets the titles of this host's devices: those in `snapshot` first, then those no longer there of which
        something is left.
        """
        before = f"{host} " if host else ""
        gpus = sorted(snapshot.gpus, key=card_order)
        titles = {device_key(host, gpu.uuid): before + gpu_title(gpu) for gpu in gpus}
        titles[device_key(host, CPU)] = before + "CPU"
        known = self._titles[host]
        titles |= {key: title for key, title in known.items() if key not in titles and self._is_left(key)}
        if list(titles.items()) != list(known.items()):
            self._titles[host] = titles
            self._forget(known.keys() - titles)
            self._hosts |= dict.fromkeys(titles, host)
            self._join_titles()

    def _is_left(self, key: str) -> bool:
        return any(self.tells(key, quantity.id) for quantity in QUANTITIES)

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            for kept in (self._hosts, self._gpus, self._cpus):
                kept.pop(key, None)

    def _join_titles(self) -> None:
        hosts = sorted(self._titles, key=lambda host: host != "")
        self.titles = {key: title for host in hosts for key, title in self._titles[host].items()}

    def _share_out(self) -> None:
        """Allows each host as many rows as fit into the budget where all are given the same number."""
        row_bytes = sum(timeline.row_bytes for timeline in self._timelines.values())
        for timeline in self._timelines.values():
            timeline.allow(self._budget_bytes // row_bytes)
