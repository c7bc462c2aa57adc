"""What ``python -m engine.advisor`` is asked, and what it says: how far it has come, then what it found or why nothing.

It reads one `FinderOrder` as JSON from its standard input, which it reads to the end, and prints a message a line.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.job import Job
from engine.contract.problems import Problem

Finder = Literal["rate", "batch"]


class FinderOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which finder is to try which job."""

    finder: Finder
    job: Job


class FinderProgress(msgspec.Struct, tag="progress", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """How far it has come: `fraction` is from 0 to 1, `what` a short sentence on what is being done, `seconds_left`
    None while it cannot be told.
    """

    fraction: float
    what: str
    seconds_left: float | None = None


class RatePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step: the learning rate that it was made with, its loss before it, and the smoothed loss there."""

    rate: float
    loss: float
    smoothed: float


class RateFound(msgspec.Struct, tag="rate", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training with a rising learning rate. `points` are its steps in order.

    `suggestion` is None where the curve suggests none; `why` says in a sentence where it comes from, or why there is
    none, and `remedy` what to do then. `steepest` is where the smoothed loss falls fastest, `valley` what fastai
    suggests by default. `smoothing` is the standard deviation, in decades of the rate, of the Gaussian that smooths.
    `diverged`: the loss rose so far that the training was broken off.
    """

    points: tuple[RatePoint, ...]
    suggestion: float | None
    why: str
    remedy: str = ""
    steepest: float | None = None
    valley: float | None = None
    smoothing: float
    diverged: bool


class BatchTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A batch size that was tried. Of one that did not fit nothing else is known. `memory_bytes` is the most that was
    used of what is nearest to running out, `limit_bytes` what there is of it, and `limit` its name: "memory", "GPU
    0".
    """

    size: int
    fits: bool
    images_per_second: float | None = None
    memory_bytes: int | None = None
    limit_bytes: int | None = None
    limit: str = ""


class BatchFound(msgspec.Struct, tag="batch", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Batch sizes over all devices together, by size. `largest` is the largest that fits, by steps that were made
    with it, None where none does; `knee` the smallest for which no larger one is faster by 5 %. `ended_by` says why
    no larger size was tried: it would not fit into memory, have more images than the training split, or take longer
    than the finder may. `why` says all this in words, `remedy` what to do where none fits.
    """

    trials: tuple[BatchTrial, ...]
    largest: int | None
    knee: int | None
    ended_by: Literal["memory", "dataset", "time"] = "memory"
    why: str
    remedy: str = ""


class FinderFailed(msgspec.Struct, tag="failed", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """The last line where the trial itself failed: the field to mark, why, and what to do."""

    problem: Problem


FinderMessage = FinderProgress | RateFound | BatchFound | FinderFailed
"""One line of a finder's output."""

FINDING = msgspec.json.Decoder(FinderMessage)
