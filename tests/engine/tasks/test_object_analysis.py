"""Average precision by object size compared with pycocotools, and error types in known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.contract.inference.evaluation import ClassCurves, Interval
from engine.contract.job import Job
from engine.metrics.average_precision import Floats, compute_box_overlaps
from engine.metrics.detection_errors import KINDS, compute_error_costs, find_errors
from engine.tasks.analysis import EvaluatedMetrics, Intervals
from engine.tasks.detection.analysis import SIZES, BoxObjects
from engine.tasks.registry import TASKS
from tests.support.coco_reference import CLASSES, compute_precisions, make_images
from tests.support.dataset_infos import make_dataset_info

SCALE = 5.0


@pytest.mark.parametrize("seed", range(3))
def test_ap_by_size_matches_pycocotools(seed: int) -> None:
    given = make_images(seed)
    metric = BoxObjects(CLASSES, SCALE)
    for image in given:
        found = np.column_stack([image["found"], image["scores"], image["classes"]])
        true = np.column_stack([image["true"], image["true_classes"], image["ignored"]])
        metric.update(torch.from_numpy(found)[None], torch.from_numpy(true)[None])
    found_any = False
    for size, value in metric.compute_precisions_by_size().items():
        theirs = compute_precisions(given, "bbox", size=size, scale=SCALE)
        assert np.nan_to_num(value, nan=-1.0) == pytest.approx(theirs, abs=1e-9)
        found_any |= bool((theirs > 0).any())
        known = theirs[theirs[:, 0] >= 0]
        if len(known):
            assert metric.compute()[f"ap_{size}"] == pytest.approx(known.mean(), abs=1e-9)
    assert found_any
    assert list(metric.compute_precisions_by_size()) == list(SIZES)


def test_object_of_another_size_excuses_one_detection() -> None:
    metric = BoxObjects(1, 1.0)
    found = torch.tensor([[0, 0, 31, 31, 0.9, 0], [1, 1, 32, 32, 0.8, 0], [50, 50, 60, 60, 0.7, 0]])
    true = torch.tensor([[0, 0, 33, 33, 0, 0], [50, 50, 60, 60, 0, 0]])
    metric.update(found[None], true[None])
    assert metric.compute()["ap50_small"] == pytest.approx(0.5)


def test_analysis_counts_objects_by_size_and_image() -> None:
    analysis = (
        TASKS["detection"]
        .create_objective(Job.from_fields(task="detection"), make_dataset_info(CLASSES))
        .create_analysis("abc")
    )
    true = torch.tensor(
        [
            [[0, 0, 16, 16, 0, 0], [20, 0, 68, 48, 1, 0], [0, 50, 8, 58, 1, 1], [70, 0, 86, 16, 2, 0]],
            [[30, 30, 38, 38, 0, 0], *[[0, 0, 0, 0, -1, 0]] * 3],
            [[0, 0, 48, 48, 2, 1], *[[0, 0, 0, 0, -1, 0]] * 3],
        ]
    ).double()
    found = torch.tensor(
        [
            # Right; right; wrong class; on an ignored object; below the threshold of displayed results.
            [[0, 0, 16, 16, 0.9, 0], [20, 0, 68, 48, 0.6, 1], [70, 0, 86, 16, 0.7, 1], [0, 50, 8, 58, 0.8, 1], [0, 0, 9, 9, 0.2, 2]],
            [[0, 0, 9, 9, 0.4, 0], *[[0, 0, 0, 0, -1, 0]] * 4],
            [[0, 0, 24, 24, 0.5, 2], [24, 24, 48, 48, 0.75, 2], *[[0, 0, 0, 0, -1, 0]] * 3],
        ]
    ).double()  # fmt: skip
    columns = analysis.compute_columns(found, true)
    assert columns.correct == pytest.approx([4 / 6, 0.0, 1.0])
    assert columns.true == [(0, 1, 2), (0,), ()]
    assert columns.predicted == [(0, 1, 1, 1), (), (2, 2)]
    assert columns.confidence == pytest.approx([0.75, 0.0, 0.625])
    metrics = analysis.create_metrics(
        2.0
    )  # files of twice the size: the first object has COCO's boundary of 32 x 32 pixels
    for name in metrics:
        metrics[name].update(found, true)
    assert metrics["objects"].counters.tolist() == [[2, 1, 1], [1, 0, 0], [2, 0, 1], [1, 1, 1], [0, 1, 0]]
    computed = metrics["objects"].compute()
    expected = {
        "ap_small": 51 / 202,
        "ap50_small": 51 / 202,
        "ap_medium": 0.5,
        "ap50_medium": 0.5,
        "ap_large": 1.0,
        "ap50_large": 1.0,
    }
    assert computed == pytest.approx(expected)
    shifted = analysis.create_metrics(2.0)["objects"]
    shifted.update(found + torch.tensor([8.0, 0, 8, 0, 0, 0]), true)
    assert shifted.compute()["ap50_large"] > 0.99 > shifted.compute()["ap_large"] > 0
    measured = EvaluatedMetrics(metrics, np.ones(3, np.int64), columns)
    of_ap, *of_ap50 = (Interval(each / 10) for each in range(4))
    intervals = Intervals(per_class={"AP": (of_ap,) * 3, "AP50": of_ap50})
    curves = analysis.compute_curves(measured, intervals)
    assert [(each.class_index, each.positives, each.average_precision) for each in curves] == [
        (number, positives, of_ap50[number]) for number, positives in enumerate((2, 1, 1))
    ]
    # Detections on ignored objects are left out.
    assert [each.thresholds for each in curves] == [pytest.approx(each) for each in ((0.9, 0.4), (0.7, 0.6), (0.2,))]
    assert [each.recall for each in curves] == [(0.5, 0.5), (0, 1), (0,)]
    assert [each.precision for each in curves] == [(1, 0.5), (0, 0.5), (0,)]
    without = analysis.create_metrics(2.0)
    without["objects"].update(found[:, :0], true)
    curves = analysis.compute_curves(EvaluatedMetrics(without, np.ones(3, np.int64), columns), intervals)
    assert curves == tuple(
        ClassCurves(class_index=number, positives=positives) for number, positives in enumerate((2, 1, 1))
    )
    details = analysis.compute_details(measured, Intervals({"ap_small": Interval(0.5), "ap50_large": Interval(1.0)}))
    assert [(each.size, each.objects, each.ap, each.ap50) for each in details["sizes"]] == [
        ("small", 3, Interval(0.5), None), ("medium", 3, None, None), ("large", 1, None, Interval(1.0))
    ]  # fmt: skip
    at_half = next(row for row in details["thresholds"] if row.threshold == 0.5)
    assert (at_half.precision, at_half.recall, at_half.share) == pytest.approx((2 / 3, 2 / 4, 3 / 5))
    assert {each.kind: each.count for each in details["box_errors"] if each.count} == {
        "classification": 1,
        "both": 1,
        "background": 1,
        "missed": 1,
    }


def box(left: float) -> list[float]:
    return [left, 0.0, left + 10.0, 10.0]


# Two classes; objects of class 0 at 0 and 100, of class 1 at 200.
TRUE = np.array([box(0), box(100), box(200)])
TRUE_CLASSES = np.array([0, 0, 1])


def find_error_kinds(
    found: list[tuple[list[float], int, float]],
) -> tuple[dict[str, tuple[int, float]], list[str]]:
    """Find the errors among the detections `found`: tuples of box, class and score.

    Returns the count and the cost in AP50 of each kind of error, and the kind of error of each detection.
    """
    boxes = np.array([each[0] for each in found])
    classes, scores = np.array([each[1] for each in found]), np.array([each[2] for each in found])
    ignored = np.zeros(3, bool)
    errors_found = find_errors(classes, scores, TRUE_CLASSES, ignored, compute_box_overlaps(boxes, TRUE, ignored))
    counts: Floats = np.array([2.0, 1.0])
    missed = np.bincount(errors_found.missed, minlength=2).astype(float)
    kinds = ["right" if number < 0 else KINDS[int(number)] for number in errors_found.rows[:, 3]]
    return compute_error_costs(errors_found.rows, counts, missed), kinds


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ((box(206), 1, 0.8), "localization"),  # IoU 0.25 with the object at 200
        ((box(200), 0, 0.8), "classification"),
        ((box(206), 0, 0.8), "both"),
        ((box(1), 0, 0.8), "duplicate"),  # of the object at 0, which is detected
        ((box(50), 0, 0.8), "background"),
    ],
)
def test_error_kinds_are_classified(wrong: tuple[list[float], int, float], kind: str) -> None:
    found, kinds = find_error_kinds([(box(0), 0, 0.9), (box(100), 0, 0.7), wrong])
    assert sorted(kinds) == sorted(["right", "right", kind])
    assert {name: count for name, (count, _) in found.items() if count} == (
        {kind: 1} if kind in ("localization", "classification") else {kind: 1, "missed": 1}
    )
    # Both objects of class 0 are detected; a wrong detection between them lowers its precision.
    of_class_0 = (51 + 50 * (2 / 3)) / 101 if wrong[1] == 0 else 1.0
    base = of_class_0 / 2
    mended = {"localization": 1.0, "classification": 1.0}.get(kind, 0.5)
    assert found[kind][1] == pytest.approx(mended - base, abs=1e-9)


def test_classification_error_names_the_object_of_the_other_class() -> None:
    """Check that the error names the undetected object of another class, although a detected object overlaps more."""
    overlaps = np.array([[1.0, 0.0, 0.6], [0.7, 0.0, 0.6]])
    found = find_errors(np.array([0, 0]), np.array([0.9, 0.8]), TRUE_CLASSES, np.zeros(3, bool), overlaps)
    assert found.rows[:, 3:].tolist() == [[-1, -1], [KINDS.index("classification"), 1]]


@pytest.mark.parametrize(
    ("overlaps", "kind"),
    [
        ((0.5, 0.0, 0.0), "localization"),  # with an object that is detected
        ((0.1, 0.0, 0.0), "localization"),
        ((0.0, 0.0, 0.5), "classification"),
        ((0.0, 0.0, 0.4), "both"),
        ((0.0, 0.0, 0.1), "background"),
    ],
)
def test_error_kinds_include_their_limits(overlaps: tuple[float, ...], kind: str) -> None:
    both = np.array([[1.0, 0.0, 0.0], overlaps])
    found = find_errors(np.array([0, 0]), np.array([0.9, 0.8]), TRUE_CLASSES, np.zeros(3, bool), both)
    assert found.rows[:, 3].tolist() == [-1, KINDS.index(kind)]  # type: ignore[arg-type]
    corrected_class = 1 if kind == "classification" else -1  # the object of the localization errors is detected
    assert found.rows[1, 4] == corrected_class


def test_missed_objects_cost_recall() -> None:
    found, kinds = find_error_kinds([(box(0), 0, 0.9), (box(200), 1, 0.9)])
    assert kinds == ["right", "right"]
    assert found["missed"] == (1, pytest.approx(1 - (51 / 101 + 1) / 2, abs=1e-9))
    assert all(found[kind] == (0, 0) for kind in KINDS)


def test_ignored_objects_are_not_missed() -> None:
    ignored = np.array([True, False, False, False])
    found = find_errors(
        np.array([0]), np.array([0.9]), np.array([1, 0, 2, 0]), ignored, np.array([[0.0, 0.0, 0.0, 0.9]])
    )
    assert found.missed.tolist() == [0, 2]


def test_most_confident_error_per_object_is_corrected() -> None:
    found, kinds = find_error_kinds([(box(206), 1, 0.8), (box(207), 1, 0.7), (box(200), 0, 0.9)])
    assert sorted(kinds) == ["classification", "localization", "localization"]
    assert found["classification"] == (1, pytest.approx(0.5, abs=1e-9))
    assert found["localization"][1] == 0  # the object is matched with the detection of higher score
    other, _ = find_error_kinds([(box(206), 1, 0.8), (box(200), 0, 0.5)])
    assert (other["localization"], other["classification"]) == ((1, pytest.approx(0.5, abs=1e-9)), (1, 0))
