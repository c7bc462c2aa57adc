"""Which kind of dataset a folder is, and which files belong to which split and class. Torch-free.

Paths are str with surrogate escapes for names that are not UTF-8; `shown` makes them fit to print.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem
from engine.data.idx import Bytes, IdxError, IdxFiles, find_idx, read_idx

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"})
SPLIT_NAMES = {
    "train": ("train", "training", "trainset"),
    "val": ("val", "valid", "validation", "valset", "validset"),
    "test": ("test", "testing", "testset"),
}
CLUTTER = frozenset({"thumbs.db", "desktop.ini", "__macosx", "lost+found"})
"""What desktops and archives leave in folders; hidden files are passed over as well."""

LAYOUT = "Give a folder with one folder of pictures per class, or with train and val folders of such."

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FileSplit:
    """Pictures as files. `labels[i]` is the class of `files[i]`; `strays` are files that are no pictures by name."""

    files: list[str]
    labels: Labels
    strays: list[str] = field(default_factory=list)
    made: bool = False


@dataclass(frozen=True)
class IdxSplit:
    """Pictures in idx files. `rows` are those of the file that belong to the split, None for all."""

    images: str
    labels: Labels
    rows: Labels | None = None
    made: bool = False


@dataclass(frozen=True)
class Recognised:
    """What a folder is. `format` is "imagefolder", "idx" or ""; without an error in `problems` both splits are there.

    `classes` are in torchvision's order (sorted names) and fit to print.
    """

    format: str
    classes: tuple[str, ...] = ()
    train: FileSplit | IdxSplit | None = None
    val: FileSplit | IdxSplit | None = None
    problems: tuple[Problem, ...] = ()


def shown(path: str) -> str:
    r"""`path` as valid Unicode: bytes that are not UTF-8 appear as \xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def wrong(message: str, remedy: str = LAYOUT) -> Problem:
    return Problem("dataset", message, remedy)


def warn(message: str, remedy: str = "") -> Problem:
    return Problem("dataset", message, remedy, "warning")


def recognise(folder: str, *, val_fraction: float, seed: int) -> Recognised:
    """Says what `folder` is, from names alone (and idx labels): pictures are not opened."""
    try:
        folders = _subfolders(folder)
        idx = find_idx(folder)
        if idx is not None:
            return _recognise_idx(idx, val_fraction, seed)
        return _recognise_imagefolder(folder, folders, val_fraction, seed)
    except FileNotFoundError:
        return _nothing(wrong(f"There is no folder {shown(folder)}.", "Check the spelling, or browse for it."))
    except NotADirectoryError:
        return _nothing(wrong(f"{shown(folder)} is a file, not a folder.", "Choose the folder that holds the pictures."))
    except PermissionError as error:
        where = shown(os.fsdecode(error.filename or folder))
        return _nothing(wrong(f"{where} may not be read.", "Give yourself permission to read it, or choose another."))
    except OSError as error:
        return _nothing(wrong(f"{shown(folder)} cannot be read: {error.strerror}.", "Check the disk, or choose another."))


def _nothing(problem: Problem) -> Recognised:
    return Recognised("", problems=(problem,))


# ImageFolder


