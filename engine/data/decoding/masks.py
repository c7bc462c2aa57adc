"""Masks: images whose pixels are classes; the meaning of their values, and how they are read. Torch-free."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.decoding.idx import Bytes
from engine.data.decoding.reading import Unfit, decode_header, judged, read_image, read_text
from engine.data.splits import MaskCode, shown, spread_evenly
from engine.system.regular_files import UnusableFile

NO_CLASS = 255
"""What a pixel of no class is in a plane of classes: left out of the loss and of the measures, as is customary since
PASCAL VOC."""
MOST_CLASSES = NO_CLASS
_AT_ONCE = 1 << 20
"""Pixels that are looked up in one go, of many bytes each."""
_SHORT = (np.uint8, np.uint16)
"""Kinds of numbers of which all that there are fit into a table."""
_MOST_LINES = 100_000
_MOST_VALUES = 1 << 17
"""With more the masks are no masks, however many more there are."""
LOOKED_AT = 400
"""Masks that are opened to learn which values there are, evenly spread; a value that only others hold is told when
training comes across it."""

_NAME_FILES = ("classes.txt", "class_names.txt", "labels.txt", "codes.txt")
_COLOUR_FILES = ("class_dict.csv", "label_colors.txt", "labelmap.txt")
_DEFINITION = "esri_model_definition.emd"
_VOC = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""PASCAL VOC's classes by their value (its development kit, section 3.2)."""

Values = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Meaning:
    """The classes of a folder's masks and the values that stand for them; `trouble` says why these are unknown."""

    classes: tuple[str, ...] = ()
    code: MaskCode | None = None
    trouble: str = ""


def read_values(content: bytes) -> Values:
    """A mask's values [h, w] as whole numbers: those of a palette's or a grey image's pixels, 0xRRGGBB of a colour
    one's.

    Raises Unfit, or what Pillow raises.
    """
    with decode_header(content) as image:
        if image.mode in ("RGB", "RGBA"):
            pixels = np.asarray(image)
            values = pixels[..., 0].astype(np.int32)
            for band in (1, 2):
                values <<= 8
                values |= pixels[..., band]
            return values
        if image.mode not in ("1", "L", "LA", "P", "I", "I;16", "I;16B", "I;16L"):
            raise Unfit(f"a mask must have a palette, gray levels or colors, but this one has the mode {image.mode}")
        values = np.asarray(image.convert("L") if image.mode == "LA" else image)
        kind = np.uint8 if values.dtype == bool else values.dtype.newbyteorder("=")
        return values.astype(kind, copy=False)


def class_plane(values: Values, code: MaskCode) -> Bytes:
    """The class of each pixel as uint8 [h, w], `NO_CLASS` for those of none. Raises Unfit for a value that has "
    "no meaning."""
    grey = code.colours and values.max(initial=0) <= 255  # a grey mask among coloured ones
    known = np.array([*code.values, *code.ignored], np.int64)
    order = np.argsort(known)

    def classes(part: Values) -> tuple[Bytes, npt.NDArray[np.bool_]]:
        wide = part.astype(np.int64) * (0x010101 if grey else 1)
        found = order[np.minimum(np.searchsorted(known[order], wide), len(known) - 1)]
        return np.where(found < len(code.values), found, NO_CLASS).astype(np.uint8), known[found] != wide

    plane: Bytes
    if values.dtype in _SHORT:
        by_value, strange_values = classes(np.arange(np.iinfo(values.dtype).max + 1))
        plane, strange = by_value[values], strange_values[values]
    else:
        plane, strange = np.empty(values.shape, np.uint8), np.empty(values.shape, bool)
        for part in _in_parts(values):
            plane[part], strange[part] = classes(values[part])
    if strange.any():
        value = int(values[strange][0]) * (0x010101 if grey else 1)
        told = f"#{value:06x}" if code.colours else str(value)
        raise Unfit(f"its mask contains the value {told}, which belongs to no class")
    return plane


def values_in(values: Values) -> Values:
    """The different values in a mask, sorted."""
    if values.dtype not in _SHORT:
        return np.unique(values)
    counts = np.zeros(np.iinfo(values.dtype).max + 1, np.int64)
    for part in _in_parts(values):
        counts += np.bincount(values[part].ravel(), minlength=len(counts))
    return np.flatnonzero(counts)


