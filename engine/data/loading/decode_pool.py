"""Images of one split at one size, decoded by threads, and kept where the job says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from engine.data.cache.cache_policy import OnChosen, open_store
from engine.data.cache.store import Store
from engine.data.datasets.images import DatasetError, ImageSet, UnreadableImage
from engine.data.decoding.idx import Bytes
from engine.data.decoding.reading import lacks_memory
from engine.data.splits import Labels, dataset_error

_UNKNOWN, _READABLE, _KEPT, _BAD = 0, 1, 2, 3


class ImageSource:
    """Hands out blocks of decoded images, uint8 [n, C, s, s] of their channels and planes, and knows which cannot be
    read.

    `keep` says where decoded images are cached (`Job.data.picture_cache`); `on_chosen(choice, why)` is called with what was
    chosen. `on_unreadable(path, reason)` is called once for each image that cannot be read. Both are called from
    whatever thread finds it. One thread at a time may take, read and close; all else may be asked from any.

    With `stretched`, images are whole and stretched to a square (`ImageSet.load_stretched`), and `aspects` tells their
    original shapes.

    `decoded` and `decode_seconds` count the images decoded so far and what the threads have spent on it.
    """

    def __init__(
        self,
        images: ImageSet,
        size: int,
        channels: int,
        threads: int,
        on_unreadable: Callable[[str, str], None],
        *,
        keep: str = "auto",
        on_chosen: OnChosen = lambda choice, why: None,
        stretched: bool = False,
    ) -> None:
        self.decoded = 0
        self.decode_seconds = 0.0
        self._images = images
        self._channels = channels
        self._shape = (channels + images.planes, size, size)
        self._on_unreadable = on_unreadable
        self._keep = keep
        self._on_chosen = on_chosen
        self._stretched = stretched
        self._aspects = np.ones(len(images), np.float32)
        self._state = np.zeros(len(images), np.uint8)
        self._settled = 0
        self._counting = threading.Lock()
        self._opened = False
        self._short_of_memory = False
        self._store: Store | None = None
        self._block: dict[int, Bytes] = {}
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._pool_threads = 0

    @property
    def at_hand(self) -> bool:
        """Whether no image has to be decoded any more, so that taking and reading a block is but a copy."""
        return self._settled == len(self._state)

    @property
    def keeps(self) -> bool:
        """Whether images that are decoded stay, as far as is known by now."""
        return self._store is not None

    def open(self) -> None:
        """Chooses the cache, which may take a moment; otherwise the first `take` does so."""
        if not self._opened:
            self._opened = True
            self._store = open_store(
                self._images, self._shape[1], self._channels, self._keep, self._on_chosen, stretched=self._stretched
            )
            if self._store is not None and self._store.complete:
                self._state[:] = _KEPT
                self._settled = len(self._state)

    def resize_threads(self, threads: int) -> None:
        """Decodes with so many threads from the next block on; with none or one in the thread that takes."""
        self._threads = threads

    def close(self) -> None:
        """Ends the threads and closes the cache."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._store is not None:
            self._store.close()
            self._store = None

    def take(self, samples: Labels, *, replace: bool) -> Labels:
        """The samples to use instead of `samples`: the readable ones among them and, if `replace` is set, the next
        readable one of the split for each of the others. Decodes what is not decoded yet.

        Raises DatasetError where a replacement is needed and no image of the split is readable, and MemoryError where
        it is memory that they lack.
        """
        self._decode(samples)
        bad = self._state[samples] == _BAD
        if not bad.any():
            return samples
        if not replace:
            return samples[~bad]
        return np.array([self._next_readable(int(sample)) for sample in samples], np.int64)

    def aspects(self, samples: Labels) -> npt.NDArray[np.float32]:
        """Return the width over height [n] of samples that `take` has answered, as far as their shape was lost."""
        return self._aspects[samples]

    def pixels(self, samples: Labels, out: Bytes | None = None) -> Bytes:
        """uint8 [n, C, size, size] of samples that `take` has answered, in `out` where that is given."""
        if out is None:
            out = np.empty((len(samples), *self._shape), np.uint8)
        if not self._block:
            if self._store is not None and len(samples):
                self._store.gather(samples, out)
            return out
        for row, sample in enumerate(samples.tolist()):
            if sample in self._block:
                out[row] = self._block[sample]
            elif self._store is not None:
                self._store.gather(samples[row : row + 1], out[row : row + 1])
        self._block.clear()
        return out

    def _decode(self, samples: Labels) -> None:
        self.open()
        if self.at_hand:
            return
        wanted = samples[self._state[samples] < _KEPT].tolist()
        missing = [sample for sample in dict.fromkeys(wanted) if sample not in self._block]
        if not missing or self._load_together(missing):
            return
        pool = self._sized_pool()
        if pool is None or len(missing) == 1:
            self._load(iter(missing))
        else:
            # Every thread takes the next one, so that none waits long for the slowest.
            line = iter(missing)
            list(pool.map(self._load, [line] * min(self._pool_threads, len(missing))))

    def _sized_pool(self) -> ThreadPoolExecutor | None:
        if self._threads != self._pool_threads:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool_threads = self._threads
            self._pool = ThreadPoolExecutor(self._threads, "decode") if self._threads > 1 else None
        return self._pool

    def _load_together(self, samples: list[int]) -> bool:
        begun = time.perf_counter()
        together = self._images.load_together(np.array(samples), self._shape[1], self._channels)
        if together is None:
            return False
        for sample, pixels in zip(samples, together, strict=True):
            self._settle(sample, pixels)
        self._count(len(samples), begun)
        return True

    def _load(self, line: Iterator[int]) -> None:
        for sample in line:
            if self._store is not None and self._store.find(sample):
                self._aspects[sample] = self._store.aspect(sample)
                self._become(sample, _KEPT)
            else:
                self._load_one(sample)

    def _load_one(self, sample: int) -> None:
        begun = time.perf_counter()
        try:
            if self._stretched:
                loaded, self._aspects[sample] = self._images.load_stretched(sample, self._shape[1], self._channels)
            else:
                loaded = self._images.load(sample, self._shape[1], self._channels)
        except UnreadableImage as problem:
            if self._state[sample] != _BAD:
                self._become(sample, _BAD)
                self._short_of_memory = lacks_memory(problem.__cause__)
                self._on_unreadable(problem.path, problem.reason)
            return
        self._settle(sample, loaded.numpy())
        self._count(1, begun)

    def _settle(self, sample: int, pixels: Bytes) -> None:
        if self._store is not None and self._store.put(sample, pixels, float(self._aspects[sample])):
            self._become(sample, _KEPT)
        else:
            self._block[sample] = pixels
            self._become(sample, _READABLE)

    def _become(self, sample: int, state: int) -> None:
        self._state[sample] = state
        if state != _READABLE:
            with self._counting:
                self._settled += 1

    def _count(self, images: int, begun: float) -> None:
        with self._counting:
            self.decoded += images
            self.decode_seconds += time.perf_counter() - begun

    def _next_readable(self, sample: int) -> int:
        count = len(self._state)
        for step in range(count):
            index = (sample + step) % count
            if self._state[index] != _BAD:
                self._decode(np.array([index], np.int64))
                if self._state[index] != _BAD:
                    return index
        if self._short_of_memory:
            raise MemoryError("not even one image of the training set can be decoded")
        raise DatasetError(
            [dataset_error("No image of the training set can be read.", "Choose a folder with readable images.")]
        )