def _visible(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in CLUTTER


def _subfolders(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if _visible(entry.name) and entry.is_dir())


def is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def _walk(folder: str, seen: frozenset[tuple[int, int]] = frozenset()) -> Iterator[str]:
    """All visible files below `folder`, in torchvision's order, links followed but never in a circle."""
    info = os.stat(folder)
    here = (info.st_dev, info.st_ino)
    if here in seen:
        return
    with os.scandir(folder) as scan:
        entries = sorted((entry for entry in scan if _visible(entry.name)), key=lambda entry: entry.name)
    deeper = []
    for entry in entries:
        if entry.is_dir():
            deeper.append(entry.path)
        else:
            yield entry.path
    for path in deeper:
        yield from _walk(path, seen | {here})


def _list_class(folder: str) -> tuple[list[str], list[str]]:
    pictures, strays = [], []
    for path in _walk(folder):
        (pictures if is_picture(path) else strays).append(path)
    return pictures, strays


def _split_folders(folder: str, folders: list[str], problems: list[Problem]) -> dict[str, str]:
    """The folders that are splits. One that holds pictures but no folders is a class of that name instead."""
    found: dict[str, str] = {}
    for split, names in SPLIT_NAMES.items():
        fitting = [name for name in folders if name.lower() in names and _subfolders(os.path.join(folder, name))]
        fitting.sort(key=lambda name: names.index(name.lower()))
        if fitting:
            found[split] = fitting[0]
        if len(fitting) > 1:
            left = ", ".join(map(shown, fitting[1:]))
            problems.append(warn(f"Beside {shown(fitting[0])} there is {left}, which is not used."))
    return found


def _recognise_imagefolder(folder: str, folders: list[str], val_fraction: float, seed: int) -> Recognised:
    problems: list[Problem] = []
    splits = _split_folders(folder, folders, problems)
    if not splits:
        return _without_split(folder, folders, val_fraction, seed)
    if "train" not in splits:
        have = ", ".join(map(shown, splits.values()))
        return _nothing(wrong(f"There is {have} but no train folder.", "Add a train folder with one folder per class."))
    train_at = os.path.join(folder, splits["train"])
    names = _subfolders(train_at)
    train, empty = _collect(train_at, names)
    problems += _judge_classes(names, empty, splits["train"])
    classes = tuple(map(shown, names))
    if "val" not in splits and "test" not in splits:
        return Recognised("imagefolder", classes, *_divide(train, folder, val_fraction, seed), tuple(problems))
    if "val" not in splits:
        problems.append(
            warn(
                f"There is no validation folder; {shown(splits['test'])} serves as one.",
                "Add a val folder to keep the test pictures for a last, independent look.",
            )
        )
    name = splits.get("val") or splits["test"]
    val_at = os.path.join(folder, name)
    val_names = _subfolders(val_at)
    val, val_empty = _collect(val_at, names, only=val_names)
    problems += _compare_classes(names, val_names, val_empty, name)
    return Recognised("imagefolder", classes, train, val, tuple(problems))


def _without_split(folder: str, folders: list[str], val_fraction: float, seed: int) -> Recognised:
    if not folders:
        return _nothing(_no_folders(folder))
    whole, empty = _collect(folder, folders)
    if not whole.files:
        message = f"None of the {len(folders)} folders in {shown(folder)} holds a picture."
        return _nothing(wrong(message, f"Pictures are files ending in {', '.join(sorted(EXTENSIONS))}. {LAYOUT}"))
    # A folder beside the classes that holds no pictures at all (notes, scripts) is no class.
    names = [name for name in folders if name not in empty]
    problems = [warn(f"Folder {shown(name)} holds no pictures and is not used as a class.") for name in empty]
    if empty:
        whole, _ = _collect(folder, names)
    if len(names) == 1:
        inside = os.path.join(folder, names[0])
        deeper = _subfolders(inside)
        if len(deeper) > 1:
            remedy = f"Choose {shown(inside)} instead, which holds {len(deeper)} folders."
            return Recognised("", problems=(wrong("The folder holds a single folder.", remedy),))
    problems += _judge_classes(names, [], "")
    classes = tuple(map(shown, names))
    return Recognised("imagefolder", classes, *_divide(whole, folder, val_fraction, seed), tuple(problems))


def _no_folders(folder: str) -> Problem:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _visible(entry.name)]
    pictures = sum(map(is_picture, names))
    if not names:
        return wrong(f"{shown(folder)} is empty.")
    if pictures:
        return wrong(f"{shown(folder)} holds {pictures} pictures but no folders that tell their classes.")
    return wrong(f"{shown(folder)} holds neither folders of pictures nor idx files.")


def _collect(folder: str, names: list[str], only: list[str] | None = None) -> tuple[FileSplit, list[str]]:
    """The pictures of the classes `names`, and the names of those that have none."""
    files: list[str] = []
    labels: list[int] = []
    strays: list[str] = []
    empty: list[str] = []
    for label, name in enumerate(names):
        if only is not None and name not in only:
            continue
        pictures, others = _list_class(os.path.join(folder, name))
        files += pictures
        labels += [label] * len(pictures)
        strays += others
        if not pictures:
            empty.append(name)
    return FileSplit(files, np.array(labels, np.int64), strays), empty


def _judge_classes(names: list[str], empty: list[str], place: str) -> list[Problem]:
    where = f" in {shown(place)}" if place else ""
    if len(empty) == len(names):
        return [wrong(f"None of the {len(names)} folders{where} holds a picture.")]
    found = [
        wrong(f"The class folder {shown(name)}{where} holds no pictures.", "Add pictures to it, or remove it.")
        for name in empty
    ]
    if len(names) == 1:
        found.append(
            wrong(f"There is one class only ({shown(names[0])}){where}.", "Telling apart needs two or more: add a folder.")
        )
    return found


def _compare_classes(names: list[str], val_names: list[str], val_empty: list[str], place: str) -> list[Problem]:
    found = []
    for name in val_names:
        if name not in names:
            remedy = "Add pictures of it for training, or remove it."
            found.append(wrong(f"Class {shown(name)} is in {shown(place)}, but training has none of it.", remedy))
    for name in names:
        if name not in val_names or name in val_empty:
            found.append(warn(f"Class {shown(name)} has no pictures in {shown(place)}, so it is never validated."))
    if all(name not in val_names or name in val_empty for name in names):
        found.append(wrong(f"{shown(place)} holds no pictures of any class.", f"Add some, or remove {shown(place)}."))
    return found


