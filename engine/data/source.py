"""Pictures of one split at one size, decoded by threads, and kept where memory allows it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine.data.found import Labels, wrong
from engine.data.idx import Bytes
from engine.data.pictures import DatasetError, PictureSet, UnreadablePicture, may_keep

_UNKNOWN, _GOOD, _BAD = 0, 1, 2


class PictureSource:
    """Hands out blocks of decoded pictures and knows which cannot be read.

    `on_unreadable(path, reason)` is called once for each of those, from whatever thread finds it.
    """

    def __init__(
        self,
        pictures: PictureSet,
        size: int,
        channels: int,
        threads: int,
        on_unreadable: Callable[[str, str], None],
    ) -> None:
        self._pictures = pictures
        self._shape = (channels, size, size)
        self._on_unreadable = on_unreadable
        self._state = np.zeros(len(pictures), np.uint8)
        self._kept: Bytes | None = None
        self._block: dict[int, Bytes] = {}
        self._opened = False
        self._pool = ThreadPoolExecutor(threads, "decode") if threads > 1 else None

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def take(self, samples: Labels, *, replace: bool) -> Labels:
        """Which samples to use in place of `samples`: the readable ones among them, and where `replace`
        is set the next readable one of the split for each of the others. Decodes what is not decoded yet.

        Raises DatasetError where a replacement is needed and no picture of the split is readable.
        """
        self._decode(samples)
        good = self._state[samples] == _GOOD
        if good.all():
            return samples
        if not replace:
            return samples[good]
        return np.array([self._next_readable(int(sample)) for sample in samples], np.int64)

    def pixels(self, samples: Labels) -> Bytes:
        """uint8 [n, C, size, size] of samples that `take` has answered."""
        if self._kept is not None:
            return self._kept[samples]
        out = np.empty((len(samples), *self._shape), np.uint8)
        for row, sample in enumerate(samples.tolist()):
            out[row] = self._block[sample]
        self._block.clear()
        return out

    def _open(self) -> None:
        """Reserves or fetches the store; in the reading thread, since it may take a second."""
        self._opened = True
        self._kept = self._pictures.whole(self._shape[1], self._shape[0])
        if self._kept is not None:
            self._state[:] = _GOOD
        elif may_keep(len(self._pictures), *self._shape[:2]):
            # Memory is taken from the system as it is written to, not here.
            self._kept = np.empty((len(self._pictures), *self._shape), np.uint8)

    def _decode(self, samples: Labels) -> None:
        if not self._opened:
            self._open()
        wanted = self._state[samples] != _BAD if self._kept is None else self._state[samples] == _UNKNOWN
        missing = [sample for sample in dict.fromkeys(samples[wanted].tolist()) if sample not in self._block]
        if self._pool is not None and len(missing) > 1:
            list(self._pool.map(self._load, missing))
        else:
            for sample in missing:
                self._load(sample)

    def _load(self, sample: int) -> None:
        channels, size, _ = self._shape
        try:
            picture = self._pictures.load(sample, size, channels).numpy()
        except UnreadablePicture as problem:
            if self._state[sample] != _BAD:
                self._state[sample] = _BAD
                self._on_unreadable(problem.path, problem.reason)
            return
        if self._kept is not None:
            self._kept[sample] = picture
        else:
            self._block[sample] = picture
        self._state[sample] = _GOOD

    def _next_readable(self, sample: int) -> int:
        count = len(self._state)
        for step in range(count):
            place = (sample + step) % count
            if self._state[place] != _BAD:
                self._decode(np.array([place], np.int64))
                if self._state[place] == _GOOD:
                    return place
        raise DatasetError([wrong("No picture of the training set can be read.", "Choose a folder of whole pictures.")])
