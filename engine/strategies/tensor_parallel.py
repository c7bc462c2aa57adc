"""Strategies with tensor parallelism: several devices compute slices of each layer together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.contract.catalogue import StrategyEntry
from engine.contract.events import LogLine
from engine.optim.shards import PACKED_FOR, get_local_shard
from engine.strategies.base import StepResult, StrategyError
from engine.strategies.fsdp import FullySharded
from engine.strategies.gradients import broadcast
from engine.strategies.layer_split import LayerPair, divided_parameters, find_layer_pairs, shard_layer_pairs
from engine.strategies.rank_times import ShardProfiler

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

    from engine.data.loading.base_loader import Batch
    from engine.optim.optimizer_step import OptimizerStep


class _UnrecordedProfiler(ShardProfiler):
    """Profiler that records no steps, because tensor-parallel ranks compute every layer together and hardly wait."""

    records = False


class TensorParallel(FullySharded):
    """Strategy with groups of ranks. Each rank of a group computes a slice of the layers found by `find_layer_pairs`.

    All ranks of a group get the same images. They compute all other layers identically, with the same random numbers.
    GPU kernels may add up numbers in random order, so the gradients of these layers are taken from the first rank of
    the group to keep the copies equal.

    Along the other dimensions of the mesh, parameters are sharded as in FullySharded. If these have a single rank,
    parameters remain complete. BatchNorm normalizes the images of each group separately.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="tp",
        title="Tensor parallel",
        summary="Linear layers and attention heads are divided among the devices, which see the same images.",
        mesh=("tensor",),
        is_recommended=True,
    )
    profiler_class = _UnrecordedProfiler

    def _divide(self, model: nn.Module) -> None:
        """Divide the layers that can be divided among the ranks. Raises StrategyError if the model has none.

        Sets `_divided_names` to the names of the divided parameters, and `_packed_names` to those of attention's packed
        weights.
        """
        ranks = self.dims.tensor
        pairs = [pair for pair in find_layer_pairs(model) if pair.units % ranks == 0]
        if not pairs:
            raise StrategyError(
                f"This model has no layers that {self.entry.title} can divide among {ranks} devices: linear layers with "
                f"only an activation between them, whose hidden units {ranks} divides, or attention heads. Choose another "
                "strategy, or a ViT, Swin or ConvNeXt."
            )
        self._check_equal_gpus(model)
        self._report_division(pairs, model)
        shard_layer_pairs(pairs, self.mesh_of_ranks["tensor"], source=None if self.receives_weights else 0)
        named = {parameter: name for name, parameter in model.named_parameters()}
        self._divided_names = {named[parameter] for parameter in divided_parameters(pairs)}
        heads = [pair.first for pair in pairs if pair.attention is not None]
        self._packed_names = {named[parameter] for first in heads for parameter in first.parameters(recurse=False)}
        # These biases are added once and are complete on every rank.
        self._divided_names -= {named[pair.second.bias] for pair in pairs if pair.second.bias is not None}

    def _check_equal_gpus(self, model: nn.Module) -> None:
        """Raise StrategyError if the model has dropout and the GPUs are of different types. All ranks call it together.

        Such GPUs generate different masks, since the layout of a mask depends on the number of multiprocessors
        (ATen/native/cuda/Dropout.cu).
        """
        names = sorted(set(self.collectives.all_gather_objects(gpu_type(self.device))))
        has_dropout = any(isinstance(module, nn.Dropout) and module.p for module in model.modules())
        if has_dropout and len(names) > 1:
            raise StrategyError(
                f"{self.entry.title} needs GPUs of one type for a model with dropout, and the run has {', '.join(names)}. "
                "Choose GPUs of one type, a model without dropout, or another strategy."
            )

    def _shard(self, model: nn.Module) -> list[FSDPModule]:
        """Shard the model along the other dimensions of the mesh, and return the FSDP modules of its groups.

        Attention's packed weights are marked, so that checkpoints restore the order of their rows.
        """
        groups = super()._shard(model)
        for name, parameter in model.named_parameters():
            if name in self._packed_names:
                setattr(parameter, PACKED_FOR, self.dims.tensor)
        return groups

    def _report_division(self, pairs: Sequence[LayerPair], model: nn.Module) -> None:
        """Add a remark that says how many layers, and how many of the parameters, are divided among the devices."""
        attentions = sum(pair.attention is not None for pair in pairs)
        divided = sum(parameter.numel() for parameter in divided_parameters(pairs))
        percent = 100 * divided / sum(parameter.numel() for parameter in model.parameters())
        layers = f"{len(pairs) - attentions} MLPs and the heads of {attentions} attention layers"
        text = f"{layers} are divided among {self.dims.tensor} devices, {percent:.0f}% of the parameters"
        self.remarks.append(LogLine(text=text))

    @property
    def duplicate_parameters(self) -> frozenset[str]:
        if self.coordinate.tensor == 0:
            return frozenset()
        return frozenset(name for name, _ in self.parameters() if name not in self._divided_names)

    def forward_backward(self, batch: Batch, optimizer_step: OptimizerStep) -> StepResult:
        """Run a forward and backward pass. Only the first rank of a group returns results, since all are equal."""
        result = super().forward_backward(batch, optimizer_step)
        return result if self.is_counted else StepResult(loss=None, correct=None, images=None)

    def _adjust_gradients(self) -> None:
        """Replace the gradients of layers that are not divided by those of the group's first rank.

        The ranks of the group call it together.
        """
        super()._adjust_gradients()
        gradients = [
            get_local_shard(parameter.grad)
            for name, parameter in self.parameters()
            if name not in self._divided_names and parameter.grad is not None
        ]
        broadcast(gradients, self.spec.rank - self.coordinate.tensor, self.mesh_of_ranks.get_group("tensor"))

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """Sum `value` over the shards of FSDP and over the ranks of each group. All ranks call it together."""
        total = super().sum_over_shards(value).to(self.device)
        dist.all_reduce(total, group=self.mesh_of_ranks.get_group("tensor"))
        return total.to(value.device)


def gpu_type(device: torch.device) -> str:
    """Return the name and number of multiprocessors of a GPU, or "CPU".

    All CPUs generate the same dropout masks, so they have one type.
    """
    if device.type != "cuda":
        return "CPU"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} ({properties.multi_processor_count} multiprocessors)"


class ReplicatedTensorParallel(TensorParallel):
    """Strategy with several tensor-parallel groups. Each group trains a replica on a part of every batch."""

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="ddp_tp",
        title="Hybrid: DDP × tensor parallel",
        summary="Several replicas of the model, each with its layers divided among its devices.",
        mesh=("replicate", "tensor"),
        is_recommended=True,
        fields=("replicas",),
    )


class ShardedTensorParallel(TensorParallel):
    """Strategy with several tensor-parallel groups that process parts of every batch and shard all parameters."""

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="fsdp_tp",
        title="Hybrid: FSDP × tensor parallel",
        summary="Layers are divided among the devices of a group, and all parameters sharded over the groups.",
        mesh=("shard", "tensor"),
        is_recommended=True,
        fields=("replicas", "shard_precision"),
    )
