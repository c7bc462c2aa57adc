"""Detect if annotations of images with an Exif orientation refer to the upright image or to the stored pixels.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.orientation import Rotation, read_rotations, turn_edges_upright, turn_upright
from engine.data.decoding.outlines import Window
from engine.data.formats.shared.boxes import TOLERANCE, Box, BoxedImage
from engine.data.formats.shared.instances import Instance, InstanceSplit, Source
from engine.data.splits import warn_about

Drawn = Literal["raw", "upright", "unknown", "other"]
"""Form of an image on which its annotations were drawn.

It is "raw" for the stored pixels, "upright" for the upright image, "unknown" if it may be either of them, and "other"
if it is neither.
"""


@dataclass
class RotationReport:
    """Collector for images with an Exif orientation, for warnings.

    `raw` are the paths of images whose annotations were drawn on the stored pixels, so that the annotations must be
    rotated like the image. For the `unknown` images this could not be determined.
    """

    raw: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def problems(self, noun: str) -> list[Problem]:
        """Return a warning about `raw` images and one about `unknown` images, or [] if there are none.

        `noun` is the plural name of the annotations.
        """
        text = f"with an EXIF orientation whose {noun} were drawn on the unturned image:"
        remedy = f"The {noun} are turned with the image; check them in the samples."
        found = warn_about(self.raw, "image", text, remedy)
        text = f"with an EXIF orientation, of which nothing tells whether the {noun} were drawn on the turned image:"
        remedy = (
            f"The {noun} are used as drawn on the turned image. If the samples show them in wrong places, save the "
            f"images without the orientation."
        )
        return [*found, *warn_about(self.unknown, "image", text, remedy)]

    def record(self, verdicts: Mapping[int, Drawn], paths: Sequence[str]) -> None:
        """Record which images have annotations drawn on the stored pixels, and for which images this is unknown.

        `verdicts` is keyed by the index of an image in `paths`. Unknown images are not recorded if the annotations of
        another image were drawn on the upright image.
        """
        self.raw += [paths[index] for index in sorted(verdicts) if verdicts[index] == "raw"]
        if "upright" not in verdicts.values():
            self.unknown += [paths[index] for index in sorted(verdicts) if verdicts[index] == "unknown"]

    def record_and_select(self, verdicts: Mapping[int, Drawn], paths: Sequence[str]) -> set[int]:
        """Return the indices of the images whose annotations must be rotated, and record these images.

        `verdicts` is keyed by the index of an image in `paths`. Images with an unknown verdict follow the others if
        these agree, since an annotation tool treats all images in the same way. Otherwise, they are recorded as unknown
        and not rotated.
        """
        known_verdicts = {verdict for verdict in verdicts.values() if verdict in ("raw", "upright")}
        to_rotate = {index for index, verdict in verdicts.items() if verdict == "raw"}
        unknown = {index for index, verdict in verdicts.items() if verdict == "unknown"}
        if known_verdicts == {"raw"}:
            to_rotate |= unknown
        elif known_verdicts != {"upright"}:
            self.unknown += [paths[index] for index in sorted(unknown)]
        self.raw += [paths[index] for index in sorted(to_rotate)]
        return to_rotate


def find_drawn_image(sizes: Sequence[tuple[int, int]], rotation: Rotation) -> Drawn:
    """Return the form of the image on which annotations were drawn: "raw", "upright", "unknown" or "other" (see `Drawn`).

    `sizes` are the heights and widths of the image according to the annotations. They are compared with the sizes of
    both forms in `rotation`.
    """
    is_raw = all(size == rotation.raw for size in sizes)
    is_upright = all(size == rotation.size for size in sizes)
    if is_raw and is_upright:  # both images have the same size, or the annotations state none
        return "unknown"
    if is_raw:
        return "raw"
    return "upright" if is_upright else "other"


# Boxes


def rotate_boxes(images: Sequence[BoxedImage], rotations: RotationReport) -> list[BoxedImage]:
    """Return the images with boxes and sizes that refer to the upright images.

    Images whose boxes had to be rotated are recorded in `rotations`.
    """
    paths = [image.path for image in images]
    by_index = read_rotations(paths)
    verdicts = {
        index: _check_boxes(images[index], rotation) for index, rotation in by_index.items() if images[index].boxes
    }
    to_rotate = rotations.record_and_select(verdicts, paths)  # images whose boxes refer to the stored pixels
    result = list(images)
    for index, rotation in by_index.items():
        image = images[index]
        if index in to_rotate:
            result[index] = replace(image, boxes=_rotate_boxes_of_image(image, rotation), size=rotation.size)
        # The size in the annotations is also corrected for boxes on the upright image, and for images without boxes.
        elif verdicts.get(index) == "upright" or (not image.boxes and image.size in (rotation.raw, None)):
            result[index] = replace(image, size=rotation.size)
    return result


def _check_boxes(image: BoxedImage, rotation: Rotation) -> Drawn:
    """Return the form of an image on which its boxes were drawn (see `Drawn`).

    It is inferred from the positions of the boxes and from the image size in the annotations.
    """
    reach = np.array([box[2:4] for box in image.boxes], np.float64).max(0)  # rightmost and lowest edge
    in_raw, in_upright = (
        (reach <= np.array([width, height]) + TOLERANCE).all() for height, width in (rotation.raw, rotation.size)
    )
    # Boxes that are inside only one of the two images were drawn on that image. Fractions are inside both.
    if in_raw != in_upright and image.size in (None, rotation.raw, rotation.size):
        return "raw" if in_raw else "upright"
    return "unknown" if image.size is None else find_drawn_image([image.size], rotation)


def _rotate_boxes_of_image(image: BoxedImage, rotation: Rotation) -> list[Box]:
    """Return the boxes of an image, which were drawn on the stored pixels, in the upright image."""
    edges = np.array([box[:4] for box in image.boxes], np.float64)
    height, width = (1.0, 1.0) if image.fractions else rotation.raw
    moved = turn_edges_upright(edges, rotation.orientation, height, width)
    return [
        box._replace(left=left, top=top, right=right, bottom=bottom)
        for box, (left, top, right, bottom) in zip(image.boxes, moved.tolist(), strict=True)
    ]


# Outlines


class RotatedSource:
    """Source of instances in the upright image. It rotates those of `source`, which were drawn on the stored pixels."""

    def __init__(self, source: Source, rotation: Rotation) -> None:
        self._source = source
        self._rotation = rotation

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return the instances in the upright image, whose height and width are given."""
        rotation = self._rotation._replace(height=height, width=width)
        return [
            each._replace(window=_rotate_window(each.window, rotation))
            for each in self._source.instances(*rotation.raw)
        ]

    def labels(self) -> list[int]:
        """Return the class of each instance that is readable and not ignored."""
        return self._source.labels()

    def sizes(self) -> list[tuple[int, int]]:
        """Return the heights and widths according to the annotations, after turning the image upright."""
        return [self._rotation.size for _ in self._source.sizes()]

    def state(self) -> bytes:
        """Return bytes that change whenever the instances or the rotation change."""
        return b"turned %d " % self._rotation.orientation + self._source.state()


