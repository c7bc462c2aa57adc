"""A dataset format: images that two text files list, as Caffe and many projects after it had them.

`train.txt` and `val.txt` have a line "PATH CLASS" for each image, with the path from the folder that they are in. Without
`val.txt`, validation is drawn from the other. Nothing here imports torch, so that folders are looked through at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import Unfit, read_text
from engine.data.files import Files, Listing
from engine.data.formats.registry import Format
from engine.data.splits import FileSplit, Recognised, draw_validation, nothing, shown, wrong

LAYOUT = 'Give a folder with a train.txt, and better a val.txt, too, of lines "PATH CLASS".'


def recognise_lists(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """What the lists in `folder` hold; None where there are none."""
    files = {name: Path(folder, f"{name}.txt") for name in ("train", "val")}
    if not files["train"].is_file() or not _lists_images(files["train"]):
        return None
    try:
        rows = {name: _rows(file) for name, file in files.items() if file.is_file()}
    except Unfit as error:
        return nothing(wrong(f"A list can't be read: {error}.", LAYOUT))
    classes = sorted({name for _, name in rows["train"]})
    unknown = sorted({name for _, name in rows.get("val", ())} - set(classes))
    if len(classes) < 2 or unknown:
        what = f"val.txt has the class {shown(unknown[0])}, train.txt has not" if unknown else "There is one class only"
        return nothing(wrong(f"{what}.", "List images of two classes or more in train.txt."))
    train = _split(folder, rows["train"], classes)
    if "val" in rows:
        val = _split(folder, rows["val"], classes)
    else:
        chosen = draw_validation((os.fsencode(path) for path, _ in rows["train"]), train.labels, val_fraction, seed)
        val = FileSplit(train.files.select(chosen), train.labels[chosen], Files.of(), made=True)
        train = FileSplit(train.files.select(~chosen), train.labels[~chosen], Files.of())
    return Recognised("lists", tuple(map(shown, classes)), train, val)


def _lists_images(file: Path) -> bool:
    """Whether the file begins as such a list, told without reading all of it."""
    with open(file, encoding="utf-8", errors="replace") as stream:
        path, _, name = stream.readline(4096).strip().rpartition(" ")
    return bool(name) and is_image(path)


def _rows(file: Path) -> list[tuple[str, str]]:
    """Path and class of each line. Raises Unfit."""
    rows = []
    for number, line in enumerate(read_text(str(file)).splitlines(), 1):
        path, _, name = line.strip().rpartition(" ")
        if line.strip() and not path:
            raise Unfit(f"line {number} of {file.name} has no class")
        if path:
            rows.append((path, name))
    return rows


def _split(folder: str, rows: Sequence[tuple[str, str]], classes: Sequence[str]) -> FileSplit:
    numbers = {name: number for number, name in enumerate(classes)}
    by_folder = groupby((os.path.split(path) for path, _ in rows), key=lambda parts: parts[0])
    listings = [Listing.of(os.path.join(folder, place), [name for _, name in parts]) for place, parts in by_folder]
    return FileSplit(Files.of(listings), np.array([numbers[name] for _, name in rows], np.int64), Files.of())


LISTS = Format(recognise_lists, "lists of images", LAYOUT, "Image classification", tasks=("classification",))
