"""Images that are the same or nearly, whatever their files are called and however they were saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.datasets.images import ImageSet, UnreadableImage
from engine.data.decoding.idx import Bytes

SIDE = 72
"""Images are compared by their squares of so many pixels, of which nine by eight parts make a hash."""
MOST_BITS = 6
"""Images whose hashes differ in more bits are not the same: of 64, unrelated photographs differ in about half."""
MOST_LEVELS = 8.0
"""Nor are those that differ by more levels of 255 on average: small images of the same kind have similar hashes."""
_PARTS = 12
_BLOCK = 1024
MOST = 100_000
"""More images are not compared: each is, with each."""


class Pair(NamedTuple):
    """Two images by their numbers, and in how many bits their hashes differ."""

    first: int
    second: int
    distance: int


class Prints(NamedTuple):
    """What images are compared by: `bits` bool [n, 64], their `small` pictures uint8 [n, 12 * 12], and which could be
    `read`, [n].
    """

    bits: npt.NDArray[np.bool_]
    small: Bytes
    read: npt.NDArray[np.bool_]


def prints_of(splits: Sequence[ImageSet], channels: int, threads: int, progressed: Callable[[int], object]) -> Prints:
    """Those of all images of the splits, one split after another."""
    where = [(samples, index) for samples in splits for index in range(len(samples))]
    prints = Prints(
        np.zeros((len(where), 64), bool), np.zeros((len(where), _PARTS**2), np.uint8), np.zeros(len(where), bool)
    )

    def look(number: int) -> None:
        samples, index = where[number]
        try:
            levels = samples.load(index, SIDE, channels)[:channels].numpy().mean(0)
        except UnreadableImage:
            return
        prints.bits[number] = difference_hash(levels)
        prints.small[number] = np.rint(_shrunk(levels, _PARTS, _PARTS)).ravel()
        prints.read[number] = True

    with ThreadPoolExecutor(threads) as pool:
        for done, _ in enumerate(pool.map(look, range(len(where))), 1):
            progressed(done)
    return prints


def difference_hash(levels: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    """The dHash of a grey image [72, 72] (Krawetz 2013, Kind of Like That): of eight rows of nine parts, whether each
    part is brighter than the one to its left; bool [64].
    """
    return (np.diff(_shrunk(levels, 8, 9), axis=1) > 0).ravel()


def _shrunk(levels: npt.NDArray[np.floating], rows: int, columns: int) -> npt.NDArray[np.floating]:
    """The means of so many rows and columns of parts."""
    return levels.reshape(rows, SIDE // rows, columns, SIDE // columns).mean((1, 3))


def pairs_of(prints: Prints) -> Iterator[Pair]:
    """All pairs of images that are the same or nearly, each once."""
    signs = np.where(prints.bits, 1, -1).astype(np.float32)
    for begin in range(0, len(signs), _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        distances = (64 - signs[rows] @ signs[begin:].T) / 2
        near = np.triu(distances <= MOST_BITS, 1) & prints.read[rows, None] & prints.read[begin:]
        for first, second in (np.argwhere(near) + begin).tolist():
            apart = np.abs(prints.small[first].astype(np.int16) - prints.small[second]).mean()
            if apart <= MOST_LEVELS:
                yield Pair(first, second, int(distances[first - begin, second - begin]))
