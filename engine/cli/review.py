"""``footplate review``: list the worst samples, labels that are probably wrong, and duplicates."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from engine.cli import inference, watching
from engine.cli.terminal import (
    COMPLETED,
    CommandError,
    format_table,
    print_lines,
    report,
    report_unwritable,
    require_writable,
    write_csv,
)
from engine.contract.catalogue import load_catalogue
from engine.contract.inference.evaluation import EvaluateRequest, Evaluation
from engine.contract.inference.review import MarkedSample, Review, ReviewRequest, decode_review
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.evaluations import FOLDER, read_evaluations
from engine.runs.folder import RunFolder, create_run, list_runs
from engine.runs.launch import start_supervisor
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.format import counted

MAX_ROWS = 20
MAX_FOLDS = 100
_COLUMNS = ("file", "reason", "label", "prediction", "new_label")


def add_review(parser: argparse.ArgumentParser) -> None:
    inference.add_model_arguments(parser)
    parser.add_argument(
        "--evaluation",
        metavar="ID",
        help="the evaluation to review; by default the newest, or a new one if there is none",
    )
    parser.add_argument(
        "--cross-validate",
        type=int,
        metavar="K",
        help="train K more runs that each hold out other training images, and review all of these images",
    )
    parser.add_argument("--worst", type=int, metavar="N", help="list the N samples with the highest losses")
    parser.add_argument("--class", dest="true", default="", metavar="NAME", help="list the worst samples of this class")
    parser.add_argument("--predicted", default="", metavar="NAME", help="list the worst samples with this prediction")
    parser.add_argument("--labels", action="store_true", help="list the labels that are probably wrong")
    parser.add_argument("--duplicates", action="store_true", help="list duplicate and nearly duplicate images")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the listed samples as a table")
    parser.set_defaults(command=review)


def review(options: argparse.Namespace) -> int:
    """Print the samples of a run's dataset that need a review, and write them to a CSV file if one is given.

    Returns an exit code.
    """
    require_writable("--csv", options.csv)
    values = inference.read_model_values(options)
    found = _review(options, values)
    if options.json:
        print_lines(msgspec.json.encode(found).decode())
    else:
        print_lines(*_format_lines(found, options))
    if options.csv is not None:
        marked = tuple(_list_samples_to_mark(found))
        write_csv(options.csv, [_COLUMNS, *([getattr(sample, name) for name in _COLUMNS] for sample in marked)])
        text = f"Wrote {counted(len(marked), 'sample')} to {options.csv}."
        print_lines(text, to=sys.stderr if options.json else None)  # standard output has only the JSON
    return COMPLETED


def _review(options: argparse.Namespace, values: dict[str, Any]) -> Review:
    """Review evaluations of a run: a new cross-validation or the named evaluation if requested, otherwise the latest.

    If the run has no evaluation, it is evaluated first. `values` are fields of the requests.
    """
    run = RunFolder(values["run"])
    folders: tuple[str, ...] = ()  # empty for the latest evaluation
    if options.cross_validate is not None:
        folders = _cross_validate(run, options.cross_validate, values)
    elif options.evaluation is not None:
        folders = (str(run.path / FOLDER / options.evaluation),)
    elif not read_evaluations(run.path):
        inference.run_request(EvaluateRequest(**values))
    requests_all = not _has_filter(options)
    request = ReviewRequest(
        evaluations=folders,
        worst=max(0, options.worst) if options.worst is not None else MAX_ROWS,
        true=options.true,
        predicted=options.predicted,
        labels=options.labels or requests_all,
        duplicates=options.duplicates or requests_all,
        **values,
    )
    return decode_review(read_file(inference.run_request(request), MAX_RESULT_BYTES))


def _has_filter(options: argparse.Namespace) -> bool:
    """Return True if the options request only some of the worst samples, the label issues and the duplicates."""
    return bool(options.labels or options.duplicates or _limits_worst(options))


def _limits_worst(options: argparse.Namespace) -> bool:
    """Return True if an option filters the worst samples or limits their number. Such an option requests their list."""
    return bool(options.worst or options.true or options.predicted)


def _format_lines(found: Review, options: argparse.Namespace) -> Iterator[str]:
    """Format the requested parts of a review as text: worst samples, label issues and duplicates."""
    requests_all = not _has_filter(options)
    yield found.origin
    yield from found.missing
    if requests_all or _limits_worst(options):
        yield from _format_worst(found)
    if requests_all or options.labels:
        yield from _format_label_issues(found)
    if requests_all or options.duplicates:
        yield from _format_duplicates(found)


def _format_worst(found: Review) -> Iterator[str]:
    """Yield a table of the samples with the highest losses."""
    yield ""
    yield "Worst samples:"
    rows = [
        (
            each.path,
            ", ".join(each.true or ()),
            ", ".join(each.predicted or ()),
            f"{each.loss:.3f}" if each.loss is not None else "",
            f"{100 * each.correct:.0f}%" if each.correct is not None else "",
        )
        for each in found.worst
    ]
    yield from format_table(("Sample", "Label", "Prediction", "Loss", "Right"), rows)


def _format_label_issues(found: Review) -> Iterator[str]:
    """Yield a table of the labels that are probably wrong."""
    yield ""
    if found.is_model_weak:
        yield (
            f"Labels worth checking: {len(found.label_issues):,}. "
            "The model is too weak to tell wrong labels from its own mistakes."
        )
    else:
        yield f"Probably wrong labels: {len(found.label_issues):,}; estimated total: {found.expected_errors:,}."
    issues = [
        (
            each.sample.path,
            each.given or f"not {each.suggested}",
            each.suggested or f"not {each.given}",
            f"{100 * each.suggested_probability:.0f}%",
        )
        for each in found.label_issues[:MAX_ROWS]
    ]
    yield from format_table(("Sample", "Label", "Suggestion", "Probability"), issues) if issues else ()


def _format_duplicates(found: Review) -> Iterator[str]:
    """Yield a table of the pairs of equal or nearly equal images."""
    yield ""
    in_both_splits = sum(each.first.split != each.second.split for each in found.duplicates)
    yield f"Duplicates: {counted(len(found.duplicates), 'pair')}, {in_both_splits:,} of them across splits."
    pairs = [
        (
            each.first.path,
            each.second.path,
            "the same file" if each.exact else f"{each.distance} bits apart",
            "labels differ" if each.labels_differ else "",
        )
        for each in found.duplicates[:MAX_ROWS]
    ]
    yield from format_table(("Image", "Other image", "", ""), pairs) if pairs else ()


def _list_samples_to_mark(found: Review) -> Iterator[MarkedSample]:
    """Yield the samples that the user should check: those with label issues, and duplicates.

    If there are none, yield the samples with the worst results. These are otherwise left out, since a high loss alone
    does not prove a defect.
    """
    marked_files: set[str] = set()
    for issue in found.label_issues:
        sample = issue.sample
        if sample.file in marked_files:  # a multi-label sample may have several issues
            continue
        marked_files.add(sample.file)
        yield MarkedSample(
            file=sample.file,
            reason="a label worth checking" if found.is_model_weak else "probably a wrong label",
            label=issue.given or ", ".join(sample.true or ()),
            prediction=issue.suggested,
            new_label=issue.suggested if issue.given else "",
        )
    for pair in found.duplicates:
        duplicate, other = pair.first, pair.second
        if pair.first.split != "train":  # of a pair across splits, the training image is marked
            duplicate, other = pair.second, pair.first
        if duplicate.file not in marked_files and other.file not in marked_files:
            marked_files.add(duplicate.file)
            yield MarkedSample(
                file=duplicate.file, reason=f"a duplicate of {other.path}", label=", ".join(duplicate.true or ())
            )
    if not marked_files:
        for sample in found.worst:
            true, predicted = ", ".join(sample.true or ()), ", ".join(sample.predicted or ())
            yield MarkedSample(file=sample.file, reason="among the worst", label=true, prediction=predicted)


def _cross_validate(run: RunFolder, folds: int, values: dict[str, Any]) -> tuple[str, ...]:
    """Train one run for each fold and evaluate it on its held-out images. Returns the folders of the evaluations.

    Runs from an earlier, interrupted call are reused. Together, the evaluations contain every training image once.
    `values` are fields of each `EvaluateRequest`. Raises CommandError.
    """
    job = run.job()
    assert job is not None  # checked by `read_model_values`
    task = load_catalogue().task(job.task)
    wrong = []
    if task is None or "fold" not in task.fields:
        message = "Only runs of image classification and multi-label classification can be cross-validated."
        wrong.append(Problem("run", message, "Review the validation samples only."))
    if not 2 <= folds <= MAX_FOLDS:
        wrong.append(Problem("--cross-validate", f"There can be 2 to {MAX_FOLDS} folds.", "5 is usual."))
    if wrong:
        raise CommandError(report(wrong))
    folders = []
    for number in range(1, folds + 1):
        fold = job.with_fields(
            fold=f"{number}/{folds}", name=f"{run.run_id} fold {number}/{folds}", resume_from="", predictions=0
        )
        print_lines(f"Fold {number} of {folds}", to=sys.stderr)
        with redirect_stdout(sys.stderr):  # standard output has only the review
            folders.append(_evaluate_fold(fold, values))
    return tuple(folders)


def _evaluate_fold(fold: Job, values: dict[str, Any]) -> str:
    """Train the job `fold`, which holds out a fold, and evaluate its last weights on the held-out images.

    A completed run with the same job, and its evaluation, are reused. The best weights are not used, since they were
    selected by the held-out images. `values` are fields of the `EvaluateRequest`. Returns the folder of the evaluation.
    Raises CommandError.
    """
    run = next((each for each in list_runs() if each.job() == fold and each.state() == "completed"), None)
    if run is None:
        with report_unwritable():
            run = create_run(fold)
            start_supervisor(run)
        code = watching.follow(run, json=False, stop_on_interrupt=True)
        if code != COMPLETED:
            raise CommandError(code)
    for saved in read_evaluations(run.path):
        if _covers_held_out_images(saved.evaluation, fold):
            return str(saved.folder)
    request = EvaluateRequest(**values | {"run": str(run.path.absolute()), "checkpoint": "last"}, split="val")
    return str(inference.run_request(request).parent)


def _covers_held_out_images(evaluation: Evaluation, fold: Job) -> bool:
    """Return True if a run's last weights were evaluated on the images that its job `fold` holds out.

    The user may have evaluated the run on other images, or its best weights.
    """
    dataset = os.path.realpath(os.path.expanduser(fold.data.dataset))
    is_same_split = evaluation.split == "val" and os.path.realpath(evaluation.dataset) == dataset
    return is_same_split and evaluation.checkpoint == "last.pt"
