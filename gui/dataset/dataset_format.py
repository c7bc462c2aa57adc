"""Descriptions of the contents of a dataset folder."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from engine.contract.catalogue import AnnotationKind, load_catalogue
from engine.contract.dataset import DatasetReport, ImageSizes, Interpretation, SplitReport, describe_channels
from engine.contract.problems import Choice, Problem
from engine.system.format import plural
from gui.format import capitalize, counted, localized
from gui.translation import tr

NAMED_UNREADABLE = 200
"""Maximum number of unreadable files that are listed."""
MAX_VALUES = 24
"""Maximum number of mask values that are listed."""


def format_sample_count(report: DatasetReport, count: int) -> str:
    """Format a number of samples, as in "1,204 images" or "1 cloud"."""
    return counted(count, _find_kind(report).sample)


def _find_kind(report: DatasetReport) -> AnnotationKind:
    """Return the kind of annotations in a report. For a kind that isn't in the catalogue, the id is the title."""
    return load_catalogue().annotation_kinds.get(report.kind) or AnnotationKind(report.kind, "")


def get_sample_noun(report: DatasetReport) -> str:
    """Return the capitalized plural noun for samples, such as "Images" or "Clouds"."""
    return capitalize(plural(_find_kind(report).sample))


def get_element_noun(report: DatasetReport) -> str:
    """Return the capitalized plural noun for the parts of a sample that have a class, such as "Pixels" or "Points"."""
    return capitalize(_find_kind(report).element)


def describe_size(report: DatasetReport) -> str:
    """Describe the size of a dataset, as in "5 classes, 3,670 images", or "3,670 images" without classes."""
    size = format_sample_count(report, sum(split.images for split in report.splits))
    return f"{counted(len(report.classes), 'class')}, {size}" if report.classes else size


def get_format_title(report: DatasetReport) -> str:
    """Return the name of the format, such as "COCO JSON"."""
    return capitalize(report.title or _find_kind(report).title)


def describe_dataset(report: DatasetReport) -> str:
    """Describe the format, splits, image sizes and unreadable files of a dataset in a few lines."""
    splits = ", ".join(
        (tr("{split} {images} (drawn from train)") if split.is_drawn else "{split} {images}").format(
            split=split.name, images=localized(split.images)
        )
        for split in report.splits
    )
    lines = [f"{_describe_format_and_kind(report)} · {splits}", describe_evidence(report)]
    if report.sizes is not None:
        lines.append(describe_image_sizes(report.sizes))
    if report.unreadable_count:
        unreadable = (
            tr("{count} file is unreadable and skipped: {names}")
            if report.unreadable_count == 1
            else tr("{count} files are unreadable and skipped: {names}")
        )
        lines.append(unreadable.format(count=localized(report.unreadable_count), names=_list_unreadable_names(report)))
    return "\n".join(filter(None, lines))


def describe_evidence(report: DatasetReport) -> str:
    """Name the facts that identify the recognized format, or return "" if there are none."""
    return tr("Recognized by: {evidence}.").format(evidence="; ".join(report.evidence)) if report.evidence else ""


def _describe_format_and_kind(report: DatasetReport) -> str:
    """Describe the format of a dataset and the kind of its annotations, as in "COCO JSON: images with boxes, color".

    The kind is left out if it is the title of the format.
    """
    kind = _find_kind(report)
    text = get_format_title(report)
    if report.title and kind.title and kind.title != report.title:
        text = f"{text}: {kind.title}"
    return text if kind.sample != "image" else f"{text}, {describe_channels(report.channels)}"


# Folders with conflicting evidence


def make_question(report: DatasetReport) -> str:
    """Return the heading above the possible interpretations of an unrecognized folder."""
    if len(report.readings) > 1:
        return tr("This folder can be read in {readings_count} ways.").format(readings_count=len(report.readings))
    return tr("Is this the right way to read the folder?")


def list_evidence(reading: Interpretation) -> str:
    """List the facts for and against an interpretation of the folder, with one sentence per line."""
    facts_by_title = {tr("Found"): reading.evidence, tr("Speaks against it"): reading.against}
    return "\n".join(f"{title}: {'; '.join(facts)}." for title, facts in facts_by_title.items() if facts)


