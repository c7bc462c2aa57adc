"""Simulated disk and network, with predetermined answers about weights and servers."""

from __future__ import annotations

from collections.abc import Collection

from engine.checks.disk import RealDisk
from engine.contract.weights import Weights, WeightsFile, find_weights


class FixedDisk(RealDisk):
    """Replacement for `RealDisk` with predetermined answers.

    Only the weights with the titles `downloaded`, and those that are part of the installation, are on the disk. The
    servers in `reachable` can be reached: True for all servers, False for none, or None if that is unknown.
    `requested_hosts` collects the names of the servers passed to `reaches`.
    """

    def __init__(self, *downloaded: str, reachable: Collection[str] | bool | None = False) -> None:
        self._downloaded, self._reachable = downloaded, reachable
        self.requested_hosts: list[str] = []

    def weights(self, weights: Weights) -> WeightsFile:
        if weights.is_included:
            return find_weights(weights)
        return WeightsFile("/weights", 1 << 20) if weights.title in self._downloaded else WeightsFile()

    def can_reach(self, host: str) -> bool | None:
        self.requested_hosts.append(host)
        return host in self._reachable if isinstance(self._reachable, Collection) else self._reachable
