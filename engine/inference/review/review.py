"""Review the samples in evaluations: the worst ones, wrong labels, and duplicates."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from engine.contract.catalogue import PredictionKind, predictions_of, suggest_name
from engine.contract.inference.review import DuplicatePair, LabelIssue, Review, ReviewedSample, ReviewRequest
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.data.datasets.images import ImageSet
from engine.data.decoding.reading import read_image
from engine.data.splits import Labels
from engine.inference.devices import OnProgress
from engine.inference.evaluation.dataset import EvaluationData, open_data
from engine.inference.review.duplicates import MAX_IMAGES, Pair, compute_fingerprints, find_pairs
from engine.inference.review.label_errors import (
    Probabilities,
    compute_label_margins,
    estimate_error_count,
    find_wrong_labels,
)
from engine.inference.review.samples import ReviewedData, collect_samples, find_displayed_file
from engine.inference.trained_model import CannotLoad, read_training
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.format import counted
from engine.system.regular_files import UnusableFile

FOLDER = "reviews"
MAX_PAIRS = 10_000


def review(request: ReviewRequest, on_progress: OnProgress) -> Path:
    """Review evaluations as `request` describes, and return the path of the file with the `Review`.

    Raises CannotLoad.
    """
    run = RunFolder(request.run)
    on_progress(Progress(fraction=0.0, what="Reading the evaluation"))
    reviewed = collect_samples(run, request.evaluations)
    evaluation = reviewed.evaluations[0].evaluation
    _check_classes(request, evaluation.classes)
    issues, expected = _find_label_issues(reviewed) if request.labels else ([], 0)
    pairs = _find_duplicates(run, reviewed, on_progress) if request.duplicates else []
    result = Review(
        id=f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}",
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        run=run.run_id,
        task=evaluation.task,
        dataset=evaluation.dataset,
        evaluations=tuple(str(each.folder) for each in reviewed.evaluations),
        classes=evaluation.classes,
        samples=len(reviewed.samples),
        checked_samples=int(reviewed.held_out.sum()),
        held_out=bool(reviewed.held_out.all()),
        origin=_describe_origin(reviewed),
        worst=tuple(_select_worst_samples(reviewed.samples, request)),
        label_issues=tuple(issues),
        expected_errors=expected,
        duplicates=tuple(pairs),
        missing=tuple(reviewed.missing),
    )
    try:
        file = paths.make_private_folder(run.path / FOLDER) / f"{result.id}.json"
        paths.write_atomically(file, msgspec.json.encode(result))
    except OSError as error:
        message = f"The review can't be written to {run.path}: {error.strerror}."
        raise CannotLoad(Problem("run", message, "Free some space, or check the permissions.")) from error
    return file


def _check_classes(request: ReviewRequest, classes: Sequence[str]) -> None:
    """Raise CannotLoad if the request filters samples by a class that the model does not have."""
    problems = [
        Problem(field, f"The model has no class “{name}”.", suggest_name(name, list(classes)))
        for field, name in (("true", request.true), ("predicted", request.predicted))
        if name and name not in classes
    ]
    if problems:
        raise CannotLoad(*problems)


def _describe_origin(reviewed: ReviewedData) -> str:
    """Describe in a sentence which samples the predictions cover, and which models made them.

    Of one evaluation, the sentence names the run, the splits and the number of training samples. Of several, it only
    counts the runs, and adds that there are no training samples if that is so.
    """
    samples = counted(len(reviewed.samples), "sample")
    training_count = int((~reviewed.held_out).sum())
    if len(reviewed.evaluations) == 1:
        name = reviewed.evaluations[0].evaluation.run
        splits = ", ".join(sorted({sample.split for sample in reviewed.samples}))
        number_in_training = f"{training_count:,} of which were" if training_count else "none of which was"
        return f"Predictions of {name} for {samples} ({splits}), {number_in_training} in its training."
    runs = counted(len({each.evaluation.run for each in reviewed.evaluations}), "run")
    if training_count:
        return f"Predictions of {runs} for {samples}."
    return f"Predictions of {runs} for {samples}, none of which was in the training of the run that predicted it."


def _select_worst_samples(samples: Sequence[ReviewedSample], request: ReviewRequest) -> list[ReviewedSample]:
    """Return the `request.worst` worst samples among those with the requested true and predicted class.

    They are sorted by descending loss or, without losses, by the fraction of the prediction that is correct, lowest
    first.
    """
    chosen = [
        sample
        for sample in samples
        if (not request.true or request.true in (sample.true or ()))
        and (not request.predicted or request.predicted in (sample.predicted or ()))
    ]

    def compute_badness(sample: ReviewedSample) -> float:
        """Return the sort key of a sample, which is larger for a worse prediction. An undefined loss is the worst."""
        if sample.loss is not None:
            return sample.loss if not np.isnan(sample.loss) else float("inf")
        return -sample.correct if sample.correct is not None else 0.0

    return sorted(chosen, key=compute_badness, reverse=True)[: request.worst]


def _find_label_issues(reviewed: ReviewedData) -> tuple[list[LabelIssue], int]:
    """Find labels of held-out samples that are probably wrong.

    Returns the issues, most likely first, and the estimated number of all wrong labels. Reasons for omitted samples are
    added to `reviewed.missing`.
    """
    if reviewed.probabilities is None or reviewed.true is None:
        reviewed.missing.append("Wrong labels are looked for where samples have classes, which this task's don't.")
        return [], 0
    if not reviewed.held_out.all():
        count = int((~reviewed.held_out).sum())
        reviewed.missing.append(
            f"{counted(count, 'sample')} the model was trained with are left out of the search for wrong labels. "
            "A cross-validation includes them (footplate review RUN --cross-validate 5)."
        )
    rows = np.flatnonzero(reviewed.held_out).tolist()
    if not rows:
        return [], 0
    probabilities = reviewed.probabilities[rows].astype(np.float64)
    samples = [reviewed.samples[row] for row in rows]
    true = [reviewed.true[row] for row in rows]
    classes = reviewed.evaluations[0].evaluation.classes
    issues_by_margin: list[tuple[float, LabelIssue]] = []
    expected_count = 0.0
    if predictions_of(reviewed.evaluations[0].evaluation.task) == "class":
        labels = np.array([numbers[0] for numbers in true], np.int64)
        expected_count = estimate_error_count(probabilities, labels)
        issues_by_margin += _find_class_issues(samples, probabilities, labels, classes)
    else:  # each label separately, as a binary classification
        for number, name in enumerate(classes):
            absent_or_present = np.stack([1 - probabilities[:, number], probabilities[:, number]], 1)
            labels = np.array([number in numbers for numbers in true], np.int64)
            expected_count += estimate_error_count(absent_or_present, labels)
            issues_by_margin += _find_class_issues(samples, absent_or_present, labels, ("", name))
    # The lowest margin means the most likely error.
    return [issue for _, issue in sorted(issues_by_margin, key=lambda each: each[0])], round(expected_count)


def _find_class_issues(
    samples: Sequence[ReviewedSample], probabilities: Probabilities, labels: Labels, names: Sequence[str]
) -> Iterator[tuple[float, LabelIssue]]:
    """Yield the margin and the issue of each label that is probably wrong.

    The margin is the probability of the label minus that of the most likely other class, so the lowest margin means the
    most likely error. `probabilities` [n, K] and `labels` [n] are those of the samples, and `names` are the names of
    the K classes.
    """
    margins = compute_label_margins(probabilities, labels)
    for row in np.flatnonzero(find_wrong_labels(probabilities, labels)).tolist():
        given, suggested = int(labels[row]), int(probabilities[row].argmax())
        yield (
            float(margins[row]),
            LabelIssue(
                sample=samples[row],
                given=names[given],
                suggested=names[suggested],
                probability=float(probabilities[row, given]),
                suggested_probability=float(probabilities[row, suggested]),
            ),
        )


def _find_duplicates(run: RunFolder, reviewed: ReviewedData, on_progress: OnProgress) -> list[DuplicatePair]:
    """Find pairs of duplicates in the dataset of the first evaluation.

    Pairs across splits come first, then pairs with different labels. Reasons for omitted images are added to
    `reviewed.missing`.
    """
    if reviewed.data is None:  # no dataset can be opened, for the reasons in `missing`
        return []
    training = read_training(run)
    # All splits, while `reviewed.data` has only those that were evaluated.
    data = open_data(training, reviewed.evaluations[0].evaluation.dataset, "all")
    if not all(isinstance(samples, ImageSet) for _, samples in data.splits):
        reviewed.missing.append("Duplicates are looked for among images, which this task's samples are not.")
        return []
    if len(data) > MAX_IMAGES:
        reviewed.missing.append(f"Duplicates were not looked for: there are more than {MAX_IMAGES:,} images.")
        return []
    splits = [samples for _, samples in data.splits if isinstance(samples, ImageSet)]

    def report_progress(done: int) -> None:
        if done % 100 == 0:
            on_progress(Progress(fraction=done / len(data), what="Comparing images"))

    on_progress(Progress(fraction=0.0, what="Comparing images"))
    prints = compute_fingerprints(splits, training.channels, max(1, training.job.data.loader_workers), report_progress)
    if unread_count := int((~prints.is_readable).sum()):
        reviewed.missing.append(f"{counted(unread_count, 'image')} can't be read and were not compared.")
    evaluation = reviewed.evaluations[0].evaluation
    samples = _list_samples(data, predictions_of(evaluation.task), evaluation.classes)
    pairs = [_describe_pair(samples, pair) for pair in find_pairs(prints)]
    pairs.sort(key=lambda each: (each.first.split == each.second.split, not each.labels_differ, each.distance))
    if len(pairs) > MAX_PAIRS:
        reviewed.missing.append(f"{len(pairs):,} pairs of duplicates were found, of which {MAX_PAIRS:,} are kept.")
    return [msgspec.structs.replace(each, exact=_are_identical(each)) for each in pairs[:MAX_PAIRS]]


def _list_samples(data: EvaluationData, predicts: PredictionKind, classes: Sequence[str]) -> list[ReviewedSample]:
    """Return the samples of all splits. Their classes are included if the task predicts classes or labels."""
    all_samples = []
    for split, samples in data.splits:
        assert isinstance(samples, ImageSet)
        for index in range(len(samples)):
            true: tuple[str, ...] | None = None
            if predicts == "class":
                true = (classes[int(samples.targets[index])],)
            elif predicts == "labels":
                true = tuple(classes[number] for number in samples.targets[index].nonzero().flatten().tolist())
            path = samples.path(index)
            file = find_displayed_file(samples, index, path) or ""
            all_samples.append(ReviewedSample(path=path, file=file, split=split, true=true))
    return all_samples


def _describe_pair(samples: Sequence[ReviewedSample], pair: Pair) -> DuplicatePair:
    first, second = samples[pair.first], samples[pair.second]
    return DuplicatePair(first=first, second=second, distance=pair.distance, labels_differ=first.true != second.true)


def _are_identical(pair: DuplicatePair) -> bool:
    """Return True if both image files of a pair are equal byte for byte."""
    if pair.distance or not pair.first.file or not pair.second.file:
        return False
    try:
        if os.path.getsize(pair.first.file) != os.path.getsize(pair.second.file):
            return False
        first, second = (hashlib.blake2b(read_image(each.file)).digest() for each in (pair.first, pair.second))
    except (OSError, UnusableFile):
        return False
    return first == second
