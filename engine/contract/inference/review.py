"""How the samples of an evaluation are reviewed: where the model is wrong, where the labels may be, what occurs twice.

A review is a file, `<run>/reviews/<id>.json` (`Review`). What a user then marks is written as a table, or into a copy
of the dataset, whose changes are kept in `CHANGES_FILE` in it, so that they can be undone.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.inference.messages import Order

CHANGES_FILE = "footplate-changes.json"
"""In a copy of a dataset: `Changes`, what makes it differ from the dataset."""

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
    """A sample that a user has marked. `reason` is in words; `label` and `prediction` are for the table. With a
    `new_label` its label is to be that, else the sample is to go.
    """

    file: str
    reason: str = ""
    label: str = ""
    prediction: str = ""
    new_label: str = ""


class MarkOrder(Order, tag="mark", frozen=True, kw_only=True):
    """Writes `marks` as the table `csv`, and a copy of the run's dataset without the samples that are to go, and with
    the new labels of others, into the new folder `copy`; "" for neither. `undo` is such a copy, in which all is to be
    as in the dataset again. The path of a `Marked` is the answer. Nothing of the dataset itself is changed.
    """

    marks: tuple[Mark, ...] = ()
    csv: str = ""
    copy: str = ""
    undo: str = ""


class Change(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """A sample that differs in a copy. `original` is its file in the dataset, `path` where an unchanged copy has it,
    and `moved_to` where it lies now, "" where it was left out; both are relative to the copy.
    """

    original: str
    path: str
    moved_to: str = ""
    reason: str = ""


class Changes(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """All that makes a copy differ from the folder `dataset`."""

    dataset: str
    changes: tuple[Change, ...] = ()


class Marked(_Kept, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a `MarkOrder`: what was written, and how many samples were left out, relabelled, or put back."""

    csv: str = ""
    copy: str = ""
    files: int = 0
    linked: int = 0
    removed: int = 0
    relabelled: int = 0
    restored: int = 0


decode_review = msgspec.json.Decoder(Review).decode
decode_changes = msgspec.json.Decoder(Changes).decode
decode_marked = msgspec.json.Decoder(Marked).decode
