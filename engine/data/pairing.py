"""Which folders of pictures and of files about them belong together, in the spellings in which people keep them. Torch-free."""

from __future__ import annotations

import os
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from engine.contract.problems import Problem
from engine.data.found import counted, first, shown, warn
from engine.data.imagefolder import SPLIT_NAMES, is_picture, subfolders
from engine.data.masks import arcgis_classes

PICTURES = ("images", "image", "imgs", "img", "jpegimages", "rgb", "image_2")
ANNOTATIONS = ("labels", "label", "annotations", "annotation", "xmls", "xml", "label_2")


class Pair(NamedTuple):
    """A folder of pictures and that of the files about them; `names` are those that belong to the split, without their
    endings, None for all."""

    pictures: str
    annotations: str
    names: frozenset[str] | None = None


@dataclass
class Joined:
    """Pictures and the file about each, in the order of the pictures' names; `alone` are those without one, `spare` files
    without a picture."""

    both: list[tuple[str, str]] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    spare: list[str] = field(default_factory=list)


def named(folders: Iterable[str], names: Sequence[str]) -> str | None:
    """That of `folders` whose name is the earliest of `names`, in whatever case."""
    by_name = {folder.lower(): folder for folder in folders}
    return next((by_name[name] for name in names if name in by_name), None)


def splits_of(folders: Sequence[str]) -> dict[str, str]:
    """Which of `folders` are splits, by "train", "val" and "test"; a year may stand behind, as in COCO's train2017."""
    plain = {folder.rstrip(string.digits): folder for folder in sorted(folders, reverse=True)}
    found = {split: named(plain, names) for split, names in SPLIT_NAMES.items()}
    return {split: plain[name] for split, name in found.items() if name is not None}


def find_pairs(folder: str, folders: Sequence[str], ending: str) -> dict[str, Pair]:
    """The folders of pictures and of files that end in `ending` in `folder`, whose folders are `folders`: by split, or by ""
    where there are none."""
    return _inside(folder, folders, ending) or _by_split(folder, folders, ending) or _flat(folder, ending)


def holds(folder: str, ending: str) -> bool:
    """Whether a file in `folder` ends so."""
    try:
        with os.scandir(folder) as entries:
            return any(_ends(entry.name, ending) for entry in entries)
    except OSError:
        return False


def endings(folder: str, ending: str) -> list[str]:
    """The names of the files in `folder` that end so, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if _ends(entry.name, ending))


def join(pair: Pair, ending: str) -> Joined:
    """Each picture of a pair with the file of the same name that ends in `ending`."""
    about = {os.path.splitext(name)[0]: name for name in endings(pair.annotations, ending)}
    with os.scandir(pair.pictures) as entries:
        pictures = sorted(entry.name for entry in entries if is_picture(entry.name) and not entry.name.startswith("."))
    joined = Joined()
    for name in pictures:
        stem = os.path.splitext(name)[0]
        if pair.names is not None and stem not in pair.names:
            continue
        path, found = os.path.join(pair.pictures, name), about.pop(stem, None)
        if found is None:
            joined.alone.append(path)
        else:
            joined.both.append((path, os.path.join(pair.annotations, found)))
    if pair.names is None:
        joined.spare = [os.path.join(pair.annotations, name) for name in about.values()]
    return joined


def without_counterpart(joined: Iterable[Joined], *, alone_left_out: bool) -> list[Problem]:
    """What is to be told of pictures and files that have no counterpart."""
    alone: list[str] = []
    spare: list[str] = []
    for each in joined:
        alone += each.alone
        spare += each.spare
    found = []
    if alone and alone_left_out:
        message = f"{counted(alone, 'picture')} without an annotation: {first(alone)}."
        found.append(warn(message, "They are left out; add the files of their boxes under the same names."))
    if spare:
        message = f"{counted(spare, 'annotation')} without a picture: {first(spare)}."
        found.append(warn(message, "They are not used; give picture and annotation the same name."))
    return found


def unreadable(faults: Sequence[tuple[str, str]]) -> list[Problem]:
    """What is to be told of annotations that cannot be read: each a path and why."""
    if not faults:
        return []
    path, why = faults[0]
    more = f"; and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    message = (
        f"{counted([path for path, _ in faults], 'annotation')} that cannot be read ({first([path])}: {why}{more})."
    )
    return [warn(message, "Their pictures are left out; write the files anew.")]


def classes_of(folder: str, names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """The classes that annotations name, fit to print, and the place of each name: in the order of ArcGIS's definition in
    `folder`, where they are its values or its names; else sorted, as torchvision sorts them."""
    there = set(names)
    known = arcgis_classes(folder)
    if known is not None:
        values, titles = known
        places = {title: place for place, title in enumerate(titles)}
        places |= {str(value): place for place, value in enumerate(values)}
        if there <= set(places):
            return titles, places
    return tuple(map(shown, sorted(there))), {name: place for place, name in enumerate(sorted(there))}


def read_list(path: Path) -> frozenset[str] | None:
    """The first word of each line of a list of names, without folders and endings; None where there is no such file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    words = [line.split(maxsplit=1)[0] for line in lines if line.strip()]
    return frozenset(Path(word).stem if "/" in word or is_picture(word) else word for word in words)


def _ends(name: str, ending: str) -> bool:
    return name.lower().endswith(ending) and not name.startswith(".")


def _inside(folder: str, folders: Sequence[str], ending: str) -> dict[str, Pair]:
    """images and labels, with or without folders of splits in both."""
    pictures, about = named(folders, PICTURES), named(folders, ANNOTATIONS)
    if pictures is None or about is None:
        return {}
    pictures, about = os.path.join(folder, pictures), os.path.join(folder, about)
    of_pictures, of_about = splits_of(subfolders(pictures)), splits_of(subfolders(about))
    both = {
        split: Pair(os.path.join(pictures, of_pictures[split]), os.path.join(about, of_about[split]))
        for split in of_pictures
        if split in of_about
    }
    pairs = both or {"": Pair(pictures, about)}
    return pairs if any(holds(pair.annotations, ending) for pair in pairs.values()) else {}


def _by_split(folder: str, folders: Sequence[str], ending: str) -> dict[str, Pair]:
    """train and val, each with images and labels in it, or with pictures and files about them side by side."""
    found = {}
    for split, name in splits_of(folders).items():
        place = os.path.join(folder, name)
        inside = subfolders(place)
        pictures, about = named(inside, PICTURES), named(inside, ANNOTATIONS)
        if pictures is not None and about is not None:
            found[split] = Pair(os.path.join(place, pictures), os.path.join(place, about))
        elif not inside:
            found[split] = Pair(place, place)
    return {split: pair for split, pair in found.items() if holds(pair.annotations, ending)}


def _flat(folder: str, ending: str) -> dict[str, Pair]:
    """Pictures and files about them side by side."""
    if not holds(folder, ending):
        return {}
    with os.scandir(folder) as entries:
        some = any(is_picture(entry.name) for entry in entries)
    return {"": Pair(folder, folder)} if some else {}
