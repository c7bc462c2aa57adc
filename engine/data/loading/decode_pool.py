"""Source of the decoded images of a split at one size, with several decoding threads and a cache."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import numpy.typing as npt

from engine.data.cache.cache_policy import OnChosen, open_store
from engine.data.cache.store import Store
from engine.data.datasets.images import DatasetError, ImageSet, UnreadableImage
from engine.data.decoding.idx import Bytes
from engine.data.decoding.reading import lacks_memory
from engine.data.splits import Labels, dataset_error

_READABLE, _CACHED, _UNREADABLE = 1, 2, 3
"""States of an image: decoded but not cached, cached, and unreadable. 0 means that it was never decoded."""


class DecodePool:
    """Thread pool that is recreated whenever the requested number of threads changes."""

    def __init__(self) -> None:
        self._threads = 0  # number of threads in the current pool
        self._pool: ThreadPoolExecutor | None = None  # None if the caller's thread does the work

    def run(self, work: Callable[[int], None], samples: Sequence[int], threads: int) -> None:
        """Call `work` with each sample in `threads` threads, and wait until all calls have returned.

        If `threads` is at most 1, the caller's thread makes the calls. After an exception of `work`, no further calls
        start, and the exception is raised once all threads have finished their current call.
        """
        if threads != self._threads:
            if self._pool is not None:
                self._pool.shutdown()
            self._threads = threads
            self._pool = ThreadPoolExecutor(threads, "decode") if threads > 1 else None
        remaining = iter(samples)

        def work_through() -> None:
            """Call `work` with the remaining samples, which all threads share."""
            try:
                for sample in remaining:
                    work(sample)
            except BaseException:
                deque(remaining, maxlen=0)  # leaves no samples for the other threads
                raise

        if self._pool is None or len(samples) <= 1:
            work_through()
        else:
            # All threads take samples from one iterator, so that no thread waits long for the slowest one.
            calls = [self._pool.submit(work_through) for _ in range(min(threads, len(samples)))]
            wait(calls)
            for call in calls:
                call.result()

    def close(self) -> None:
        """Stop the threads after their current calls."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


