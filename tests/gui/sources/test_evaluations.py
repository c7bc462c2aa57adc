"""Saved evaluations: their samples, the evaluations with which they can be compared, and counts at a threshold."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtWidgets import QApplication

from engine.contract.inference.evaluation import SAMPLES_FILE, ClassCurves, Interval
from engine.runs.evaluations import DamagedEvaluation, SavedEvaluation
from gui.sources.evaluations import (
    ConfusionCounts,
    CurveCounts,
    Outcomes,
    SampleTable,
    count_confusion,
    find_comparable_evaluations,
    open_evaluation,
    read_outcomes,
    read_samples,
)
from tests.gui.run.model.saved_evaluations import COUNT, make_dataset, make_probabilities, save_evaluation
from tests.gui.sources.written_runs import write_run


@pytest.fixture
def saved(styled: QApplication, tmp_path: Path) -> SavedEvaluation:
    return save_evaluation(write_run(8, name="ours"), make_dataset(tmp_path / "trees"))


def replace_columns(saved: SavedEvaluation, **changes: object) -> None:
    """Replace columns in the samples file of an evaluation, given by name in `changes`."""
    file = saved.folder / SAMPLES_FILE
    file.write_bytes(msgspec.msgpack.encode(msgspec.msgpack.decode(file.read_bytes()) | changes))


def test_samples_have_class_indices_only_with_single_classes(saved: SavedEvaluation) -> None:
    table = read_samples(saved)
    assert table.true_class is not None
    assert table.true_class.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    replace_columns(saved, true=[[], *([0],) * (COUNT - 1)], losses=[None, *(1.0,) * (COUNT - 1)])
    table = read_samples(saved)
    assert (table.true_class[0], np.isnan(table.losses[:2]).tolist()) == (-1, [True, False])
    replace_columns(saved, true=[[0, 1], *([0],) * (COUNT - 1)])
    table = read_samples(saved)
    assert (table.true_class, table.predicted_class) == (None, None)
    replace_columns(saved, confidence=[0.5])
    with pytest.raises(DamagedEvaluation, match="columns differ"):
        read_samples(saved)


def test_missing_samples_are_reported(saved: SavedEvaluation) -> None:
    file = saved.folder / SAMPLES_FILE
    file.unlink()
    with pytest.raises(DamagedEvaluation) as caught:
        read_samples(saved)
    assert str(caught.value) == f"{file} can't be read: No such file or directory"


def test_comparable_evaluations_have_the_same_samples(saved: SavedEvaluation) -> None:
    dataset, run, other = Path(saved.evaluation.dataset), write_run(8, name="other"), write_run(8, name="elsewhere")
    save_evaluation(run, dataset, "a", date="2026-11-25T10:00:00Z")
    save_evaluation(run, dataset, "b", split="test")
    save_evaluation(other, dataset.parent, "c")
    again = save_evaluation(run, dataset, "d", date="2026-11-26T10:00:00Z")
    found = find_comparable_evaluations(again.evaluation)
    assert [(each.title, each.saved.evaluation.id) for each in found] == [("other", "a"), ("ours", saved.evaluation.id)]


def test_outcomes_include_samples_at_the_threshold(saved: SavedEvaluation) -> None:
    has_class = np.array([False, True, False, True, True])
    counted = Outcomes(np.array([0.2, 0.5, 0.5, 0.9, 0.1], np.float32), has_class)
    assert counted.at(0.5) == ConfusionCounts(true_positives=2, false_positives=1, false_negatives=1, true_negatives=1)
    assert counted.at(0.95) == ConfusionCounts(0, 0, 3, 2)
    table = make_probabilities(())
    table[[0, 5], 0] = np.nan
    np.save(saved.probabilities_file, table)
    opened = open_evaluation(saved)
    # Samples with unknown probabilities are left out.
    assert read_outcomes(opened, opened.curves.classes[0]).at(0.0) == ConfusionCounts(3, 7, 0, 0)
    np.save(saved.probabilities_file, np.repeat(np.eye(3), 4, axis=0)[:, [1, 2, 0]])
    assert read_outcomes(opened, opened.curves.classes[2]).at(0.5) == ConfusionCounts(0, 4, 4, 4)
    for damaged in (table[:-1], table[:, :1]):
        np.save(saved.probabilities_file, damaged)
        with pytest.raises(DamagedEvaluation, match="can't be read"):
            read_outcomes(opened, opened.curves.classes[1])
    saved.probabilities_file.unlink()
    assert isinstance(read_outcomes(opened, opened.curves.classes[1]), CurveCounts)


@pytest.mark.parametrize(
    ("threshold", "counts"),
    [
        (0.2, ConfusionCounts(3, None, 1, None)),
        (0.6, ConfusionCounts(2, 1, 2, None)),
        (0.7, ConfusionCounts(1, 0, 3, None)),
        (0.95, ConfusionCounts(0, 0, 4, None)),
    ],
)
def test_counts_follow_the_curve_without_probabilities(threshold: float, counts: ConfusionCounts) -> None:
    curve = ClassCurves(
        class_index=0, positives=4, recall=(0.25, 0.5, 0.75), precision=(1.0, 2 / 3, 0.0), thresholds=(0.9, 0.6, 0.3),
        average_precision=Interval(0.5),
    )  # fmt: skip
    assert CurveCounts(curve).at(threshold) == counts


@pytest.mark.parametrize(
    ("counts", "ratios"),
    [
        (ConfusionCounts(0, None, 4, None), (0.0, 0.0, None, 0.0)),  # false positives are unknown
        (ConfusionCounts(1, 3, 0, None), (1 / 4, 1.0, None, 2 / 5)),
        (ConfusionCounts(0, 0, 0, 0), (None, None, None, None)),
        (ConfusionCounts(1, 3, 4, 2), (1 / 4, 1 / 5, 3 / 5, 2 / 9)),
    ],
)
def test_ratios_of_counts(counts: ConfusionCounts, ratios: tuple[float | None, ...]) -> None:
    assert (counts.precision, counts.recall, counts.false_positive_rate, counts.f1) == ratios


def test_confusion_counts_uncertain_samples_as_no_class() -> None:
    samples = SampleTable(
        true_class=np.array([0, 0, 1, 1, -1, 2, 1]),
        predicted_class=np.array([0, 1, 1, -1, 0, 0, 3]),
        confidence=np.array([0.9, 0.5, 0.4, 0.9, 0.9, 0.9, 0.9]),
    )
    assert count_confusion(samples, 2, 0.5).tolist() == [[1, 1, 0], [0, 0, 2], [0, 0, 0]]
    assert count_confusion(SampleTable(), 2, 0.5) is None