def find_choice(reading: Interpretation, report: DatasetReport) -> Choice:
    """Return the choice that applies an interpretation of the folder.

    If a problem in the report offers the same interpretation, its choice is returned.
    """
    for problem in report.problems:
        for choice in problem.choices:
            if _is_choice_of(choice, reading):
                return choice
    task = load_catalogue().task(reading.task)
    title = tr("Read as {title}").format(title=reading.title)
    if task is not None:
        title = tr("{task} with {format}").format(task=task.title, format=reading.title)
    return Choice(title, {"format": reading.format, "task": reading.task})


def remove_reading_choices(problems: Iterable[Problem], report: DatasetReport | None) -> tuple[Problem, ...]:
    """Return `problems` without the choices that the report already lists as interpretations of the folder."""
    readings = report.readings if report is not None else ()

    def is_listed(choice: Choice) -> bool:
        return any(_is_choice_of(choice, reading) for reading in readings)

    return tuple(
        msgspec.structs.replace(problem, choices=tuple(choice for choice in problem.choices if not is_listed(choice)))
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
        return tr("{size} pixels").format(size=smallest)
    return tr("{smallest} to {largest} pixels, median {median}").format(
        smallest=smallest, largest=largest, median=middle
    )


def describe_objects(split: SplitReport) -> str:
    """Describe the number and sizes of the annotations in a split, or return "" if unknown."""
    if not split.objects:
        return ""
    count = localized(sum(split.objects.values()))
    if split.object_sides is None:
        return tr("{split}: {count} marked").format(split=split.name, count=count)
    small, middle, large = split.object_sides
    return tr(
        "{split}: {count} marked, median size {middle:.0f} pixels, 90% between {small:.0f} and {large:.0f}"
    ).format(split=split.name, count=count, middle=middle, small=small, large=large)


def list_mask_values(report: DatasetReport) -> str:
    """Return the most frequent mask values with their classes, one per line, or "" for datasets without masks.

    The values are in the order of the report.
    """
    values = report.mask_values
    if not values:
        return ""
    frequent = sorted(values, key=lambda each: -each.share)[:MAX_VALUES]
    lines = [tr("Values in the masks, with their shares of the pixels")]
    lines += [
        "{value}: {name}, {percent}%, {masks}".format(
            value=each.value,
            name=each.class_name or tr("no class"),
            percent=localized(100 * each.share, 1),
            masks=counted(each.masks, "mask"),
        )
        for each in values
        if each in frequent
    ]
    if len(values) > len(frequent):
        lines.append(tr("and {count} more values").format(count=localized(len(values) - len(frequent))))
    return "\n".join(lines)


def list_class_counts(report: DatasetReport) -> str:
    """Return how often each class occurs in each split, one class per line, as in "rose: train 1,204, val 300"."""
    lines = []
    for name in report.classes:
        counts = (f"{split.name} {_describe_class_count(report, split, name)}" for split in report.splits)
        lines.append(f"{name}: {', '.join(counts)}")
    return "\n".join(lines)


def list_unreadable_files(report: DatasetReport) -> str:
    """Return the first `NAMED_UNREADABLE` unreadable files with the reasons, one per line, or "" if there are none."""
    return "\n".join(f"{bad.path}: {bad.reason}" for bad in report.unreadable[:NAMED_UNREADABLE])


def _describe_class_count(report: DatasetReport, split: SplitReport, name: str) -> str:
    """Describe how often the class `name` occurs in a split of the dataset in `report`.

    The text is like "412 marked, in 60 images" if the number of objects is known. Otherwise, it is like "31.2% of the
    pixels, in 60 images" or, without a fraction, "1,204", which is the number of samples.
    """
    count = split.counts.get(name, 0)
    samples = format_sample_count(report, count)
    if name in split.objects:
        return tr("{objects} marked, in {samples}").format(objects=localized(split.objects[name]), samples=samples)
    if name not in split.shares:
        return localized(count)
    return tr("{percent}% of the {element}, in {samples}").format(
        percent=localized(100 * split.shares[name], 1), element=_find_kind(report).element, samples=samples
    )


def _list_unreadable_names(report: DatasetReport) -> str:
    """Return the paths of up to three unreadable files as the end of a sentence, such as "a.png, b.png."."""
    names = ", ".join(bad.path for bad in report.unreadable[:3])
    return names + (", …" if report.unreadable_count > 3 else ".")
