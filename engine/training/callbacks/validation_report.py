"""Callback that reports the metrics of a validation."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.contract.events import ClassMeasures, Event, Validation, Warned
from engine.metrics.base import Metric
from engine.metrics.class_counts import MAX_CONFUSION_CLASSES
from engine.strategies.base import Strategy
from engine.strategies.memory import device_name
from engine.training.callbacks.callback import Callback


class ValidationReport(Callback):
    """Callback that reports the metrics of a validation, overall and per class.

    It also warns if memory ran out during the validation.
    """

    def __init__(self, strategy: Strategy, images: int, emit: Callable[[Event], None]) -> None:
        self._strategy = strategy
        self._images = images
        self._emit = emit

    def on_validation_start(self) -> None:
        self._started = time.perf_counter()
        self._parts = self._strategy.evaluation_parts

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        """Report the metrics, also by class, and a warning if memory ran out during the validation."""
        seconds = time.perf_counter() - self._started
        parts = self._strategy.evaluation_parts
        if parts != self._parts:
            message = (
                f"{device_name(self._strategy)} ran out of memory during validation after step {step:,}: "
                f"each validation batch is now processed in {parts} parts, which gives the same metrics."
            )
            self._emit(Warned(code="out_of_memory", message=message))
        self._emit(Validation(epoch=epoch, step=step, measures=values, images=self._images, seconds=seconds))
        of_classes, confusion = metric.per_class(), metric.confusion()
        if of_classes or confusion:
            confusion = confusion if len(confusion) <= MAX_CONFUSION_CLASSES else ()
            self._emit(ClassMeasures(epoch=epoch, step=step, measures=of_classes, confusion=confusion))
