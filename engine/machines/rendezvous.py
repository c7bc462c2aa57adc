"""torch's static rendezvous, whose store listens on one address alone."""

from __future__ import annotations

import socket
from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

NAME = "footplate"
"""What the rendezvous is called among torch's."""


class OneAddressRendezvous(StaticTCPRendezvous):
    """As torch's own, but for its store: the one that torch makes listens on every interface.

    The first node (rank 0) gives the `listener` of the store, which is then the store's.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        rank: int,
        nodes: int,
        run_id: str,
        timeout_s: int,
        listener: socket.socket | None,
    ) -> None:
        super().__init__(address, port, rank, nodes, run_id, timeout_s)
        self._listener = listener

    def get_backend(self) -> str:
        return NAME

    def next_rendezvous(self) -> RendezvousInfo:
        if self._store is None:
            listening = self._listener.detach() if self._listener is not None else None
            self._store = _store(self.master_addr, self.master_port, self.world_size, self.timeout, listening)
        met = RendezvousStoreInfo(self.master_addr, self.master_port)
        return RendezvousInfo(PrefixStore(self.run_id, self._store), self.rank, self.world_size, met)


def _store(address: str, port: int, nodes: int, timeout: timedelta, listening: int | None) -> TCPStore:
    if listening is None:
        return TCPStore(address, port, nodes, False, timeout)
    return TCPStore(address, port, nodes, True, timeout, master_listen_fd=listening)
