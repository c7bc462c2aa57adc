"""Which folders of images and of files about them belong together, in the spellings in which people keep them. "
"Torch-free."""

from __future__ import annotations

import os
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from engine.data.decoding.image_files import is_image
from engine.data.decoding.masks import arcgis_classes
from engine.data.decoding.reading import MOST_TABLE_BYTES, judged, read_text
from engine.data.formats.folders import subfolders
from engine.data.formats.tree import SPLIT_NAMES
from engine.data.memory_limit import OF_ENTRY_BYTES, allow
from engine.data.splits import shown

IMAGES = ("images", "image", "imgs", "img", "jpegimages", "rgb", "inputs", "image_2")
ANNOTATIONS = ("labels", "label", "annotations", "annotation", "xmls", "xml", "label_2")


class Kind(NamedTuple):
    """How files of one kind about images are kept: their `folders`' names, and the `endings` of their own; of several
    about one image that of the last ending is taken. `suffixes` are what a file's name may have behind that of its
    image, `beside` what a folder of them may have behind the name of a split's folder of images, "" where they lie
    among these. `deep`: both may lie in folders further down."""

    folders: tuple[str, ...]
    endings: tuple[str, ...]
    suffixes: tuple[str, ...] = ("",)
    beside: tuple[str, ...] = ()
    deep: bool = False

    def is_about(self, name: str) -> bool:
        """Whether a file of this name is one of them."""
        return os.path.splitext(name)[1].lower() in self.endings

    def rank(self, name: str) -> tuple[int, str]:
        """By what files of this kind are sorted, that which is taken last."""
        return self.endings.index(os.path.splitext(name)[1].lower()), name


class Pair(NamedTuple):
    """A folder of images and that of the files about them; `names` are those that belong to the split, without their
    endings, None for all."""

    images: str
    annotations: str
    names: frozenset[str] | None = None


@dataclass
class Joined:
    """Images and the file about each, in the order of the images' names; `alone` are those without one, `spare` files
    without an image, `missing` names in a list of which there is no image."""

    both: list[tuple[str, str]] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    spare: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def named(folders: Iterable[str], names: Sequence[str]) -> str | None:
    """That of `folders` whose name is the earliest of `names`, in whatever case."""
    by_name = {folder.lower(): folder for folder in folders}
    return next((by_name[name] for name in names if name in by_name), None)


def splits_of(folders: Sequence[str]) -> dict[str, str]:
    """Which of `folders` are splits, by "train", "val" and "test"; a year may stand behind, as in COCO's train2017."""
    plain = {folder.rstrip(string.digits): folder for folder in sorted(folders, reverse=True)}
    found = {split: named(plain, names) for split, names in SPLIT_NAMES.items()}
    return {split: plain[name] for split, name in found.items() if name is not None}


def find_pairs(folder: str, folders: Sequence[str], kind: Kind) -> dict[str, Pair]:
    """The folders of images and of files about them in `folder`, whose folders are `folders`: by split, or by "" where
    there are none."""
    return _inside(folder, folders, kind) or _by_split(folder, folders, kind) or _flat(folder, kind)


def by_lists(images: str, annotations: str, lists: str, splits: Sequence[str]) -> dict[str, Pair]:
    """A pair of folders by lists of names in the folder `lists`, one for each of `splits`, where there is one for
    training: train.txt, or else trainval.txt."""
    names = {split: read_list(os.path.join(lists, f"{split}.txt")) for split in splits}
    if names["train"] is None:
        names["train"] = read_list(os.path.join(lists, "trainval.txt"))
    found = {split: Pair(images, annotations, of_split) for split, of_split in names.items() if of_split is not None}
    return found if "train" in found else {"": Pair(images, annotations)}


