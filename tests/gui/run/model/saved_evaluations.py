"""Builders of saved evaluations of 12 images in three classes. Nothing is trained."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from PySide6.QtGui import QColor, QImage

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import (
    CURVES_FILE,
    EVALUATION_FILE,
    PROBABILITIES_FILE,
    RESAMPLES_FILE,
    SAMPLES_FILE,
    Calibration,
    ClassCurves,
    Curves,
    Evaluation,
    EvaluationSplit,
    Interval,
    ReliabilityBin,
    Resamples,
    Samples,
    ThresholdRow,
)
from engine.runs.evaluations import FOLDER, SavedEvaluation
from engine.runs.folder import RunFolder

CLASSES = ("ash", "birch", "cedar")
EACH = 4
TOP1 = Measure("top1", "Top-1 accuracy", True, True)
LOSS = Measure("loss", "Validation loss", False)
COUNT = EACH * len(CLASSES)


def make_dataset(folder: Path) -> Path:
    """Write images of one color to val/CLASS/N.png and return `folder`."""
    for number, name in enumerate(CLASSES):
        (folder / "val" / name).mkdir(parents=True)
        for index in range(EACH):
            image = QImage(12, 8, QImage.Format.Format_RGB32)
            image.fill(QColor.fromHsv(120 * number, 255, 100 + 30 * index))
            assert image.save(str(folder / "val" / name / f"{index}.png"))
    return folder


def make_probabilities(wrong: tuple[int, ...]) -> np.ndarray:
    """Return the probabilities of the classes for 12 samples, float32 [12, 3].

    For the samples in `wrong`, the next class has the highest probability.
    """
    table = np.full((COUNT, len(CLASSES)), 0.1, np.float32)
    for row in range(COUNT):
        predicted = (row // EACH + (row in wrong)) % len(CLASSES)
        table[row, predicted] = 0.6 + 0.02 * row
    return table / table.sum(1, keepdims=True)


def save_evaluation(
    run: RunFolder,
    dataset: Path,
    name: str = "20261124-100000-val",
    *,
    wrong: tuple[int, ...] = (1, 4, 5),
    split: EvaluationSplit = "val",
    date: str = "2026-11-24T10:00:00Z",
) -> SavedEvaluation:
    """Save an evaluation of `run` with predictions for all samples.

    The samples in `wrong` are predicted as the next class.
    """
    table = make_probabilities(wrong)
    true, predicted = np.arange(COUNT) // EACH, table.argmax(1)
    right = (true == predicted).astype(float)
    confusion = np.zeros((3, 3), int)
    np.add.at(confusion, (true, predicted), 1)
    losses = -np.log(table[np.arange(COUNT), true])
    top1 = float(right.mean())
    evaluation = Evaluation(
        id=name,
        date=date,
        run=run.run_id,
        task="classification",
        checkpoint="best.pt",
        sha256="0" * 64,
        dataset=str(dataset),
        split=split,
        classes=CLASSES,
        samples=COUNT,
        entries=(TOP1, LOSS),
        measures={"top1": Interval(top1, top1 - 0.2, top1 + 0.1), "loss": Interval(float(losses.mean()))},
        per_class={"Recall": tuple(Interval(float(confusion[c, c]) / EACH, c / 10, 0.8 + c / 10) for c in range(3))},
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        resamples=40,
        calibration=Calibration(
            ece=Interval(0.062, 0.05, 0.07),
            bins=(
                ReliabilityBin(low=0.6, high=0.8, count=COUNT, confidence=0.7, accuracy=top1),
                ReliabilityBin(low=0.8, high=1.0, count=0, confidence=None, accuracy=None),
            ),
            temperature=1.4,
            ece_before=0.06,
            ece_after=0.02,
        ),
        thresholds=(ThresholdRow(threshold=0.5, share=0.9, precision=top1, recall=0.7, f1=0.72),),
        warnings=("The folder has no dove: nothing can be said of how well the model finds it.",),
    )
    samples = Samples(
        paths=tuple(f"val/{CLASSES[row // EACH]}/{row % EACH}.png" for row in range(COUNT)),
        splits=("val",) * COUNT,
        indices=tuple(range(COUNT)),
        losses=tuple(losses.tolist()),
        correct=tuple(right.tolist()),
        true=tuple((int(each),) for each in true),
        predicted=tuple((int(each),) for each in predicted),
        confidence=tuple(table.max(1).tolist()),
    )
    draws = np.random.default_rng(0).normal(0, 0.01, 40)
    no_gain = np.maximum(draws, 0) * len(wrong)  # the difference of two evaluations' losses has a bound of 0
    curves = Curves(classes=tuple(compute_curve(table, true == c, c) for c in range(3)))
    folder = run.path / FOLDER / name
    folder.mkdir(parents=True)
    for file, content in (
        (SAMPLES_FILE, samples),
        (CURVES_FILE, curves),
        (
            RESAMPLES_FILE,
            Resamples(
                measures={"top1": tuple((top1 + draws * (1 + len(wrong))).tolist()), "loss": tuple(no_gain.tolist())}
            ),
        ),
    ):
        (folder / file).write_bytes(msgspec.msgpack.encode(content))
    np.save(folder / PROBABILITIES_FILE, table)
    (folder / EVALUATION_FILE).write_bytes(msgspec.json.encode(evaluation))
    return SavedEvaluation(folder, evaluation)


def compute_curve(table: np.ndarray, is_class: np.ndarray, index: int) -> ClassCurves:
    """Compute the curves of the class `index` over all thresholds, and the threshold with the best F1.

    `table` contains probabilities, [n, classes]. `is_class` is True for samples of the class, bool [n]. The areas under
    the curves are constants.
    """
    thresholds = np.unique(table[:, index])[::-1].astype(float)
    right = np.array([(table[is_class, index] >= t).sum() for t in thresholds])
    wrong = np.array([(table[~is_class, index] >= t).sum() for t in thresholds])
    f1 = 2 * right / (right + wrong + is_class.sum())
    return ClassCurves(
        class_index=index,
        positives=int(is_class.sum()),
        recall=tuple((right / is_class.sum()).tolist()),
        precision=tuple((right / (right + wrong)).tolist()),
        thresholds=tuple(thresholds.tolist()),
        average_precision=Interval(0.9, 0.8, 1.0),
        false_positive_rate=tuple((wrong / (~is_class).sum()).tolist()),
        true_positive_rate=tuple((right / is_class.sum()).tolist()),
        auc=Interval(0.95),
        best_threshold=float(thresholds[f1.argmax()]),
        best_f1=float(f1.max()),
    )
