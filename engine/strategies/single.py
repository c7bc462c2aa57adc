"""Strategy that trains on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from engine.contract.catalogue import StrategyEntry
from engine.contract.events import Warned
from engine.strategies.base import ResolvedJob, StepResult, Strategy, memory_format, split_batch
from engine.strategies.collectives import sync_metrics
from engine.strategies.memory import run_in_parts
from engine.strategies.recompute import BufferSnapshot, checkpoint_blocks

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.metrics.base import Metric
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective


class SingleDevice(Strategy):
    """Strategy with the full model on one device.

    Before the backward pass, the loss is multiplied by `gradient_scale`, which subclasses set to suit their reduction
    of gradients.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="single",
        title="Single device",
        summary="Training on one device.",
        mesh=(),
        is_recommended=True,
    )
    gradient_scale: float = 1.0
    divisor: Tensor | int
    """Result of `loss_divisor` for the current batch."""
    forward: nn.Module
    """Module for forward passes: `model`, or a wrapper of it."""

    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Move the model to the device in the job's memory format, in training mode.

        If the job requests activation checkpointing, turn it on, or add a remark if the model has no blocks for it.
        """
        super().wrap(model, objective, shape, resolved)
        self.model = model.to(self.device).to(memory_format=memory_format(self.job))
        self.forward, self.local_modules = self.model, [self.model]
        self.model.train()
        if self.job.parallel.activation_checkpointing and not checkpoint_blocks(self.model):
            message = (
                "Activation checkpointing has no effect on this model: it has no blocks (items of a "
                "Sequential or ModuleList with several layers each)."
            )
            self.remarks.append(Warned(code="no_blocks", message=message))

    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        """Run one optimizer step, with the batch divided into `accumulation` parts."""
        assert batch is not None
        optimizer_step.zero_grad()
        self.profiler.mark("optimizer")
        self.divisor = self.loss_divisor(batch)
        chunks = [chunk for chunk in split_batch(batch, self.accumulation) if len(chunk.targets)]
        result = sum_results([self.forward_backward(chunk, optimizer_step) for chunk in chunks])
        optimizer_step.step(result.loss)
        self.profiler.mark("optimizer")
        return result

    def forward_backward(self, batch: Batch, optimizer_step: OptimizerStep) -> StepResult:
        """Run a forward and backward pass for `batch`, a part of this rank's batch, and accumulate its gradients.

        Returns the results of this part.
        """
        with self.autocast():
            outputs = self.forward(batch.inputs, *self.objective.get_extra_inputs(batch.targets))
        outputs = outputs.float()
        if self.objective.loss_in_model:  # the outputs are losses [n, p]
            sums = outputs.sum(0) / self.divisor
            loss, losses = sums.sum(), sums.detach()
        else:
            loss, losses = self.objective.loss(outputs, batch.targets).sum() / self.divisor, None
        self.profiler.mark("forward")
        optimizer_step.backward(loss * self.gradient_scale if self.gradient_scale != 1.0 else loss)
        self.profiler.mark("backward")
        with torch.no_grad():
            correct = self.objective.count_correct(outputs, batch.targets)
        self.profiler.mark("logging")
        return StepResult(loss.detach(), correct, len(batch.targets), losses)

    def run_blank_pass(self, backward: Callable[[Tensor], None]) -> None:
        """Run a forward and backward pass on blank images that yields gradients of 0, and restore the buffers.

        There are two images, since BatchNorm can't compute statistics from a single value. `backward` runs the backward
        pass from a loss.
        """
        blank = torch.zeros(2, *self.example_shape, device=self.device)
        extra = self.objective.get_extra_inputs(self.objective.create_blank_targets(blank))
        with BufferSnapshot(self.model):
            with self.autocast():
                outputs = self.forward(blank, *extra)
            backward(outputs.float().sum() * 0.0)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch | None], measures: Metric, stop: Callable[[], bool]) -> bool:
        """Evaluate the model in evaluation mode, and leave it in training mode.

        Return False if `stop` ended the evaluation early.
        """
        self.model.eval()
        try:
            for batch in batches:
                if stop():
                    return False
                if batch is None or not len(batch.targets):
                    continue
                outputs = self._compute_outputs(batch).float()
                if self.is_counted:
                    measures.update(outputs, batch.targets)
        finally:
            self.model.train()
        sync_metrics(measures, self.collectives)
        return True

    def _compute_outputs(self, batch: Batch) -> Tensor:
        """Return the model's outputs for a batch of an evaluation.

        If memory runs out and there is only one worker, retry with more parts, and set `evaluation_parts` to their
        number. Several workers would have to agree on this, so `split_batches` has divided their batches in advance.
        """

        def compute(parts: int) -> Tensor:
            with self.autocast():
                results = [self.evaluation_forward(chunk) for chunk in split_batch(batch, parts) if len(chunk.targets)]
            return results[0] if len(results) == 1 else torch.cat(results)

        if self.spec.world_size > 1:
            return compute(1)
        outputs, self.evaluation_parts = run_in_parts(compute, self.evaluation_parts, len(batch.targets))
        return outputs

    def evaluation_forward(self, batch: Batch) -> Tensor:
        outputs: Tensor = self.model(batch.inputs)
        return outputs


def split_batches(batches: Iterable[Batch | None], count: int) -> Iterator[Batch | None]:
    """Divide each batch into `count` parts and yield these. The last parts of a batch may be empty.

    None, which stands for a batch on a rank that loads no data, is yielded unchanged.
    """
    for batch in batches:
        yield from [None] if batch is None else split_batch(batch, count)


def sum_results(results: Sequence[StepResult]) -> StepResult:
    """Return the sums of the results of the parts of a step. Values that are None are left out."""
    return results[0] if len(results) == 1 else StepResult(*map(_sum_present, zip(*results, strict=True)))


def _sum_present(values: Sequence[Any]) -> Any:
    """Return the sum of the `values` that are not None, or None if all are None."""
    present = [value for value in values if value is not None]
    return sum(present[1:], present[0]) if present else None
