"""Messages for the review of an evaluation's samples: mistakes, probably wrong labels and duplicates.

A review is saved in `<run>/reviews/<id>.json` (`Review`). Samples that the user marks are exported as a table.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.inference.messages import Order

Split = Literal["train", "val", "test"]


class ReviewOrder(Order, tag="review", frozen=True, kw_only=True):
    """Request to review the samples of `evaluations`, the paths of their folders; () for the run's latest one.

    Several evaluations, for example from a cross-validation, should cover disjoint samples. The answer is the path of a
    `Review`.

    Attributes:
        worst: Maximum number of worst samples to list.
        true: Restrict the worst samples to this true class.
        predicted: Restrict the worst samples to those mistaken for this class.
        labels: True to search for wrong labels.
        duplicates: True to search for samples that occur twice in the dataset, which reads all of its images.
    """

    evaluations: tuple[str, ...] = ()
    worst: int = 1000
    true: str = ""
    predicted: str = ""
    labels: bool = True
    duplicates: bool = True


class _Saved(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of saved results; unknown fields, which a later version may add, are ignored."""


class ReviewedSample(_Saved, frozen=True, kw_only=True, omit_defaults=True):
    """Sample with the model's result; None if the task has no such value.

    `path` is printable and as in the evaluation; `file` is the path of its file, "" if it has none. `true` and `predicted` are
    class names; `loss`, `correct` and `confidence` are as in `engine.contract.inference.evaluation.Samples`.
    """

    path: str
    file: str = ""
    split: Split
    true: tuple[str, ...] | None = None
    predicted: tuple[str, ...] | None = None
    loss: float | None = None
    correct: float | None = None
    confidence: float | None = None


class LabelIssue(_Saved, frozen=True, kw_only=True, omit_defaults=True):
    """Probably wrong label.

    Attributes:
        given: Label in the dataset; "" if the label `suggested` is missing from a multi-label sample.
        suggested: Label found by the model; "" if the label `given` is superfluous.
        probability: Probability of the given label by the model.
        suggested_probability: Probability of the suggested label.
    """

    sample: ReviewedSample
    given: str
    suggested: str
    probability: float
    suggested_probability: float


class DuplicatePair(_Saved, frozen=True, kw_only=True, omit_defaults=True):
    """Equal or nearly equal images.

    `distance` is the number of different bits of their 64-bit perceptual hashes. With `exact`, the files are equal byte by byte.
    """

    first: ReviewedSample
    second: ReviewedSample
    distance: int
    exact: bool = False
    labels_differ: bool = False


class Review(_Saved, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a review.

    Attributes:
        id: Name of its file.
        date: UTC, as in 2026-11-24T13:33:49Z.
        held_out: True if no sample was in the training of the model that predicted it, which `label_issues` requires.
        origin: Sentence about the samples and the models that predicted them.
        worst: Samples by descending loss, or by ascending correctness for tasks without losses.
        label_issues: Probably wrong labels, the most probable first; empty unless `held_out`.
        expected_errors: Estimated number of wrong labels.
        duplicates: Pairs of duplicates: first those across splits, then those with different labels.
        missing: Sentences about omitted parts, with reasons.
    """

    id: str
    date: str
    run: str
    task: str
    dataset: str
    evaluations: tuple[str, ...]
    classes: tuple[str, ...]
    samples: int
    held_out: bool
    origin: str
    worst: tuple[ReviewedSample, ...] = ()
    label_issues: tuple[LabelIssue, ...] = ()
    expected_errors: int = 0
    duplicates: tuple[DuplicatePair, ...] = ()
    missing: tuple[str, ...] = ()


class Mark(_Saved, frozen=True, kw_only=True, omit_defaults=True):
    """Sample marked by the user, a row of the exported table.

    `label` and `prediction` are class names, and `new_label` is the suggested label, if any.
    """

    file: str
    reason: str = ""
    label: str = ""
    prediction: str = ""
    new_label: str = ""


decode_review = msgspec.json.Decoder(Review).decode
