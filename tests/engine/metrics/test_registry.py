"""Metrics of plug-ins, accumulated over several batches and ranks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.metrics.registry import METRICS, AddedMetric, MetricWithPlugins, find_plugin_metrics
from engine.tasks import base
from engine.tasks.classification.task import ClassificationMetric
from tests.support.dataset_infos import make_classification_objective


def _sums(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.stack([outputs.softmax(1).amax(1).sum(), torch.tensor(float(len(targets)))])


CONFIDENCE = AddedMetric(
    "Confidence", ("classification",), 2, _sums, lambda sums: float(sums[0] / sums[1]), higher_is_better=True
)


TARGETS = AddedMetric(  # its sum for an empty batch would be NaN
    "Sum of the targets", (), 1, lambda _outputs, targets: targets.double().mean()[None] * len(targets), float
)


def make_metric() -> MetricWithPlugins:
    return MetricWithPlugins(ClassificationMetric(3), {"targets": TARGETS, "confidence": CONFIDENCE})


def test_added_metrics_sum_over_ranks() -> None:
    outputs, targets = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
    alone, first, second, without = make_metric(), make_metric(), make_metric(), ClassificationMetric(3)
    alone.update(outputs, targets)
    without.update(outputs, targets)
    first.update(outputs[:4], targets[:4])
    first.update(outputs[4:6], targets[4:6])
    second.update(outputs[6:], targets[6:])
    second.update(outputs[:0], targets[:0])
    first.counters = first.counters + second.counters
    first.rows = second.rows
    assert first.compute() == pytest.approx(alone.compute(), abs=1e-6)
    assert alone.compute()["confidence"] == pytest.approx(float(outputs.softmax(1).amax(1).mean()), abs=1e-6)
    *built_in, _, _ = alone.compute().items()
    assert dict(built_in) == without.compute()
    assert list(alone.compute())[-2:] == ["targets", "confidence"]
    assert alone.compute()["targets"] == pytest.approx(sum(targets.tolist()))
    assert (alone.per_class(), alone.confusion()) == (without.per_class(), without.confusion())


def test_added_metrics_follow_those_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "find_plugin_metrics", lambda _task, _metrics: {"confidence": CONFIDENCE})
    given = [measure.id for measure in make_classification_objective().entry.metrics]
    assert given
    extended = base.add_plugin_metrics(make_classification_objective())
    assert [measure.id for measure in extended.entry.metrics] == [*given, "confidence"]
    metric = extended.create_metric()
    metric.update(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    assert metric.compute()["confidence"] == 0.5


def test_added_metrics_reset() -> None:
    outputs, targets = torch.randn(10, 3, generator=torch.Generator().manual_seed(1)), torch.arange(10) % 3
    again, once = make_metric(), make_metric()
    again.update(outputs.flip(0), targets)
    again.reset()
    assert again.compute() == {}
    again.update(outputs, targets)
    once.update(outputs, targets)
    assert again.compute() == once.compute()


def test_added_metrics_without_samples_are_missing() -> None:
    assert make_metric().compute() == {}
    assert CONFIDENCE.create_entry("confidence").title == "Confidence"


def test_added_metrics_belong_to_their_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    added = {"confidence": CONFIDENCE, "other": CONFIDENCE._replace(tasks=("segmentation", "points"))}
    monkeypatch.setattr(METRICS, "load_plugins", lambda: added)
    names = [list(find_plugin_metrics(task, ())) for task in ("classification", "points", "boxes")]
    assert names == [["confidence"], ["other"], []]
