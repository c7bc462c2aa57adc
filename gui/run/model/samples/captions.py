"""Captions of samples."""

from __future__ import annotations

import math

from gui.format import localised
from gui.run.model.evaluation_format import format_classes
from gui.sources.evaluations import OpenedEvaluation
from gui.translation import tr


def short_caption(opened: OpenedEvaluation, row: int) -> tuple[str, str]:
    """Return two lines such as "rose → tulip" and "loss 2.31 · 83 % sure"."""
    samples, classes = opened.samples, opened.evaluation.classes
    first = samples.paths[row]
    if samples.true is not None and samples.predicted is not None:
        true, predicted = format_classes(classes, samples.true[row]), format_classes(classes, samples.predicted[row])
        first = true if true == predicted else f"{true} → {predicted}"
    return first, " · ".join(_numbers(opened, row))


def full_caption(opened: OpenedEvaluation, row: int, truth: str = "", prediction: str = "") -> str:
    """Return a line such as "Truth: rose · Prediction: tulip · Loss 2.31 · Confidence 83.1 %".

    `truth` and `prediction` are texts of the task, used instead of class names.
    """
    samples, classes = opened.samples, opened.evaluation.classes
    parts = []
    for title, text, column in ((tr("Truth"), truth, samples.true), (tr("Prediction"), prediction, samples.predicted)):
        if text or column is not None:
            parts.append(f"{title}: {text or format_classes(classes, column[row] if column is not None else ())}")
    parts += [f"{part[:1].upper()}{part[1:]}" for part in _numbers(opened, row, short=False)]
    return " · ".join(parts)


def _numbers(opened: OpenedEvaluation, row: int, short: bool = True) -> list[str]:
    samples = opened.samples
    parts = []
    if samples.losses is not None and not math.isnan(samples.losses[row]):
        parts.append(f"loss {localised(samples.losses[row], 2 if short else 4)}")
    if samples.confidence is not None and not math.isnan(samples.confidence[row]):
        confidence = 100 * samples.confidence[row]
        parts.append(f"{confidence:.0f} % sure" if short else f"confidence {localised(confidence, 1)} %")
    if samples.true_class is None and samples.correct is not None and not math.isnan(samples.correct[row]):
        correct = 100 * samples.correct[row]
        parts.append(f"{correct:.0f} % correct" if short else f"{localised(correct, 1)} % correct")
    return parts


def predicted_class(opened: OpenedEvaluation, row: int) -> str:
    """Return the predicted class, "" for none or several."""
    single, classes = opened.samples.predicted_class, opened.evaluation.classes
    return classes[single[row]] if single is not None and 0 <= single[row] < len(classes) else ""
