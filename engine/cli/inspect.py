"""``footplate inspect``: show the format, classes and samples of a dataset folder, and problems with it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from engine.cli import children
from engine.cli.terminal import BAD_REQUEST, COMPLETED, print_error, print_lines, show_progress
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport, MaskValue, Sample
from engine.contract.job import Job
from engine.contract.problems import errors
from engine.system.format import counted

SAMPLES = 3
VALUES_LISTED = 24
"""Maximum number of mask values that are listed in the printed table."""
BOXES_LISTED, CLASSES_LISTED = 4, 5
"""Maximum number of boxes, and of classes of pixels, that are listed for a sample."""


def add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="folder of the dataset")
    parser.add_argument("--task", metavar="ID", help="task to read it for (default: the one that fits its annotations)")
    parser.add_argument("--format", metavar="ID", default="", help="format to read it as (default: by the evidence)")
    parser.add_argument(
        "--samples", metavar="N", type=int, default=SAMPLES, help=f"samples to list with labels (default: {SAMPLES})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=inspect)


def inspect(options: argparse.Namespace) -> int:
    """Inspect a folder and print the result. Returns 0 if a model can be trained on it, otherwise 2."""
    catalogue = load_catalogue()
    if options.task is not None and catalogue.task(options.task) is None:
        names = ", ".join(task.id for task in catalogue.tasks)
        return print_error(f"there is no task “{options.task}”. Choose one of {names}.")
    folder = os.path.abspath(os.path.expanduser(options.folder))
    task = options.task or _choose_task(folder, options.format)
    job = Job.from_fields(dataset=folder, task=task, format=options.format)
    try:
        with show_progress() as on_progress:
            report = children.inspect(job, on_progress, samples=max(0, options.samples))
    except children.ChildFailed as error:
        return print_error(f"the folder could not be inspected: {error}. Try again, or another folder.")
    if options.json:
        print_lines(msgspec.json.encode(_to_plain_values(report, task)).decode())
    else:
        print_lines(*_format_lines(report, task))
    return BAD_REQUEST if errors(report.problems) else COMPLETED


def _choose_task(folder: str, format: str) -> str:
    """Return the id of the task that fits the folder's annotations, or of the default task if none clearly fits.

    The annotations are read as in the requested `format`, or as in the most likely one if it is "".
    """
    from engine.data.formats.registry import detect_kind  # slow to import

    kind = detect_kind(folder, format)
    task = load_catalogue().task_of(kind) if kind is not None else None
    return task.id if task is not None else Job().task


def _to_plain_values(report: DatasetReport, task: str) -> dict[str, Any]:
    """Return the report on a dataset as plain values for `--json`, under names that never change."""
    return {
        "folder": report.folder,
        "task": task if report.format else None,
        "format": report.format or None,
        "evidence": report.evidence,
        "certain": report.certain if report.format else False,
        "classes": report.classes,
        "splits": {
            split.name: {"images": split.images, "counts": split.counts, "held_out": split.is_drawn}
            | ({"objects": split.objects} if split.objects else {})
            for split in report.splits
        },
        "mask_values": [msgspec.to_builtins(value) for value in report.mask_values],
        "problems": [
            {"severity": each.severity, "message": each.message, "remedy": each.remedy, "field": each.field}
            for each in report.problems
        ],
        "readings": [
            {"task": each.task, "format": each.format, "evidence": each.evidence, "against": each.against}
            for each in report.readings
        ],
        "samples": [msgspec.to_builtins(sample) for sample in report.samples],
    }


def _format_lines(report: DatasetReport, task: str) -> Iterator[str]:
    """Format a dataset's format, classes, samples and problems as lines of text."""
    if report.format:
        entry = load_catalogue().task(task)
        yield f"{report.folder}: {report.title}, for {entry.title if entry is not None else task}"
        yield f"Recognized by: {'; '.join(report.evidence)}"
        yield f"Classes ({len(report.classes)}): {', '.join(report.classes)}"
        kind = load_catalogue().annotation_kinds.get(report.kind)
        noun = kind.sample if kind is not None else "image"
        for split in report.splits:
            class_counts = split.objects or split.counts
            counts = ", ".join(f"{name} {count:,}" for name, count in class_counts.items())
            held_out = ", held out from train" if split.is_drawn else ""
            yield f"{split.name}: {counted(split.images, noun)}{held_out}" + (f" ({counts})" if counts else "")
        if report.mask_values:
            values = ", ".join(map(_format_mask_value, report.mask_values[:VALUES_LISTED]))
            unlisted_count = len(report.mask_values) - VALUES_LISTED
            more = f" and {unlisted_count} more" if unlisted_count > 0 else ""
            yield f"Values in the masks: {values}{more}"
    else:
        yield f"{report.folder}: not recognized"
        for interpretation in report.readings:
            yield f"Possible: --task {interpretation.task} --format {interpretation.format}"
            yield f"  for it: {'; '.join(interpretation.evidence)}"
            if interpretation.against:
                yield f"  against it: {'; '.join(interpretation.against)}"
    yield from (f"{problem.severity}: {problem}" for problem in report.problems)
    yield from format_samples(report.samples)


def _format_mask_value(value: MaskValue) -> str:
    return f"{value.value} ({value.class_name or 'no class'}, {value.share:.1%})"


def format_samples(samples: tuple[Sample, ...]) -> Iterator[str]:
    """Yield a line of text for each sample, with its annotations."""
    for sample in samples:
        yield f"{sample.split} {sample.file}: {_format_annotations(sample)}"


def _format_annotations(sample: Sample) -> str:
    """Format the annotations of a sample as text: its class, labels, boxes, or the largest classes of its pixels."""
    if sample.problem:
        return f"can't be read: {sample.problem}"
    if sample.label is not None:
        return sample.label
    if sample.labels is not None:
        return ", ".join(sample.labels) or "no label"
    if sample.boxes is not None:
        if not sample.boxes:
            return "no object"
        boxes = [f"{box.label} ({box.x1:g}, {box.y1:g}, {box.x2:g}, {box.y2:g})" for box in sample.boxes[:BOXES_LISTED]]
        unlisted_count = len(sample.boxes) - BOXES_LISTED
        return "; ".join(boxes) + (f" and {unlisted_count} more" if unlisted_count > 0 else "")
    pixels = sample.pixels or {}
    total = sum(pixels.values())
    counts = sorted(((count, name or "no class") for name, count in pixels.items() if count), reverse=True)
    return ", ".join(f"{name} {count / total:.0%}" for count, name in counts[:CLASSES_LISTED])
