"""Inspect images with masks. Torch-free.

The inspection reports masks of another size than their image, values without a meaning, and rare and missing classes.
It also draws examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, MaskValue, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.limits import require_size
from engine.data.decoding.mask_values import (
    NO_CLASS,
    NOT_A_NUMBER,
    Values,
    align_values,
    class_plane,
    count_values,
    look_up_classes,
    merge_counts,
    read_mask_size,
    read_values,
)
from engine.data.decoding.numbered_masks import count_numbered_objects
from engine.data.decoding.orientation import get_rotation, turn_upright_like_image
from engine.data.decoding.pixels import read_to_show
from engine.data.decoding.reading import read_image
from engine.data.decoding.tiff import open_to_show
from engine.data.drawing import encode_png, overlay_mask
from engine.data.formats.shared.boxes import get_upright_size
from engine.data.formats.shared.exif_rotation import Drawn, RotationReport, find_drawn_image
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    Inspection,
    LeaveOut,
    Progress,
    count_classes,
    describe_missing_class,
    draw_examples,
    spread_examples,
    start_inspection,
    title_of,
)
from engine.data.splits import (
    Labels,
    MaskCode,
    MaskSplit,
    RecognizedDataset,
    dataset_error,
    dataset_warning,
    spread_evenly,
)
from engine.system.format import listed

Counts = tuple[Values, Values]
"""Distinct values in a mask, and the number of pixels with each value."""
MAX_DECODED = 512
"""Maximum number of masks in a split that are decoded to measure the fraction of each class.

For the other masks, only the size is read.
"""
MAX_VALUES_LISTED = 256
"""Maximum number of mask values in the report on a dataset."""
RARE = 0.001
"""Minimum fraction of pixels for a class not to be reported as rare.

Cross entropy learns rarer classes late or never.
"""
_REMEDY_FOR_NUMBERS = (
    "To find objects one by one, choose the task Instance segmentation. To learn only where they are, give all of "
    "them the same value."
)


def inspect_masks(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images and masks. Unusable pairs are passed to `leave_out`.

    Only a sample of the masks is decoded, so that their values are counted.
    """
    splits, result, checker = start_inspection(found, MaskSplit, progress, leave_out)
    code = found.code
    assert code is not None
    result.problems += code.notes
    counts: list[Counts] = []
    rotations = RotationReport()
    for name, split in splits:
        sampled = set(spread_evenly(len(split.files), MAX_DECODED))
        verdicts: dict[int, Drawn] = {}
        usable = checker.check_each(split.files, partial(_check_pair, split, code, sampled, verdicts), threads)
        rotations.record(verdicts, split.files)
        # By class: the number of masks that contain it, and its fraction of the pixels.
        mask_counts, shares = count_classes(found.classes, (_count_by_class(each, code) for each in usable.values()))
        counts += filter(None, usable.values())
        result.splits.append(SplitReport(name, mask_counts, split.is_drawn, total=len(usable), shares=shares))
        result.problems += _check_classes(name, shares, has_usable=bool(usable))
        if name == "train":
            result.examples += draw_examples(spread_examples(list(usable)), partial(_draw_example, split, code))
    result.problems += rotations.problems("masks")
    result.mask_values = _make_value_table(counts, found.classes, code)
    return result


def _check_pair(
    split: MaskSplit, code: MaskCode, sampled: set[int], verdicts: dict[int, Drawn], index: int
) -> Counts | None:
    """Check the image with the given index and its mask.

    If `index` is in `sampled`, the mask is decoded, and its values are returned with their pixel counts. Otherwise,
    None is returned. For a rotated image, `verdicts` records if the mask was drawn on the stored or on the upright
    image. Raises Unfit, or any exception of the decoder, if the pair is unusable.
    """
    with open_to_show(split.files[index]) as image:
        height, width = get_upright_size(image)
        rotation = get_rotation(image)
    mask_height, mask_width = read_mask_size(split.masks[index])
    if rotation is not None:
        verdicts[index] = find_drawn_image([(mask_height, mask_width)], rotation)
    if verdicts.get(index) != "raw":  # otherwise the mask has the size of the stored image, and is rotated later
        require_size((mask_height, mask_width), (height, width), message_start="its mask has")
    if index not in sampled:
        return None
    counts = count_values(align_values(read_values(read_image(split.masks[index])), code))
    _count_by_class(counts, code)  # raises Unfit for a value without a meaning
    return counts


