"""Choice between memory and disk for caching the decoded images of a split."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from engine.data.cache.cache_space import CacheRefused, format_bytes
from engine.data.cache.cached_images import CachedImages
from engine.data.cache.store import MappedStore, MemoryStore, Store
from engine.data.datasets.images import ImageSet
from engine.data.decoding.images import VERSION

MEMORY_LIMIT_BYTES = 1 << 30
"""Maximum size in bytes of a worker's cache in memory in mode "auto".

In this mode, the cache also takes at most an eighth of the free memory. In mode "memory", the only limit is half of the
free memory.
"""

OnChosen = Callable[[str, str], None]
"""Callback that receives the chosen cache ("disk", "memory", "file" or "off") and the reason for it, as a sentence."""


def open_store(
    images: ImageSet, size: int, channels: int, mode: str, on_chosen: OnChosen, *, stretched: bool = False
) -> Store | None:
    """Open a cache for a split's images in the requested `mode`: "auto", "memory", "disk" or "off".

    Returns None if images are not cached. If `stretched` is True, the cache holds results of `ImageSet.load_stretched`,
    otherwise results of `ImageSet.load`.

    In mode "auto", images are cached on disk. Later runs and all workers share that cache, and after the first epoch
    reading from it is as fast as from memory. If the disk can't be used, images are cached in memory if they fit.
    Images in an idx file are never cached on disk. If they already have the requested size, they are read from that
    file in every mode. `on_chosen` is called immediately with the chosen cache and the reason (see `OnChosen`), and
    again if the disk fails later.
    """
    mapped = None if stretched else images.mapped_file(size, channels)
    if mapped is not None:
        on_chosen("file", "The images are already decoded in one file, which is mapped into memory.")
        pixels, rows = mapped
        return MappedStore(pixels, rows)
    refusal = ""
    if mode in ("auto", "disk") and images.files:
        try:
            return _open_on_disk(images, size, channels, on_chosen, stretched=stretched)
        except CacheRefused as refused:
            refusal = f"The disk cache can't be used: {refused}. "
    if mode == "off":
        on_chosen("off", "Images are decoded in every epoch, as requested.")
        return None
    planes = channels + images.planes
    needed = len(images) * planes * size * size
    free = psutil.virtual_memory().available
    # Unless the job requests this cache, most of the memory is left for other workers and programs.
    limit = free // 2 if mode == "memory" else min(MEMORY_LIMIT_BYTES, free // 8)
    if needed <= limit:
        on_chosen("memory", f"{refusal}Decoded once, for this run: {format_bytes(needed)} for each worker.")
        return MemoryStore(len(images), size, planes)
    too_large = f"There is no room in memory for {format_bytes(needed)} ({format_bytes(limit)} at most)"
    on_chosen("off", f"{refusal}{too_large}, so images are decoded in every epoch.")
    return None


def _open_on_disk(images: ImageSet, size: int, channels: int, on_chosen: OnChosen, *, stretched: bool) -> CachedImages:
    """Open the disk cache for the images of a split, and report it to `on_chosen`.

    If the disk fails later, the cache reports this to `on_chosen`, too. See `open_store` for the arguments. Raises
    CacheRefused if the disk can't be used.
    """

    def fail(reason: str) -> None:
        on_chosen("off", f"No more images can be cached: {reason}. The others are decoded in every epoch.")

    planes = channels + images.planes
    cache = CachedImages(
        images.folder,
        images.files,
        companions=images.companions,
        cache_key=f"{images.cache_key} stretched" if stretched else images.cache_key,
        size=size,
        channels=planes,
        version=VERSION,
        on_failure=fail,
    )
    space = f"{format_bytes(len(images) * planes * size * size)} in {cache.folder.parent}"
    on_chosen("disk", f"Decoded once, for all workers and for later runs: {space}.")
    return cache