class ImageSource:
    """Source of the decoded images of a split, in batches of uint8 [n, C, s, s].

    C counts the channels of the images and their planes (`ImageSet.planes`), which hold a target for each pixel.

    For each batch, `decode` is called first and then `gather`. Decoded images are cached, and unreadable ones are
    remembered. Only one thread at a time may call `decode`, `gather` and `close`. All other methods may be called from
    any thread.

    Args:
        images: The split.
        size: Side of the decoded images, in pixels.
        channels: Number of image channels.
        threads: Number of decoding threads.
        on_unreadable: Callback that receives the path of an unreadable image and the reason. It is called once for each
            such image, from any thread.
        cache: Place for the decoded images: "memory", "disk", "off", or "auto" to choose one of these.
        on_chosen: Callback that receives the chosen cache and the reason (see `cache_policy.OnChosen`).
        stretched: True to stretch images to a square with `ImageSet.load_stretched`. `aspects` then returns their
            original aspect ratios.

    Attributes:
        decoded: Number of images decoded since the source was created.
        decode_seconds: Seconds spent on decoding since then, summed over all threads.
    """

    def __init__(
        self,
        images: ImageSet,
        size: int,
        channels: int,
        threads: int,
        on_unreadable: Callable[[str, str], None],
        *,
        cache: str = "auto",
        on_chosen: OnChosen = lambda choice, why: None,
        stretched: bool = False,
    ) -> None:
        self.decoded = 0  # number of decoded images
        self.decode_seconds = 0.0  # time for these images, summed over all threads
        self._images = images
        self._channels = channels
        self._shape = (channels + images.planes, size, size)
        self._on_unreadable = on_unreadable
        self._cache = cache
        self._on_chosen = on_chosen
        self._stretched = stretched
        self._aspects = np.ones(len(images), np.float32)  # original aspect ratios, if images are stretched
        self._states = np.zeros(len(images), np.uint8)  # 0 (unknown), _READABLE, _CACHED or _UNREADABLE
        self._finished_count = 0  # number of images that are cached or unreadable
        self._lock = threading.Lock()
        self._is_open = False
        self._lacks_memory = False  # True if memory was exhausted at the last unreadable image
        self._store: Store | None = None
        self._uncached: dict[int, Bytes] = {}  # images that `decode` has read for `gather` and that are not cached
        self._threads = threads
        self._pool = DecodePool()

    @property
    def is_decoded(self) -> bool:
        """True if no image remains to be decoded, because each is cached or unreadable."""
        return self._finished_count == len(self._states)

    @property
    def has_cache(self) -> bool:
        """True if the source caches decoded images."""
        return self._store is not None

    def open(self) -> None:
        """Choose and open the cache, which may take a moment. Without this, the first call to `decode` opens it."""
        if not self._is_open:
            self._is_open = True
            self._store = open_store(
                self._images, self._shape[1], self._channels, self._cache, self._on_chosen, stretched=self._stretched
            )
            if self._store is not None and self._store.is_complete:
                self._states[:] = _CACHED
                self._finished_count = len(self._states)

    def set_threads(self, threads: int) -> None:
        """Change the number of threads that later calls of `decode` use. With 0 or 1, the caller's thread decodes."""
        self._threads = threads

    def close(self) -> None:
        """Stop the threads and close the cache."""
        self._pool.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def decode(self, samples: Labels, *, replace: bool) -> Labels:
        """Decode the images `samples` [n] that are not cached, and return the indices of the readable ones.

        If `replace` is True, the index of an unreadable image is replaced with that of the next readable image in the
        split. Otherwise it is left out.

        Raises:
            DatasetError: A replacement is needed, but no image of the split is readable.
            MemoryError: No image is readable because memory is exhausted.
        """
        self._decode_missing(samples)
        is_unreadable = self._states[samples] == _UNREADABLE
        if not is_unreadable.any():
            return samples
        if not replace:
            return samples[~is_unreadable]
        return np.array([self._find_readable(int(sample)) for sample in samples], np.int64)

    def aspects(self, samples: Labels) -> npt.NDArray[np.float32]:
        """Return the original aspect ratio (width / height) of each image, float32 [n].

        `decode` must have returned the indices `samples`. If `stretched` is False, all ratios are 1.
        """
        return self._aspects[samples]

    def gather(self, samples: Labels, out: Bytes | None = None) -> Bytes:
        """Return images as uint8 [n, C, size, size], stored in `out` if it is given.

        `samples` [n] must be the indices that the last call to `decode` returned. This forgets the images that are not
        cached.
        """
        if out is None:
            out = np.empty((len(samples), *self._shape), np.uint8)
        if not self._uncached:  # all images are cached
            if self._store is not None and len(samples):
                self._store.gather(samples, out)
            return out
        for row, sample in enumerate(samples.tolist()):
            if sample in self._uncached:
                out[row] = self._uncached[sample]
            elif self._store is not None:
                self._store.gather(samples[row : row + 1], out[row : row + 1])
        self._uncached.clear()
        return out

    def _decode_missing(self, samples: Labels) -> None:
        """Decode those images `samples` [n] that are not cached, unreadable, or already held for the next `gather`."""
        self.open()
        if self.is_decoded:
            return
        unfinished = samples[self._states[samples] < _CACHED].tolist()
        missing = [sample for sample in dict.fromkeys(unfinished) if sample not in self._uncached]
        if missing and not self._load_many(missing):
            self._pool.run(self._load, missing, self._threads)

    def _load_many(self, samples: list[int]) -> bool:
        """Decode several images at once and store them. Returns False if the split can only decode them one by one."""
        started = time.perf_counter()
        images = self._images.load_many(np.array(samples), self._shape[1], self._channels)
        if images is None:
            return False
        for sample, pixels in zip(samples, images, strict=True):
            self._store_pixels(sample, pixels)
        self._count(len(samples), started)
        return True

    def _load(self, sample: int) -> None:
        """Find an image in the cache, or decode and store it. An unreadable image is reported and not tried again."""
        if self._store is not None and self._store.prepare(sample):
            self._aspects[sample] = self._store.aspect(sample)
            self._set_state(sample, _CACHED)
            return
        started = time.perf_counter()
        try:
            if self._stretched:
                loaded, self._aspects[sample] = self._images.load_stretched(sample, self._shape[1], self._channels)
            else:
                loaded = self._images.load(sample, self._shape[1], self._channels)
        except UnreadableImage as problem:
            self._set_state(sample, _UNREADABLE)
            self._lacks_memory = lacks_memory(problem.__cause__)
            self._on_unreadable(problem.path, problem.reason)
            return
        self._store_pixels(sample, loaded.numpy())
        self._count(1, started)

    def _store_pixels(self, sample: int, pixels: Bytes) -> None:
        """Add a decoded image to the cache or, if the cache doesn't accept it, hold it until the next `gather`."""
        if self._store is not None and self._store.put(sample, pixels, float(self._aspects[sample])):
            self._set_state(sample, _CACHED)
        else:
            self._uncached[sample] = pixels
            self._set_state(sample, _READABLE)

    def _set_state(self, sample: int, state: int) -> None:
        """Set the state of an image, which was unknown or decoded before, to decoded, cached or unreadable."""
        self._states[sample] = state
        if state != _READABLE:
            with self._lock:
                self._finished_count += 1

    def _count(self, images: int, started: float) -> None:
        """Add a number of images and the seconds since `started` to the counters `decoded` and `decode_seconds`."""
        with self._lock:
            self.decoded += images
            self.decode_seconds += time.perf_counter() - started

    def _find_readable(self, sample: int) -> int:
        """Return the index of `sample` or, if it is unreadable, of the next readable image. Decodes that image.

        Raises DatasetError or MemoryError if no image is readable (see `decode`).
        """
        count = len(self._states)
        for index in ((sample + step) % count for step in range(count)):
            self._decode_missing(np.array([index], np.int64))  # sets the state of an image that is still unknown
            if self._states[index] != _UNREADABLE:
                return index
        if self._lacks_memory:
            raise MemoryError("not even one image of the training set can be decoded")
        raise DatasetError(
            [dataset_error("No image of the training set can be read.", "Choose a folder with readable images.")]
        )
