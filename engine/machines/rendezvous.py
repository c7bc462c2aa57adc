"""Rendezvous of torch whose store listens on a single address."""

from __future__ import annotations

import socket

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

NAME = "footplate"
"""Name under which the rendezvous backend is registered with torch."""


class OneAddressRendezvous(StaticTCPRendezvous):
    """Static rendezvous whose store listens on a single address, whereas torch's own store listens on all interfaces.

    The first node (rank 0) passes the store's socket as `listener`.
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
        """Open or connect to the store at the first call, and return it with this node's rank.

        The store takes over the socket of `listener`.
        """
        if self._store is None:
            descriptor = self._listener.detach() if self._listener is not None else None
            is_server = descriptor is not None
            address, port = self.master_addr, self.master_port
            self._store = TCPStore(address, port, self.world_size, is_server, self.timeout, master_listen_fd=descriptor)
        store_info = RendezvousStoreInfo(self.master_addr, self.master_port)
        return RendezvousInfo(PrefixStore(self.run_id, self._store), self.rank, self.world_size, store_info)
