"""Strategy with one process per device that averages the gradients at every step (DistributedDataParallel)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from engine.contract.catalogue import StrategyEntry
from engine.contract.job import FIELDS
from engine.models.registry import is_external
from engine.strategies.base import ResolvedJob, StepResult, StrategyError, split_batch
from engine.strategies.distributed import Distributed, broadcast_buffers
from engine.strategies.rank_times import RankProfiler, time_reduction
from engine.strategies.single import SingleDevice, split_batches, sum_results
from engine.strategies.speed import balance
from engine.torch_compat import RunningNorm

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.metrics.base import Metric
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective

_COMPRESSION = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}


class DataParallelProcesses(Distributed, SingleDevice):
    """Strategy with a full copy of the model on every rank. Each rank processes a part of every batch.

    Parts may differ in size, so every rank divides its losses by the size of the global batch. Since DDP averages
    gradients over the ranks, the loss is also multiplied by the number of ranks. Gradients are reduced once per step,
    in the backward pass of a rank's last part.

    BatchNorm normalizes each rank's part separately, unless the job requests SyncBatchNorm. Rank 0's running statistics
    are broadcast before an evaluation. DDP would broadcast them before every step, which costs time and has no effect
    on the training. If a custom model has other buffers, they are broadcast before every step.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="ddp",
        title="DistributedDataParallel",
        summary="One process per device; gradients are averaged at every step.",
        mesh=("replicate",),
        is_recommended=True,
        fields=("balance", "bucket_mib", "gradient_compression", "static_graph", "sync_batchnorm"),
    )
    profiler_class = RankProfiler
    profiler: RankProfiler
    forward: DistributedDataParallel

    def setup(self) -> None:
        if self.spec.job.parallel.sync_batchnorm and self.device.type == "cpu":
            raise StrategyError("SyncBatchNorm runs on GPUs only. Turn it off for CPU workers.")
        super().setup()

    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Wrap the model in DistributedDataParallel with the options of the job.

        Before, the speeds of the ranks are measured if the job balances them. Afterwards, DDP's first backward pass is
        run on a blank image if its effects must precede the training.
        """
        job = resolved.job
        # Converted layers would be new objects, without the method `train` that freezes the statistics of a layer.
        has_frozen_statistics = job.model.freeze_epochs or job.model.freeze_batchnorm
        if job.parallel.sync_batchnorm and not has_frozen_statistics:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        super().wrap(model, objective, shape, resolved)
        if job.parallel.balance == "speed":
            balance(self, self.model, objective, shape)
        self.gradient_scale = float(self.spec.world_size)  # DDP averages gradients, which must be summed
        self.forward = DistributedDataParallel(
            self.model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            # With None, DDP makes its first bucket smaller than the others.
            bucket_cap_mb=None if job.parallel.bucket_mib == FIELDS["bucket_mib"].default else job.parallel.bucket_mib,
            gradient_as_bucket_view=True,
            static_graph=job.parallel.static_graph,
            # A user's model may hold layers that it does not use; searching for them costs a little every step.
            find_unused_parameters=is_external(job) and not job.parallel.static_graph,
        )
        # Running statistics are broadcast before evaluations, which is enough.
        self.forward.broadcast_buffers = is_external(job) and not _has_only_statistics(self.model)
        if job.parallel.gradient_compression != "none":
            self.forward.register_comm_hook(state=None, hook=_COMPRESSION[job.parallel.gradient_compression])
        if job.checkpoints.resume_from or (job.parallel.static_graph and job.training.accumulation > 1):
            # DDP rearranges its buckets after its first backward pass, which changes the order of sums. A resumed run had
            # already done so before. With a static graph, moreover, the first pass must reduce gradients.
            self._run_blank_backward(torch.Tensor.backward)
            self.model.zero_grad()

    def no_sync(self) -> AbstractContextManager[None]:
        return self.forward.no_sync()

    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        """Run one optimizer step, and return this rank's results. All ranks call it together.

        Gradients are reduced in the backward pass of the last part of the batch. A rank without images only takes part
        in the reduction.
        """
        assert batch is not None
        # SyncBatchNorm communicates in every part, so all ranks need the same number of parts, even empty ones.
        keeps_empty = self.job.parallel.sync_batchnorm
        chunks = [chunk for chunk in split_batch(batch, self.accumulation) if keeps_empty or len(chunk.targets)]
        optimizer_step.zero_grad()
        self.profiler.mark("optimizer")
        self.divisor = self.loss_divisor(batch)
        with self.profiler.time_step():
            if chunks:
                with self.forward.no_sync() if len(chunks) > 1 else nullcontext():
                    results = [self.forward_backward(chunk, optimizer_step) for chunk in chunks[:-1]]
                with time_reduction(self.profiler.timer, self.forward):
                    results.append(self.forward_backward(chunks[-1], optimizer_step))
                result = sum_results(results)
            else:
                self._run_blank_backward(optimizer_step.backward)
                result = StepResult(loss=None, correct=None, images=None)
                self.profiler.mark("backward")
            optimizer_step.step(result.loss)
        self.profiler.mark("optimizer")
        return result

    def _run_blank_backward(self, backward: Callable[[Tensor], None]) -> None:
        """Run a backward pass with gradients of 0 on blank images, and take part in DDP's reduction.

        A rank without images needs this, because the other ranks wait for its gradients.
        """
        with time_reduction(self.profiler.timer, self.forward):
            self.run_blank_pass(backward)

    def evaluate(self, batches: Iterable[Batch | None], measures: Metric, stop: Callable[[], bool]) -> bool:
        """Evaluate the model with rank 0's buffers, in parts of a batch. All ranks call it together.

        Returns False if `stop` ended the evaluation early.
        """
        broadcast_buffers(self.model)
        return super().evaluate(split_batches(batches, self.accumulation), measures, stop)


def _has_only_statistics(model: nn.Module) -> bool:
    """Return True if all buffers of `model` belong to normalization layers with running statistics."""
    return all(isinstance(module, RunningNorm) for module in model.modules() if list(module.buffers(recurse=False)))