def _count_by_class(counts: Counts | None, code: MaskCode) -> Labels | None:
    """Convert the number of mask pixels with each value to the number of pixels of each class, [NO_CLASS + 1].

    Returns None if `counts` is None. Raises Unfit for a value without a meaning.
    """
    if counts is None:
        return None
    values, pixels = counts
    totals = np.zeros(NO_CLASS + 1, np.int64)
    np.add.at(totals, look_up_classes(values[None], code)[0], pixels)
    return totals


def _make_value_table(counts: list[Counts], classes: Sequence[str], code: MaskCode) -> tuple[MaskValue, ...]:
    """Return a table of the most frequent values in the masks, sorted by value, with their classes and frequencies.

    `counts` has the pixel counts of each sampled mask.
    """
    values, pixels, masks = merge_counts(counts)
    if not len(values):
        return ()
    frequent = np.sort(np.argsort(-pixels, kind="stable")[:MAX_VALUES_LISTED])
    of_class = look_up_classes(values[None], code)[0]
    return tuple(
        MaskValue(
            _format_value(int(values[row]), code),
            share=float(pixels[row] / pixels.sum()),
            masks=int(masks[row]),
            class_name=None if of_class[row] == NO_CLASS else classes[of_class[row]],
        )
        for row in frequent
    )


def _format_value(value: int, code: MaskCode) -> str:
    """Format a value of a mask for users: as a color if `code` uses colors, otherwise as a number."""
    if code.colors:
        return f"#{value:06x}"
    return "not a number" if value == NOT_A_NUMBER else str(value)


def _check_classes(name: str, shares: Mapping[str, float], *, has_usable: bool) -> list[Problem]:
    """Return problems with the masks of the split `name`: no usable image, missing classes, or rare classes.

    `shares` are the fractions of pixels of each class. `has_usable` is True if the split has usable images.
    """
    title = title_of(name)
    if not has_usable:
        return [
            dataset_error(f"None of the {title} images can be used.", "Choose a folder with readable images and masks.")
        ]
    missing = [class_name for class_name, share in shares.items() if not share]
    rare = [f"{class_name} ({100 * share:.2f}%)" for class_name, share in shares.items() if 0 < share < RARE]
    problems = []
    if missing:
        message = (
            f"{listed(missing, most=5)} do not occur in the {title} masks, so they are {describe_missing_class(name)}."
        )
        problems.append(dataset_warning(message))
    if rare and name == "train":
        message = f"{listed(rare, most=5)} cover less than {100 * RARE:.1f}% of the pixels."
        remedy = "Choose the loss Cross entropy and Dice, or Focal: both cope better with rare classes."
        problems.append(dataset_warning(message, remedy))
    return problems


def _draw_example(split: MaskSplit, code: MaskCode, index: int) -> Example:
    """Return an example: the training image with the given index, overlaid with its mask."""
    image = read_to_show(split.files[index]).convert("RGB")
    plane = class_plane(read_values(read_image(split.masks[index])), code)
    plane = turn_upright_like_image(plane, split.files[index], image.size[::-1])
    image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
    mask = np.asarray(Image.fromarray(plane).resize(image.size, Image.Resampling.NEAREST))
    return Example("", "train", encode_png(overlay_mask(np.asarray(image), mask)), index)


def check_numbered_masks(masks: Sequence[str]) -> list[Problem]:
    """Return a warning if masks for semantic segmentation seem to number objects, or [] if not."""
    highest = count_numbered_objects(masks)
    if not highest:
        return []
    message = (
        f"The masks seem to number objects, {highest:,} or more in one of them, but this task takes each number for "
        f"a class."
    )
    return [dataset_warning(message, _REMEDY_FOR_NUMBERS)]
