"""GPUs of all hosts in display order, and their energy consumption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from engine.contract.devices import Gpu, GpuProcess, Snapshot, device_key, gpu_title
from gui.format import clock
from gui.sources.devices import device_format
from gui.sources.devices.device_format import GpuState, states
from gui.sources.devices.history import DeviceHistory
from gui.translation import tr

SORT_OVER_S = 30.0
"""Seconds over which the load is averaged for sorting."""
SORT_EVERY_S = 5.0
"""Minimum seconds between sorts. Tiles that move every second can't be read."""


@dataclass(frozen=True)
class WatchedGpu:
    """State of a GPU in the last snapshot of its host.

    Attributes:
        key: Id of the GPU and its host, made by `device_key`, which is also its key in `DeviceHistory`.
        time: Time of the snapshot in seconds since the epoch, by the host's clock.
        silence: Reason why the values are outdated, or "" if they are current.
        run: Name of the user's run that uses the GPU, or "" if there is none.
        driver: Driver version of the host.
        cuda: CUDA version of the host.
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
    def is_outdated(self) -> bool:
        """True if the GPU is lost or its values are outdated."""
        return self.gpu.lost or bool(self.silence)

    @property
    def states(self) -> tuple[GpuState, ...]:
        return (GpuState(self.silence, alarming=True),) if self.silence else states(self.gpu, self.time)

    @property
    def is_alarming(self) -> bool:
        """True if any state of the GPU (see `states`) is alarming, such as outdated values."""
        return any(state.alarming for state in self.states)

    @property
    def is_shared(self) -> bool:
        """True if processes of other users are on a GPU that a run uses."""
        return bool(self.run and self._processes_of_others)

    @property
    def users_text(self) -> str:
        """Description of the GPU's users, with a warning sign if other users share it, or "" if there are none."""
        if self.is_shared:
            others = device_format.list_users(self._processes_of_others)
            return tr("⚠ Run {run}, also used by {others}").format(run=self.run, others=others)
        used = device_format.describe_use(self.gpu.processes, device_format.current_user())
        if self.run:
            run = tr("Run {run}").format(run=self.run)
            return f"{run}, {used}" if used else run
        return used[:1].upper() + used[1:]

    @property
    def _processes_of_others(self) -> tuple[GpuProcess, ...]:
        """Processes on the GPU that are known to belong to other users."""
        current_user = device_format.current_user()
        return tuple(process for process in self.gpu.processes or () if process.user not in (None, current_user))


def list_watched_gpus(
    latest: Mapping[str, Snapshot], errors: Mapping[str, str], titles: Mapping[str, str], runs: Mapping[str, str]
) -> list[WatchedGpu]:
    """Return the GPUs in the `latest` snapshots: this machine's first, then those of other hosts, by CUDA number.

    `errors` holds connection errors by host, `titles` the titles of GPUs by key, and `runs` the names of the runs on
    them.
    """
    gpus = []
    for host in sorted(latest, key=lambda name: name != ""):  # this machine, whose name is "", is first
        snapshot = latest[host]
        silence = _explain_silence(snapshot, host in errors)
        for gpu in sorted(snapshot.gpus, key=device_format.gpu_sort_key):
            key = device_key(host, gpu.uuid)
            gpus.append(
                WatchedGpu(
                    key=key,
                    title=titles.get(key, gpu_title(gpu)),
                    host=host,
                    gpu=gpu,
                    time=snapshot.time,
                    silence=silence,
                    run=runs.get(key, ""),
                    driver=snapshot.nvml.driver_version or "",
                    cuda=snapshot.nvml.cuda_version or "",
                )
            )
    return gpus


def _explain_silence(snapshot: Snapshot, has_error: bool) -> str:
    """Return the reason why a snapshot is outdated, or "". `has_error` is True if its host can't be reached."""
    if has_error:
        return tr("no data since {time}").format(time=clock(snapshot.time))
    return "" if snapshot.nvml.status == "ok" else tr("NVML does not respond: values are stale")


