"""Looks folders of pictures and masks through: sizes that differ, values without a meaning, classes that are rare or never
occur, and what the pictures look like with their masks. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.drawing import lay_mask, png
from engine.data.found import MaskCode, MaskSplit, Recognised, spread_evenly, warn, wrong
from engine.data.looking import EXAMPLE_SIDE, EXAMPLES, LeaveOut, Looked, Progress
from engine.data.masks import NO_CLASS, class_plane, read_values
from engine.data.reading import check_size, describe_failure, folder_channels
from engine.data.tiff import open_to_show

DECODED = 512
"""About so many masks of a split are decoded, evenly spread, for the share of each class; of the others the sizes are read."""
RARE = 0.001
"""A class with a smaller share of the pixels is told of: cross entropy learns it late or never."""


def look_through_masks(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every picture and mask of `found`, whose splits are of masks. `leave_out(path, reason)` is told of those that
    cannot be used."""
    looked = Looked()
    splits = [
        (name, split) for name, split in (("train", found.train), ("val", found.val)) if isinstance(split, MaskSplit)
    ]
    looked.channels = folder_channels(*(split.files for _, split in splits))
    total, done = sum(len(split.files) for _, split in splits), 0
    assert found.code is not None
    for name, split in splits:
        sampled = set(spread_evenly(len(split.files), DECODED))
        with ThreadPoolExecutor(threads, "look") as pool:
            judged = pool.map(
                lambda place, split=split, sampled=sampled: _judge(
                    split, place, found.code if place in sampled else None
                ),
                range(len(split.files)),
            )
            pixels = np.zeros(len(found.classes), np.int64)
            pictures = np.zeros(len(found.classes), np.int64)
            usable = []
            for place, (reason, counts) in enumerate(judged):
                done += 1
                progress(done, total)
                if reason:
                    leave_out(split.files[place], reason)
                    continue
                usable.append(place)
                if counts is not None:
                    pixels += counts[: len(pixels)]
                    pictures += counts[: len(pixels)] > 0
        share = pixels / max(int(pixels.sum()), 1)
        counted = dict(zip(found.classes, pictures.tolist(), strict=True))
        shares = dict(zip(found.classes, share.tolist(), strict=True))
        looked.splits.append(SplitReport(name, counted, split.made, total=len(usable), shares=shares))
        looked.problems += _judge_classes(name, found.classes, share, bool(usable))
        if name == "train":
            looked.examples += _examples(name, split, usable, found.code)
    return looked


def _judge(split: MaskSplit, place: int, code: MaskCode | None) -> tuple[str, npt.NDArray[np.int64] | None]:
    """Why the pair cannot be used, "" where nothing is known against it; with `code` also its pixels by class."""
    try:
        with open_to_show(split.files[place]) as picture:
            check_size(picture)
            turned = picture.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            size = picture.size[::-1] if turned else picture.size
        with Image.open(split.masks[place]) as mask:
            of_mask = mask.size
        if size != of_mask:
            sizes = f"{of_mask[0]} x {of_mask[1]} pixels, the picture has {size[0]} x {size[1]}"
            return f"its mask is of another size ({sizes})", None
        if code is None:
            return "", None
        plane = class_plane(read_values(Path(split.masks[place]).read_bytes()), code)
        return "", np.bincount(plane.ravel(), minlength=NO_CLASS + 1)
    except Exception as error:  # a broken file may raise nearly anything in a decoder
        return describe_failure(error), None


def _judge_classes(name: str, classes: Sequence[str], share: npt.NDArray[np.float64], usable: bool) -> list[Problem]:
    title = "training" if name == "train" else "validation"
    if not usable:
        return [wrong(f"None of the {title} pictures can be used.", "Choose a folder of whole pictures and masks.")]
    never = [class_name for class_name, part in zip(classes, share, strict=True) if not part]
    rare = [f"{class_name} ({part:.2%})" for class_name, part in zip(classes, share, strict=True) if 0 < part < RARE]
    found = []
    if never:
        what = "never learnt" if name == "train" else "never validated"
        found.append(warn(f"{_listed(never)} do not occur in the {title} masks, and are {what}."))
    if rare and name == "train":
        found.append(
            warn(
                f"{_listed(rare)} take less than {RARE:.1%} of the pixels.",
                "Choose the loss Cross entropy and Dice, or Focal, for which that matters less.",
            )
        )
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _examples(name: str, split: MaskSplit, usable: Sequence[int], code: MaskCode) -> list[Example]:
    """Some pictures with their masks laid over them."""
    found = []
    for row in spread_evenly(len(usable), EXAMPLES)[:EXAMPLES]:
        place = usable[row]
        try:
            with open_to_show(split.files[place]) as image:
                picture = ImageOps.exif_transpose(image).convert("RGB")
            plane = class_plane(read_values(Path(split.masks[place]).read_bytes()), code)
        except Exception:
            continue  # it could be read a moment ago; a picture fewer is shown
        picture.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
        mask = np.asarray(Image.fromarray(plane).resize(picture.size, Image.Resampling.NEAREST))
        found.append(Example("", name, png(lay_mask(np.asarray(picture), mask)), place))
    return found
