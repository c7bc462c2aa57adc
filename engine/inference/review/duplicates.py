"""Find images that are equal or nearly equal, regardless of file names and formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.datasets.images import ImageSet, UnreadableImage
from engine.data.decoding.idx import Bytes

REDUCED_SIDE = 72
"""Side length of the reduced images in pixels. The hash is computed from a 9 x 8 grid of cells of this image."""
MAX_HASH_BITS = 6
"""Maximum number of differing bits in the hashes of duplicates.

In unrelated photographs, about half of the 64 bits differ.
"""
MAX_LEVEL_DIFFERENCE = 8.0
"""Maximum mean difference between the thumbnails of duplicates in gray levels.

It is checked because small images of the same kind have similar hashes.
"""
_THUMBNAIL_SIDE = 12
"""Side length in pixels of the thumbnails that are compared to find duplicates."""
_BLOCK_IMAGES = 1024
"""Number of images that are compared with all other images in one operation."""
MAX_IMAGES = 100_000
"""Maximum number of images that are searched for duplicates, since all pairs are compared."""


class Pair(NamedTuple):
    """Pair of duplicate images.

    `first` and `second` are the images' indices, and `distance` is the number of bits in which their hashes differ.
    """

    first: int
    second: int
    distance: int


class Fingerprints(NamedTuple):
    """Fingerprints of n images.

    Attributes:
        hashes: Hashes, bool [n, 64].
        thumbnails: Thumbnails in gray levels, uint8 [n, 12 * 12].
        is_readable: False for each image that can't be read, bool [n].
    """

    hashes: npt.NDArray[np.bool_]
    thumbnails: Bytes
    is_readable: npt.NDArray[np.bool_]


def compute_fingerprints(
    splits: Sequence[ImageSet], channels: int, threads: int, on_progress: Callable[[int], object]
) -> Fingerprints:
    """Compute the fingerprints of all images in the splits, in order, with `threads` threads.

    Images are loaded with `channels` channels. `on_progress` is called with the number of completed images after each
    one.
    """
    locations = [(samples, index) for samples in splits for index in range(len(samples))]
    fingerprints = Fingerprints(
        np.zeros((len(locations), 64), bool),
        np.zeros((len(locations), _THUMBNAIL_SIDE**2), np.uint8),
        np.zeros(len(locations), bool),
    )

    def compute(number: int) -> None:
        """Store the fingerprint of image `number`, counted over all splits, unless the image is unreadable."""
        samples, index = locations[number]
        try:
            levels = samples.load(index, REDUCED_SIDE, channels)[:channels].numpy().mean(0)
        except UnreadableImage:
            return
        fingerprints.hashes[number] = compute_difference_hash(levels)
        fingerprints.thumbnails[number] = np.rint(_shrink(levels, _THUMBNAIL_SIDE, _THUMBNAIL_SIDE)).ravel()
        fingerprints.is_readable[number] = True

    with ThreadPoolExecutor(threads) as pool:
        for done, _ in enumerate(pool.map(compute, range(len(locations))), 1):
            on_progress(done)
    return fingerprints


def compute_difference_hash(levels: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    """Return the dHash of a gray image [72, 72] (Krawetz 2013, Kind of Like That), bool [64].

    The image is divided into eight rows of nine cells. Each bit is True if a cell is brighter than its left neighbor.
    """
    return (np.diff(_shrink(levels, 8, 9), axis=1) > 0).ravel()


def _shrink(levels: npt.NDArray[np.floating], rows: int, columns: int) -> npt.NDArray[np.floating]:
    """Shrink a gray image [72, 72] to `rows` x `columns` cells, each with the mean of its pixels."""
    return levels.reshape(rows, REDUCED_SIDE // rows, columns, REDUCED_SIDE // columns).mean((1, 3))


def find_pairs(fingerprints: Fingerprints) -> Iterator[Pair]:
    """Yield the pairs of readable images that are equal or nearly equal.

    Their hashes differ by at most `MAX_HASH_BITS` bits, and their thumbnails on average by at most
    `MAX_LEVEL_DIFFERENCE` gray levels.
    """
    hashes, thumbnails, is_readable = fingerprints
    signed_bits = np.where(hashes, 1, -1).astype(np.float32)
    for start in range(0, len(signed_bits), _BLOCK_IMAGES):
        rows = slice(start, start + _BLOCK_IMAGES)
        # Numbers of different bits: the product of two hashes of 1 and -1 is 64 minus twice this number.
        distances = (64 - signed_bits[rows] @ signed_bits[start:].T) / 2
        is_near = np.triu(distances <= MAX_HASH_BITS, 1) & is_readable[rows, None] & is_readable[start:]
        for first, second in (np.argwhere(is_near) + start).tolist():
            difference = np.abs(thumbnails[first].astype(np.int16) - thumbnails[second]).mean()
            if difference <= MAX_LEVEL_DIFFERENCE:
                yield Pair(first, second, int(distances[first - start, second - start]))
