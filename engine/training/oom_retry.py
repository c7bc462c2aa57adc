"""Training steps that are retried in smaller parts if memory runs out, and skipped if they are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.contract.events import Chosen, Event, Warned
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import StepResult, Strategy
from engine.strategies.memory import device_name, run_in_parts
from engine.system.format import counted
from engine.torch_compat import BatchNorm, is_compiled, undo_compiling
from engine.training.metric_buffer import NotFinite
from engine.training.randomness import SavedStreams
from engine.training.saved_buffers import SavedBuffers

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch

SKIPS = 10
"""Number of consecutive steps that may be skipped; a training that needs more does not recover."""


class ResilientStep:
    """Runner of the steps of `strategy` with `optimizer_step`.

    If a worker without peers runs out of device memory, the step is retried with each part of the batch halved, as
    often as needed, and the strategy's accumulation stays at the higher value. The global batch is the same, and random
    numbers, buffers and gradients are restored to the step's beginning. The training therefore equals one with that
    accumulation from the start, except for the effects of smaller parts: BatchNorm normalizes by each part, dropout
    draws part by part, and sums are added in another order. Counters in a custom model's attributes include aborted
    passes. One of several workers can't notify the others in the middle of a step, and fails.

    If the job skips steps that are not finite, such a step only advances the schedule and the random numbers. All ranks
    make the same decision.

    Args:
        emit: Receives messages for the user.
        saved: Returns True if there is a checkpoint to resume from.
    """

    def __init__(
        self,
        strategy: Strategy,
        optimizer_step: OptimizerStep,
        emit: Callable[[Event], None],
        saved: Callable[[], bool],
    ) -> None:
        self._strategy = strategy
        self._optimizer_step = optimizer_step
        self._emit = emit
        self._saved = saved
        self._is_alone = strategy.spec.world_size == 1
        job = strategy.job
        self._streams = SavedStreams(strategy.gpus, untrusted_model=job.model_is_file)
        self._buffers = SavedBuffers(strategy.model) if self._is_alone or job.faults.on_not_finite == "skip" else None
        self._skipped = 0

    def refresh_buffers(self) -> None:
        """Save the buffers of the modules that are currently in training mode."""
        if self._buffers is not None:
            self._buffers = SavedBuffers(self._strategy.model)

    def stop_compiling(self, why: str) -> None:
        """Run a compiled model eagerly from now on, and report `why`."""
        if not is_compiled(self._strategy.model):
            return
        undo_compiling(self._strategy.model)
        self._emit(Chosen(field="compile", choice="off", why=why))

    def step(self, batch: Batch | None, number: int) -> StepResult | None:
        """Run step `number` on this worker's part of a batch; return None if it was skipped.

        Raises DoesNotFit, and NotFinite on all ranks if more than `SKIPS` steps in a row would be skipped.
        """
        if self._buffers is not None:
            self._buffers.save()
        if self._is_alone and batch is not None:
            result = self._in_parts_that_fit(batch, number)
        else:
            result = self._strategy.step(batch, self._optimizer_step)
        if not self._optimizer_step.skipped:
            self._skipped = 0
            return result
        self._skipped += 1
        if self._skipped > SKIPS:
            after = f"After {SKIPS} skipped steps in a row, the loss or a gradient"
            raise NotFinite(number, after, self._saved())
        assert self._buffers is not None
        self._buffers.restore()
        message = f"Skipping step {number}: its loss or a gradient is NaN or infinite. The weights are unchanged."
        self._emit(Warned(code="step_skipped", message=message))
        return None

    def _in_parts_that_fit(self, batch: Batch, number: int) -> StepResult:
        self._streams.save()
        before, made, images = self._strategy.accumulation, self._optimizer_step.updates, len(batch.targets)

        def make(parts: int) -> StepResult:
            self._strategy.accumulation = parts
            return self._strategy.step(batch, self._optimizer_step)

        result, parts = run_in_parts(
            make, before, images, on_retry=self._reset_step, can_retry=lambda: self._optimizer_step.updates == made
        )
        if parts != before:
            self._emit(Warned(code="out_of_memory", message=self._halved(number, parts, images)))
        return result

    def _reset_step(self) -> None:
        """Restore the gradients, buffers and random numbers from the step's beginning."""
        self._optimizer_step.zero_grad()
        self._streams.restore()
        assert self._buffers is not None
        self._buffers.restore()
        # The compiled model expects larger parts, and CUDA graphs can't accumulate gradients over several passes.
        self.stop_compiling("it was compiled for larger parts of a batch than fit into memory")

    def _halved(self, number: int, parts: int, images: int) -> str:
        part = -(-images // parts)
        but = ""
        if any(isinstance(module, BatchNorm) and module.training for module in self._strategy.model.modules()):
            but = ", except for BatchNorm, which sees one part at a time"
        return (
            f"{device_name(self._strategy)} ran out of memory at step {number:,}: each batch is now "
            f"processed in {parts} parts of {counted(part, 'image')}, which trains the same{but}. A smaller "
            "image size, bf16 or activation checkpointing needs less memory."
        )
