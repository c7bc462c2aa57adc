"""Sums of step results, and reports of steps and validations."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec
import pytest
import torch
from torch import nn

from engine.contract.events import ClassMeasures, Event, StepMetrics, Validation, Warned
from engine.contract.job import Job
from engine.strategies.base import StepResult
from engine.strategies.collectives import Collectives
from engine.strategies.single import SingleDevice
from engine.tasks.classification.task import ClassificationMetric
from engine.training import metric_buffer
from engine.training.callbacks.callback import StepEnd
from engine.training.callbacks.step_metrics import StepReport
from engine.training.callbacks.validation_report import ValidationReport
from engine.training.metric_buffer import MetricBuffer, NotFinite, StepTotals
from tests.support.clock import Clock
from tests.support.specs import make_worker_spec


def result(loss: float, images: int = 4) -> StepResult:
    parts = torch.tensor([loss / 4, 3 * loss / 4])
    return StepResult(torch.tensor(loss), torch.tensor(images - 1), images, parts)


def test_totals_are_sums_until_they_are_taken() -> None:
    buffer = MetricBuffer()
    for each, wait_s in ((result(1.0), 0.5), (StepResult(None, None, None), 0.25), (result(2.0, images=6), 0.0)):
        buffer.add(each, wait_s)
    totals = buffer.take(9).read()
    assert totals == StepTotals(3, 3.0, (0.75, 2.25), 8.0, True, 10.0, 0.75, totals.seconds, None)
    assert totals.seconds > 0
    empty = buffer.take(9).read()
    assert empty == StepTotals(0, 0.0, (), 0.0, False, 0.0, 0.0, empty.seconds, None)


@pytest.mark.parametrize(("first", "second"), [(math.inf, math.nan), (math.nan, math.inf)])
def test_first_bad_step_is_named(first: float, second: float) -> None:
    buffer = MetricBuffer()
    for loss in (1.0, None, first, 1.0, second):  # without images for this rank in the second step
        buffer.add(StepResult(None, None, None) if loss is None else result(loss), 0.0)
    totals = buffer.take(9).read()
    assert (totals.first_bad, math.isnan(totals.loss)) == (7, True)
    errors = [NotFinite(7, "The loss", has_checkpoint=has_checkpoint) for has_checkpoint in (True, False)]
    assert [(error.step, "is kept" in str(error)) for error in errors] == [(7, True), (7, False)]


class _CollectivesWithDatalessRank(Collectives):
    """Collectives with another, simulated rank, which doesn't load data by default.

    `bad_step` is the other rank's first step with a loss that is not finite, or 0 if there is none.
    """

    bad_step = 0
    known = 1.0  # 1 if the other rank counts correct predictions
    loads = 0.0  # 1 if the other rank loads data

    def all_reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        return values + torch.tensor([1.0, 2.0, 3.0, 2.0, self.known, 2.0, 0.0, self.loads], dtype=torch.float64)

    def all_reduce_max(self, flags: Sequence[int]) -> list[int]:
        return [max(flags[0], (1 << 62) - self.bad_step if self.bad_step else 0)]


def test_step_report_sums_over_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(metric_buffer, "time", clock)
    strategy = SingleDevice(make_worker_spec(Job.from_fields(devices=("cpu", "cpu"), strategy="ddp")))
    strategy.collectives, strategy.model = (other := _CollectivesWithDatalessRank()), nn.Module()
    strategy.model.loss_names = ("box", "class")  # type: ignore[assignment]
    events: list[Event] = []
    checkpoints: list[int] = []
    report = StepReport(strategy, events.append, lambda: bool(checkpoints))

    def end(*results: StepResult) -> None:
        clock.now += 2.0
        for each in results:
            report.on_step_submitted(7, each, 0.5)
        report.on_step_end(StepEnd(2, 7, 0.1, report=True, read_now=False, record=False, last=False))

    end(result(1.0), result(2.0))
    other.known, other.loads = 0.0, 1.0
    end(result(1.0)._replace(correct=None), result(2.0)._replace(correct=None))
    expected = StepMetrics(
        epoch=2, step=7, loss=3.0, accuracy=0.8, learning_rate=0.1, images_per_second=5.0, data_wait_s=0.5,
        compute_s=0.5, losses={"box": 0.875, "class": 2.125},
    )  # fmt: skip
    assert events == [
        expected,
        msgspec.structs.replace(expected, accuracy=None, data_wait_s=0.25, compute_s=0.75),
    ]
    end(StepResult(None, None, None))
    assert isinstance(events[-1], StepMetrics)
    assert (events[-1].loss, events[-1].losses) == (3.0, {"box": 1.0, "class": 2.0}), "those of the other rank"
    count = len(events)
    for read_now in (False, True):
        clock.now += 2.0
        report.on_step_submitted(8, result(1.0), 0.5)
        report.on_step_end(StepEnd(2, 8, 0.1, report=False, read_now=read_now, record=False, last=False))
        assert len(events) == count + read_now
    other.bad_step = 5
    for has_checkpoint in (False, True):
        checkpoints += [1] * has_checkpoint
        with pytest.raises(NotFinite) as raised:
            end(result(1.0), result(math.inf))
        assert (raised.value.step, "is kept" in str(raised.value)) == (5, has_checkpoint)


def test_validation_report_has_classes_and_new_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, events, metric = (
        SingleDevice(make_worker_spec(Job.from_fields(devices=("cpu",)))),
        [],
        ClassificationMetric(64),
    )
    report = ValidationReport(strategy, 21, events.append)
    strategy.evaluation_parts = 2
    report.on_validation_start()
    strategy.evaluation_parts = 4
    metric.update(torch.eye(64), torch.arange(64))
    report.on_validation_end(3, 12, metric, {"top1": 0.5})
    warned, validation, measures = events
    assert isinstance(warned, Warned)
    assert (warned.code, re.findall(r"\d+", warned.message)) == ("out_of_memory", ["12", "4"])
    assert validation == Validation(epoch=3, step=12, measures={"top1": 0.5}, images=21, seconds=validation.seconds)
    assert measures == ClassMeasures(epoch=3, step=12, measures=metric.per_class(), confusion=metric.confusion())
    assert len(measures.confusion) == 64
    monkeypatch.setattr(metric, "confusion", lambda: ((0,) * 65,) * 65)  # as of pixels
    report.on_validation_end(4, 18, metric, {})
    assert events[-1] == ClassMeasures(epoch=4, step=18, measures=metric.per_class(), confusion=())
