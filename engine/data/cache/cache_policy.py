"""Which store the decoded images of a split get, and why."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from engine.data.cache.cache_space import CacheRefused, shown_bytes
from engine.data.cache.cached_images import CachedImages
from engine.data.cache.store import InMemory, Mapped, Store
from engine.data.datasets.images import ImageSet
from engine.data.decoding.images import VERSION

KEEP_LIMIT_BYTES = 1 << 30
"""What a worker keeps in memory unasked; besides no more than an eighth of what is free, and half of it when asked."""

OnChosen = Callable[[str, str], None]
"""Takes what was chosen ("disk", "memory", "file" or "off") and why, as a sentence."""


def open_store(
    images: ImageSet, size: int, channels: int, where: str, on_chosen: OnChosen, *, stretched: bool = False
) -> Store | None:
    """Open the cache of a split's images as `where` says ("auto", "memory", "disk" or "off"); None for no cache.

    `stretched` images come from `ImageSet.load_stretched`, others from `ImageSet.load`.

    Auto keeps the images of a folder on disk: that serves later runs and all workers of this one, and once read it
    is as fast as memory, which is the choice where the disk refuses and they fit. What takes no decoding but resizing
    never goes to disk. `on_chosen` is called at once, and again should the disk fail later.
    """
    mapped = None if stretched else images.whole(size, channels)
    if mapped is not None:
        on_chosen("file", "The images are already decoded in one file, which is mapped into memory.")
        return Mapped(*mapped)
    planes = channels + images.planes
    needed = len(images) * planes * size * size
    refusal = ""
    if where in ("auto", "disk") and images.files:

        def fail(reason: str) -> None:
            on_chosen("off", f"No more images can be cached: {reason}. The others are decoded in every epoch.")

        try:
            cache = CachedImages(
                images.folder,
                images.files,
                beside=images.beside,
                kind=f"{images.kind}{' stretched' * stretched}",
                size=size,
                channels=planes,
                version=VERSION,
                on_failure=fail,
            )
        except CacheRefused as refused:
            refusal = f"The disk cache can't be used: {refused}. "
        else:
            space = f"{shown_bytes(needed)} in {cache.folder.parent}"
            on_chosen("disk", f"Decoded once, for all workers and for later runs: {space}.")
            return cache
    if where == "off":
        on_chosen("off", "Images are decoded in every epoch, as requested.")
        return None
    free = psutil.virtual_memory().available
    limit = free // 2 if where == "memory" else min(KEEP_LIMIT_BYTES, free // 8)
    if needed <= limit:
        on_chosen("memory", f"{refusal}Decoded once, for this run: {shown_bytes(needed)} for each worker.")
        return InMemory(len(images), size, planes)
    too_large = f"There is no room in memory for {shown_bytes(needed)} ({shown_bytes(limit)} at most)"
    on_chosen("off", f"{refusal}{too_large}, so images are decoded in every epoch.")
    return None
