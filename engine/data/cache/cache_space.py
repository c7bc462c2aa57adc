"""The folder where decoded images are kept between runs: its sets, its limit, and the order in which sets are removed.

A set is a folder of its own with `about.json`, `index` and `pixels` (see `cached_images`). Whoever uses a set holds a
shared lock on its index, so that nobody removes it meanwhile; whoever opens, extends or removes one holds the
folder's own lock for that moment. Torch-free.
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

if sys.platform != "win32":
    import fcntl

INDEX, PIXELS, ABOUT = "index", "pixels", "about.json"


class CacheRefused(Exception):  # noqa: N818 - it is an answer
    """Images cannot be kept on disk; the text says why, as half a sentence."""


class CacheInfo(msgspec.Struct, frozen=True):
    """The contents of a set: the images of the folder `dataset`, uint8 [channels, size, size] each."""

    dataset: str
    size: int
    channels: int


class CachedSet(msgspec.Struct, frozen=True):
    """A set as it lies there. `reserved_bytes` is what it comes to once it is full, `used_at` in seconds since 1970."""

    folder: Path
    about: CacheInfo
    reserved_bytes: int
    used_bytes: int
    used_at: float


def root() -> Path:
    """Where the sets are."""
    return images_folder()


@contextmanager
def locked() -> Iterator[Path]:
    """Holds the folder's lock, and makes the folder if missing. Raises CacheRefused where that cannot be."""
    if sys.platform == "win32":
        raise CacheRefused("this system lacks the file locks that it needs")
    folder = root()
    try:
        paths.private_folder(folder)
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


def hold(index: int) -> None:
    """Marks the set with this open index as in use until the descriptor is closed."""
    fcntl.flock(index, fcntl.LOCK_SH)


@contextmanager
def alone(descriptor: int, start: int, length: int) -> Iterator[None]:
    """Keeps other processes from doing the same with these bytes of an open file."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX, length, start)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, length, start)


def sets() -> list[CachedSet]:
    """All sets, the least recently used first."""
    found = []
    for about in root().glob(f"*/{ABOUT}"):
        try:
            index, pixels = (about.with_name(name).stat() for name in (INDEX, PIXELS))
            told = msgspec.json.decode(about.read_bytes(), type=CacheInfo)
        except (OSError, msgspec.MsgspecError):
            continue  # removed at this moment, or not ours
        size = (index.st_size + pixels.st_size, 512 * (index.st_blocks + pixels.st_blocks))
        found.append(CachedSet(about.parent, told, *size, index.st_mtime))
    return sorted(found, key=lambda one: one.used_at)


def remove(folder: Path) -> bool:
    """Removes a set unless it is in use; the caller holds the lock."""
    with _unused(folder) as unused:
        if unused and (folder / INDEX).exists():
            shutil.rmtree(folder)
    return unused


def limit_bytes() -> int:
    """How much all sets together may hold. Raises CacheRefused where LIMIT_VARIABLE is no number."""
    try:
        return cache_limit.limit_bytes()
    except ValueError as error:
        raise CacheRefused(str(error)) from None


def set_limit(limit: int) -> None:
    """Keeps `limit` bytes as the limit, and makes room down to it where sets are not in use."""
    with locked():
        limit_file().write_text(f"{limit}\n")
        make_room(0)


def make_room(needed: int) -> None:
    """Removes sets, least recently used first, until `needed` more bytes fit under the limit and on the disk.

    The caller holds the lock. Raises CacheRefused, with nothing removed for it, where that is not enough.
    """
    there = sets()
    limit = limit_bytes()
    over = needed + sum(one.reserved_bytes for one in there) - limit
    disk = shutil.disk_usage(root())
    short = needed + _left_free(disk.total) - disk.free if needed else 0
    going: list[Path] = []
    for one in there:
        if over <= 0 and short <= 0:
            break
        with _unused(one.folder) as unused:
            if not unused:
                continue
        going.append(one.folder)
        over -= one.reserved_bytes
        short -= one.used_bytes
    if needed and over > 0:
        raise CacheRefused(
            f"{shown_bytes(needed)} more would exceed its limit of {shown_bytes(limit)}, which `footplate cache "
            f"--limit` changes"
        )
    if short > 0:
        raise CacheRefused(f"the disk has no room for {shown_bytes(needed)} more")
    for folder in going:
        remove(folder)


def clear() -> tuple[int, int]:
    """Removes every set that is not in use; how many were removed and how many were left."""
    with locked():
        gone = [remove(one.folder) for one in sets()]
    return sum(gone), len(gone) - sum(gone)


def _left_free(disk_bytes: int) -> int:
    """Bytes of the disk that are left free: 2 GiB, or a twentieth of a small disk."""
    return min(2 * GIB, disk_bytes // 20)


@contextmanager
def _unused(folder: Path) -> Iterator[bool]:
    """Whether nobody uses a set; inside, nobody can begin to."""
    try:
        index = os.open(folder / INDEX, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unused = True
        except BlockingIOError:
            unused = False
        yield unused
    finally:
        os.close(index)


def shown_bytes(count: int) -> str:
    """For a sentence."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / 2**20:,.0f} MiB"
