"""Atomic output of a conversion, as a folder or a zip file."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.contract.inference.conversion import WrittenFile
from engine.system import paths
from engine.system.files import open_file

_BLOCK_BYTES = 1 << 20
_STORED = (".onnx", ".data", ".safetensors", ".png", ".npy")
"""Suffixes of files that compression does not shrink."""


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Create a folder next to `target`, and delete it at the end unless `move_folder` has moved it. Raises OSError."""
    paths.make_folder(target.parent)
    temporary = _temporary_path(target)
    temporary.mkdir(mode=0o700)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_folder(written: Path, target: Path) -> None:
    """Move the folder to `target`, which is missing or empty. Raises OSError."""
    with suppress(FileNotFoundError):
        target.rmdir()
    written.rename(target)


def write_zip(written: Path, target: Path) -> None:
    """Pack the folder into the zip file `target`, in a folder named like it. Raises OSError."""
    temporary = _temporary_path(target).with_suffix(".zip.part")
    try:
        with (
            open(temporary, "xb", opener=paths.open_private) as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
        ):
            for path in sorted(written.iterdir()):
                kind = zipfile.ZIP_STORED if path.suffix in _STORED else zipfile.ZIP_DEFLATED
                archive.write(path, f"{target.stem}/{path.name}", kind)
        os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def written_file(path: Path, what: str) -> WrittenFile:
    """Make a file private, and return its description. Raises OSError."""
    path.chmod(0o600)
    digest = hashlib.sha256()
    with open_file(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return WrittenFile(name=path.name, what=what, size_bytes=path.stat().st_size, sha256=digest.hexdigest())


def _temporary_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.part")