def _in_parts(values: Values) -> Iterator[slice]:
    """The rows of a mask [h, w], so many at a time that what is made of them stays small."""
    rows = max(1, _AT_ONCE // max(values.shape[1], 1))
    return (slice(first, first + rows) for first in range(0, len(values), rows))


def learn_meaning(folder: str, masks: Sequence[str], folders: Sequence[str], *, ignored: int | None = None) -> Meaning:
    """The meaning of the values in `masks`, by files of class names in `folder` or one of `folders`, else by the
    values alone. The value `ignored` is of no class, whatever such a file says."""
    there, colours = _values_of(masks)
    there = there[there != ignored]
    if not len(there):
        return Meaning(
            trouble="None of the masks can be read." if ignored is None else "The masks have no other value."
        )
    return _without(_meaning(folder, folders, there, colours=colours), ignored)


def _without(meaning: Meaning, ignored: int | None) -> Meaning:
    """`meaning` but for the class of the value `ignored`, which is then of none."""
    code = meaning.code
    if ignored is None or code is None:
        return meaning
    kept = [index for index, value in enumerate(code.values) if value != ignored]
    values = tuple(code.values[index] for index in kept)
    none = tuple(dict.fromkeys((*code.ignored, ignored)))
    return Meaning(tuple(meaning.classes[index] for index in kept), replace(code, values=values, ignored=none))


def _meaning(folder: str, folders: Sequence[str], there: Values, *, colours: bool) -> Meaning:
    for parent in (folder, *folders):
        named = _coloured_names(parent) if colours else names_by_value(parent)
        if named is not None:
            return named
    if colours:
        return _by_colour(there)
    return _by_value(there)


def _values_of(masks: Sequence[str]) -> tuple[Values, bool]:
    """All values in a sample of the masks, and whether they are colours."""
    found: set[int] = set()
    colours = False
    for index in spread_evenly(len(masks), LOOKED_AT):
        try:
            values = read_values(read_image(masks[index]))
        except Exception:
            continue  # a decoder may raise nearly anything; whoever loads the image names it
        colours |= bool(values.max(initial=0) > 0xFFFF)
        found.update(values_in(values)[:_MOST_VALUES].tolist())
        if len(found) >= _MOST_VALUES:
            break
    if colours and all(_is_grey(value) for value in found):
        colours, found = False, {value & 0xFF for value in found}
    return np.array(sorted(found), np.int64), colours


def _is_grey(colour: int) -> bool:
    return colour == (colour & 0xFF) * 0x010101


def _by_value(there: Values) -> Meaning:
    """Two values are a background and what stands out; else each is the number of its class, and 255 none."""
    values: list[int] = there.tolist()
    if len(values) <= 2 and values[0] == 0 and values[-1] != 1:
        return Meaning(("background", "foreground"), MaskCode((0, values[-1] if len(values) == 2 else 255)))
    numbered = [value for value in values if value != NO_CLASS]
    if not numbered or numbered[-1] >= MOST_CLASSES:
        most = f"value {values[-1]:,}" if values else "no value"
        return Meaning(trouble=f"The masks contain {most}; class numbers go up to {MOST_CLASSES - 1}.")
    count = max(2, numbered[-1] + 1)
    if count == len(_VOC) and NO_CLASS in values:
        return Meaning(_VOC, MaskCode(tuple(range(count)), ignored=(NO_CLASS,)))
    names = tuple(f"class {number}" for number in range(count))
    return Meaning(names, MaskCode(tuple(range(count)), ignored=(NO_CLASS,)))


def _by_colour(there: Values) -> Meaning:
    if len(there) > MOST_CLASSES:
        return Meaning(trouble=f"The masks have {len(there):,} colors, as if they had been saved as JPEG or smoothed.")
    names = tuple(f"#{colour:06x}" for colour in there.tolist())
    return Meaning(names, MaskCode(tuple(there.tolist()), colours=True))


def names_by_value(folder: str) -> Meaning | None:
    """Names by value: of a list with one in each line, or of the definition that ArcGIS exports with its chips."""
    definition = arcgis_classes(folder)
    if definition is not None:
        values, names = definition
        rest = () if 0 in values else (0,)
        return Meaning((*("background" for _ in rest), *names), MaskCode((*rest, *values), ignored=_none_of(values)))
    for name in _NAME_FILES:
        lines = _lines(os.path.join(folder, name))
        if len(lines) > MOST_CLASSES:
            return Meaning(
                trouble=f"{name} names {len(lines):,} classes; masks and clouds support at most {MOST_CLASSES}."
            )
        if len(lines) >= 2:
            return Meaning(tuple(lines), MaskCode(tuple(range(len(lines))), ignored=_none_of(range(len(lines)))))
    return None


def _none_of(values: Sequence[int]) -> tuple[int, ...]:
    return () if NO_CLASS in values else (NO_CLASS,)


def arcgis_classes(folder: str) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """The values and names of the classes in the definition that ArcGIS exports with its chips, None where there "
    "is none."""
    try:
        path = os.path.join(folder, _DEFINITION)
        with judged(path):
            content = json.loads(read_text(path))
            classes = sorted((int(each["Value"]), str(each["Name"])) for each in content["Classes"])
    except UnusableFile:
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    if not classes:
        return None
    values, names = zip(*classes, strict=True)
    return values, tuple(map(shown, names))


def _coloured_names(folder: str) -> Meaning | None:
    """Names by colour: a table of name, r, g, b (class_dict.csv), lines of "r g b name" (label_colors.txt), or of
    "name:r,g,b:…" (labelmap.txt)."""
    for name in _COLOUR_FILES:
        rows = [found for line in _lines(os.path.join(folder, name)) if (found := _coloured(line, name)) is not None]
        if len(rows) >= 2:
            names, colours = zip(*rows, strict=True)
            return Meaning(names, MaskCode(colours, colours=True))
    return None


def _coloured(line: str, name: str) -> tuple[str, int] | None:
    if name.endswith(".csv"):
        (cells,) = csv.reader([line])
        title, numbers = (cells[0], cells[1:4]) if len(cells) >= 4 else ("", [])
    elif name == "labelmap.txt":
        title, _, rest = line.partition(":")
        numbers = rest.partition(":")[0].split(",")
    else:
        match = re.fullmatch(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S.*?)\s*", line)
        title, numbers = (match[4], list(match.groups()[:3])) if match else ("", [])
    try:
        red, green, blue = map(int, numbers)
    except ValueError:
        return None
    return (shown(title.strip()), (red << 16) | (green << 8) | blue) if title.strip() else None


def _lines(path: str) -> list[str]:
    try:
        text = read_text(path)
    except OSError:
        return []
    if (count := text.count("\n")) > _MOST_LINES:
        raise UnusableFile(path, f"has {count:,} lines, too many for class names", "Keep one line per class.")
    return [shown(line.strip()) for line in text.splitlines() if line.strip() and not line.startswith("#")]
