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
    """How far it has come: `fraction` is from 0 to 1, `what` a short sentence on what is being done, `seconds_left` None
    while it cannot be told."""

    fraction: float
    what: str
    seconds_left: float | None = None


class RatePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step: the learning rate that it was made with, its loss before it, and the smoothed loss up to it."""

    rate: float
    loss: float
    smoothed: float


class RateFound(msgspec.Struct, tag="rate", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training with a rising learning rate. `points` are its steps in order.

    `suggestion` is None where the curve suggests none; `why` says in a sentence where it comes from, or why there is none,
    and `remedy` what to do then. `steepest` is where the smoothed loss falls fastest, `minimum_tenth` a tenth of the rate
    where it is least. `smoothing` is the decay per step of the smoothed loss. `diverged`: the loss rose so far that the
    training was broken off.
    """

    points: tuple[RatePoint, ...]
    suggestion: float | None
    why: str
    remedy: str = ""
    steepest: float | None = None
    minimum_tenth: float | None = None
    smoothing: float
    diverged: bool


class FinderFailed(msgspec.Struct, tag="failed", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """The last line where the trial itself failed: the field to mark, why, and what to do."""

    problem: Problem


FinderMessage = FinderProgress | RateFound | FinderFailed
"""One line of a finder's output."""

FINDING = msgspec.json.Decoder(FinderMessage)
