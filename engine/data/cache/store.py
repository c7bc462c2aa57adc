"""Stores that keep the decoded images of a split between epochs. Torch-free."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from engine.data.decoding.idx import Bytes
from engine.data.splits import Labels


class Store(ABC):
    """Interface for stores of decoded images, each uint8 [C, s, s], which are addressed by their index in the split.

    All methods except `close` are thread-safe.
    """

    is_complete = False
    """True if the store contains all images from the start, so that none needs to be decoded."""

    @abstractmethod
    def prepare(self, sample: int) -> bool:
        """Return True if the image with the index `sample` is stored. Otherwise, prepare to store it with `put`.

        Callers must call this before `put`.
        """

    @abstractmethod
    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        """Store an image and its aspect ratio (width divided by height) after `prepare` returned False for it.

        Returns False if the image could not be stored.
        """

    def aspect(self, sample: int) -> float:
        """Return the original aspect ratio (width / height) of an image for which `prepare` returned True.

        Stores for images that were not stretched may return 1.
        """
        return 1.0

    @abstractmethod
    def gather(self, samples: Labels, out: Bytes) -> None:
        """Copy stored images to `out`, uint8 [n, C, s, s]."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release the memory and files of the store, which cannot be used afterwards."""


class MappedStore(Store):
    """Store that reads images from one memory-mapped file, uint8 [count, C, s, s].

    `rows` holds the position of each image of the split in the file, or is None if image i is at position i.
    """

    is_complete = True

    def __init__(self, pixels: Bytes, rows: Labels | None) -> None:
        self._pixels = pixels.view(np.ndarray)
        self._rows = rows

    def prepare(self, sample: int) -> bool:
        return True

    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        return True

    def gather(self, samples: Labels, out: Bytes) -> None:
        np.take(self._pixels, samples if self._rows is None else self._rows[samples], axis=0, out=out, mode="clip")


class MemoryStore(Store):
    """Store that keeps images in the memory of this process."""

    def __init__(self, count: int, size: int, channels: int) -> None:
        # The system commits memory on the first write, not here.
        self._pixels: Bytes = np.empty((count, channels, size, size), np.uint8)

    def prepare(self, sample: int) -> bool:
        """Return False, since callers keep track of the images that they have stored."""
        return False

    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        self._pixels[sample] = pixels
        return True

    def gather(self, samples: Labels, out: Bytes) -> None:
        np.take(self._pixels, samples, axis=0, out=out, mode="clip")
