"""Order and answers of the finders of a learning rate and a batch size (``python -m engine.advisor``)."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.job import Job
from engine.contract.messages import Done, Progress, Refused

Finder = Literal["rate", "batch"]


class FinderOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request for a finder."""

    finder: Finder
    job: Job


class RatePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step of the rate finder: learning rate, loss before the step, and smoothed loss."""

    rate: float
    loss: float
    smoothed: float


class RateFound(msgspec.Struct, tag="rate", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of training with a rising learning rate.

    Attributes:
        points: Steps in order.
        suggestion: Suggested rate; None if the curve suggests none.
        why: Reason for the suggestion, or for its absence, in a sentence.
        remedy: Advice if there is no suggestion.
        steepest: Rate at which the smoothed loss falls fastest.
        valley: Default suggestion of fastai.
        smoothing: Standard deviation of the smoothing Gaussian, in decades of the rate.
        diverged: The training was stopped because the loss exploded.
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
    """Tried batch size; only `size` is known of one that did not fit.

    Attributes:
        memory_bytes: Peak use of the memory that is closest to its limit.
        limit_bytes: Capacity of that memory.
        limit: Name of that memory: "memory", "GPU 0".
    """

    size: int
    fits: bool
    images_per_second: float | None = None
    memory_bytes: int | None = None
    limit_bytes: int | None = None
    limit: str = ""


class BatchFound(msgspec.Struct, tag="batch", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of trying batch sizes, each the total over all devices.

    Attributes:
        trials: Tried sizes in ascending order.
        largest: Largest size that fits, verified by training steps; None if none fits.
        knee: Smallest size that no larger one beats by 5 %.
        ended_by: Reason why no larger size was tried: memory, the number of training images, or the time limit.
        why: Explanation in words.
        remedy: Advice if no size fits.
    """

    trials: tuple[BatchTrial, ...]
    largest: int | None
    knee: int | None
    ended_by: Literal["memory", "dataset", "time"] = "memory"
    why: str
    remedy: str = ""


FINDING = msgspec.json.Decoder(Progress | Refused | Done[RateFound | BatchFound])
