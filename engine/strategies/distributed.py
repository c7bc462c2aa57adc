"""What the strategies of several processes share: meeting and parting."""

from __future__ import annotations

import os
import sys

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from engine.strategies.base import Strategy
from engine.strategies.collectives import GroupCollectives

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Distributed(Strategy):
    """A strategy of one process per device.

    The ranks meet through a file, and their sockets are bound to the loopback interface, so that nothing
    listens on a network address. `control` is a gloo group, apart from the traffic of the training, that `collectives`
    go through.
    """

    control: dist.ProcessGroup

    def setup(self) -> None:
        super().setup()
        if sys.platform != "win32":  # where gloo names interfaces otherwise
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = LOOPBACK
        store = dist.FileStore(self.spec.rendezvous, self.spec.world_size)
        on_gpu = self.device.type == "cuda"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=self.spec.rank,
            world_size=self.spec.world_size,
            device_id=self.device if on_gpu else None,
        )
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        self.control = group
        self.collectives = GroupCollectives(group)

    def mesh(self) -> DeviceMesh:
        """All ranks by the layout: [replicas, group], with the dimensions "replica" and "place".

        `mesh.get_group("place")` joins the ranks of this rank's replica, `mesh.get_group("replica")` those that
        are at its place in every replica; both carry the training's traffic (NCCL or gloo), through the store that
        all ranks met in. All ranks call it together, once.
        """
        shape = (self.layout.replicas, self.layout.group)
        return init_device_mesh(self.device.type, shape, mesh_dim_names=("replica", "place"))

    def teardown(self) -> None:
        dist.destroy_process_group()
