"""Annotations of images that Exif turns: whether they were drawn on the turned image or on the pixels as the file holds
them. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.orientation import Turn, turns_of, upright, upright_edges
from engine.data.decoding.outlines import Window
from engine.data.formats.boxes import TOLERANCE, Box, Marked
from engine.data.formats.instances import Instance, Source
from engine.data.splits import counted, first, warn

Drawn = Literal["raw", "upright", "unknown", "other"]
"""What an annotation was drawn on: the pixels as the file holds them, the upright image, either, or another image."""


@dataclass
class Turns:
    """The turned images of a folder: `raw` ones, whose annotations are turned with them, and `unknown` ones."""

    raw: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def problems(self, noun: str) -> list[Problem]:
        """Return what is to be said of them; `noun` is the annotations' plural."""
        found = []
        if self.raw:
            message = (
                f"{counted(self.raw, 'image')} with an EXIF orientation whose {noun} were drawn on the unturned image: "
                f"{first(self.raw)}."
            )
            found.append(warn(message, f"The {noun} are turned with the image; check them in the samples."))
        if self.unknown:
            message = (
                f"{counted(self.unknown, 'image')} with an EXIF orientation, of which nothing tells whether the {noun} "
                f"were drawn on the turned image: {first(self.unknown)}."
            )
            remedy = (
                f"They are used as drawn on the turned image. If the samples show {noun} in wrong places, save the "
                f"images without the orientation."
            )
            found.append(warn(message, remedy))
        return found

    def note(self, verdicts: Mapping[int, Drawn], paths: Sequence[str]) -> None:
        """Add images whose annotations are turned one by one, only where their own size proves it."""
        self.raw += [paths[index] for index in sorted(verdicts) if verdicts[index] == "raw"]
        if "upright" not in verdicts.values():
            self.unknown += [paths[index] for index in sorted(verdicts) if verdicts[index] == "unknown"]

    def chosen(self, verdicts: Mapping[int, Drawn], paths: Sequence[str]) -> set[int]:
        """Return the indices of the images whose annotations are to be turned; one tool drew all of a folder's."""
        known = {verdict for verdict in verdicts.values() if verdict in ("raw", "upright")}
        chosen = {index for index, verdict in verdicts.items() if verdict == "raw"}
        unknown = {index for index, verdict in verdicts.items() if verdict == "unknown"}
        if known == {"raw"}:
            chosen |= unknown
        elif known != {"upright"}:
            self.unknown += [paths[index] for index in sorted(unknown)]
        self.raw += [paths[index] for index in sorted(chosen)]
        return chosen


def drawn_on(sizes: Sequence[tuple[int, int]], turn: Turn) -> Drawn:
    """Judge by the sizes that an annotation gives its image."""
    is_raw, is_upright = (all(size == given for given in sizes) for size in (turn.raw, turn.size))
    if is_raw and is_upright:
        return "unknown"
    return "raw" if is_raw else "upright" if is_upright else "other"


# Boxes


def turn_boxes(images: Sequence[Marked], turns: Turns) -> list[Marked]:
    """Return the images with their boxes, and the sizes that these belong to, as on the upright images."""
    found = turns_of([image.path for image in images])
    verdicts = {index: _of_boxes(images[index], turn) for index, turn in found.items() if images[index].boxes}
    chosen = turns.chosen(verdicts, [image.path for image in images])
    result = list(images)
    for index, turn in found.items():
        image = images[index]
        if index in chosen:
            result[index] = replace(image, boxes=_turned(image, turn), size=turn.size)
        elif verdicts.get(index) == "upright" or (not image.boxes and image.size in (turn.raw, None)):
            result[index] = replace(image, size=turn.size)
    return result


def _of_boxes(image: Marked, turn: Turn) -> Drawn:
    if not image.fractions:
        reach = np.array([box[2:4] for box in image.boxes], np.float64).max(0)
        in_raw, in_upright = ((reach <= np.array(size[::-1]) + TOLERANCE).all() for size in (turn.raw, turn.size))
        if in_raw != in_upright and image.size in (None, turn.raw, turn.size):
            return "raw" if in_raw else "upright"
    return "unknown" if image.size is None else drawn_on([image.size], turn)


def _turned(image: Marked, turn: Turn) -> list[Box]:
    edges = np.array([box[:4] for box in image.boxes], np.float64)
    height, width = (1.0, 1.0) if image.fractions else turn.raw
    moved = upright_edges(edges, turn.orientation, height, width)
    return [Box(*row, box.label, box.ignored) for row, box in zip(moved.tolist(), image.boxes, strict=True)]


# Outlines


class TurnedSource:
    """The instances of an image that were drawn on its unturned pixels, turned with it."""

    def __init__(self, source: Source, turn: Turn) -> None:
        self._source = source
        self._turn = turn

    def instances(self, height: int, width: int) -> list[Instance]:
        """Return those of the upright image, which has that size."""
        turn = self._turn._replace(height=height, width=width)
        return [each._replace(window=_turned_window(each.window, turn)) for each in self._source.instances(*turn.raw)]

    def labels(self) -> list[int]:
        """Return the class of each."""
        return self._source.labels()

    def sizes(self) -> list[tuple[int, int]]:
        """Return the sizes of their images when these are upright."""
        return [self._turn.size for _ in self._source.sizes()]

    def state(self) -> bytes:
        """Return a fingerprint."""
        return b"turned %d " % self._turn.orientation + self._source.state()


def turn_sources(files: Sequence[str], sources: Sequence[Source], turns: Turns) -> list[Source]:
    """Return the sources of instances as on the upright images."""
    found = turns_of(files)
    verdicts = {index: _of_source(sources[index], turn) for index, turn in found.items()}
    chosen = turns.chosen(verdicts, files)
    return [TurnedSource(source, found[index]) if index in chosen else source for index, source in enumerate(sources)]


def _of_source(source: Source, turn: Turn) -> Drawn:
    try:
        return drawn_on(source.sizes(), turn)
    except Exception:  # a decoder of masks may raise nearly anything; whoever loads the image names it
        return "other"


def _turned_window(window: Window, turn: Turn) -> Window:
    height, width = window.pixels.shape
    edges = np.array([[window.left, window.top, window.left + width, window.top + height]], np.float64)
    ((left, top, _, _),) = upright_edges(edges, turn.orientation, *turn.raw).astype(int).tolist()
    return Window(top, left, np.ascontiguousarray(upright(window.pixels, turn.orientation)))
