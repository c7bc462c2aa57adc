"""Energy that GPUs have used since a moment of the user's choice."""

from __future__ import annotations

from dataclasses import dataclass

from gui.monitor.gpus.watched_gpu import WatchedGpu


@dataclass(frozen=True)
class Used:
    """Joules since `since` (seconds since the epoch)."""

    joules: float
    since: float


class EnergyCounters:
    """Energy counters of the GPUs, counting since a GPU was first seen or since `reset`."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[float, float]] = {}

    def used(self, each: WatchedGpu) -> Used | None:
        """Return the energy of a GPU, None if it reports none.

        A counter that was reset by the driver starts again at 0.
        """
        counter = each.gpu.energy_j
        if counter is None:
            return None
        since, joules = self._starts.get(each.key, (each.time, counter))
        if counter < joules:
            since, joules = each.time, counter
        self._starts[each.key] = since, joules
        return Used(counter - joules, since)

    def reset(self, key: str | None = None) -> None:
        """Count from the next reading on, for one GPU or all of them."""
        if key is None:
            self._starts.clear()
        else:
            self._starts.pop(key, None)
