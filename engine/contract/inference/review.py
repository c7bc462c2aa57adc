"""Review of an evaluation's samples: mistakes of the model, probably wrong labels and duplicates.

A review is saved in `<run>/reviews/<id>.json` (`Review`). Samples that the user marks are exported as a table.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.inference.messages import Order

Split = Literal["train", "val", "test"]


class ReviewOrder(Order, tag="review", frozen=True, kw_only=True):
    """Looks through the samples of `evaluations`, the paths of their folders; () for the newest of the run. With
    several, as of the runs of a cross-validation, each sample should be in one of them. The path of a `Review` is the
    answer.

    `true` and `predicted` are names of classes: the worst samples are then those of the true class, those that were
    taken for the predicted one, or with both those of one cell of the confusion matrix. At most `worst` are listed.
    `labels` looks for wrong labels, `duplicates` for samples that occur twice in the dataset, which reads all of its
    images.
    """

    evaluations: tuple[str, ...] = ()
    worst: int = 1000
    true: str = ""
    predicted: str = ""
    labels: bool = True
    duplicates: bool = True


class _Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields that a later version adds are passed over by this one."""


class ReviewedSample(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """A sample and how the model did on it; what the task does not have is None.

    `path` is as in the evaluation, fit to print; `file` is the path of its own file, "" where it has none. `true` and
    `predicted` are names of classes, and `loss`, `correct` and `confidence` as in
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


class LabelIssue(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """A label that is probably wrong.

    `given` is what the dataset says and `suggested` what the model finds; of samples with several labels, "" stands
    for "not that label": given "cat" and suggested "" that the label cat is too much, given "" and suggested "cat"
    that it is missing. `probability` is the model's of what is given, `suggested_probability` its of what it
    suggests.
    """

    sample: ReviewedSample
    given: str
    suggested: str
    probability: float
    suggested_probability: float


class DuplicatePair(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """Two images that are the same, or nearly. `distance` is in how many of the 64 bits of their perceptual hashes
    they differ; `exact` says that their files are equal byte by byte, `labels_differ` that their classes are not the
    same.
    """

    first: ReviewedSample
    second: ReviewedSample
    distance: int
    exact: bool = False
    labels_differ: bool = False


class Review(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """What was found. `id` names its file, `date` is in UTC as 2026-11-24T13:33:49Z.

    `held_out` says whether no sample was in the training of the model that predicted it, and `origin` in a sentence
    which samples the predictions are of and by what. Only then are `label_issues` worth something, which are
    therefore empty where it is False.

    `worst` are the samples by falling loss, or where the task has none by rising share of what is right.
    `label_issues` come with the most probable errors first; `expected_errors` is how many wrong labels there are by
    estimate. `duplicates` come with pairs of different splits first, those with differing labels before others.
    `missing` says, in sentences, what was left out and why.
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


class Mark(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """Marked sample, a row of the exported table.

    `label` and `prediction` are class names, `new_label` is the suggested label, if any.
    """

    file: str
    reason: str = ""
    label: str = ""
    prediction: str = ""
    new_label: str = ""


decode_review = msgspec.json.Decoder(Review).decode
