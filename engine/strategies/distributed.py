"""What the strategies of several processes share: meeting, agreeing, adding up, parting."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from engine.strategies.base import Strategy

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Distributed(Strategy):
    """A strategy of one process per device.

    The ranks meet through a file, and their sockets are bound to the loopback interface, so that nothing
    listens on a network address. `control` is a gloo group of CPU tensors that what the ranks agree on goes
    through, apart from the traffic of the training.
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

    def mesh(self) -> DeviceMesh:
        """All ranks by the layout: [replicas, group], with the dimensions "replica" and "place".

        `mesh.get_group("place")` joins the ranks of this rank's replica, `mesh.get_group("replica")` those that
        are at its place in every replica; both carry the training's traffic (NCCL or gloo), through the store that
        all ranks met in. All ranks call it together, once.
        """
        shape = (self.layout.replicas, self.layout.group)
        return init_device_mesh(self.device.type, shape, mesh_dim_names=("replica", "place"))

    def agree(self, flags: Sequence[int]) -> list[int]:
        shared = torch.tensor(flags, dtype=torch.int64)
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.control)
        return shared.tolist()

    def total(self, values: Tensor) -> Tensor:
        summed = values.to("cpu", copy=True)
        dist.all_reduce(summed, group=self.control)
        return summed

    def joined(self, rows: Tensor) -> Tensor:
        counts = [torch.zeros(2, dtype=torch.int64) for _ in range(self.spec.world_size)]
        dist.all_gather(counts, torch.tensor(rows.shape), group=self.control)
        longest, width = torch.stack(counts).max(0).values.tolist()
        if not longest:
            return rows.cpu()
        padded = torch.zeros((longest, width), dtype=torch.float64)
        padded[: len(rows), : rows.shape[1]] = rows.cpu()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=self.control)
        return torch.cat([part[: int(count[0])] for part, count in zip(parts, counts, strict=True)])

    def gathered(self, value: Any) -> list[Any] | None:
        values: list[Any] | None = [None] * self.spec.world_size if self.spec.rank == 0 else None
        dist.gather_object(value, values, 0, group=self.control)
        return values

    def teardown(self) -> None:
        dist.destroy_process_group()
