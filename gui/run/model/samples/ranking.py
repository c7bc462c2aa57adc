"""Which samples of an evaluation are looked at, and in which order: the worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gui.sources.evaluations import NO_CLASS, Numbers, SampleTable

MOST = 1000
"""Samples that are listed at most."""

Sort = Literal["loss", "correct", "sure", "order"]

SORTS: dict[Sort, tuple[str, str]] = {
    "loss": ("Highest loss", "The samples that the loss says most about come first"),
    "correct": ("Least right", "The samples of which the smallest share is right come first"),
    "sure": ("Surest", "The samples that the model is surest of come first: with Wrong alone, its boldest errors"),
    "order": ("As in the folder", "In the order of the split"),
}


@dataclass(frozen=True)
class Choice:
    """Which samples are asked for: of that true class, taken for that class (indices, None for all), the wrong ones
    alone, those of `only` (row numbers), in the order of `sort`. `NO_CLASS` stands for none of the classes.
    """

    true: int | None = None
    predicted: int | None = None
    wrong: bool = False
    sort: Sort = "loss"
    only: frozenset[int] | None = None


def sorts_of(samples: SampleTable) -> list[Sort]:
    """The orders that samples can be put in, the usual one first."""
    there = {
        "loss": samples.losses is not None,
        "correct": samples.correct is not None,
        "sure": samples.confidence is not None,
        "order": True,
    }
    return [sort for sort in SORTS if there[sort]]


def ranked(samples: SampleTable, choice: Choice) -> Numbers:
    """The row numbers of all samples that are asked for, the first to be shown first."""
    wanted = _mask(samples.true, samples.true_class, choice.true, len(samples))
    wanted &= _mask(samples.predicted, samples.predicted_class, choice.predicted, len(samples))
    if choice.wrong and samples.correct is not None:
        wanted &= samples.correct < 1
    if choice.only is not None:
        wanted &= np.isin(np.arange(len(samples)), list(choice.only))
    rows = np.flatnonzero(wanted)
    by = {"loss": samples.losses, "sure": samples.confidence, "correct": samples.correct}.get(choice.sort)
    if by is None:
        return rows
    keys = by[rows] if choice.sort == "correct" else -by[rows]
    return rows[np.argsort(keys, kind="stable")]  # what is not known comes last


def _mask(
    lists: tuple[tuple[int, ...], ...] | None, single: Numbers | None, wanted: int | None, count: int
) -> npt.NDArray[np.bool_]:
    """Which samples have the class `wanted`."""
    if wanted is None or lists is None:
        return np.ones(count, np.bool_)
    if single is not None:
        return single == wanted
    return np.fromiter((wanted in of if wanted != NO_CLASS else not of for of in lists), np.bool_, count)
