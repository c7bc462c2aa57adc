"""What is said of one sample, in short under its image and in full beside it."""

from __future__ import annotations

import math

from gui.format import localised
from gui.run.model.words import class_words
from gui.sources.evaluations import OpenedEvaluation


def short_caption(opened: OpenedEvaluation, row: int) -> tuple[str, str]:
    """Two lines: "rose → tulip" and "loss 2.31 · 83 %"."""
    samples, classes = opened.samples, opened.evaluation.classes
    first = samples.paths[row]
    if samples.true is not None and samples.predicted is not None:
        true, predicted = class_words(classes, samples.true[row]), class_words(classes, samples.predicted[row])
        first = true if true == predicted else f"{true} → {predicted}"
    return first, " · ".join(_numbers(opened, row))


def full_caption(opened: OpenedEvaluation, row: int, truth: str = "", prediction: str = "") -> str:
    """ "Truth: rose · Prediction: tulip · Loss 2.31 · Confidence 83.1 %"; `truth` and `prediction` are in the task's
    own words, if any.
    """
    samples, classes = opened.samples, opened.evaluation.classes
    parts = []
    for title, words, column in (("Truth", truth, samples.true), ("Prediction", prediction, samples.predicted)):
        if words or column is not None:
            parts.append(f"{title}: {words or class_words(classes, column[row] if column is not None else ())}")
    parts += [f"{part[:1].upper()}{part[1:]}" for part in _numbers(opened, row, short=False)]
    return " · ".join(parts)


def _numbers(opened: OpenedEvaluation, row: int, short: bool = True) -> list[str]:
    samples = opened.samples
    parts = []
    if samples.losses is not None and not math.isnan(samples.losses[row]):
        parts.append(
            f"loss {localised(samples.losses[row], 2)}" if short else f"loss {localised(samples.losses[row], 4)}"
        )
    if samples.confidence is not None and not math.isnan(samples.confidence[row]):
        sure = 100 * samples.confidence[row]
        parts.append(f"{sure:.0f} % sure" if short else f"confidence {localised(sure, 1)} %")
    whole = samples.true_class is not None
    if not whole and samples.correct is not None and not math.isnan(samples.correct[row]):
        right = 100 * samples.correct[row]
        parts.append(f"{right:.0f} % right" if short else f"{localised(right, 1)} % right")
    return parts


def predicted_class(opened: OpenedEvaluation, row: int) -> str:
    """The name of the one class that is predicted for a sample, "" where that is none or several."""
    single, classes = opened.samples.predicted_class, opened.evaluation.classes
    return classes[single[row]] if single is not None and 0 <= single[row] < len(classes) else ""
