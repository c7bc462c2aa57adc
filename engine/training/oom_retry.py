"""One step of the training: made again in smaller parts where memory runs out, left out where it is not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.contract.events import Chosen, Event, Warned
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import StepResult, Strategy
from engine.strategies.memory import device_name, in_parts_that_fit
from engine.system.format import counted
from engine.torch_compat import BatchNorm, is_compiled, undo_compiling
from engine.training.metric_buffer import NotFinite
from engine.training.randomness import SavedStreams
from engine.training.saved_buffers import SavedBuffers

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch

SKIPS = 10
"""The most steps in a row that may be skipped; a training that needs more does not recover."""


class ResilientStep:
    """Makes the steps of `strategy` with `optimizer_step`; `emit` is given what the user should know, and `saved` says
    whether there is a checkpoint to go on from (`Checkpointer.saved`).

    A worker that is alone and whose device runs out of memory makes the same step again at once with each part of the
    batch halved, as often as needed, and goes on so: the strategy's accumulation is raised. The global batch stays,
    and the random numbers, the buffers and the gradients are those of the step's beginning. So the training is the
    one that would have had that accumulation from the start, but for what the parts of a batch change in it:
    BatchNorm normalises by each part, as always under accumulation, dropout draws part by part, and sums are added up
    in another order. What a model file counts in attributes of its own counts the broken-off passes, too. One of
    several workers cannot reach the others in the middle of a step and fails.

    Where the job skips steps that are not finite, one is as if it had not been made but for the schedule and the random
    numbers, which go on. All ranks come to the same.
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
        self._alone = strategy.spec.world_size == 1
        job = strategy.job
        self._streams = SavedStreams(strategy.device, untrusted_model=job.model_is_file)
        self._buffers = SavedBuffers(strategy.model) if self._alone or job.on_not_finite == "skip" else None
        self._skipped = 0

    def refresh_buffers(self) -> None:
        """Takes in that other parts of the model are in training mode than were."""
        if self._buffers is not None:
            self._buffers = SavedBuffers(self._strategy.model)

    def stop_compiling(self, why: str) -> None:
        """Runs a compiled model eagerly from now on, and reports `why`."""
        if not is_compiled(self._strategy.model):
            return
        undo_compiling(self._strategy.model)
        self._emit(Chosen(field="compile", choice="off", why=why))

    def step(self, batch: Batch | None, number: int) -> StepResult | None:
        """Makes step `number` on this worker's share of a batch; None where it was left out.

        Raises DoesNotFit, or NotFinite on all ranks alike where more than `SKIPS` in a row would be left out.
        """
        if self._buffers is not None:
            self._buffers.save()
        if self._alone and batch is not None:
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

        result, parts = in_parts_that_fit(
            make, before, images, again=self._begin_again, undone=lambda: self._optimizer_step.updates == made
        )
        if parts != before:
            self._emit(Warned(code="out_of_memory", message=self._halved(number, parts, images)))
        return result

    def _begin_again(self) -> None:
        """Has everything as it was at the beginning of the step in hand."""
        self._optimizer_step.zero_grad()
        self._streams.restore()
        assert self._buffers is not None
        self._buffers.restore()
        # What was compiled is for larger parts, and CUDA graphs must not have gradients added up over several passes.
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
