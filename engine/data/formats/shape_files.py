"""Annotation files of labeling tools: samples of them, and the images and shapes that they describe. Torch-free."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MAX_PIXELS, MOST_TABLE_BYTES, Unfit, describe_failure, judged, read_text
from engine.data.formats.format import Content
from engine.data.formats.image_lookup import ImageLookup
from engine.data.formats.shapes import Shape, ShapedImage, convert
from engine.data.formats.tree import Tree, split_in, split_named
from engine.data.splits import counted, first, shown, spread_evenly, warn, wrong
from engine.system.regular_files import UnusableFile, open_regular

SAMPLED = 20
"""Annotation files that are opened to detect their format."""
MOST_FILES_SAMPLED = 500
"""Annotation files that are opened to find one with an object."""
_PIECE_BYTES = 1 << 22
_HEAD_BYTES = 1 << 16
_MOST_SAMPLE_BYTES = 64 << 20
_MOST_COORDINATE = 1e9
"""Larger than any image, and small enough to compute with."""
_BETWEEN_ITEMS = re.compile(r"[\s,]*")


def files_ending(tree: Tree, ending: str) -> list[str]:
    """Return the files with an ending (".json"), relative to the dataset's folder."""
    return [os.path.join(folder, name) for folder in tree.walk() for name in tree.files(folder, ending)]


def sample(paths: Sequence[str], count: int = SAMPLED) -> list[str]:
    """Return up to `count` of the paths, evenly spread."""
    return [paths[index] for index in spread_evenly(len(paths), count)]


def likely_first(paths: Sequence[str]) -> list[str]:
    """Return a sample of the paths that prefers files in few folders, as those about all images are."""
    order = sorted(paths, key=lambda path: (path.count(os.sep), path))
    return [*order[:SAMPLED], *sample(order[SAMPLED:])]


def head_of(path: str) -> bytes:
    """Return the begin of a file without the zeros of UTF-16. Raises UnusableFile and OSError."""
    with open_regular(path) as stream:
        return stream.read(_HEAD_BYTES).replace(b"\0", b"")


def words_in(path: str, words: Iterable[bytes]) -> set[bytes]:
    """Return those of the `words` that occur in a file of UTF-8 or UTF-16. Raises UnusableFile and OSError."""
    missing = set(words)
    found: set[bytes] = set()
    overlap = max(map(len, missing), default=1)
    with open_regular(path) as stream:
        length = os.fstat(stream.fileno()).st_size
        if length > MOST_TABLE_BYTES:
            raise UnusableFile(path, f"has {length:,} bytes; the maximum is {MOST_TABLE_BYTES:,}", "Divide it.")
        end = b""
        while missing and (piece := stream.read(_PIECE_BYTES)):
            piece = end + piece.replace(b"\0", b"")
            now = {word for word in missing if word in piece}
            found |= now
            missing -= now
            end = piece[-overlap:]
    return found


def read_json(path: str, at_most: int = MOST_TABLE_BYTES) -> Any:
    """Return the content of a JSON file. Raises UnusableFile, OSError, and Unfit for what is not JSON."""
    with judged(path):
        text = read_text(path, at_most)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unfit(f"it is not valid JSON ({shown(str(error))[:200]})") from None


def sample_json(path: str, words: Iterable[bytes]) -> Any:
    """Return the content of a JSON file about one image; None if it can't be read or lacks one of the `words`."""
    words = set(words)
    try:
        if os.stat(path).st_size > _MOST_SAMPLE_BYTES or words_in(path, words) != words:
            return None
        return read_json(path)
    except (OSError, ValueError):
        return None