def join(pair: Pair, kind: Kind) -> Joined:
    """Each image of a pair with the file about it."""
    about: dict[str, str] = {}
    for name in sorted(filter(kind.is_about, _files(pair.annotations, deep=kind.deep)), key=kind.rank):
        about[os.path.splitext(name)[0]] = name
    joined = Joined()
    for name in sorted(filter(is_image, _files(pair.images, deep=kind.deep))):
        stem = os.path.splitext(name)[0]
        if pair.names is not None and stem not in pair.names:
            continue
        path = os.path.join(pair.images, name)
        found = next((about.pop(stem + suffix) for suffix in kind.suffixes if stem + suffix in about), None)
        if found is None:
            joined.alone.append(path)
        else:
            joined.both.append((path, os.path.join(pair.annotations, found)))
    if pair.names is None:
        joined.spare = [os.path.join(pair.annotations, name) for name in sorted(about.values())]
    else:
        there = {os.path.splitext(path)[0] for path in [*joined.alone, *(path for path, _ in joined.both)]}
        joined.missing = sorted(name for name in pair.names if os.path.join(pair.images, name) not in there)
    return joined


def classes_of(folder: str, names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """The classes that annotations name, fit to print, and the index of each name: in the order of ArcGIS's
    definition in `folder`, where they are its values or its names; else sorted, as torchvision sorts them."""
    there = set(names)
    known = arcgis_classes(folder)
    if known is not None:
        values, titles = known
        numbers = {title: number for number, title in enumerate(titles)}
        numbers |= {str(value): number for number, value in enumerate(values)}
        if there <= set(numbers):
            return titles, numbers
    return tuple(map(shown, sorted(there))), {name: number for number, name in enumerate(sorted(there))}


def read_list(path: str) -> frozenset[str] | None:
    """The first word of each line of a list of names, without folders and endings; None where there is no such file."""
    try:
        text = read_text(path, MOST_TABLE_BYTES)
    except OSError:
        return None
    with judged(path):
        words = [line.split(maxsplit=1)[0] for line in text.splitlines() if line.strip()]
        return frozenset(Path(word).stem if "/" in word or is_image(word) else word for word in words)


def _files(folder: str, *, deep: bool = False) -> Iterator[str]:
    """The visible files in `folder`, and below it if `deep`, by their paths from there."""
    ahead = [""]
    while ahead:
        within = ahead.pop()
        with os.scandir(os.path.join(folder, within)) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if deep and entry.is_dir(follow_symlinks=False):
                    ahead.append(os.path.join(within, entry.name))
                else:
                    allow(OF_ENTRY_BYTES)
                    yield os.path.join(within, entry.name)


def _holds(folder: str, kind: Kind) -> bool:
    """Whether there is a file of that kind in `folder`."""
    return any(map(kind.is_about, _files(folder, deep=kind.deep)))


def _inside(folder: str, folders: Sequence[str], kind: Kind) -> dict[str, Pair]:
    """images and labels, with or without folders of splits in both; of several folders like labels the first that
    holds such files."""
    images = named(folders, IMAGES)
    if images is None:
        return {}
    images = os.path.join(folder, images)
    of_images = splits_of(subfolders(images))
    for name in kind.folders:
        about = named(folders, (name,))
        if about is None:
            continue
        about = os.path.join(folder, about)
        of_about = splits_of(subfolders(about))
        both = {
            split: Pair(os.path.join(images, of_images[split]), os.path.join(about, of_about[split]))
            for split in of_images
            if split in of_about
        }
        pairs = both or {"": Pair(images, about)}
        if any(_holds(pair.annotations, kind) for pair in pairs.values()):
            return pairs
    return {}


def _by_split(folder: str, folders: Sequence[str], kind: Kind) -> dict[str, Pair]:
    """train and val, each with images and labels in it, or with images in it and the files about them beside."""
    found = {}
    for split, name in splits_of(folders).items():
        inner = os.path.join(folder, name)
        inside = subfolders(inner)
        pair = _inside(inner, inside, kind).get("")
        about = named(folders, [f"{name.lower()}{suffix}" for suffix in kind.beside])
        if pair is not None:
            found[split] = pair
        elif about is not None and not inside and _holds(os.path.join(folder, about), kind):
            found[split] = Pair(inner, os.path.join(folder, about))
    return found


def _flat(folder: str, kind: Kind) -> dict[str, Pair]:
    """Images and files about them side by side."""
    if "" not in kind.beside or not _holds(folder, kind) or not any(map(is_image, _files(folder))):
        return {}
    return {"": Pair(folder, folder)}
