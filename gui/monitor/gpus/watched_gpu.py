"""The GPUs of all hosts as one list, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from engine.contract.devices import Gpu, GpuProcess, Snapshot, device_key, gpu_title
from gui.format import clock
from gui.sources.devices import device_format
from gui.sources.devices.gpu_states import State, states
from gui.sources.devices.history import DeviceHistory

SORT_OVER_S = 30.0
"""The load by which GPUs are sorted is the mean over so many seconds."""
SORT_EVERY_S = 5.0
"""Tiles that changed places every second could not be read."""


@dataclass(frozen=True)
class WatchedGpu:
    """A GPU as it was last told of, at `time` (seconds since the epoch, by its host's clock).

    `key` is the history's. `silence` says why its numbers are old, "" where they are not; `run` is the run of ours that
    holds it, "" for none. `driver` and `cuda` are its host's.
    """

    key: str
    title: str
    host: str
    gpu: Gpu
    time: float
    silence: str = ""
    run: str = ""
    driver: str = ""
    cuda: str = ""

    @property
    def faded(self) -> bool:
        """Whether its numbers are not those of now."""
        return self.gpu.lost or bool(self.silence)

    @property
    def states(self) -> tuple[State, ...]:
        return (State(self.silence, True),) if self.silence else states(self.gpu, self.time)

    @property
    def shared(self) -> bool:
        """Whether others are on a GPU that a run of ours holds."""
        return bool(self.run and self._others)

    @property
    def who(self) -> str:
        """Who holds it, in words, with a sign before it where it is `shared`; "" for nobody."""
        used = device_format.busy(self.gpu.processes, device_format.own_user())
        if self.shared:
            return f"⚠ Run {self.run}, also used by {device_format.busy(self._others).removeprefix('busy: ')}"
        if self.run:
            return f"Run {self.run}" + (f", {used}" if used else "")
        return used[:1].upper() + used[1:]

    @property
    def _others(self) -> tuple[GpuProcess, ...]:
        me = device_format.own_user()
        return tuple(process for process in self.gpu.processes or () if process.user not in (None, me))


def watched_gpus(
    latest: Mapping[str, Snapshot], troubles: Mapping[str, str], titles: Mapping[str, str], runs: Mapping[str, str]
) -> list[WatchedGpu]:
    """Every GPU of the hosts' `latest` snapshots: this machine's first, each host's in the order of its cards.

    `titles` are by key; `runs` name those that hold GPUs, by key.
    """
    found = []
    for host in sorted(latest, key=lambda name: name != ""):
        snapshot = latest[host]
        silence = _silence(snapshot, host in troubles)
        for gpu in sorted(snapshot.gpus, key=device_format.card_order):
            key = device_key(host, gpu.uuid)
            found.append(
                WatchedGpu(
                    key,
                    titles.get(key, gpu_title(gpu)),
                    host,
                    gpu,
                    snapshot.time,
                    silence,
                    runs.get(key, ""),
                    snapshot.nvml.driver_version or "",
                    snapshot.nvml.cuda_version or "",
                )
            )
    return found


def _silence(snapshot: Snapshot, troubled: bool) -> str:
    if troubled:
        return f"no data since {clock(snapshot.time)}"
    return "" if snapshot.nvml.status == "ok" else "NVML does not respond: values are stale"


class LastSeen:
    """The hosts' snapshots, in which GPUs outlast a sampler that is started anew and has seen none yet."""

    def __init__(self) -> None:
        self._seen: dict[str, Snapshot] = {}

    def fill(self, latest: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
        """`latest`; what NVML has not been heard of yet is what was last seen of the host."""
        self._seen = {host: self._filled(host, snapshot) for host, snapshot in latest.items()}
        return self._seen

    def _filled(self, host: str, snapshot: Snapshot) -> Snapshot:
        before = self._seen.get(host)
        if snapshot.gpus or snapshot.nvml.status != "not_answering" or before is None:
            return snapshot
        return msgspec.structs.replace(before, nvml=snapshot.nvml)


class LoadOrder:
    """Puts the GPUs with the most to do first, and keeps an order for a few seconds."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}
        self._sorted_at = -SORT_EVERY_S

    def sort(self, gpus: list[WatchedGpu], history: DeviceHistory) -> list[WatchedGpu]:
        newest = max((each.time for each in gpus), default=0.0)
        if abs(newest - self._sorted_at) >= SORT_EVERY_S or {each.key for each in gpus} != set(self._ranks):
            self._sorted_at = newest
            ranked = sorted(gpus, key=lambda each: -_load(each, history))
            self._ranks = {each.key: rank for rank, each in enumerate(ranked)}
        return sorted(gpus, key=lambda each: self._ranks[each.key])


def _load(each: WatchedGpu, history: DeviceHistory) -> float:
    """Mean utilization in percent, or activity where that is not told; below 0 where neither is known, and lowest for
    what is out of reach.
    """
    if each.faded:
        return -2.0
    x = history.x(each.key)
    quantity = "utilization_percent" if history.tells(each.key, "utilization_percent") else "sm_active_percent"
    recent = history.values(each.key, quantity)[int(np.searchsorted(x, x[-1] - SORT_OVER_S)) :]
    told = recent[np.isfinite(recent)]
    return float(told.mean()) if len(told) else -1.0
