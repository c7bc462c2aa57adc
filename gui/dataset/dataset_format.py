"""Descriptions of the contents of a dataset folder."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from engine.contract.catalogue import AnnotationKind, load_catalogue
from engine.contract.dataset import DatasetReport, ImageSizes, Interpretation, SplitReport, describe_channels
from engine.contract.problems import Choice, Problem
from gui.format import counted, localized
from gui.translation import tr

NAMED_UNREADABLE = 200
MAX_VALUES = 24
"""Maximum number of mask values that are listed."""


def format_sample_count(report: DatasetReport, count: int) -> str:
    """Format a number of samples, as in "1,204 images" or "1 cloud"."""
    return counted(count, _find_kind(report).sample)


def _find_kind(report: DatasetReport) -> AnnotationKind:
    """Return the kind of annotations in a report. For a kind that isn't in the catalogue, the id is the title."""
    return load_catalogue().annotation_kinds.get(report.kind) or AnnotationKind(report.kind, "")


def get_element_noun(report: DatasetReport) -> str:
    """Return the capitalized noun for the parts of a sample that have a class, such as "Box" or "Object"."""
    return capitalize(_find_kind(report).element)


def describe_size(report: DatasetReport) -> str:
    """Describe the size of a dataset, as in "5 classes, 3,670 images", or "3,670 images" without classes."""
    size = format_sample_count(report, sum(split.images for split in report.splits))
    return f"{counted(len(report.classes), 'class')}, {size}" if report.classes else size


def get_format_title(report: DatasetReport) -> str:
    """Return the name of the format, such as "COCO JSON"."""
    return capitalize(report.title or _find_kind(report).title)


def capitalize(text: str) -> str:
    """Return `text` with its first letter in upper case. Other letters don't change."""
    return text[:1].upper() + text[1:]


def describe_dataset(report: DatasetReport) -> str:
    """Describe the format, splits, image sizes and unreadable files of a dataset in a few lines."""
    splits = ", ".join(
        f"{s.name} {localized(s.images)}{' (drawn from train)' if s.is_drawn else ''}" for s in report.splits
    )
    lines = [f"{_describe_format_and_kind(report)} · {splits}", describe_evidence(report)]
    if report.sizes is not None:
        lines.append(describe_image_sizes(report.sizes))
    if report.unreadable_count:
        files = tr("file is") if report.unreadable_count == 1 else tr("files are")
        lines.append(
            f"{localized(report.unreadable_count)} {files} unreadable and skipped: {_list_unreadable_names(report)}"
        )
    return "\n".join(filter(None, lines))


def describe_evidence(report: DatasetReport) -> str:
    """Name the facts that identify the recognized format, or return "" if there are none."""
    return tr("Recognized by: {evidence}.").format(evidence="; ".join(report.evidence)) if report.evidence else ""


def _describe_format_and_kind(report: DatasetReport) -> str:
    """Describe the format of a dataset and the kind of its annotations, as in "COCO JSON: images with boxes, color".

    The kind is left out if it is the title of the format.
    """
    kind = _find_kind(report).title
    text = get_format_title(report)
    if kind and kind != report.title:
        text = f"{text}: {kind}" if report.title else capitalize(kind)
    return text if _find_kind(report).sample != "image" else f"{text}, {describe_channels(report.channels)}"


# Folders with conflicting evidence


def make_question(report: DatasetReport) -> str:
    """Return the heading above the possible interpretations of an unrecognized folder."""
    if len(report.readings) > 1:
        return tr("This folder can be read in {readings_count} ways.").format(readings_count=len(report.readings))
    return tr("Is this the right way to read the folder?")


def list_evidence(reading: Interpretation) -> str:
    """List the facts for and against an interpretation of the folder, with one sentence per line."""
    lines = [f"{title}: {'; '.join(facts)}." for title, facts in _list_facts(reading) if facts]
    return "\n".join(lines)


