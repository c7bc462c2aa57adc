"""Unpack images from archives into a folder in the cache once, to read them like other files. Torch-free."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.data.decoding.image_files import EXTENSIONS
from engine.data.splits import printable
from engine.system.file_locks import LOCKS_UNSUPPORTED, locked
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.paths import cache_folder, make_private_folder
from engine.system.regular_files import UnusableFile

_FOLDER = "unpacked"
_COMPLETE = "complete"
_INDEX = "index.json"
_PARTIAL = ".unpacking-"
_PATIENCE_S = 86400.0
"""Maximum time in seconds to wait while another process unpacks the same archives."""
_SPARE_BYTES = 1 << 30
_MAX_LETTERS = 80
"""Maximum length of the name of an image unpacked from an archive, without the extension."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_. ()+-]")
_STARTS = (
    (b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"), (b"GIF8", ".gif"), (b"BM", ".bmp"), (b"RIFF", ".webp"),
    (b"II*\0", ".tif"), (b"MM\0*", ".tif"), (b"II+\0", ".tif"), (b"P5", ".pgm"), (b"P6", ".ppm"),
)  # fmt: skip


class PackedSample(NamedTuple):
    """Sample in an archive: the name and the content of its image, or "" and b"" without an image, and its labels."""

    name: str
    content: bytes
    labels: list[str]


class UnpackedSample(NamedTuple):
    """Sample from an archive: the path of its image, or "" without an image, and its labels."""

    path: str
    labels: list[str]


def unpack_images(archives: Sequence[str], read: Callable[[str], Iterable[PackedSample]]) -> list[list[UnpackedSample]]:
    """Unpack the images in archives into the cache, unless it has them, and return the samples of each archive.

    `read` yields the samples in an archive. Raises the same exceptions as `unpack_once`.
    """
    folder = unpack_once(archives, lambda target: _write_images(target, archives, read))
    index = msgspec.json.decode(read_file(folder / _INDEX, MAX_RESULT_BYTES), type=list[list[UnpackedSample]])
    return [
        [UnpackedSample(str(folder / path) if path else "", labels) for path, labels in samples] for samples in index
    ]


def _write_images(folder: Path, archives: Sequence[str], read: Callable[[str], Iterable[PackedSample]]) -> None:
    """Write the images in some archives to `folder`, with an index of the samples and their paths in `folder`."""
    index: list[list[UnpackedSample]] = []
    for number, archive in enumerate(archives):
        (folder / f"{number:05d}").mkdir()
        samples: list[UnpackedSample] = []
        used_names: set[str] = set()
        for row, (name, content, labels) in enumerate(read(archive)):
            path = ""
            if content:
                path = f"{number:05d}/{choose_file_name(name, content, row, used_names)}"
                (folder / path).write_bytes(content)
            samples.append(UnpackedSample(path, labels))
        index.append(samples)
    (folder / _INDEX).write_bytes(msgspec.json.encode(index))


def unpack_once(archives: Sequence[str], unpack: Callable[[Path], None]) -> Path:
    """Return the folder in the cache with the images from some archives.

    If the folder is missing, it is created, and `unpack` writes the images to it. If an archive changes, a new folder
    is used. Waits while another process unpacks the same archives, and deletes incomplete folders of processes that
    were killed. Raises UnusableFile if the disk is full, OSError, and exceptions of `unpack`.
    """
    digest = hashlib.blake2b(digest_size=12)
    total_bytes = 0
    for path in archives:
        info = os.stat(path)
        total_bytes += info.st_size
        digest.update(
            f"{os.path.realpath(path)}\0{info.st_size}\0{info.st_mtime_ns}\0".encode("utf-8", "surrogateescape")
        )
    parent = make_private_folder(cache_folder() / _FOLDER)
    folder = parent / digest.hexdigest()
    if (folder / _COMPLETE).exists():
        return folder
    with _try_lock(parent / f"{folder.name}.lock") as is_locked:
        if (folder / _COMPLETE).exists():  # another process was faster
            return folder
        if is_locked:
            for partial in parent.glob(f"{_PARTIAL}{folder.name}-*"):  # left behind by a process that was killed
                shutil.rmtree(partial, ignore_errors=True)
        free = shutil.disk_usage(parent).free
        if free < total_bytes + _SPARE_BYTES:
            reason = f"and the files like it need {total_bytes:,} bytes in {parent}, where {free:,} are free"
            remedy = "Free disk space, or choose another folder for the cache in the settings."
            raise UnusableFile(archives[0], reason, remedy)
        _write(folder, unpack)
    return folder


@contextmanager
def _try_lock(lock: Path) -> Iterator[bool]:
    """Wait for a lock and yield True while holding it, or yield False on a file system that doesn't support locks.

    The file `lock` is created, and deleted afterwards.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, _PATIENCE_S))
            stack.callback(lock.unlink, missing_ok=True)
            is_locked = True
        except OSError as error:
            if error.errno not in LOCKS_UNSUPPORTED:
                raise
            is_locked = False
        yield is_locked


def _write(folder: Path, unpack: Callable[[Path], None]) -> None:
    """Create a folder with the files that `unpack` writes. If this fails, no folder is left behind.

    If another process has completed the folder in the meantime, its folder remains.
    """
    partial = Path(tempfile.mkdtemp(prefix=f"{_PARTIAL}{folder.name}-", dir=folder.parent))
    try:
        unpack(partial)
        (partial / _COMPLETE).touch()
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not (folder / _COMPLETE).exists():
            raise  # otherwise another process was faster
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def stable_root(path: str, folder: str) -> str:
    """Return the leading folders of `path` that may differ between computers.

    These are the cache folder of the unpacked archives if it contains the file, or else the dataset folder `folder`.
    """
    parent = os.path.join(cache_folder(), _FOLDER, "")
    return parent + path[len(parent) :].partition(os.sep)[0] if path.startswith(parent) else folder


def name_within(path: str, folder: str) -> str:
    """Return the printable path of a file for messages.

    It is relative to the dataset folder `folder`, or to the folder of unpacked archives.
    """
    return printable(os.path.relpath(path, stable_root(path, folder)))


def choose_file_name(name: str, content: bytes, row: int, used: set[str]) -> str:
    """Return a file name for an unpacked image: its name in the archive, or its row number if that name can't be used.

    `name` is "" if the image has none. The new name is added to `used`, the lower-case names of other images in the
    same folder.
    """
    stem, ending = os.path.splitext(_UNSAFE.sub("_", os.path.basename(name.replace("\\", "/"))))
    if ending.lower() not in EXTENSIONS:
        # A file that doesn't look like an image gets an image extension, so that decoding it reports the error.
        ending = next((extension for start, extension in _STARTS if content.startswith(start)), ".png")
    stem = stem.lstrip(".")[:_MAX_LETTERS]
    chosen = f"{stem}{ending}"
    if not stem or chosen.lower() in used:
        chosen = f"{row:07d}-{stem}{ending}" if stem else f"{row:07d}{ending}"
    used.add(chosen.lower())
    return chosen
