"""Where a conversion writes: a folder that is there whole or not at all, or one zip file of it."""

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

_BLOCK_BYTES = 1 << 20
_STORED = (".onnx", ".data", ".safetensors", ".png", ".npy")
"""Weights and images don't get smaller."""


@contextmanager
def folder_for(target: Path) -> Iterator[Path]:
    """A new folder beside `target` to write into; whatever happens, it is gone afterwards unless `put_folder` has
    moved it. Raises OSError.
    """
    paths.make_folder(target.parent)
    temporary = _beside(target)
    temporary.mkdir(mode=0o700)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def put_folder(written: Path, target: Path) -> None:
    """Moves the folder to `target`, which is not there or empty. Raises OSError."""
    with suppress(FileNotFoundError):
        target.rmdir()
    written.rename(target)


def put_zip(written: Path, target: Path) -> None:
    """Packs the folder into the zip file `target`, in which everything lies in a folder of its name. Raises OSError."""
    temporary = _beside(target).with_suffix(".zip.part")
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
    """What there is to say of a file, which is its user's alone from now on. Raises OSError."""
    path.chmod(0o600)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return WrittenFile(name=path.name, what=what, size_bytes=path.stat().st_size, sha256=digest.hexdigest())


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.part")