class LastSnapshots:
    """Cache of each host's last known GPUs, used while a restarted sampler hasn't found any."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}

    def fill(self, latest: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
        """Return the latest snapshots by host, filled with known GPUs.

        If NVML doesn't respond and a snapshot lists no GPUs, the host's previous snapshot replaces it, with the new
        NVML status.
        """
        self._snapshots = {host: self._fill_from_previous(host, snapshot) for host, snapshot in latest.items()}
        return self._snapshots

    def _fill_from_previous(self, host: str, snapshot: Snapshot) -> Snapshot:
        """Return `snapshot`, or the host's previous snapshot with the new NVML status.

        The previous snapshot is used if NVML doesn't respond and `snapshot` lists no GPUs.
        """
        previous = self._snapshots.get(host)
        if snapshot.gpus or snapshot.nvml.status != "not_answering" or previous is None:
            return snapshot
        return msgspec.structs.replace(previous, nvml=snapshot.nvml)


class LoadOrder:
    """Sort order of the GPUs by load, which changes at most every few seconds."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}  # positions in the order, by key of the GPU
        self._sorted_at = -SORT_EVERY_S  # time of the snapshot at the last sort

    def sort(self, gpus: list[WatchedGpu], history: DeviceHistory) -> list[WatchedGpu]:
        """Return `gpus` sorted by load, the busiest first.

        The order changes at most every `SORT_EVERY_S` seconds, and when GPUs appear or vanish.
        """
        newest_time = max((watched.time for watched in gpus), default=0.0)
        is_due = abs(newest_time - self._sorted_at) >= SORT_EVERY_S
        if is_due or {watched.key for watched in gpus} != self._ranks.keys():
            self._sorted_at = newest_time
            ranked = sorted(gpus, key=lambda watched: -_load(watched, history))
            self._ranks = {watched.key: rank for rank, watched in enumerate(ranked)}
        return sorted(gpus, key=lambda watched: self._ranks[watched.key])


def _load(watched: WatchedGpu, history: DeviceHistory) -> float:
    """Return the mean utilization of a GPU in the last `SORT_OVER_S` seconds, in percent.

    For a GPU that doesn't report its utilization, this is the activity of its multiprocessors. The result is -1 if the
    load is unknown, and -2 if the GPU's values are outdated.
    """
    if watched.is_outdated:
        return -2.0
    x = history.x(watched.key)
    quantity = "utilization_percent" if history.has_data(watched.key, "utilization_percent") else "sm_active_percent"
    first_recent = int(np.searchsorted(x, x[-1] - SORT_OVER_S))
    recent = history.values(watched.key, quantity)[first_recent:]
    finite = recent[np.isfinite(recent)]
    return float(finite.mean()) if len(finite) else -1.0


@dataclass(frozen=True)
class EnergyUse:
    """Energy in joules that was used since the time `since`, in seconds since the epoch."""

    joules: float
    since: float


class EnergyCounters:
    """Energy counters of the GPUs, which count from the first reading of a GPU or from `reset`."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[float, float]] = {}  # time and driver's counter at the start, by GPU

    def measure(self, watched: WatchedGpu) -> EnergyUse | None:
        """Return the energy that a GPU has used since counting began, or None if the GPU doesn't report its energy.

        The first call for a GPU starts counting. If the driver has reset the GPU's own counter, counting restarts at 0.
        """
        driver_joules = watched.gpu.energy_j
        if driver_joules is None:
            return None
        since, start_joules = self._starts.get(watched.key, (watched.time, driver_joules))
        if driver_joules < start_joules:
            since, start_joules = watched.time, driver_joules
        self._starts[watched.key] = since, start_joules
        return EnergyUse(driver_joules - start_joules, since)

    def reset(self, key: str | None = None) -> None:
        """Restart counting at the next reading, for the GPU with this key, or for all GPUs if `key` is None."""
        if key is None:
            self._starts.clear()
        else:
            self._starts.pop(key, None)
