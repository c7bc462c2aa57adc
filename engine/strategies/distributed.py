"""Process groups and device mesh of strategies with several processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from engine.contract.worker import BY_ENVIRONMENT
from engine.processes.watchdog import LIMITS, PATIENCE_FACTOR
from engine.strategies.base import Strategy
from engine.strategies.collectives import GroupCollectives
from engine.strategies.link_check import check_links
from engine.system.loopback import same_user_only

TIMEOUT = timedelta(seconds=2 * PATIENCE_FACTOR * LIMITS.first_step)
"""Timeout of collectives. The supervisor stops a hanging run much earlier and names the rank that blocks it."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Distributed(Strategy):
    """Base class of strategies with one process per device.

    If all ranks are on one machine, they rendezvous through a file and bind their sockets to the loopback interface, so
    that nothing listens on the network. Ranks on several machines rendezvous through environment variables (see
    `engine.machines`).

    `control` is the gloo group behind `collectives`. The training communicates over other groups.
    """

    control: dist.ProcessGroup

    def setup(self) -> None:
        """Connect to the other ranks: over NCCL on GPUs or gloo on CPUs, and over the gloo group `control`.

        Checks the links between the GPUs. Sets environment variables so that local runs only use the loopback
        interface.
        """
        super().setup()
        on_gpu = self.device.type == "cuda"
        by_environment = self.spec.rendezvous == BY_ENVIRONMENT  # as for ranks on several machines
        if not by_environment and sys.platform != "win32":  # where gloo uses other names for interfaces
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = LOOPBACK
            os.environ.pop("NCCL_COMM_ID", None)  # may name an interface that other users can reach
        # NCCL's listening sockets stay unrestricted, because it connects to them later.
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

    def create_mesh(self) -> DeviceMesh:
        """Create the device mesh of all ranks.

        It has the dimensions "replicate", "shard", "pipeline" and "tensor", except those with a single rank. If
        the strategy shards parameters or splits layers, "shard" is present even with one rank.

        `mesh.get_group(name)` is the NCCL or gloo group of the ranks that differ from this rank only in dimension
        `name`. If all ranks are on one machine, the sockets of gloo groups accept only processes of this user. All ranks
        call this together, once.
        """
        always = {"shard"} if self.entry.shards_parameters or self.entry.splits_layers else set()  # FSDP needs it
        sizes = {name: size for name, size in self.dims._asdict().items() if size > 1 or name in always}
        is_local_gloo = self.device.type != "cuda" and self.spec.rendezvous != BY_ENVIRONMENT
        with same_user_only() if is_local_gloo else nullcontext():
            return init_device_mesh(self.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    def sum_over_batch(self, value: Tensor) -> Tensor:
        """Sum `value` over all ranks. All ranks call this together.

        Each tensor-parallel group is counted once, since its ranks share images.
        """
        total = value.to(self.device, copy=True)
        dist.all_reduce(total)
        return total / self.dims.tensor

    def teardown(self) -> None:
        dist.destroy_process_group()


def tensors_of(model: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of `model`."""
    return [*model.parameters(), *model.buffers()]


def broadcast_weights(complete: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Broadcast rank 0's `complete` tensors, and yield each of them on `device`.

    Only one tensor is on the device at a time. Other ranks pass tensors of the same shapes, whose values don't matter.
    All ranks iterate together.
    """
    for tensor in complete:
        weights = tensor.to(device) if dist.get_rank() == 0 else torch.empty_like(tensor, device=device)
        weights = weights.detach().contiguous()
        dist.broadcast(weights, 0)
        yield weights


def broadcast_buffers(model: nn.Module) -> None:
    """Broadcast rank 0's buffers in place. All ranks call it together."""
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
