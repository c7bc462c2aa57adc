"""Folder of the disk cache: list, limit and evict sets of decoded images.

A set is a folder with the files `about.json`, `index` and `pixels` (see `cached_images`). A process that uses a set
holds a shared lock on its index, so that no other process removes the set. Opening, extending or removing a set
requires the lock on the cache folder. Torch-free.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.system import cache_limit, paths
from engine.system.cache_limit import GIB, images_folder, limit_file
from engine.system.files import read_file

if sys.platform != "win32":
    import fcntl

INDEX, PIXELS, ABOUT = "index", "pixels", "about.json"


class CacheRefused(Exception):  # noqa: N818 - not an error of the program
    """Raised when the disk cache can't be used. The message is the reason, in lower case and without a period."""


class CacheInfo(msgspec.Struct, frozen=True):
    """Contents of the file `about.json` in a cached set.

    The set holds images from the folder `dataset`, each uint8 [channels, size, size].
    """

    dataset: str
    size: int
    channels: int


class CachedSet(msgspec.Struct, frozen=True):
    """Set of decoded images on disk.

    `reserved_bytes` is the size of the set once all of its images are stored. `used_at` is the time of its last use, in
    seconds since 1970.
    """

    folder: Path
    about: CacheInfo
    reserved_bytes: int
    used_bytes: int
    used_at: float


@contextmanager
def lock_cache_folder() -> Iterator[Path]:
    """Create the cache folder if it is missing, and yield it while holding its lock.

    Raises CacheRefused if that fails, and also in place of an OSError inside the context.
    """
    if sys.platform == "win32":
        raise CacheRefused("this system lacks the file locks that it needs")
    folder = images_folder()
    try:
        paths.make_private_folder(folder)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CacheRefused(f"{folder} can't be written to ({error.strerror or error})") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    except OSError as error:
        raise CacheRefused(f"{folder} can't be used ({error.strerror})") from error
    finally:
        os.close(descriptor)


def mark_in_use(index: int) -> None:
    """Mark a set of cached images as in use until `index`, the descriptor of its open index file, is closed."""
    fcntl.flock(index, fcntl.LOCK_SH)


@contextmanager
def lock_range(descriptor: int, start: int, length: int) -> Iterator[None]:
    """Hold an exclusive lock inside the context on `length` bytes of an open file, beginning at the offset `start`."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX, length, start)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, length, start)


def list_sets() -> list[CachedSet]:
    """Return all sets of cached images on disk, least recently used first."""
    sets = []
    for about in images_folder().glob(f"*/{ABOUT}"):
        try:
            index, pixels = (about.with_name(name).stat() for name in (INDEX, PIXELS))
            info = msgspec.json.decode(read_file(about), type=CacheInfo)
        except (OSError, msgspec.MsgspecError):
            continue  # being removed, or not a cached set
        reserved_bytes = index.st_size + pixels.st_size  # the files are sparse
        used_bytes = 512 * (index.st_blocks + pixels.st_blocks)
        sets.append(CachedSet(about.parent, info, reserved_bytes, used_bytes, used_at=index.st_mtime))
    return sorted(sets, key=lambda each: each.used_at)


def remove(folder: Path) -> bool:
    """Remove a set of cached images. Return False if it is in use. The caller holds the cache folder's lock."""
    with _lock_unused(folder) as is_unused:
        if is_unused and (folder / INDEX).exists():
            shutil.rmtree(folder)
    return is_unused


def limit_bytes() -> int:
    """Return the size limit in bytes for all sets of cached images together.

    Raises CacheRefused if the environment variable that overrides it is not a number.
    """
    try:
        return cache_limit.limit_bytes()
    except ValueError as error:
        raise CacheRefused(str(error)) from None


def set_limit(limit: int) -> None:
    """Save a new limit in bytes for all cached datasets together, and evict unused ones until it is met."""
    with lock_cache_folder():
        limit_file().write_text(f"{limit}\n")
        make_room(0)


def make_room(needed: int) -> None:
    """Evict the least recently used sets of cached images until `needed` more bytes fit below the limit and on disk.

    With `needed` 0, only the limit counts, and sets in use may still exceed it. The caller holds the cache folder's
    lock. Raises CacheRefused, and evicts nothing, if evicting all unused sets would not free enough.
    """
    sets = list_sets()  # least recently used first
    limit = limit_bytes()
    excess = needed + sum(each.reserved_bytes for each in sets) - limit
    disk_excess = 0
    if needed:
        disk = shutil.disk_usage(images_folder())
        disk_excess = needed + _compute_reserve_bytes(disk.total) - disk.free
    evicted: list[Path] = []
    for each in sets:
        if excess <= 0 and disk_excess <= 0:
            break
        with _lock_unused(each.folder) as is_unused:
            if not is_unused:
                continue
        evicted.append(each.folder)
        excess -= each.reserved_bytes
        disk_excess -= each.used_bytes
    if needed and excess > 0:
        raise CacheRefused(
            f"{format_bytes(needed)} more would exceed its limit of {format_bytes(limit)}, which `footplate cache "
            f"--limit` changes"
        )
    if disk_excess > 0:
        raise CacheRefused(f"the disk has no room for {format_bytes(needed)} more")
    for folder in evicted:
        remove(folder)


def clear() -> tuple[int, int]:
    """Remove all unused sets of cached images. Return the number of removed sets and of remaining ones."""
    with lock_cache_folder():
        removed = [remove(each.folder) for each in list_sets()]
    return sum(removed), len(removed) - sum(removed)


def _compute_reserve_bytes(disk_bytes: int) -> int:
    """Return the number of bytes to leave free on a disk of `disk_bytes`: 2 GiB, or 5% of the disk if that is less."""
    return min(2 * GIB, disk_bytes // 20)


@contextmanager
def _lock_unused(folder: Path) -> Iterator[bool]:
    """Lock a set of cached images exclusively, and yield True, or yield False if another process uses the set."""
    try:
        index = os.open(folder / INDEX, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # without an index, no process can use the set
        yield True
        return
    try:
        try:
            fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_unused = True
        except BlockingIOError:
            is_unused = False
        yield is_unused
    finally:
        os.close(index)


def format_bytes(count: int) -> str:
    """Format a number of bytes for users."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / 2**20:,.0f} MiB"
