"""The energy that GPUs have used since a moment that the user chooses."""

from __future__ import annotations

from dataclasses import dataclass

from gui.monitor.gpus.watched_gpu import WatchedGpu


@dataclass(frozen=True)
class Used:
    """Joules since `since` (seconds since the epoch)."""

    joules: float
    since: float


class EnergyMarks:
    """Where each GPU's counter stood when counting began: when the GPU was first seen, until `start_anew`."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[float, float]] = {}

    def used(self, each: WatchedGpu) -> Used | None:
        """None where the GPU does not count its energy. A counter that starts again, as with a driver that is loaded
        anew, starts the count anew.
        """
        counter = each.gpu.energy_j
        if counter is None:
            return None
        since, joules = self._marks.get(each.key, (each.time, counter))
        if counter < joules:
            since, joules = each.time, counter
        self._marks[each.key] = since, joules
        return Used(counter - joules, since)

    def start_anew(self, key: str | None = None) -> None:
        """Counts from the next reading on: one GPU, or all of them."""
        if key is None:
            self._marks.clear()
        else:
            self._marks.pop(key, None)
