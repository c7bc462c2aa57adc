"""Simulated disk and network, with predetermined answers about weights and servers."""

from __future__ import annotations

from collections.abc import Collection

from engine.checks.disk import RealDisk
from engine.contract.weights import OnDisk, Weights, find_weights


class FixedDisk(RealDisk):
    """Disk that holds only the weights in `here` (by title) and reaches only the servers in `reachable`.

    `reachable` can also be True or False for all servers, or None if that is unknown. `asked` collects the names of all
    servers that were looked up. Weights that are part of the installation are found as on the real disk.
    """

    def __init__(self, *here: str, reachable: Collection[str] | bool | None = False) -> None:
        self._here, self._reachable = here, reachable
        self.asked: list[str] = []

    def weights(self, weights: Weights) -> OnDisk:
        if weights.is_included:
            return find_weights(weights)
        return OnDisk("/weights", 1 << 20) if weights.title in self._here else OnDisk()

    def reaches(self, host: str) -> bool | None:
        self.asked.append(host)
        return host in self._reachable if isinstance(self._reachable, Collection) else self._reachable
