"""Messages for reviewing the samples in an evaluation: mistakes, labels that are probably wrong, and duplicates.

A review is saved in `<run>/reviews/<id>.json` (`Review`). Samples that the user marks are exported as a table.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.inference.evaluation import SavedResult
from engine.contract.inference.messages import InferenceRequest

Split = Literal["train", "val", "test"]

MAX_ERROR_FRACTION = 0.1
"""Maximum expected fraction of wrong labels. If more are expected, the model is too weak to find wrong labels."""


class ReviewRequest(InferenceRequest, tag="review", frozen=True, kw_only=True):
    """Request to review the samples in `evaluations`, the paths of their folders.

    Several evaluations, for example from a cross-validation, should cover disjoint samples. With (), the run's latest
    evaluation is reviewed. The answer is the path of a `Review`.

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


class ReviewedSample(SavedResult, frozen=True, kw_only=True):
    """Sample with the model's result. Values that the task doesn't have are None.

    `path` is the same printable path as in the evaluation. `file` is the path of its file, or "" if it has none. `true`
    and `predicted` are class names. `loss`, `correct` and `confidence` are the same as in
    `engine.contract.inference.evaluation.Samples`.
    """

    path: str
    file: str = ""
    split: Split
    true: tuple[str, ...] | None = None
    predicted: tuple[str, ...] | None = None
    loss: float | None = None
    correct: float | None = None
    confidence: float | None = None


class LabelIssue(SavedResult, frozen=True, kw_only=True):
    """Label that is probably wrong.

    Attributes:
        given: Label in the dataset, or "" if the label `suggested` is missing from a multi-label sample.
        suggested: Label found by the model, or "" if the label `given` is superfluous.
        probability: Probability of the given label according to the model.
    """

    sample: ReviewedSample
    given: str
    suggested: str
    probability: float
    suggested_probability: float


class DuplicatePair(SavedResult, frozen=True, kw_only=True):
    """Equal or nearly equal images.

    `distance` is the number of different bits in their 64-bit perceptual hashes. If `exact` is True, the files are
    equal byte by byte.
    """

    first: ReviewedSample
    second: ReviewedSample
    distance: int
    exact: bool = False
    labels_differ: bool = False


class Review(SavedResult, frozen=True, kw_only=True):
    """Result of a review.

    Attributes:
        id: Name of its file.
        date: UTC, as in 2026-11-24T13:33:49Z.
        checked_samples: Number of held-out samples, whose labels were checked.
        held_out: True if no sample was used to train the model that predicted it.
        origin: Sentence about the samples and the models that predicted them.
        worst: Samples by descending loss, or by ascending correctness for tasks without losses.
        label_issues: Labels of held-out samples that are probably wrong, most likely first.
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
    checked_samples: int
    held_out: bool
    origin: str
    worst: tuple[ReviewedSample, ...] = ()
    label_issues: tuple[LabelIssue, ...] = ()
    expected_errors: int = 0
    duplicates: tuple[DuplicatePair, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_model_weak(self) -> bool:
        """Return True if `label_issues` are more likely to be mistakes of the model than wrong labels."""
        return self.expected_errors > MAX_ERROR_FRACTION * self.checked_samples


class MarkedSample(SavedResult, frozen=True, kw_only=True):
    """Sample marked by the user, which becomes a row in the exported table.

    `label` and `prediction` are class names, and `new_label` is the suggested label, if any.
    """

    file: str
    reason: str = ""
    label: str = ""
    prediction: str = ""
    new_label: str = ""


decode_review = msgspec.json.Decoder(Review).decode