def rotate_instances(split: InstanceSplit, rotations: RotationReport) -> InstanceSplit:
    """Return a copy of the split with instances that refer to the upright images.

    Images whose instances must be rotated are recorded in `rotations`.
    """
    by_index = read_rotations(split.files)
    verdicts = {index: _check_source(split.sources[index], rotation) for index, rotation in by_index.items()}
    sources = list(split.sources)
    for index in rotations.record_and_select(verdicts, split.files):
        sources[index] = RotatedSource(sources[index], by_index[index])
    return replace(split, sources=sources)


def _check_source(source: Source, rotation: Rotation) -> Drawn:
    """Return the form of an image on which its instances were drawn (see `Drawn`), given the sizes in the annotations."""
    try:
        return find_drawn_image(source.sizes(), rotation)
    except Exception:  # a decoder of masks may raise nearly anything; loading the image reports it
        return "other"


def _rotate_window(window: Window, rotation: Rotation) -> Window:
    """Convert the pixels of an object (`Window`) in the stored image to those in the upright image."""
    height, width = window.pixels.shape
    edges = np.array([[window.left, window.top, window.left + width, window.top + height]], np.float64)
    ((left, top, _, _),) = turn_edges_upright(edges, rotation.orientation, *rotation.raw).astype(int).tolist()
    return Window(top, left, np.ascontiguousarray(turn_upright(window.pixels, rotation.orientation)))
