"""``footplate review``: where a model is wrong, which labels may be, and which images occur twice."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.cli import inference
from engine.cli.cross_validation import cross_validated
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED
from engine.cli.table import table
from engine.cli.terminal import say
from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.review import Mark, Review, ReviewOrder, decode_review
from engine.runs.evaluations import FOLDER, evaluations_of
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.csv_writer import CsvWriter
from engine.system.format import counted

SHOWN = 20
_COLUMNS = ("file", "reason", "label", "prediction", "new_label")


def add_review(parser: argparse.ArgumentParser) -> None:
    inference.add_model(parser)
    parser.add_argument(
        "--evaluation",
        metavar="ID",
        help="the evaluation to review; by default the newest, which is made if there is none",
    )
    parser.add_argument(
        "--cross-validate",
        type=int,
        metavar="K",
        help="train K further runs that each hold out another part of the training images, and review all of these",
    )
    parser.add_argument("--worst", type=int, metavar="N", help="list the N samples with the highest losses")
    parser.add_argument("--class", dest="true", default="", metavar="NAME", help="list the worst samples of this class")
    parser.add_argument(
        "--predicted", default="", metavar="NAME", help="list the worst samples that were predicted to be of this class"
    )
    parser.add_argument("--labels", action="store_true", help="list the labels that are probably wrong")
    parser.add_argument("--duplicates", action="store_true", help="list images that occur twice, or nearly")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the listed samples as a table")
    parser.set_defaults(command=review)


def review(options: argparse.Namespace) -> int:
    """Review as requested, print the result, and write the table."""
    values = inference.model_values(options)
    if values is None:
        return BAD_REQUEST
    found = _reviewed(options, values)
    if isinstance(found, int):
        return found
    if options.json:
        say(msgspec.json.encode(found).decode())
    else:
        say(*_told(found, options))
    return (
        _write_table(options.csv.expanduser(), tuple(_marks(found)), options) if options.csv is not None else COMPLETED
    )


def _reviewed(options: argparse.Namespace, values: dict[str, Any]) -> Review | int:
    run = RunFolder(values["run"])
    folders: tuple[str, ...] | int = ()
    if options.cross_validate is not None:
        folders = cross_validated(run, options.cross_validate, values)
    elif options.evaluation is not None:
        folders = (str(run.path / FOLDER / options.evaluation),)
    elif not evaluations_of(run.path):
        path = inference.done(EvaluateOrder(**values))
        folders = path if isinstance(path, int) else ()
    if isinstance(folders, int):
        return folders
    everything = not (options.labels or options.duplicates or options.worst or options.true or options.predicted)
    order = ReviewOrder(
        evaluations=folders,
        worst=max(0, options.worst) if options.worst is not None else SHOWN,
        true=options.true,
        predicted=options.predicted,
        labels=options.labels or everything,
        duplicates=options.duplicates or everything,
        **values,
    )
    path = inference.done(order)
    return path if isinstance(path, int) else decode_review(path.read_bytes())


def _told(found: Review, options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the report."""
    only = options.labels or options.duplicates
    yield found.origin
    yield from found.missing
    if not only or options.worst or options.true or options.predicted:
        yield ""
        yield "Worst samples:"
        rows = [
            (
                each.path,
                ", ".join(each.true or ()),
                ", ".join(each.predicted or ()),
                f"{each.loss:.3f}" if each.loss is not None else "",
                f"{100 * each.correct:.0f} %" if each.correct is not None else "",
            )
            for each in found.worst
        ]
        yield from table(("Sample", "Label", "Prediction", "Loss", "Right"), rows)
    if options.labels or not only:
        yield ""
        yield f"Probably wrong labels: {len(found.label_issues):,}, by estimate there are {found.expected_errors:,}."
        issues = [
            (
                each.sample.path,
                each.given or f"not {each.suggested}",
                each.suggested or f"not {each.given}",
                f"{100 * each.suggested_probability:.0f} %",
            )
            for each in found.label_issues[:SHOWN]
        ]
        yield from table(("Sample", "Label", "Suggestion", "Probability"), issues) if issues else ()
    if options.duplicates or not only:
        yield ""
        across = sum(each.first.split != each.second.split for each in found.duplicates)
        yield f"Duplicates: {counted(len(found.duplicates), 'pair')}, {across:,} of them across splits."
        pairs = [
            (
                each.first.path,
                each.second.path,
                "the same file" if each.exact else f"{each.distance} bits apart",
                "labels differ" if each.labels_differ else "",
            )
            for each in found.duplicates[:SHOWN]
        ]
        yield from table(("Image", "Other image", "", ""), pairs) if pairs else ()


def _marks(found: Review) -> Iterator[Mark]:
    """Yield the listed samples; the worst ones only without others, since a high loss is no defect."""
    marked: set[str] = set()
    for issue in found.label_issues:
        sample = issue.sample
        if sample.file in marked:
            continue
        marked.add(sample.file)
        yield Mark(
            file=sample.file,
            reason="probably a wrong label",
            label=issue.given or ", ".join(sample.true or ()),
            prediction=issue.suggested,
            new_label=issue.suggested if issue.given else "",
        )
    for pair in found.duplicates:
        gone = pair.first if pair.first.split == "train" else pair.second
        other = pair.second if gone is pair.first else pair.first
        if gone.file not in marked and other.file not in marked:
            marked.add(gone.file)
            yield Mark(file=gone.file, reason=f"a duplicate of {other.path}", label=", ".join(gone.true or ()))
    if not marked:
        for sample in found.worst:
            true, predicted = ", ".join(sample.true or ()), ", ".join(sample.predicted or ())
            yield Mark(file=sample.file, reason="among the worst", label=true, prediction=predicted)


def _write_table(file: Path, marks: tuple[Mark, ...], options: argparse.Namespace) -> int:
    stream = io.StringIO()
    writer = CsvWriter(stream)
    writer.row(_COLUMNS)
    for each in marks:
        writer.row(getattr(each, name) for name in _COLUMNS)
    try:
        paths.write_atomically(file, stream.getvalue().encode())
    except OSError as error:
        say(f"footplate: The table can't be written: {error}", to=sys.stderr)
        return FAILED
    say(f"Wrote {counted(len(marks), 'sample')} to {file}.", to=sys.stderr if options.json else None)
    return COMPLETED
