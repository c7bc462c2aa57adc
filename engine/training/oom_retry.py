"""Training steps that are repeated in smaller parts if memory runs out, or skipped if the loss is not finite."""

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
"""Maximum number of steps that may be skipped in a row. A run that exceeds it would not recover."""


class ResilientStep:
    """Runner of training steps that handles exhausted memory and losses that are not finite.

    If a single worker runs out of device memory, it repeats the step with smaller parts of the batch, which are halved
    until they fit, and keeps the higher accumulation for the following steps. A repeated step starts with the random
    states, buffers and gradients from its beginning. The training therefore equals one with the higher accumulation
    from the start, except for the effects of smaller parts: BatchNorm normalizes each part, dropout draws for each
    part, and sums are added in another order. If a custom model counts in attributes, it also counts the passes that
    ran out of memory. With several workers, the step fails, because a rank can't notify the others in the middle of it.

    If the job skips steps whose losses are not finite, such a step only advances the schedule and the random states.
    All ranks skip the same steps.

    Args:
        emit: Called with each message for the user.
        has_checkpoint: Returns True if there is a checkpoint to resume from.
    """

    def __init__(
        self,
        strategy: Strategy,
        optimizer_step: OptimizerStep,
        emit: Callable[[Event], None],
        has_checkpoint: Callable[[], bool],
    ) -> None:
        self._strategy = strategy
        self._optimizer_step = optimizer_step
        self._emit = emit
        self._has_checkpoint = has_checkpoint
        self._is_alone = strategy.spec.world_size == 1
        job = strategy.job
        # States before the current step, with which it can be repeated or undone. Buffers are saved only if necessary.
        self._streams = SavedStreams(strategy.gpus, untrusted_model=job.model_is_file)
        self._buffers = SavedBuffers(strategy.model) if self._is_alone or job.faults.on_not_finite == "skip" else None
        self._skipped = 0  # number of skipped steps in a row

    def refresh_buffers(self) -> None:
        """Determine again which of the model's buffers are saved before each step.

        This is necessary after modules have changed between training and evaluation mode.
        """
        if self._buffers is not None:
            self._buffers = SavedBuffers(self._strategy.model)

    def stop_compiling(self, why: str) -> None:
        """Run a compiled model eagerly from now on, and report this choice with the reason `why`."""
        if not is_compiled(self._strategy.model):
            return
        undo_compiling(self._strategy.model)
        self._emit(Chosen(field="compile", choice="off", why=why))

    def step(self, batch: Batch | None, number: int) -> StepResult | None:
        """Run step `number` on this worker's part of a batch. Return None if the step was skipped.

        Raises DoesNotFit if memory is too small, and NotFinite on all ranks if more than `SKIPS` steps in a row must be
        skipped.
        """
        if self._buffers is not None:
            self._buffers.save()
        if self._is_alone and batch is not None:
            result = self._run_in_parts(batch, number)
        else:
            result = self._strategy.step(batch, self._optimizer_step)
        if not self._optimizer_step.skipped:
            self._skipped = 0
            return result
        self._skipped += 1
        if self._skipped > SKIPS:
            after = f"After {SKIPS} skipped steps in a row, the loss or a gradient"
            raise NotFinite(number, after, has_checkpoint=self._has_checkpoint())
        assert self._buffers is not None
        self._buffers.restore()
        message = f"Skipping step {number}: its loss or a gradient is NaN or infinite. The weights are unchanged."
        self._emit(Warned(code="step_skipped", message=message))
        return None

    def _run_in_parts(self, batch: Batch, number: int) -> StepResult:
        """Run a step, and repeat it with smaller parts of the batch while memory runs out.

        The strategy keeps the number of parts for later steps, and a warning names it. A step that has updated the
        weights is not repeated.
        """
        self._streams.save()
        parts_before, updates, images = self._strategy.accumulation, self._optimizer_step.updates, len(batch.targets)

        def run_step(parts: int) -> StepResult:
            """Run the step with the batch divided into `parts`."""
            self._strategy.accumulation = parts
            return self._strategy.step(batch, self._optimizer_step)

        result, parts = run_in_parts(
            run_step,
            parts_before,
            images,
            on_retry=self._reset_step,
            can_retry=lambda: self._optimizer_step.updates == updates,
        )
        if parts != parts_before:
            self._emit(Warned(code="out_of_memory", message=self._explain_parts(number, parts, images)))
        return result

    def _reset_step(self) -> None:
        """Clear the gradients, restore the buffers and random states from the start of the step, and stop compiling."""
        self._optimizer_step.zero_grad()
        self._streams.restore()
        assert self._buffers is not None
        self._buffers.restore()
        # The compiled model expects larger parts, and CUDA graphs can't accumulate gradients over several passes.
        self.stop_compiling("it was compiled for larger parts of a batch than fit into memory")

    def _explain_parts(self, number: int, parts: int, images: int) -> str:
        """Return the message that batches of `images` images are processed in `parts` parts from step `number` on."""
        images_per_part = -(-images // parts)
        exception = ""
        if any(isinstance(module, BatchNorm) and module.training for module in self._strategy.model.modules()):
            exception = ", except for BatchNorm, which sees one part at a time"
        return (
            f"{device_name(self._strategy)} ran out of memory at step {number:,}: each batch is now processed in {parts} "
            f"parts of {counted(images_per_part, 'image')}, which trains the same{exception}. A smaller "
            "image size, bf16 or activation checkpointing needs less memory."
        )
