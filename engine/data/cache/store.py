"""Where the decoded images of a split stay for the epochs to come. Torch-free."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from engine.data.decoding.idx import Bytes
from engine.data.splits import Labels


class Store(ABC):
    """Images by their index in the split, each uint8 [C, s, s]. From any thread, but for `close`."""

    complete = False
    """Whether all images are there from the beginning."""

    @abstractmethod
    def find(self, sample: int) -> bool:
        """Whether the image is kept from before; to be asked before it is put."""

    @abstractmethod
    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        """Store an image that was not found, and its width over height. Return False if that failed."""

    def aspect(self, sample: int) -> float:
        """Return the width over height of an image that `find` has found."""
        return 1.0

    @abstractmethod
    def gather(self, samples: Labels, out: Bytes) -> None:
        """Copies images that are kept to `out`, uint8 [n, C, s, s]."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Gives back what it holds; nothing can be asked of it afterwards."""


class Mapped(Store):
    """Images that lie in one file as they are wanted: uint8 [rows, C, s, s], and the row of each (None where all
    of them are in order).
    """

    complete = True

    def __init__(self, pixels: Bytes, rows: Labels | None) -> None:
        self._pixels = pixels.view(np.ndarray)
        self._rows = rows

    def find(self, sample: int) -> bool:
        return True

    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        return True

    def gather(self, samples: Labels, out: Bytes) -> None:
        np.take(self._pixels, samples if self._rows is None else self._rows[samples], axis=0, out=out, mode="clip")


class InMemory(Store):
    """Images in this process's memory."""

    def __init__(self, count: int, size: int, channels: int) -> None:
        # Memory is taken from the system as it is written to, not here.
        self._pixels: Bytes = np.empty((count, channels, size, size), np.uint8)

    def find(self, sample: int) -> bool:
        return False

    def put(self, sample: int, pixels: Bytes, aspect: float) -> bool:
        self._pixels[sample] = pixels
        return True

    def gather(self, samples: Labels, out: Bytes) -> None:
        np.take(self._pixels, samples, axis=0, out=out, mode="clip")
