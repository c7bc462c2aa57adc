"""Process group and mesh for strategies with several processes."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from datetime import timedelta

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from engine.contract.worker import BY_ENVIRONMENT
from engine.processes.watchdog import LIMITS, PATIENCE
from engine.strategies.base import Strategy
from engine.strategies.collectives import GroupCollectives
from engine.strategies.link_check import check_links
from engine.system.loopback import same_user_only

TIMEOUT = timedelta(seconds=2 * PATIENCE * LIMITS.first_step)
"""Longest wait in a collective; the supervisor stops a hanging run long before and names the rank that blocks it."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Distributed(Strategy):
    """Strategy with one process per device.

    The ranks on a single machine rendezvous through a file, and their sockets are bound to the loopback interface, so
    that nothing listens on a network address. Ranks on several machines use their environment (see `engine.machines`).
    `control` is a gloo group for `collectives`, separate from the training's communication.
    """

    control: dist.ProcessGroup

    def setup(self) -> None:
        super().setup()
        on_gpu = self.device.type == "cuda"
        by_environment = self.spec.rendezvous == BY_ENVIRONMENT
        if not by_environment and sys.platform != "win32":  # where gloo names interfaces otherwise
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = LOOPBACK
            os.environ.pop("NCCL_COMM_ID", None)  # an address of another interface, which all users can reach
        # NCCL's listeners stay open, as it connects to them later.
        with nullcontext() if by_environment or on_gpu else same_user_only():
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                init_method=BY_ENVIRONMENT if by_environment else None,
                store=None if by_environment else dist.FileStore(self.spec.rendezvous, self.spec.world_size),
                rank=self.spec.rank,
                world_size=self.spec.world_size,
                device_id=self.device if on_gpu else None,
                timeout=TIMEOUT,
            )
        with nullcontext() if by_environment else same_user_only():
            group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        assert isinstance(group, dist.ProcessGroup)
        self.control = group
        self.collectives = GroupCollectives(group)
        if on_gpu and self.spec.world_size > 1:
            check_links(self.spec, self.device, self.collectives)

    def mesh(self) -> DeviceMesh:
        """Create the mesh of all ranks, with only the dimensions along which there are several ranks.

        The dimensions are "replicate", "shard", "pipeline" and "tensor". A strategy that shards or splits layers has
        "shard" even with one rank.

        `mesh.get_group(name)` connects the ranks that differ from this one only along that dimension, for the
        training's communication (NCCL or gloo). All ranks call this together, once.
        """
        always = {"shard"} if self.entry.shards or self.entry.splits_layers else set()
        sizes = {name: size for name, size in self.dims._asdict().items() if size > 1 or name in always}
        is_local_gloo = self.device.type != "cuda" and self.spec.rendezvous != BY_ENVIRONMENT
        with same_user_only() if is_local_gloo else nullcontext():
            return init_device_mesh(self.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    def sum_over_batch(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over all ranks, of which those of a tensor-parallel group have the same part."""
        total = value.to(self.device, copy=True)
        dist.all_reduce(total)
        return total / self.dims.tensor

    def teardown(self) -> None:
        dist.destroy_process_group()


def broadcast_buffers(model: nn.Module) -> None:
    """Broadcast rank 0's buffers to all ranks. All ranks call it together."""
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
