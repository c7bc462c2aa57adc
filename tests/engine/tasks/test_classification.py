"""Loss and metrics for classification."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.data.mixup import mixup_target
from timm.loss import BinaryCrossEntropy
from torch.nn import functional

from engine.contract.inference.evaluation import ClassCurves, Interval
from engine.contract.job import Job
from engine.tasks.analysis import TASK_METRIC, EvaluatedMetrics, Intervals
from engine.tasks.base import DatasetInfo
from engine.tasks.registry import TASKS
from tests.support.dataset_infos import make_dataset_info
from tests.support.metrics import compute_on_ranks

TASK = TASKS["classification"]
OBJECTIVE = TASK.create_objective(Job(), make_dataset_info(3))


def sample(count: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, classes, generator=generator), torch.randint(0, classes, (count,), generator=generator)


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    classes=st.integers(2, 12),
    ranks=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_metrics_are_independent_of_the_partition(sizes: list[int], classes: int, ranks: int, seed: int) -> None:
    outputs, targets = sample(sum(sizes), classes, seed)
    objective = TASK.create_objective(Job(), make_dataset_info(classes))
    found = compute_on_ranks(objective, outputs, targets, ranks, sizes).compute()
    order = outputs.argsort(1, descending=True)
    hits = order == targets[:, None]
    assert found["top1"] == pytest.approx(hits[:, :1].any(1).float().mean().item())
    if classes > 5:
        assert found["top5"] == pytest.approx(hits[:, :5].any(1).float().mean().item())
    assert found["loss"] == pytest.approx(functional.cross_entropy(outputs, targets).item(), rel=1e-5)
    assert found.keys() == {measure.id for measure in TASK.entry.metrics if not measure.is_always_one(classes)}


@pytest.mark.parametrize("classes", [5, 70])
def test_class_metrics_match_their_definitions(classes: int) -> None:
    outputs, targets = sample(300, classes, 1)
    targets[targets == 2] = 0
    outputs[:, 2] = -9.0  # a class that neither occurs nor is predicted
    measures = TASK.create_objective(Job(), make_dataset_info(classes)).create_metric()
    for some, truth in zip(outputs.split(7), targets.split(7), strict=True):
        measures.update(some, truth)
    found, true = outputs.argmax(1).numpy(), targets.numpy()
    values, confusion = measures.per_class(), measures.confusion()
    for number in range(classes):
        right = np.sum((found == number) & (true == number))
        of = {"Precision": (right, np.sum(found == number)), "Recall": (right, np.sum(true == number))}
        of["F1"] = (2 * right, np.sum(found == number) + np.sum(true == number))
        for title, (numerator, denominator) in of.items():
            assert values[title][number] == (pytest.approx(numerator / denominator) if denominator else None)
    assert values["F1"][2] is None
    if classes == 70:
        assert confusion == ()
        return
    by_hand = [[int(np.sum((true == row) & (found == column))) for column in range(5)] for row in range(5)]
    assert [list(row) for row in confusion] == by_hand


def test_label_smoothing_matches_its_definition() -> None:
    outputs, targets = sample(6, 4, 0)
    smoothed = functional.one_hot(targets, 4) * 0.9 + 0.1 / 4
    expected = -(smoothed * outputs.log_softmax(1)).sum(1)
    objective = TASK.create_objective(Job.from_fields(label_smoothing=0.1), make_dataset_info(4))
    torch.testing.assert_close(objective.loss(outputs, targets), expected)
    measures = objective.create_metric()
    measures.update(outputs, targets)
    plain = functional.cross_entropy(outputs, targets).item()
    assert measures.compute()["loss"] == pytest.approx(plain, rel=1e-6)  # comparable between runs


def test_binary_cross_entropy_matches_timm() -> None:
    outputs, targets = sample(6, 4, 0)
    plain = TASK.create_objective(Job.from_fields(loss="bce", label_smoothing=0.1), make_dataset_info(4)).loss(
        outputs, targets
    )
    torch.testing.assert_close(plain.mean(), BinaryCrossEntropy(smoothing=0.1)(outputs, targets))
    mixed = TASK.create_objective(Job.from_fields(loss="bce", label_smoothing=0.1, mixup=0.2), make_dataset_info(4))
    shares = functional.one_hot(targets, 4) * 0.7 + functional.one_hot(targets.flip(0), 4) * 0.3
    theirs = BinaryCrossEntropy()(outputs, mixup_target(targets, 4, lam=0.7, smoothing=0.1))
    torch.testing.assert_close(mixed.loss(outputs, shares).mean(), theirs)
    assert plain.shape == (6,)


def test_balanced_weights_average_to_one() -> None:
    counts = (60.0, 30.0, 0.0, 10.0)
    objective, binary, mixed = (
        TASK.create_objective(
            Job.from_fields(class_weights="balanced", **fields), DatasetInfo(tuple("abcd"), class_counts=lambda: counts)
        )
        for fields in ({}, {"loss": "bce"}, {"mixup": 0.2})
    )
    targets = torch.tensor([0] * 60 + [1] * 30 + [3] * 10)
    losses = binary.loss(torch.zeros(100, 4), targets) / math.log(2)
    torch.testing.assert_close(losses, torch.full((100,), losses[0].item()))
    one_sided = (
        binary.loss(torch.tensor([[0.0, 90, -90, -90], [-90, 0, -90, -90]]), torch.tensor([1, 1])) * 4 / math.log(2)
    )
    assert (one_sided[1] / one_sided[0]).item() == pytest.approx(2)  # the class of 30 samples has twice the weight
    losses = objective.loss(torch.zeros(100, 4), targets) / math.log(4)
    assert losses.mean().item() == pytest.approx(1)
    assert [losses[targets == number].sum().item() for number in (0, 1, 3)] == pytest.approx([100 / 3] * 3)
    mixed_losses = mixed.loss(torch.zeros(100, 4), functional.one_hot(targets, 4).float())
    torch.testing.assert_close(mixed_losses / math.log(4), losses)


def test_mixed_images_count_by_their_fractions() -> None:
    objective = TASK.create_objective(Job.from_fields(cutmix=0.2), make_dataset_info(3))
    outputs, targets = sample(8, 3, 5)
    shares = 0.7 * functional.one_hot(targets, 3) + 0.3 * functional.one_hot(targets.roll(1), 3)
    expected = 0.7 * functional.cross_entropy(outputs, targets, reduction="none")
    expected += 0.3 * functional.cross_entropy(outputs, targets.roll(1), reduction="none")
    torch.testing.assert_close(objective.loss(outputs, shares), expected)
    found = outputs.argmax(1)
    by_share = 0.7 * (found == targets).sum() + 0.3 * (found == targets.roll(1)).sum()
    torch.testing.assert_close(objective.count_correct(outputs, shares), by_share)
    assert objective.create_blank_targets(outputs).shape == (8, 3)
    measured = [each.create_metric() for each in (objective, OBJECTIVE)]
    measured[0].update(outputs, functional.one_hot(targets, 3).float())
    measured[1].update(outputs, targets)
    assert torch.equal(measured[0].counters, measured[1].counters)
    texts = [objective.show_truth(np.zeros((2, 2, 3), np.uint8), share).text for share in shares]
    assert texts == [f"class {number}" for number in targets.tolist()]


def test_analysis_matches_its_definitions() -> None:
    analysis: Any = OBJECTIVE.create_analysis(("a", "b", "c"))
    shares = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.5, 0.2], [0.25, 0.35, 0.4]])
    columns = analysis.compute_columns(shares.log(), torch.tensor([0, 1, 0, 1]))
    assert (columns.correct, columns.true) == ([1, 1, 0, 0], [(0,), (1,), (0,), (1,)])
    assert (columns.predicted, columns.confidence) == ([(0,), (1,), (1,), (2,)], pytest.approx([0.7, 0.6, 0.5, 0.4]))
    assert columns.probabilities == pytest.approx(shares.numpy())
    of_fractions = analysis.compute_columns(shares.log(), shares[[0, 1, 0, 1]])
    assert (of_fractions.correct, of_fractions.true) == (columns.correct, columns.true)
    analysis.prepare(columns)
    metrics = analysis.create_metrics(1.0)
    metrics[TASK_METRIC].update(shares.log(), torch.tensor([0, 1, 0, 1]))
    for weights, ece, precision_b, area_b in (([1, 1, 1, 1], 0.4, 5 / 6, 3 / 4), ([2, 1, 0, 1], 0.35, 1.0, 1.0)):
        values = analysis.compute_values(EvaluatedMetrics(metrics, np.array(weights), columns))
        expected = {"map": (1 + precision_b) / 2, "auc": (1 + area_b) / 2, "ece": ece, "top1": 0.5}
        assert {name: values.measures[name] for name in expected} == pytest.approx(expected)
        assert values.per_class["AP"] == (1, pytest.approx(precision_b), None)
        assert values.per_class["AUC"][:2] == (1, pytest.approx(area_b))
    measured = EvaluatedMetrics(metrics, np.ones(4, np.int64), columns)
    half, area = Interval(0.5, 0.25, 0.75), Interval(0.6, 0.3, 0.8)
    intervals = Intervals({"ece": half}, {"AP": (half, half, None), "AUC": (area, None, None)})
    details = analysis.compute_details(measured, intervals)
    assert details["calibration"].ece == half
    bins = [each for each in details["calibration"].bins if each.count]
    assert [(each.count, each.confidence, each.accuracy) for each in bins] == [
        (1, pytest.approx(confidence, abs=1e-6), correct)
        for confidence, correct in ((0.4, 0), (0.5, 0), (0.6, 1), (0.7, 1))
    ]
    assert all(each.low - 1e-6 <= each.confidence <= each.high + 1e-6 for each in bins)
    assert {(each.confidence, each.accuracy) for each in details["calibration"].bins if not each.count} == {
        (None, None)
    }
    row = next(each for each in details["thresholds"] if each.threshold == 0.5)
    assert (row.precision, row.recall, row.share) == pytest.approx((2 / 3, 2 / 4, 3 / 4))
    first, second, third = analysis.compute_curves(measured, intervals)
    assert [(each.class_index, each.positives) for each in (first, second, third)] == [(0, 2), (1, 2), (2, 0)]
    assert (first.average_precision, first.auc, second.auc, second.true_positive_rate) == (half, area, None, ())
    assert (first.false_positive_rate, first.true_positive_rate) == ((0, 0, 0, 0.5, 1), (0, 0.5, 1, 1, 1))
    assert third == ClassCurves(class_index=2, positives=0)


def test_metrics_without_samples_are_missing() -> None:
    assert OBJECTIVE.create_metric().compute() == {}


def test_loss_is_per_sample_in_fp32() -> None:
    outputs, targets = sample(6, 4, 0)
    loss = OBJECTIVE.loss(outputs.bfloat16(), targets)
    assert (loss.shape, loss.dtype) == ((6,), torch.float32)
    torch.testing.assert_close(OBJECTIVE.loss(outputs, targets).mean(), functional.cross_entropy(outputs, targets))


def test_correct_predictions_are_counted() -> None:
    outputs, targets = sample(20, 3, 0)
    correct = OBJECTIVE.count_correct(outputs, targets)
    assert correct.shape == ()
    assert correct == sum(int(row.argmax()) == target for row, target in zip(outputs, targets.tolist(), strict=True))


@pytest.mark.parametrize(
    ("model", "size"), [("mnist_cnn", 28), ("resnet18", 224), ("inception_v3", 299), ("/my/net.py", 224)]
)
def test_image_size_defaults_to_the_models(model: str, size: int) -> None:
    assert TASK.get_image_size(Job.from_fields(model=model)) == size
    assert TASK.get_image_size(Job.from_fields(model=model, image_size=96)) == 96


@pytest.mark.parametrize(
    ("model", "mean"),
    [
        ("resnet18", 0.485),
        ("efficientnet_v2_l", 0.5),
        ("inception_v3", 0.5),
        ("mnist_cnn", 0.485),
        ("/my/net.py", 0.485),
    ],
)
def test_normalization_matches_the_weights(model: str, mean: float) -> None:
    means, stds = TASK.get_normalization(Job.from_fields(model=model), 3)
    assert (len(means), len(stds), means[0]) == (3, 3, mean)
    gray_mean, gray_std = TASK.get_normalization(Job.from_fields(model=model), 1)
    if model == "mnist_cnn":
        assert (gray_mean, gray_std) == ((0.1307,), (0.3081,))
    else:
        assert gray_mean[0] == pytest.approx(sum(means) / 3)
        assert gray_std[0] == pytest.approx(sum(stds) / 3)


def test_inception_input_matches_its_weights() -> None:
    from torchvision.models import Inception_V3_Weights, inception_v3

    transforms = Inception_V3_Weights.DEFAULT.transforms()
    theirs = inception_v3(weights=None, transform_input=True, init_weights=False)
    image = torch.rand(1, 3, 8, 8)
    imagenet = (image - torch.tensor(transforms.mean)[:, None, None]) / torch.tensor(transforms.std)[:, None, None]
    means, stds = (
        torch.tensor(each)[:, None, None] for each in TASK.get_normalization(Job.from_fields(model="inception_v3"), 3)
    )
    torch.testing.assert_close(theirs._transform_input(imagenet), (image - means) / stds)
