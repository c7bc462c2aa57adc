"""Texts that describe the contents of a dataset folder."""

from __future__ import annotations

from engine.contract.dataset import DatasetReport, ImageSizes, SplitReport, channels_in_words
from gui.format import localised

FORMATS = {
    "imagefolder": "folders of images",
    "idx": "MNIST idx files",
    "masks": "images and masks",
    "boxes": "images with boxes",
    "instances": "images with instance masks",
    "edges": "images with edges",
    "points": "point clouds",
    "labels": "images with multiple labels",
    "files": "files for a custom task",
}
_SAMPLES = {"points": ("cloud", "clouds"), "files": ("file", "files")}
"""Singular and plural names of samples that are not images."""
NAMED_UNREADABLE = 200
VALUES_SHOWN = 24
"""Values of masks that are listed, at most."""


def samples(report: DatasetReport, count: int) -> str:
    """ "1,204 images", "1 cloud"."""
    one, many = _SAMPLES.get(report.format, ("image", "images"))
    return f"{localised(count)} {one if count == 1 else many}"


def summary(report: DatasetReport) -> str:
    """ "5 classes, 3,670 images"; without the classes where nothing is told apart by them."""
    counted = samples(report, sum(split.images for split in report.splits))
    if not report.classes:
        return counted[:1].upper() + counted[1:]
    classes = "1 class" if len(report.classes) == 1 else f"{localised(len(report.classes))} classes"
    return f"{classes}, {counted}"


def describe(report: DatasetReport) -> str:
    """Format, splits, sizes and unreadable files in a few lines."""
    splits = ", ".join(
        f"{s.name} {localised(s.images)}{' (drawn from train)' if s.made else ''}" for s in report.splits
    )
    kind = FORMATS.get(report.format, report.format).capitalize()
    text = f"{kind}{_colours(report)} · {splits}"
    if report.sizes is not None:
        text += f"\n{sizes(report.sizes)}"
    if report.unreadable_count:
        files = "file is" if report.unreadable_count == 1 else "files are"
        text += f"\n{localised(report.unreadable_count)} {files} unreadable and skipped: {_names(report)}"
    return text


def sizes(told: ImageSizes) -> str:
    """ "720 x 576 pixels", or "From 240 x 180 to 1,024 x 768 pixels, mostly about 500 x 375"."""
    smallest, middle, largest = (
        f"{localised(width)} x {localised(height)}" for width, height in (told.smallest, told.middle, told.largest)
    )
    if smallest == largest:
        return f"{smallest} pixels"
    return f"{smallest} to {largest} pixels, median {middle}"


def objects(split: SplitReport) -> str:
    """How many things are marked in a split and how large they are; "" where that is not told."""
    if not split.objects:
        return ""
    text = f"{split.name}: {localised(sum(split.objects.values()))} marked"
    if split.object_sides is not None:
        small, middle, large = (f"{side:.0f}" for side in split.object_sides)
        text += f", median size {middle} pixels, 90 % between {small} and {large}"
    return text


def mask_values(report: DatasetReport) -> str:
    """List the most frequent values in the masks with their classes, one a line; "" for datasets without masks."""
    values = report.mask_values
    frequent = sorted(values, key=lambda each: -each.share)[:VALUES_SHOWN]
    lines = [
        f"{each.value}: {each.class_name or 'no class'}, {localised(100 * each.share, 1)} % of the pixels, "
        f"in {localised(each.masks)} {'mask' if each.masks == 1 else 'masks'}"
        for each in values
        if each in frequent
    ]
    more = [f"and {localised(len(values) - len(lines))} more values"] if len(values) > len(lines) else []
    return "\n".join(["Values in the masks", *lines, *more]) if values else ""


def counts(report: DatasetReport) -> str:
    """Counts per class and split, a class a line."""
    return "\n".join(
        f"{name}: {', '.join(f'{split.name} {of_class(split, name)}' for split in report.splits)}"
        for name in report.classes
    )


def unreadable(report: DatasetReport) -> str:
    """The unreadable files by name, one a line; "" where there are none."""
    return "\n".join(f"{bad.path}: {bad.reason}" for bad in report.unreadable[:NAMED_UNREADABLE])


def of_class(split: SplitReport, name: str) -> str:
    """ "1,204", "31.2 % of the pixels, in 60 images" or "412 marked, in 60 images"."""
    count = localised(split.counts.get(name, 0))
    if name in split.objects:
        return f"{localised(split.objects[name])} marked, in {count} images"
    if name not in split.shares:
        return count
    return f"{localised(100 * split.shares[name], 1)} % of the pixels, in {count} images"


def _colours(report: DatasetReport) -> str:
    return "" if report.format == "points" else f", {channels_in_words(report.channels)}"


def _names(report: DatasetReport) -> str:
    shown = ", ".join(bad.path for bad in report.unreadable[:3])
    return shown + (", …" if report.unreadable_count > 3 else ".")
