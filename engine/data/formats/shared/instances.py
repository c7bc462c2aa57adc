"""Images with outlined objects (instances), read from many kinds of annotations. Torch-free.

`Source` is the common interface of all kinds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.idx import Bytes
from engine.data.decoding.limits import require_size
from engine.data.decoding.mask_values import (
    NO_CLASS,
    MaskValues,
    Values,
    class_plane,
    find_distinct_values,
    read_mask_size,
    read_values,
)
from engine.data.decoding.outlines import Points, Window, fill_polygon, read_outline
from engine.data.decoding.reading import Unfit, read_image
from engine.data.splits import MaskCode, printable, warn_about

MAX_INSTANCES = 255
"""Maximum number of instances in one image, since they are numbered with one byte.

If there are more, the largest ones are used.
"""

MAX_PAINTED = 1 << 28
MAX_LAYERS = 4
"""Maximum total area of the bounding rectangles of all objects in an image, as a multiple of the image area.

Small images have a larger limit, `MAX_PAINTED` pixels. Each pixel takes one byte.
"""

MAX_NUMBERS = 0xFFFF
"""Largest value in masks whose objects are found directly.

The objects of masks with larger values are renumbered first.
"""


class Instance(NamedTuple):
    """Object in an image.

    `window` is the object's bounding rectangle with a mask of its pixels, and `label` its class. An `ignored` instance
    (a crowd of objects that are not separated) is neither learned nor counted as missed.
    """

    window: Window
    label: int
    ignored: bool = False

    @property
    def area(self) -> int:
        """Number of pixels of the object."""
        return int(np.count_nonzero(self.window.pixels))


class Source(Protocol):
    """Interface for objects that read or compute the instances in one image from its annotations."""

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the instances in the image, whose height and width are given.

        Raises Unfit, OutlineError, or any exception of the decoder.
        """

    def labels(self) -> list[int]:
        """Return the class of each instance that is readable and not ignored."""

    def sizes(self) -> list[tuple[int, int]]:
        """Return each (height, width) that the annotations state for the image. They may differ between mask files.

        The list is empty if the annotations don't state a size. May raise any exception of the decoder.
        """

    def state(self) -> bytes:
        """Return bytes that change whenever the instances change, to detect outdated caches."""


class Outlines:
    """Source of instances from outlines in a COCO JSON file.

    For each outline, `outlines` has the class, the JSON of its `segmentation`, and True for a crowd. `size` is the
    height and width of the image according to the file, or None if it is not stated.
    """

    def __init__(self, outlines: Sequence[tuple[int, msgspec.Raw, bool]], size: tuple[int, int] | None) -> None:
        self._outlines = tuple(outlines)
        self._size = size

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the objects that have pixels in the image. Raises Unfit or OutlineError."""
        if self._size is not None:
            require_size(self._size, (height, width), message_start="its outlines have")
        windows = (read_outline(content).window(height, width) for _, content, _ in self._outlines)
        objects = ((label, crowd) for label, _, crowd in self._outlines)
        return _make_instances(windows, objects, height, width)

    def labels(self) -> list[int]:
        return [label for label, _, crowd in self._outlines if not crowd]

    def sizes(self) -> list[tuple[int, int]]:
        return [] if self._size is None else [self._size]

    def state(self) -> bytes:
        """Return bytes that change with any class or outline."""
        return b"".join(b"%d %d %b;" % (label, crowd, bytes(content)) for label, content, crowd in self._outlines)


class Polygons:
    """Source of instances from polygons.

    For each polygon, `polygons` has the class and the points, float64 [k, 2] with x and y as fractions of the image
    size.
    """

    def __init__(self, polygons: Sequence[tuple[int, Points]]) -> None:
        self._polygons = tuple(polygons)

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the objects that have pixels in the image. Raises Unfit or OutlineError."""
        windows = (fill_polygon(points * (width, height), height, width) for _, points in self._polygons)
        return _make_instances(windows, ((label, False) for label, _ in self._polygons), height, width)

    def labels(self) -> list[int]:
        return [label for label, _ in self._polygons]

    def sizes(self) -> list[tuple[int, int]]:
        return []

    def state(self) -> bytes:
        """Return bytes that change with any class or point."""
        return b"".join(b"%d %b;" % (label, points.tobytes()) for label, points in self._polygons)