def _list_facts(reading: Interpretation) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the facts for an interpretation of the folder and those against it, each with a title."""
    return (tr("Found"), reading.evidence), (tr("Speaks against it"), reading.against)


def find_choice(reading: Interpretation, report: DatasetReport) -> Choice:
    """Return the choice that applies an interpretation of the folder.

    If a problem in the report offers the same interpretation, its choice is returned.
    """
    for problem in report.problems:
        for choice in problem.choices:
            if _is_choice_of(choice, reading):
                return choice
    task = load_catalogue().task(reading.task)
    named = (
        f"{task.title} with {reading.title}" if task is not None else tr("Read as {title}").format(title=reading.title)
    )
    return Choice(named, {"format": reading.format, "task": reading.task})


def remove_reading_choices(problems: Iterable[Problem], report: DatasetReport | None) -> tuple[Problem, ...]:
    """Return `problems` without the choices that the report already lists as interpretations of the folder."""
    readings = report.readings if report is not None else ()
    return tuple(
        msgspec.structs.replace(
            problem,
            choices=tuple(
                choice for choice in problem.choices if not any(_is_choice_of(choice, reading) for reading in readings)
            ),
        )
        for problem in problems
    )


def _is_choice_of(choice: Choice, reading: Interpretation) -> bool:
    """Return True if a remedy selects an interpretation of the folder."""
    return choice.values.get("format") == reading.format and choice.values.get("task", reading.task) == reading.task


def describe_image_sizes(image_sizes: ImageSizes) -> str:
    """Describe the image sizes, as in "720 x 576 pixels" or "240 x 180 to 1,024 x 768 pixels, median 500 x 375"."""
    smallest, middle, largest = (
        f"{localized(width)} x {localized(height)}"
        for width, height in (image_sizes.smallest, image_sizes.middle, image_sizes.largest)
    )
    if smallest == largest:
        return f"{smallest} pixels"
    return f"{smallest} to {largest} pixels, median {middle}"


def describe_objects(split: SplitReport) -> str:
    """Describe the number and sizes of the annotations in a split, or return "" if unknown."""
    if not split.objects:
        return ""
    text = f"{split.name}: {localized(sum(split.objects.values()))} marked"
    if split.object_sides is not None:
        small, middle, large = (f"{side:.0f}" for side in split.object_sides)
        text += f", median size {middle} pixels, 90% between {small} and {large}"
    return text


def list_mask_values(report: DatasetReport) -> str:
    """Return the most frequent mask values with their classes, one per line, or "" for datasets without masks."""
    values = report.mask_values
    frequent = sorted(values, key=lambda each: -each.share)[:MAX_VALUES]
    lines = [
        f"{each.value}: {each.class_name or 'no class'}, {localized(100 * each.share, 1)}%, "
        f"{counted(each.masks, 'mask')}"
        for each in values
        if each in frequent
    ]
    more = [f"and {localized(len(values) - len(lines))} more values"] if len(values) > len(lines) else []
    return "\n".join([tr("Values in the masks, with their shares of the pixels"), *lines, *more]) if values else ""


def list_class_counts(report: DatasetReport) -> str:
    """Return the number of samples of each class and split, one class per line."""
    return "\n".join(
        f"{name}: {', '.join(f'{split.name} {describe_class_count(split, name)}' for split in report.splits)}"
        for name in report.classes
    )


def list_unreadable_files(report: DatasetReport) -> str:
    """Return the first unreadable files with the reasons, one per line, or "" if there are none."""
    return "\n".join(f"{bad.path}: {bad.reason}" for bad in report.unreadable[:NAMED_UNREADABLE])


def describe_class_count(split: SplitReport, name: str) -> str:
    """Describe how often a class occurs in a split.

    For example "1,204", "31.2% of the pixels, in 60 images" or "412 marked, in 60 images".
    """
    count = localized(split.counts.get(name, 0))
    if name in split.objects:
        return f"{localized(split.objects[name])} marked, in {count} images"
    if name not in split.shares:
        return count
    return f"{localized(100 * split.shares[name], 1)}% of the pixels, in {count} images"


def _list_unreadable_names(report: DatasetReport) -> str:
    """Return the names of the first unreadable files."""
    shown = ", ".join(bad.path for bad in report.unreadable[:3])
    return shown + (", …" if report.unreadable_count > 3 else ".")
