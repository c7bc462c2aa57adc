"""``footplate review``: where a model is wrong, which labels may be, which images occur twice, and what is done about
them.
"""

from __future__ import annotations

import argparse
import csv
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
from engine.contract.inference.review import Mark, MarkOrder, Review, ReviewOrder, decode_marked, decode_review
from engine.runs.evaluations import FOLDER, evaluations_of
from engine.runs.folder import RunFolder
from engine.system.format import counted

SHOWN = 20


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
    parser.add_argument(
        "--marks", metavar="FILE", type=Path, help="use the samples of such a table, which you may have edited"
    )
    parser.add_argument(
        "--copy-without",
        metavar="FOLDER",
        type=Path,
        help="write a copy of the dataset without the marked samples: those with wrong labels, one of each pair of "
        "duplicates, or those of --marks",
    )
    parser.add_argument(
        "--relabel", action="store_true", help="in the copy, correct wrong labels as the model suggests"
    )
    parser.add_argument("--undo", metavar="FOLDER", type=Path, help="undo all changes in such a copy")
    parser.set_defaults(command=review)


def review(options: argparse.Namespace) -> int:
    """Reviews what is asked for, prints what was found, and writes what is asked for."""
    values = inference.model_values(options)
    if values is None:
        return BAD_REQUEST
    if options.undo is not None:
        return _mark(MarkOrder(undo=str(options.undo.expanduser().absolute()), **values), options)
    marks: tuple[Mark, ...] | None = None
    if options.marks is None:
        found = _reviewed(options, values)
        if isinstance(found, int):
            return found
        if options.json:
            say(msgspec.json.encode(found).decode())
        else:
            say(*_told(found, options))
        marks = tuple(_marks(found, options))
    else:
        marks = _read(options.marks)
    if marks is None:
        return BAD_REQUEST
    if options.csv is None and options.copy_without is None:
        return COMPLETED
    order = MarkOrder(
        marks=marks,
        csv=str(options.csv.expanduser().absolute()) if options.csv is not None else "",
        copy=str(options.copy_without.expanduser().absolute()) if options.copy_without is not None else "",
        **values,
    )
    return _mark(order, options)


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
    """What was found, for people."""
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


def _marks(found: Review, options: argparse.Namespace) -> Iterator[Mark]:
    """What is listed, but the worst samples only where they alone were asked for: a loss is no reason to leave a
    sample out.
    """
    marked: set[str] = set()
    for issue in found.label_issues:
        sample = issue.sample
        if sample.file in marked:
            continue
        marked.add(sample.file)
        correct = issue.suggested if options.relabel and issue.given and issue.suggested else ""
        yield Mark(
            file=sample.file,
            reason="probably a wrong label",
            label=issue.given or ", ".join(sample.true or ()),
            prediction=issue.suggested,
            new_label=correct,
        )
    for pair in found.duplicates:
        gone = pair.first if pair.first.split == "train" else pair.second
        other = pair.second if gone is pair.first else pair.first
        if gone.file not in marked and other.file not in marked:
            marked.add(gone.file)
            yield Mark(file=gone.file, reason=f"a duplicate of {other.path}", label=", ".join(gone.true or ()))
    if not marked and options.copy_without is None:
        for sample in found.worst:
            true, predicted = ", ".join(sample.true or ()), ", ".join(sample.predicted or ())
            yield Mark(file=sample.file, reason="among the worst", label=true, prediction=predicted)


def _read(file: Path) -> tuple[Mark, ...] | None:
    """The marks in a table; None once it has been said why there are none."""
    try:
        with open(file, newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
        return tuple(msgspec.convert({name: row[name] for name in row if name in _COLUMNS}, Mark) for row in rows)
    except (OSError, UnicodeDecodeError, csv.Error, msgspec.ValidationError) as error:
        say(f"footplate: --marks: {file} can't be read: {error}", to=sys.stderr)
        say("  Give a table that --csv has written.", to=sys.stderr)
        return None


_COLUMNS = frozenset(msgspec.structs.asdict(Mark(file="")))


def _mark(order: MarkOrder, options: argparse.Namespace) -> int:
    path = inference.done(order)
    if isinstance(path, int):
        return path
    try:
        done = decode_marked(path.read_bytes())
        path.unlink()
        path.parent.rmdir()
    except OSError as error:
        say(f"footplate: {error}", to=sys.stderr)
        return FAILED
    to = sys.stderr if options.json else None
    if done.restored:
        say(f"Restored {counted(done.restored, 'sample')} in {done.copy}.", to=to)
    if done.csv:
        say(f"Wrote {counted(len(order.marks), 'sample')} to {done.csv}.", to=to)
    if done.files:
        how = f"{done.linked:,} of them as links to the same data" if done.linked else "as copies"
        say(
            f"Wrote {counted(done.files, 'file')} to {done.copy}, {how}: without {counted(done.removed, 'sample')}, with new "
            f"labels for {done.relabelled:,}. Undo it there with: footplate review {options.run} --undo {done.copy}",
            to=to,
        )
    return COMPLETED