class _MaskFiles:
    """Base class of sources that read the objects in an image from mask files.

    `paths` are the masks. `settings` are other values that the objects depend on, such as class numbers.
    """

    def __init__(self, paths: Sequence[str], settings: object) -> None:
        self._paths = tuple(paths)
        self._settings = settings

    def sizes(self) -> list[tuple[int, int]]:
        return list(map(read_mask_size, self._paths))

    def state(self) -> bytes:
        """Return bytes that change with the settings, and with the path, size or time of any mask file."""
        entries = [repr(self._settings).encode()]
        for path in self._paths:
            with suppress(OSError):
                info = os.stat(path)
                entries.append(b"%b %d %d" % (os.fsencode(path), info.st_size, info.st_mtime_ns))
        return b";".join(entries)


class NumberedMasks(_MaskFiles):
    """Source of instances from masks that number the objects of one class each. Background pixels are 0.

    `masks` are the paths of the masks with their classes.
    """

    def __init__(self, masks: Sequence[tuple[str, int]]) -> None:
        super().__init__([path for path, _ in masks], [label for _, label in masks])
        self._masks = tuple(masks)

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the objects in all masks. Raises Unfit for a mask of another size."""
        return [
            Instance(window, label)
            for path, label in self._masks
            for window in read_numbered_windows(path, (height, width))
        ]

    def labels(self) -> list[int]:
        """Return the class of each object. Unreadable masks are skipped."""
        found = []
        for path, label in self._masks:
            with suppress(Exception):  # a decoder may raise nearly anything; loading the image reports it
                values = find_distinct_values(read_values(read_image(path)))
                found += [label] * int((values > 0).sum())
        return found


class ClassedMask(_MaskFiles):
    """Source of instances from a mask of object numbers and a mask of classes, as in PASCAL VOC.

    Args:
        numbers: Path of the mask with a different value for each instance (SegmentationObject).
        classes: Path of the mask of classes (SegmentationClass).
        code: Meaning of the values in `classes`.
        background: Class without instances, or None if there is none. The other classes are numbered without it.
    """

    def __init__(self, numbers: str, classes: str, code: MaskCode, background: int | None = 0) -> None:
        super().__init__((numbers, classes), (code, background))
        self._code, self._background = code, background

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the instances, each with the most frequent class among its pixels."""
        numbers_path, classes_path = self._paths
        plane = class_plane(_read_mask(classes_path, (height, width)), self._code)
        found = []
        for window in read_numbered_windows(numbers_path, (height, width)):
            # Number of the object's pixels in each class, leaving out pixels without a class.
            counts = np.bincount(plane[window.slices][window.pixels], minlength=NO_CLASS + 1)[:NO_CLASS]
            if self._background is not None:
                counts = np.delete(counts, self._background)
            if counts.any():  # otherwise it is the border that VOC draws around objects, which has no class
                found.append(Instance(window, int(counts.argmax())))
        return found

    def labels(self) -> list[int]:
        """Return the class of each instance, or [] if a mask can't be read."""
        try:
            return [each.label for each in self.instances(*self.sizes()[0])]
        except Exception:
            return []  # a decoder may raise nearly anything; loading the image reports it


@dataclass(frozen=True)
class Numbering:
    """Encoding of mask values that combine a label and an object number: label * `factor` + number.

    Attributes:
        factor: Number of values for each label.
        first_number: Number of the first object of a label. Lower numbers mark regions of objects that are not
            separated.
        bare_labels: True if a value below `factor` is itself a label and marks a region of objects that are not
            separated.
    """

    factor: int
    first_number: int = 0
    bare_labels: bool = False

    def split(self, value: int) -> tuple[int, bool]:
        """Return the label in an encoded value, and True if the value marks objects that are not separated."""
        if self.bare_labels and value < self.factor:
            return value, True
        label, number = divmod(value, self.factor)
        return label, number < self.first_number