def first_items(path: str, count: int = SAMPLED) -> list[Any]:
    """Return the first items of a JSON file that is an array, as far as its head holds them.

    Raises UnusableFile and OSError.
    """
    with open_regular(path) as stream, judged(path):
        head = stream.read(_HEAD_BYTES)
        if head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")[:1] != b"[":
            return []
        for count_bytes in (_PIECE_BYTES, 16 * _PIECE_BYTES):
            head += stream.read(count_bytes)
            encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            if items := _items(head.decode(encoding, "ignore").lstrip(), count):
                return items
    return []


def _items(text: str, count: int) -> list[Any]:
    """Return up to `count` items of an array whose end may be missing."""
    items: list[Any] = []
    position = 1
    decoder = json.JSONDecoder()
    while len(items) < count:
        blanks = _BETWEEN_ITEMS.match(text, position)
        try:
            item, position = decoder.raw_decode(text, blanks.end() if blanks else position)
        except ValueError:
            break
        items.append(item)
    return items


def as_number(value: Any) -> float | None:
    """Return a number from JSON or XML, given as a number or as text; None for anything that can't be a coordinate."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= _MOST_COORDINATE else None


def as_size(height: Any, width: Any) -> tuple[int, int] | None:
    """Return the size of an image from JSON or XML; None if it is not one."""
    numbers = as_number(height), as_number(width)
    if numbers[0] is None or numbers[1] is None:
        return None
    size = int(numbers[0]), int(numbers[1])
    return size if min(size) > 0 and max(size) <= MAX_PIXELS else None


def as_points(value: Any) -> list[tuple[float, float]] | None:
    """Return the points of a list of [x, y]; None if one of them is not a pair of numbers."""
    if not isinstance(value, list):
        return None
    points = []
    for each in value:
        x, y = map(as_number, each) if isinstance(each, list | tuple) and len(each) == 2 else (None, None)
        if x is None or y is None:
            return None
        points.append((x, y))
    return points


def rotated(
    points: Sequence[tuple[float, float]], degrees: float, around: tuple[float, float]
) -> list[tuple[float, float]]:
    """Return points turned clockwise around a point, y being downward."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    x0, y0 = around
    return [(x0 + (x - x0) * cosine - (y - y0) * sine, y0 + (x - x0) * sine + (y - y0) * cosine) for x, y in points]


def ellipse_points(x: float, y: float, radius_x: float, radius_y: float) -> list[tuple[float, float]]:
    """Return an ellipse as a polygon that reaches its leftmost, topmost, rightmost and bottom points."""
    count = 72
    angles = [2 * math.pi * step / count for step in range(count)]
    return [(x + radius_x * math.cos(angle), y + radius_y * math.sin(angle)) for angle in angles]


def split_of_path(path: str, *, by_name: bool = False) -> str:
    """Return the split that a folder of the path is named after; "" if none is.

    Args:
        path: Path relative to the dataset's folder.
        by_name: True if the split may also be a word of the file's name ("instances_train.xml").
    """
    *folders, name = path.replace("\\", "/").split("/")
    found = next((split for folder in folders if (split := split_named(folder))), "")
    return found or (split_in(name) if by_name else "")


class Collection:
    """Images and shapes of a dataset, collected file by file, with everything that can't be used.

    Attributes:
        tree: Folder of the dataset.
        splits: Annotated images by split, "" for those of no split.
        problems: Faults that are complete when they are found.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.splits: dict[str, list[ShapedImage]] = {}
        self.problems: list[Problem] = []
        self._lookup = ImageLookup(tree)
        self._used: set[str] = set()
        self._missing: dict[str, None] = {}
        self._twice: list[str] = []
        self._renamed: list[str] = []
        self._unannotated: list[str] = []
        self._unreadable: list[tuple[str, str]] = []
        self._unreadable_images: set[str] = set()
        self._objects: dict[str, list[tuple[str, str]]] = {}

    def find(self, name: str, near: str = "", *, split: str = "", ending: bool = True) -> str | None:
        """Return the full path of an image, see `ImageLookup.find`."""
        return self._lookup.find(name, near, split=split, ending=ending)

    def find_named(self, path: str, own: str | None, name: str, near: str, split: str) -> str | None:
        """Return the image that an annotation file is about: the one with its own name, else the one that it names.

        Args:
            path: Annotation file.
            own: Image with the name of the annotation file. Files that have one are to be asked for first.
            name: Name of the image in the file.
            near: Folder that `name` may start from.
            split: Split that the annotations are for.
        """
        base = os.path.basename(name.replace("\\", "/"))
        if own is not None:
            folder, own_base = os.path.split(own)
            if not is_image(base) or base == own_base:
                return own
            if os.path.splitext(base)[0] == os.path.splitext(own_base)[0]:  # of a.jpg and a.png the one that it names
                return os.path.join(folder, base) if base in self.tree.files(self.tree.within(folder)) else own
            if self.find(name, near, split=split):
                self._renamed.append(path)
            return own
        image = self.find(name, near, split=split, ending=is_image(base)) if base else None
        return None if image in self._used else image

    def add(self, image: ShapedImage, *splits: str) -> None:
        """Add an annotated image to splits, unless it has been added before."""
        if image.path in self._used:
            self._twice.append(image.path)
            return
        self._used.add(image.path)
        for split in splits:
            self.splits.setdefault(split, []).append(image)

    def note_missing(self, name: str) -> None:
        """Report that an image is not in the dataset."""
        self._missing[name] = None

    def note_unannotated(self, name: str) -> None:
        """Report that an image is listed but was not annotated."""
        self._unannotated.append(name)

    def skip_file(self, path: str, error: Exception, image: str | None = None) -> None:
        """Report that an annotation file about one image can't be read."""
        self._unreadable.append((path, describe_failure(error)))
        if image is not None:
            self._unreadable_images.add(image)

    def skip_object(self, path: str, reason: str, detail: str = "") -> None:
        """Report that an object can't be used.

        Args:
            path: Annotation file or image.
            reason: Constant phrase that follows "There are 3 objects", such as "without a name".
            detail: The fault of this object.
        """
        self._objects.setdefault(reason, []).append((path, detail))

    def content(self, kind: str, listed: Iterable[str] = ()) -> Content:
        """Return the annotations of one kind.

        Args:
            kind: Kind of annotations.
            listed: Classes in the order of the tool; those that do not occur are dropped.
        """
        problems = [*self.problems, *self._of_files(), *self._of_images(), *self._of_objects()]
        if not self._used:
            return Content((), {}, problems)
        self._settle_splits(problems)
        splits = {
            split: sorted(self.splits[split], key=lambda image: image.path)
            for split in ("", "train", "val", "test")
            if self.splits.get(split)
        }
        of_objects = kind in ("boxes", "instances")
        images = [image for split in splits.values() for image in split]
        names = {
            name for image in images for name in ([shape.name for shape in image.shapes] if of_objects else image.tags)
        }
        return convert(kind, splits, problems, [name for name in dict.fromkeys(listed) if name in names])

    def _settle_splits(self, problems: list[Problem]) -> None:
        """Leave out images of no split if there are training images; else these are the training images."""
        rest = self.splits.get("")
        if not rest or len(self.splits) == 1:
            return
        if "train" not in self.splits:
            self.splits["train"] = self.splits.pop("")
            return
        del self.splits[""]
        names = [image.path for image in rest]
        message = f"{counted(names, 'annotated image')} in no split: {first(names)}."
        problems.append(warn(message, "They are left out; assign them to train, val or test."))

    def _of_files(self) -> Iterator[Problem]:
        if self._unreadable:
            paths = [path for path, _ in self._unreadable]
            path, why = self._unreadable[0]
            more = f"; and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            message = f"{counted(paths, 'annotation')} that can't be read ({first([path])}: {why}{more})."
            yield warn(message, "Their images are left out; export the annotations again.")

    def _of_images(self) -> Iterator[Problem]:
        missing = list(self._missing)
        if missing and not self._used:
            message = f"None of the {len(missing):,} annotated images is in the folder: {first(missing)}."
            yield wrong(message, "Put the images next to the annotations, or into a folder named images.")
            return
        if missing:
            message = f"{counted(missing, 'annotation')} without an image: {first(missing)}."
            yield warn(message, "They are not used; put the images next to the annotations, or into images.")
        if self._lookup.ambiguous:
            message = f"{counted(self._lookup.ambiguous, 'image name')} of several images: "
            remedy = "They are left out; give each image a name of its own."
            yield warn(f"{message}{first(self._lookup.ambiguous)}.", remedy)
        if self._twice:
            message = f"{counted(self._twice, 'annotation')} of an image that has one already: {first(self._twice)}."
            yield warn(message, "The first is used; remove the others.")
        if self._renamed:
            message = f"{counted(self._renamed, 'annotation')} that names another image: {first(self._renamed)}."
            yield warn(message, "The images with the names of the annotation files are used; check that they fit.")
        alone = [*self._unannotated, *self._alone()]
        if alone:
            message = f"{counted(alone, 'image')} without an annotation: {first(alone)}."
            yield warn(message, "They are left out; annotate them to use them.")

    def _alone(self) -> Iterator[str]:
        """Yield the images in the folders of annotated images that nothing is known of."""
        known = self._used.union(self._unannotated, self._unreadable_images)
        for folder in sorted({os.path.dirname(path) for path in self._used}):
            paths = [os.path.join(folder, name) for name in filter(is_image, self.tree.files(self.tree.within(folder)))]
            yield from (path for path in paths if path not in known)

    def _of_objects(self) -> Iterator[Problem]:
        for reason, places in self._objects.items():
            paths = [path for path, _ in places]
            path, detail = places[0]
            example = f" ({first([path])}: {shown(detail)[:200]})" if detail else ""
            message = f"{counted(paths, 'object')} {reason}, in {first(paths)}{example}."
            yield warn(message, "They are left out; correct them in the labeling tool, or remove them.")


def without_none(shape: Shape | None) -> list[Shape]:
    """Return the shape in a list, or an empty one."""
    return [] if shape is None else [shape]


def number_of(names: Sequence[str], noun: str) -> str:
    """Return "1 image" or "1,204 images"."""
    return f"{len(names):,} {noun}{'' if len(names) == 1 else 's'}"
