"""Loss and metrics for multi-label classification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.contract.inference.evaluation import Interval
from engine.contract.job import Job
from engine.metrics.calibration import fit_temperature_of_labels
from engine.tasks import label_analysis
from engine.tasks.analysis import TASK_METRIC, EvaluatedMetrics, Intervals
from engine.tasks.base import DatasetInfo
from engine.tasks.registry import TASKS
from tests.support.dataset_infos import make_dataset_info
from tests.support.metrics import compute_on_ranks

TASK = TASKS["multilabel"]
CLASSES = 5


def sample(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(count, CLASSES, generator=generator)
    targets = (torch.rand(count, CLASSES, generator=generator) < 0.3).float()
    targets[:, 4] = 0  # a label that no sample has
    return outputs, targets


def compute_by_hand(scores: np.ndarray, true: np.ndarray) -> float | None:
    """Compute the average precision of a label, or None if no sample has the label.

    It is the sum over all thresholds of the precision times the increase in recall.
    """
    if not true.any():
        return None
    area, before = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        found = scores >= threshold
        recall = float((found & true).sum() / true.sum())
        area += (recall - before) * float((found & true).sum() / found.sum())
        before = recall
    return area


@pytest.mark.parametrize("ranks", [1, 3])
def test_multilabel_metrics_match_their_definitions(ranks: int) -> None:
    objective = TASK.create_objective(Job.from_fields(task="multilabel"), make_dataset_info(CLASSES))
    outputs, targets = sample(23)
    outputs[1], outputs[2, :2] = -9.0, 0.0  # a probability of 0.5 predicts a label
    targets[1] = 0
    outputs[:, 3] -= 9.0  # a label that is never predicted
    total: Any = compute_on_ranks(objective, outputs, targets, ranks, 2)
    found = total.compute()
    assert found.keys() == {measure.id for measure in TASK.entry.metrics}
    likely, true = outputs.sigmoid().double().numpy(), targets.numpy() > 0
    precisions = [compute_by_hand(likely[:, number], true[:, number]) for number in range(CLASSES)]
    assert found["map"] == pytest.approx(np.mean([each for each in precisions if each is not None]))
    taken = likely >= 0.5
    f1 = [2 * (taken & true)[:, n].sum() / (taken[:, n].sum() + true[:, n].sum()) for n in range(4)]
    assert found["mean_f1"] == pytest.approx(np.mean(f1))
    both, either = (taken & true).sum(1), (taken | true).sum(1)
    assert found["accuracy"] == pytest.approx(np.mean([a / b if b else 1 for a, b in zip(both, either, strict=True)]))
    assert found["loss"] == pytest.approx(objective.loss(outputs, targets).mean().item())
    assert objective.count_correct(outputs, targets).item() == pytest.approx(found["accuracy"] * 23)
    class_metrics = total.per_class()
    assert class_metrics["AP"][:4] == pytest.approx(precisions[:4])
    assert class_metrics["AP"][4] is None
    assert class_metrics["Recall"][4] is None
    assert class_metrics["F1"][:4] == pytest.approx(f1)
    assert total.confusion() == ()
    without_labels = objective.create_metric()
    assert without_labels.compute() == {}
    without_labels.update(outputs, torch.zeros_like(targets))
    assert (without_labels.compute()["map"], without_labels.compute()["mean_f1"]) == (0, 0)


def test_smoothing_moves_targets_toward_half() -> None:
    outputs, targets = sample(4)
    smoothed = 0.8 * targets + 0.1
    plain, smooth = (
        TASK.create_objective(Job.from_fields(task="multilabel", label_smoothing=each), make_dataset_info(CLASSES))
        for each in (0.0, 0.2)
    )
    torch.testing.assert_close(smooth.loss(outputs, targets), plain.loss(outputs, smoothed))


def test_balanced_labels_match_pos_weight() -> None:
    outputs, targets = sample(40)
    targets[:, 0] = 1  # a label that every sample has
    counts = targets.sum(0)
    dataset_info = DatasetInfo(tuple("abcde"), class_counts=counts.tolist, samples=40)
    objective = TASK.create_objective(Job.from_fields(task="multilabel", class_weights="balanced"), dataset_info)
    weights = (40 - counts) / counts
    weights[[0, 4]] = 1
    assert (weights[1:4] > 1.2).all()
    theirs = torch.nn.BCEWithLogitsLoss(pos_weight=weights)
    torch.testing.assert_close(objective.loss(outputs, targets).mean(), theirs(outputs, targets))
    unsure = torch.zeros(40, CLASSES, requires_grad=True)
    objective.loss(unsure, targets).sum().backward()
    assert unsure.grad is not None
    pulls = unsure.grad.sum(0)
    torch.testing.assert_close(pulls[1:4], torch.zeros(3), msg="having and lacking a label pull alike")
    assert (pulls[[0, 4]].abs() > 1).all()


def test_labels_are_sorted_by_probability() -> None:
    objective = TASK.create_objective(Job.from_fields(task="multilabel"), make_dataset_info(3))
    image = np.zeros((2, 2, 3), np.uint8)
    assert objective.show_truth(image, torch.tensor([1.0, 0.0, 1.0])).text == "class 0, class 2"
    assert objective.show_truth(image, torch.zeros(3)).text == "no label"
    shares = torch.tensor([[0.9, 0.4, 0.2], [0.1, 0.3, 0.2], [0.5, 0.6, 0.8]])
    columns = objective.create_analysis("abc").compute_columns(
        shares.logit(), torch.tensor([[1.0, 1, 0], [0, 0, 0], [0, 1, 1]])
    )
    assert (columns.correct, columns.true) == ([0.5, 1.0, pytest.approx(2 / 3)], [(0, 1), (), (1, 2)])
    assert (columns.predicted, columns.confidence) == ([(0,), (), (0, 1, 2)], pytest.approx([0.6, 0.7, 0.5]))
    assert objective.show_prediction(image, torch.tensor([0.11, -3.0, 4.0])).text == "class 2 (98%), class 0 (53%)"
    assert objective.show_prediction(image, torch.tensor([-1.0, -3.0, -4.0])).text == "no label"


def test_analysis_calibrates_each_label(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = torch.tensor([[3.0, -3], [3, 3], [-3, 3]]).repeat_interleave(20, 0)
    targets = (outputs > 0).float()
    targets[::5] = 1 - targets[::5]
    targets[0] = 1
    objective = TASK.create_objective(Job.from_fields(task="multilabel"), make_dataset_info(2))
    analysis: Any = objective.create_analysis("ab")
    columns, metrics = analysis.compute_columns(outputs, targets), analysis.create_metrics(1.0)
    metrics[TASK_METRIC].update(outputs, targets)
    analysis.prepare(columns)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    probabilities, true = outputs.sigmoid().double().numpy(), targets.numpy() > 0
    distances = [
        ((probabilities - true) * weights[:, None])[mask].sum() for mask in (probabilities > 0.5, probabilities < 0.5)
    ]
    measured, resampled = (EvaluatedMetrics(metrics, each, columns) for each in (np.ones(60, np.int64), weights))
    assert analysis.compute_values(resampled).measures["ece"] == pytest.approx(
        np.abs(distances).sum() / (2 * weights.sum())
    )
    details = analysis.compute_details(measured, Intervals({"ece": Interval(0.5)}))
    report, fitted = details["calibration"], fit_temperature_of_labels(probabilities, true)
    assert fitted is not None
    assert report.temperature == pytest.approx(fitted.temperature, rel=1e-4)
    assert (report.ece_before, report.ece_after) == pytest.approx(fitted.ece, rel=1e-4)
    assert (report.loss_before, report.loss_after) == pytest.approx(fitted.loss, rel=1e-4)
    low, high = (each for each in report.bins if each.count)
    assert (low.count, low.low, low.confidence, low.accuracy) == pytest.approx(
        (40, 0, probabilities.min(), true[probabilities < 0.5].mean())
    )
    assert (high.count, high.high, high.confidence, high.accuracy) == pytest.approx(
        (80, 1, probabilities.max(), true[probabilities > 0.5].mean())
    )
    row = next(each for each in details["thresholds"] if each.threshold == 0.5)
    found = (true & (probabilities > 0.5)).sum()
    assert (row.precision, row.recall) == pytest.approx((found / 80, found / true.sum()))
    for limit, given, has_area in ((119, resampled, False), (119, measured, True), (120, resampled, True)):
        monkeypatch.setattr(label_analysis, "MAX_RESAMPLED_CELLS", limit)
        assert ("auc" in analysis.compute_values(given).measures) == has_area


def test_multilabel_uses_classification_models() -> None:
    model = TASK.build_model(Job.from_fields(task="multilabel", model="mnist_cnn"), CLASSES, 3)
    assert model(torch.rand(2, 3, 28, 28)).shape == (2, CLASSES)
    assert TASK.list_models() == ()