class NumberedLabels(_MaskFiles):
    """Source of instances from a mask whose values combine a label and an object number, as in Cityscapes.

    Args:
        path: Path of the mask.
        numbering: Encoding of the mask's values.
        classes: Class for each label that has instances.
    """

    def __init__(self, path: str, numbering: Numbering, classes: Mapping[int, int]) -> None:
        super().__init__([path], (numbering, sorted(classes.items())))
        self._numbering, self._classes = numbering, classes

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the instances in the mask, whose size must be `height` and `width`. Raises Unfit for another size.

        A region in which several objects aren't separated becomes one ignored instance.
        """
        size = (height, width)
        values, positions = np.unique(_read_mask(self._paths[0], size).values, return_inverse=True)
        objects = [self._numbering.split(value) for value in values.tolist()]
        is_used = np.array([label in self._classes for label, _ in objects], bool)
        # Values whose label has a class are numbered from 1 in their order, and all others become 0.
        numbers_of_values = np.where(is_used, np.cumsum(is_used), 0)
        windows = _find_windows(numbers_of_values[positions].reshape(size))
        used_objects = [(label, is_crowd) for label, is_crowd in objects if label in self._classes]
        return [
            Instance(window, self._classes[label], is_crowd)
            for window, (label, is_crowd) in zip(windows.values(), used_objects, strict=True)
        ]

    def labels(self) -> list[int]:
        """Return the class of each instance that is not ignored, or [] if the mask can't be read."""
        try:
            objects = map(self._numbering.split, find_distinct_values(read_values(read_image(self._paths[0]))).tolist())
        except Exception:
            return []  # a decoder may raise nearly anything; loading the image reports it
        return [self._classes[label] for label, is_crowd in objects if label in self._classes and not is_crowd]


