"""Folders of pictures and masks, in the spellings in which people keep them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.contract.problems import Problem
from engine.data.found import MaskSplit, Recognised, counted, first, shown, warn, wrong
from engine.data.imagefolder import SPLIT_NAMES, is_picture, subfolders
from engine.data.masks import learn_meaning
from engine.data.pairing import named
from engine.data.splitting import divided

PICTURES = ("images", "image", "imgs", "img", "jpegimages", "rgb", "inputs")
MASKS = ("masks", "mask", "labels", "label", "annotations", "annotation", "gt", "segmentationclass", "targets")
_SUFFIXES = ("", "_mask", "_masks", "_label", "_labels", "_gt", "_seg", "_annotation", "_L", "-mask", "-label")
"""What the name of a mask may have behind that of its picture."""
_BESIDE = ("annot", "_annot", "_labels", "_masks", "_mask", "masks", "labels")
"""What the name of a split's folder of masks may have behind that of its pictures, as CamVid's trainannot."""
LAYOUT = "Give a folder with images and masks, each with train and val folders if there are such, and masks as PNG."


class MaskPair(NamedTuple):
    """A folder of pictures and that of their masks; `names` are those that belong to the split, None for all."""

    pictures: str
    masks: str
    names: tuple[str, ...] | None = None


def recognise_masks(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The pictures and masks in `folder`, whose folders are `folders`; None where it is not of that kind."""
    pairs = find_masks(folder, folders)
    if not pairs:
        return None
    problems: list[Problem] = []
    splits = {name: join_masks(pair, problems) for name, pair in pairs.items()}
    found = {name: split for name, split in splits.items() if len(split.files)}
    if "val" not in found and "test" in found:
        problems.append(
            warn(
                "There is no validation split; the test pictures serve as one.",
                "Add one to keep the test pictures for a last, independent look.",
            )
        )
        found["val"] = found["test"]
    whole = found.get("train") or found.get("")
    if whole is None:
        message = (
            f"{shown(folder)} has folders of pictures and of masks, but none of them belong together for training."
        )
        return Recognised("masks", problems=(*problems, wrong(message, LAYOUT)))
    train, val = (whole, found["val"]) if "val" in found else divided(whole, folder, val_fraction, seed)
    if not len(val.files):
        problems.append(wrong("With so few pictures none can be kept for validation.", "Add some, or a val folder."))
    places = list(dict.fromkeys(os.path.dirname(pair.masks) for pair in pairs.values()))
    meaning = learn_meaning(folder, train.masks, [*places, *(pair.masks for pair in pairs.values())])
    if meaning.trouble:
        problems.append(wrong(meaning.trouble, "Save masks as PNG with a number, or a colour, for each class."))
    return Recognised("masks", meaning.classes, train, val, tuple(problems), meaning.code)


def find_masks(folder: str, folders: Sequence[str]) -> dict[str, MaskPair]:
    """The folders of pictures and of masks in `folder`, whose folders are `folders`: by split, or by "" where there are
    none."""
    return _by_lists(folder, folders) or _inside(folder, folders) or _by_split(folder, folders)


def _splits_of(folders: Iterable[str]) -> dict[str, str]:
    there = list(folders)
    found = {split: named(there, names) for split, names in SPLIT_NAMES.items()}
    return {split: name for split, name in found.items() if name is not None}


def _by_lists(folder: str, folders: Sequence[str]) -> dict[str, MaskPair]:
    """PASCAL VOC: JPEGImages, SegmentationClass, and lists of names in ImageSets/Segmentation."""
    if not {"JPEGImages", "SegmentationClass"} <= set(folders):
        return {}
    pictures, masks = os.path.join(folder, "JPEGImages"), os.path.join(folder, "SegmentationClass")
    lists = Path(folder, "ImageSets", "Segmentation")
    found = {}
    for split in ("train", "val"):
        try:
            names = tuple((lists / f"{split}.txt").read_text(encoding="utf-8").split())
        except OSError:
            continue
        found[split] = MaskPair(pictures, masks, names)
    return found if "train" in found else {"": MaskPair(pictures, masks)}


def _inside(folder: str, folders: Sequence[str]) -> dict[str, MaskPair]:
    """images and masks, with or without folders of splits in both."""
    pictures, masks = named(folders, PICTURES), named(folders, MASKS)
    if pictures is None or masks is None:
        return {}
    pictures, masks = os.path.join(folder, pictures), os.path.join(folder, masks)
    of_pictures, of_masks = _splits_of(subfolders(pictures)), _splits_of(subfolders(masks))
    both = {
        split: MaskPair(os.path.join(pictures, of_pictures[split]), os.path.join(masks, of_masks[split]))
        for split in of_pictures
        if split in of_masks
    }
    pairs = both or {"": MaskPair(pictures, masks)}
    return pairs if any(_holds_pictures(pair.masks) for pair in pairs.values()) else {}


def _by_split(folder: str, folders: Sequence[str]) -> dict[str, MaskPair]:
    """train and val, each with images and masks in it, or with a folder of masks beside it."""
    found = {}
    for split, name in _splits_of(folders).items():
        place = os.path.join(folder, name)
        inside = subfolders(place)
        pictures, masks = named(inside, PICTURES), named(inside, MASKS)
        if pictures is not None and masks is not None:
            found[split] = MaskPair(os.path.join(place, pictures), os.path.join(place, masks))
            continue
        beside = named(folders, [f"{name.lower()}{suffix}" for suffix in _BESIDE])
        if beside is not None and not inside:
            found[split] = MaskPair(place, os.path.join(folder, beside))
    return {split: pair for split, pair in found.items() if _holds_pictures(pair.masks)}


def _holds_pictures(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return any(is_picture(entry.name) for entry in entries)


def join_masks(pair: MaskPair, problems: list[Problem]) -> MaskSplit:
    """Each picture with its mask, in the order of the pictures' names. Adds what has no counterpart to `problems`."""
    pictures = _files(pair.pictures)
    masks = {os.path.splitext(name)[0]: name for name in _files(pair.masks)}
    if pair.names is not None:
        wanted = set(pair.names)
        pictures = [name for name in pictures if os.path.splitext(name)[0] in wanted]
    files, of_masks, alone = [], [], []
    for name in pictures:
        stem = os.path.splitext(name)[0]
        mask = next((masks.pop(stem + suffix) for suffix in _SUFFIXES if stem + suffix in masks), None)
        if mask is None:
            alone.append(os.path.join(pair.pictures, name))
        else:
            files.append(os.path.join(pair.pictures, name))
            of_masks.append(os.path.join(pair.masks, mask))
    if alone:
        problems.append(
            warn(
                f"{counted(alone, 'picture')} in {shown(pair.pictures)} without a mask: {first(alone)}.",
                "They are left out; add their masks under the same names.",
            )
        )
    if masks and pair.names is None:
        left = sorted(masks.values())
        problems.append(
            warn(
                f"{counted(left, 'mask')} in {shown(pair.masks)} without a picture: {first(left)}.",
                "They are not used; give picture and mask the same name.",
            )
        )
    return MaskSplit(files, of_masks, alone)


def _files(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if is_picture(entry.name) and not entry.name.startswith("."))
