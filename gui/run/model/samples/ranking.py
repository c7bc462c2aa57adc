"""Filters and orders of the samples of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gui.sources.evaluations import NO_CLASS, Numbers, SampleTable
from gui.translation import tr

MAX_SHOWN = 1000
"""Largest number of samples on the wall."""

Sort = Literal["loss", "correct", "sure", "order"]

SORTS: dict[Sort, tuple[str, str]] = {
    "loss": (tr("Highest loss"), tr("Samples with the highest loss first")),
    "correct": (tr("Least correct"), tr("Samples with the smallest correct fraction first")),
    "sure": (
        tr("Most confident"),
        tr("Samples with the highest confidence first; with Only wrong, overconfident errors"),
    ),
    "order": (tr("Split order"), tr("In the order of the split")),
}


@dataclass(frozen=True)
class Choice:
    """Filter and order of samples.

    Attributes:
        true: Index of the true class, `NO_CLASS` for none of them; None for all.
        predicted: Index of the predicted class, likewise.
        wrong: True for incorrect samples only.
        sort: Order of the samples.
        only: Rows to choose from; None for all.
    """

    true: int | None = None
    predicted: int | None = None
    wrong: bool = False
    sort: Sort = "loss"
    only: frozenset[int] | None = None


def supported_sorts(samples: SampleTable) -> list[Sort]:
    """Return the orders that the table supports, the default first."""
    is_supported = {
        "loss": samples.losses is not None,
        "correct": samples.correct is not None,
        "sure": samples.confidence is not None,
        "order": True,
    }
    return [sort for sort in SORTS if is_supported[sort]]


def rank_samples(samples: SampleTable, choice: Choice) -> Numbers:
    """Return the rows of the matching samples in their order."""
    matches = _mask(samples.true, samples.true_class, choice.true, len(samples))
    matches &= _mask(samples.predicted, samples.predicted_class, choice.predicted, len(samples))
    if choice.wrong and samples.correct is not None:
        matches &= samples.correct < 1
    if choice.only is not None:
        matches &= np.isin(np.arange(len(samples)), list(choice.only))
    rows = np.flatnonzero(matches)
    values = {"loss": samples.losses, "sure": samples.confidence, "correct": samples.correct}.get(choice.sort)
    if values is None:
        return rows
    keys = values[rows] if choice.sort == "correct" else -values[rows]
    return rows[np.argsort(keys, kind="stable")]  # NaN comes last


def _mask(
    lists: tuple[tuple[int, ...], ...] | None, single: Numbers | None, index: int | None, count: int
) -> npt.NDArray[np.bool_]:
    """Return which samples have the class `index`, as a mask."""
    if index is None or lists is None:
        return np.ones(count, np.bool_)
    if single is not None:
        return single == index
    return np.fromiter((index in classes if index != NO_CLASS else not classes for classes in lists), np.bool_, count)
