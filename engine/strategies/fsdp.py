"""Strategy with one process per device. Each process stores a shard of every parameter (FSDP2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.contract.catalogue import StrategyEntry
from engine.contract.events import Warned
from engine.models.blocks import list_blocks
from engine.models.registry import is_external
from engine.optim.shards import gather_shards, get_local_shard, get_slice
from engine.strategies.base import ResolvedJob, StepResult, Strategy, StrategyError, split_batch
from engine.strategies.distributed import Distributed, broadcast_buffers, broadcast_weights, tensors_of
from engine.strategies.rank_times import HostTimer, ShardProfiler
from engine.strategies.recompute import checkpoint_blocks
from engine.strategies.sharding import UsedParameters, find_tied_views, separate_blocks, time_collectives
from engine.strategies.single import SingleDevice, split_batches, sum_results
from engine.strategies.speed import balance
from engine.torch_compat import BatchNorm, reduce_unused_parameters

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

    from engine.data.loading.base_loader import Batch
    from engine.metrics.base import Metric
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective

NO_BLOCKS = (
    "This model has no blocks (items of a Sequential or ModuleList with several layers each). All its "
    "parameters are fetched at once, so sharding saves memory only for gradients and the optimizer's "
    "state, and activation checkpointing has no effect."
)


class FullySharded(Distributed, SingleDevice):
    """Strategy that shards parameters, gradients and optimizer state over the ranks.

    Each block in `list_blocks(model)` forms a group. Its parameters are gathered from all ranks before its forward pass
    and again before its backward pass, and freed afterwards. Its gradients are summed over the ranks, and each rank
    keeps its shard of the sum. Parameters outside of blocks belong to the root's group, which stays complete from the
    forward to the backward pass. So do blocks that share parameters with other modules.

    Gradients are summed and not averaged, since every rank divides its losses by the size of the global batch. With
    accumulation, ranks hold complete gradients until the last part of the batch, and need as much memory for them as
    under DDP.

    BatchNorm normalizes each rank's part separately. FSDP does not synchronize its running statistics, so those of rank
    0 are broadcast before an evaluation, and saved in checkpoints.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="fsdp",
        title="Fully sharded (FSDP)",
        summary="One process per device; each stores a shard of all parameters and fetches the rest block by block.",
        mesh=("shard",),
        is_recommended=True,
        fields=("balance", "shard_precision", "cpu_offload"),
    )

    profiler_class = ShardProfiler
    profiler: ShardProfiler

    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Shard the model over the ranks, and put it into training mode.

        If the job requests activation checkpointing or balancing of the ranks' speeds, these are applied first. For a
        model without blocks, a warning is added to `remarks`.
        """
        Strategy.wrap(self, model, objective, shape, resolved)  # SingleDevice would move the full model to the device
        self._check_model(model)
        model.train()
        if not list_blocks(model):  # which also limits the gain of sharding, so it doesn't depend on checkpointing
            self.remarks.append(Warned(code="no_blocks", message=NO_BLOCKS))
        elif self.job.parallel.activation_checkpointing:
            checkpoint_blocks(model)
        if self.job.parallel.balance == "speed" and "balance" in self.entry.fields:  # subclasses may not support it
            # The speed of a device is measured with the complete model.
            balance(self, model.to(self.device), objective, shape)
            model.cpu()
        self.mesh_of_ranks = self.create_mesh()
        complete = [tensor.detach() for tensor in tensors_of(model)]
        self._divide(model)
        self.groups = self._shard(model)
        if self.receives_weights:
            self._distribute(model, complete)
        del complete  # free the full weights, since the model now has its shards
        # Only user-defined models may have parameters that get no gradient.
        self._used_parameters = UsedParameters(model, self.groups, self.collectives) if is_external(self.job) else None
        self.model, self.forward, self.local_modules = model, model, [model]

    @property
    def receives_weights(self) -> bool:
        # Not if each rank needs the values before: to measure speeds, or because a user's model may depend on them.
        job = self.spec.job
        return not (is_external(job) or job.parallel.cpu_offload or job.parallel.balance == "speed")

    @torch.no_grad()
    def _distribute(self, model: nn.Module, complete: Sequence[Tensor]) -> None:
        """Copy rank 0's `complete` parameters and buffers into the shards on all ranks. All ranks call it together."""
        for weights, sharded in zip(broadcast_weights(complete, self.device), tensors_of(model), strict=True):
            if self.spec.rank:
                get_local_shard(sharded).copy_(get_slice(weights, sharded))

    @property
    def _computes_in_bf16(self) -> bool:
        return self.job.parallel.shard_precision == "bf16" and "shard_precision" in self.entry.fields

    def _check_model(self, model: nn.Module) -> None:
        """Raise StrategyError if `model` or the precision does not support sharding. All ranks call it together."""
        if self._computes_in_bf16 and self.job.precision.name == "fp16":
            raise StrategyError(
                "Precision fp16 and bf16 for the shards can't be combined. Choose fp32 for one of them."
            )
        # Other ranks may have the model on the meta device, where tensors have no memory to share.
        tied = self.collectives.broadcast_object(find_tied_views(model) if self.spec.rank == 0 else ())
        if tied:
            raise StrategyError(
                f"{', '.join(tied)} share memory, which sharding would break. Assign the same nn.Parameter "
                "to all of them, or choose DistributedDataParallel."
            )
        scalars = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
        if scalars:
            raise StrategyError(
                f"{', '.join(scalars)} has no dimension to shard along. Make it a tensor of shape [1], or "
                "choose DistributedDataParallel."
            )

    def _divide(self, model: nn.Module) -> None:
        """Divide layers of `model` among ranks before the model is sharded. Only tensor parallelism does this."""

    def _shard(self, model: nn.Module) -> list[FSDPModule]:
        """Shard a `model` that is on the CPU, in place, and return the FSDP modules of its groups.

        The device holds only one complete block at a time.
        """
        from torch.distributed.fsdp import (
            CPUOffloadPolicy,
            FSDPModule,
            MixedPrecisionPolicy,
            OffloadPolicy,
            fully_shard,
        )

        # Shards of CPU workers are in main memory already, and pinning it, as the policy does, needs a GPU.
        can_offload = self.device.type == "cuda" and "cpu_offload" in self.entry.fields
        offload = CPUOffloadPolicy() if can_offload and self.job.parallel.cpu_offload else OffloadPolicy()
        # Along "tensor", `_divide` has already divided the layers.
        dimensions = tuple(name for name in self.mesh_of_ranks.mesh_dim_names or () if name != "tensor")
        options: dict[str, Any] = {"mesh": self.mesh_of_ranks[dimensions], "offload_policy": offload}
        for module in (*separate_blocks(model), model):
            if not self._computes_in_bf16:
                fully_shard(module, **options)
                continue
            # BatchNorm accepts bf16 activations, but its parameters must have the type of its running statistics.
            norms: list[nn.Module] = [
                norm
                for norm in module.modules()
                if isinstance(norm, BatchNorm) and norm.weight is not None and not isinstance(norm, FSDPModule)
            ]
            if norms:
                fully_shard(norms, **options)
            precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            fully_shard(module, mp_policy=precision, **options)
        groups: list[FSDPModule] = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for group in groups:
            self._configure_reduction(group)
        if any(tensor.is_meta for tensor in tensors_of(model)):  # this rank will receive rank 0's weights
            model.to_empty(device=self.device)
        return groups

    def _configure_reduction(self, group: FSDPModule) -> None:
        """Make a group of parameters sum its gradients over the ranks, and time its collectives in CPU workers."""
        group.set_gradient_divide_factor(1.0)  # FSDP would divide the sum by the number of ranks
        group.set_force_sum_reduction_for_comms(True)
        # A user's model may have layers that not every batch uses, but all ranks must reduce the same gradients.
        if is_external(self.job):
            reduce_unused_parameters(group)
        if isinstance(self.profiler.timer, HostTimer):
            time_collectives(group, self.profiler.timer, all_reduce=self.dims.replicate > 1)

    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        """Run one optimizer step, and return this rank's results. All ranks call it together.

        Gradients are reduced in the backward pass of the last part of the batch.
        """
        assert batch is not None
        with self.profiler.time_step():
            optimizer_step.zero_grad()
            self.profiler.mark("optimizer")
            self.divisor = self.loss_divisor(batch)  # `forward_backward` divides the losses by it
            chunks = split_batch(batch, self.accumulation)
            results = []
            for number, chunk in enumerate(chunks, 1):
                for group in self.groups:
                    group.set_requires_gradient_sync(number == len(chunks), recurse=False)
                results.append(self.forward_backward(chunk, optimizer_step))
            self._adjust_gradients()
            result = sum_results(results)
            optimizer_step.step(result.loss)
            self.profiler.mark("optimizer")
            return result

    def _adjust_gradients(self) -> None:
        """Set the gradients of parameters that no rank has used to None, after FSDP has reduced all gradients."""
        if self._used_parameters is not None:
            self._used_parameters.drop_unused()

    def forward_backward(self, batch: Batch, optimizer_step: OptimizerStep) -> StepResult:
        """Run a forward and backward pass for one microbatch of this rank.

        If the microbatch is empty, blank images take its place, so that this rank joins the collectives of the other
        ranks.
        """
        if len(batch.targets):
            return super().forward_backward(batch, optimizer_step)
        # The other ranks fetch parameters from this rank, and expect gradients of it, which are 0.
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            self.run_blank_pass(optimizer_step.backward)
        self.profiler.mark("backward")
        return StepResult(loss=None, correct=None, images=None)

    def evaluate(self, batches: Iterable[Batch | None], measures: Metric, stop: Callable[[], bool]) -> bool:
        """Evaluate the model with rank 0's buffers. All ranks run the same number of forward passes.

        Return False if `stop` ended the evaluation early.
        """
        broadcast_buffers(self.model)
        parts = split_batches(batches, self.accumulation)
        try:
            return super().evaluate(self._add_blank_passes(parts), measures, stop)
        finally:
            # The root's parameters stay gathered after a forward pass, and would be outdated in the next one.
            for group in self.groups:
                group.reshard()

    def _add_blank_passes(self, batches: Iterable[Batch | None]) -> Iterator[Batch | None]:
        """Yield `batches`. After each batch without samples, run a forward pass on a blank image.

        The other ranks gather parameters in their forward passes, and would otherwise wait for this rank forever.
        """
        for batch in batches:
            yield batch
            if batch is not None and not len(batch.targets):
                with self.autocast():
                    self.model(torch.zeros(1, *self.example_shape, device=self.device))

    def state_dict(self) -> dict[str, Tensor] | None:
        """Gather the shards of all ranks, one tensor after another. All ranks call it together.

        Returns the state of the plain model on rank 0, and None on other ranks.
        """
        state: dict[str, Tensor] = {}
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            complete = gather_shards(get_local_shard(tensor), tensor)
            if complete is not None:
                state[name] = complete
        return state if self.spec.rank == 0 else None

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy this rank's slices of the plain model's `state` into its shards. Raises RuntimeError if names differ."""
        local = self.model.state_dict(keep_vars=True)
        if local.keys() != state.keys():
            raise RuntimeError(f"The model's state does not fit: {', '.join(sorted(local.keys() ^ state.keys()))}.")
        for name, tensor in local.items():
            get_local_shard(tensor).copy_(get_slice(state[name], tensor))

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """Sum `value` over the ranks of this rank's replica. All ranks of the replica call this together.

        If this rank is a CPU worker, the profiler records how long the sum has blocked it.
        """
        total = value.to(self.device, copy=True)
        started = time.perf_counter()
        dist.all_reduce(total, group=self.mesh_of_ranks.get_group("shard"))
        if isinstance(self.profiler.timer, HostTimer):
            self.profiler.timer.add_blocked_since(started)
        return total.to(value.device)