def _divide(whole: FileSplit, folder: str, val_fraction: float, seed: int) -> tuple[FileSplit, FileSplit]:
    keys = [os.fsencode(os.path.relpath(path, folder)) for path in whole.files]
    chosen = _draw(keys, whole.labels, val_fraction, seed)
    train = [path for path, take in zip(whole.files, chosen, strict=True) if not take]
    val = [path for path, take in zip(whole.files, chosen, strict=True) if take]
    return FileSplit(train, whole.labels[~chosen], whole.strays), FileSplit(val, whole.labels[chosen], made=True)


def _draw(keys: list[bytes], labels: Labels, val_fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which samples go to validation: of each class the given share, at least one where it has two.

    The order is that of a hash of seed and name, so it is the same on every machine and hardly
    changes when pictures are added.
    """
    chosen = np.zeros(len(keys), bool)
    members: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(labels.tolist()):
        members[label].append(place)
    salt = seed.to_bytes(8, "little", signed=True)
    for places in members.values():
        places.sort(key=lambda place: hashlib.blake2b(keys[place], digest_size=8, salt=salt).digest())
        count = min(max(round(len(places) * val_fraction), 1), len(places) - 1)
        chosen[places[:count]] = True
    return chosen


# idx


def _recognise_idx(files: IdxFiles, val_fraction: float, seed: int) -> Recognised:
    if files.train_images is None or files.train_labels is None:
        missing = "images" if files.train_images is None else "labels"
        remedy = f"Add train-{missing}-idx{3 if missing == 'images' else 1}-ubyte (or its .gz)."
        return Recognised("idx", problems=(wrong(f"The idx file with the training {missing} is missing.", remedy),))
    if (files.val_images is None) != (files.val_labels is None):
        missing = "images" if files.val_images is None else "labels"
        remedy = f"Add t10k-{missing}-idx{3 if missing == 'images' else 1}-ubyte (or its .gz), or remove its other half."
        return Recognised("idx", problems=(wrong(f"The idx file with the validation {missing} is missing.", remedy),))
    problems: list[Problem] = []
    train = _read_labels(files.train_labels, problems)
    val = _read_labels(files.val_labels, problems) if files.val_labels else None
    if train is None or (files.val_labels and val is None):
        return Recognised("idx", problems=tuple(problems))
    known = np.unique(train)
    classes = tuple(str(label) for label in known.tolist())
    if len(known) < 2:
        problems.append(wrong(f"There are {len(known)} classes in the training labels.", "Two or more are needed."))
        return Recognised("idx", classes, problems=tuple(problems))
    labels = np.searchsorted(known, train).astype(np.int64)
    if val is None or files.val_images is None:
        keys = [place.to_bytes(8, "little") for place in range(len(labels))]
        chosen = _draw(keys, labels, val_fraction, seed)
        rows = np.arange(len(labels))
        halves = (
            IdxSplit(files.train_images, labels[~chosen], rows[~chosen]),
            IdxSplit(files.train_images, labels[chosen], rows[chosen], made=True),
        )
        return Recognised("idx", classes, *halves, tuple(problems))
    for label in np.setdiff1d(val, known).tolist():
        remedy = "Use label files that belong together."
        problems.append(wrong(f"Class {label} is in the validation labels, but training has none of it.", remedy))
    for label in np.setdiff1d(known, val).tolist():
        problems.append(warn(f"Class {label} has no pictures for validation, so it is never validated."))
    val_labels = np.searchsorted(known, val).astype(np.int64)
    halves = (IdxSplit(files.train_images, labels), IdxSplit(files.val_images, val_labels))
    return Recognised("idx", classes, *halves, tuple(problems))


def _read_labels(path: str, problems: list[Problem]) -> Bytes | None:
    labels = read_idx_or_explain(path, 1, problems)
    if labels is not None and not len(labels):
        problems.append(wrong(f"{shown(os.path.basename(path))} holds no labels.", "Fetch the file again."))
        return None
    return labels


def read_idx_or_explain(path: str, dimensions: int, problems: list[Problem]) -> Bytes | None:
    """The array of the idx file, or None with the reason added to `problems`."""
    name = shown(os.path.basename(path))
    try:
        array = read_idx(path)
        if array.ndim != dimensions or 0 in array.shape[1:]:
            shape = " x ".join(map(str, array.shape))
            raise IdxError(f"its array is {shape}, not {'a list' if dimensions == 1 else 'pictures x rows x columns'}")
    except IdxError as error:
        problems.append(wrong(f"{name} cannot be used: {error}.", "Fetch the file again."))
    except PermissionError:
        problems.append(wrong(f"{name} may not be read.", "Give yourself permission to read it."))
    except OSError as error:
        problems.append(wrong(f"{name} cannot be read: {error.strerror}.", "Check the disk, or fetch the file again."))
    else:
        return array
    return None