class PanopticImage(_MaskFiles):
    """Source of instances from a PNG of segment ids (R + 256 G + 65536 B) in COCO's panoptic format.

    Segments without a class are background.
    """

    def __init__(self, path: str, segments: Sequence[tuple[int, int, bool]]) -> None:
        """Store the path of the PNG, and the id, the class, and True for a crowd, of each segment with a class."""
        super().__init__([path], tuple(segments))
        self._segments = tuple(segments)

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the objects in an image of the given size. Raises Unfit if the mask holds too many segments.

        Segments that do not occur in the mask are left out.
        """
        ids, positions = np.unique(self._read_ids((height, width)), return_inverse=True)
        if len(ids) > MAX_NUMBERS:
            name = printable(os.path.basename(self._paths[0]))
            raise Unfit(f"{name} holds {len(ids):,} segments, which is too many")
        is_used = np.isin(ids, [id for id, _, _ in self._segments])
        # Ids may be too large for `_find_windows`, so it gets their positions in `ids`, counted from 1.
        numbers = np.where(is_used, np.arange(1, len(ids) + 1, dtype=np.int32), 0)[positions].reshape(height, width)
        windows = {int(ids[number - 1]): window for number, window in _find_windows(numbers).items()}
        return [Instance(windows[id], label, crowd) for id, label, crowd in self._segments if id in windows]

    def labels(self) -> list[int]:
        return [label for _, label, crowd in self._segments if not crowd]

    def _read_ids(self, size: tuple[int, int]) -> Values:
        """Return the segment id at each pixel, [h, w]. Raises Unfit if the PNG has another size than `size`."""
        mask = _read_mask(self._paths[0], size)
        if mask.mode != "color":
            return mask.values
        # The values are 0xRRGGBB, but ids are 0xBBGGRR.
        return (mask.values >> 16) | (mask.values & 0xFF00) | ((mask.values & 0xFF) << 16)


@dataclass(frozen=True, eq=False)
class InstanceSplit:
    """Split of image files, each with a `Source` for the objects in it."""

    per_sample: ClassVar[tuple[str, ...]] = ("files", "sources")
    files: Sequence[str]
    sources: Sequence[Source]
    is_drawn: bool = False

    def state(self) -> str:
        """Return a text that changes whenever the instances of any image change."""
        digest = hashlib.blake2b(digest_size=12)
        for source in self.sources:
            state = source.state()
            # Without the lengths, the result would not change if an outline moved to the next image.
            digest.update(b"%d " % len(state) + state)
        return digest.hexdigest()


def warn_about_crowds(crowded: Sequence[str]) -> list[Problem]:
    """Return a warning about images with more than `MAX_INSTANCES` instances, or [] if there are none.

    `crowded` are the paths of these images.
    """
    remedy = "The largest are used; cut such images into tiles to learn from all."
    return warn_about(crowded, "image", f"with more than {MAX_INSTANCES} instances:", remedy)


def read_numbered_windows(path: str, size: tuple[int, int]) -> list[Window]:
    """Return the rectangle and pixels (`Window`) of each object in a mask file that numbers the objects from 1.

    Raises Unfit if the mask does not have the given size (height, width).
    """
    values = np.maximum(_read_mask(path, size).values, 0)  # missing data has no object
    if values.max(initial=0) > MAX_NUMBERS:  # such as colors, which are renumbered
        _, numbers = np.unique(np.append(0, values), return_inverse=True)  # 0 is added, so that it remains 0
        values = numbers[1:].reshape(size)
        if (count := int(values.max(initial=0))) > MAX_NUMBERS:
            raise Unfit(
                f"its mask {printable(os.path.basename(path))} holds {count:,} values, like an image rather than a mask"
            )
    return list(_find_windows(values).values())


def _find_windows(numbers: Values) -> dict[int, Window]:
    """Return the rectangle and pixels (`Window`) of each positive number in `numbers` [h, w], keyed by the number.

    Raises Unfit if the total area of the rectangles is too large.
    """
    from scipy.ndimage import find_objects

    boxes = {number: box for number, box in enumerate(find_objects(numbers), 1) if box is not None}
    height, width = numbers.shape
    total_area = sum((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in boxes.values())
    _check_total_area(total_area, (height, width))
    return {
        number: Window(rows.start, columns.start, numbers[rows, columns] == number)
        for number, (rows, columns) in boxes.items()
    }


def _make_instances(
    windows: Iterable[Window | None], objects: Iterable[tuple[int, bool]], height: int, width: int
) -> list[Instance]:
    """Return the instances of an image, except those whose window is None because they have no pixels.

    `objects` holds the class of each instance, and True if it is ignored. `height` and `width` are those of the image.
    Raises Unfit if the total area of the windows, which are rectangles, is too large for the image.
    """
    found: list[Instance] = []
    painted = 0
    for window, (label, ignored) in zip(windows, objects, strict=True):
        if window is not None:
            found.append(Instance(window, label, ignored))
            painted += window.pixels.size
            _check_total_area(painted, (height, width))
    return found


def _check_total_area(pixels: int, size: tuple[int, int]) -> None:
    """Raise Unfit if `pixels`, the total area of bounding rectangles in an image, is too large for its size."""
    if pixels > max(MAX_PAINTED, MAX_LAYERS * size[0] * size[1]):
        raise Unfit(f"the rectangles around its objects have {pixels:,} pixels or more, which is too many")


def _read_mask(path: str, size: tuple[int, int]) -> MaskValues:
    """Read the mask at `path`.

    Raises Unfit if it does not have the given size (height, width), and any exception of the decoder.
    """
    mask = read_values(read_image(path))
    height, width = mask.values.shape
    require_size((height, width), size, message_start=f"its mask {printable(os.path.basename(path))} has")
    return mask


def paint(instances: Sequence[Instance], height: int, width: int) -> tuple[Bytes, Bytes]:
    """Draw instances to two planes, uint8 [h, w]: the number of the instance at each pixel, and its class.

    Numbers start at 1, and 0 is background. Background and ignored instances have the class NO_CLASS. Larger instances
    are drawn first, so that small ones in front stay visible. Only the largest `MAX_INSTANCES` are used.
    """
    numbers = np.zeros((height, width), np.uint8)
    classes = np.full((height, width), NO_CLASS, np.uint8)
    order = sorted(instances, key=lambda each: -each.area)[:MAX_INSTANCES]
    for number, each in enumerate(order, 1):
        numbers[each.window.slices][each.window.pixels] = number
        classes[each.window.slices][each.window.pixels] = NO_CLASS if each.ignored else each.label
    return numbers, classes
