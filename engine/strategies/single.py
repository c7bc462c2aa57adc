"""One device trains alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from engine.contract.catalogue import StrategyEntry
from engine.strategies.base import StepResult, Strategy

if TYPE_CHECKING:
    from engine.data.loader import Batch
    from engine.tasks.base import Measures, Task
    from engine.training.optimizers import Updater


class SingleDevice(Strategy):
    """The whole model on one device. `gradient_scale` is what a subclass multiplies its loss with before
    the backward pass, to undo what its way of joining gradients does."""

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="single",
        title="Single device",
        summary="One device trains alone.",
        device_kinds=("cuda", "cpu"),
        min_devices=1,
        max_devices=1,
        process_per_device=True,
        splits_batch=False,
        cuts_model=False,
    )
    gradient_scale: float = 1.0
    forward: nn.Module
    """What is called: `model` itself, or what a subclass wraps around it."""

    def wrap(self, model: nn.Module, task: Task, example_shape: tuple[int, int, int]) -> None:
        self.task = task
        self.model = model.to(self.device)
        self.forward = self.model
        self.model.train()

    def step(self, batch: Batch | None, updater: Updater) -> StepResult:
        assert batch is not None
        updater.zero_grad()
        with self.autocast():
            outputs = self.forward(batch.inputs)
        outputs = outputs.float()
        loss = self.task.loss(outputs, batch.targets).sum() / batch.global_size
        updater.backward(loss * self.gradient_scale if self.gradient_scale != 1.0 else loss)
        updater.step()
        with torch.no_grad():
            correct = self.task.correct(outputs, batch.targets)
        return StepResult(loss.detach(), correct, len(batch.targets))

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch | None], measures: Measures, stop: Callable[[], bool]) -> bool:
        self.model.eval()
        try:
            for batch in batches:
                if stop():
                    return False
                if batch is None or not len(batch.targets):
                    continue
                with self.autocast():
                    outputs = self.evaluation_forward(batch)
                measures.update(outputs.float(), batch.targets)
        finally:
            self.model.train()
        measures.counters = self.total(measures.counters)
        return True

    def evaluation_forward(self, batch: Batch) -> torch.Tensor:
        outputs: torch.Tensor = self.model(batch.inputs)
        return outputs
