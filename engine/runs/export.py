"""A run as others may see it: its job, its log, its notes, its evaluations and what its processes printed, without
what is private.

Paths in the user's home are written as ~. Left out are images, converted models, reviews, which name the dataset's
files, the checkpoints unless they are asked for, and supervisor.json, which may hold the key to the run's supervisor.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from engine.contract.inference.evaluation import EVALUATION_FILE
from engine.runs.evaluations import FOLDER
from engine.runs.folder import RunFolder

_TEXTS = (".toml", ".json", ".jsonl", ".log")
_BLOCK_BYTES = 1 << 20


class ExportRefused(Exception):  # noqa: N818  (it says why)
    """Nothing was written; the text says why and what to do."""


def check_target(target: Path, *, replace: bool = False) -> None:
    """Raises ExportRefused where nothing can be written to `target`, as far as can be told beforehand. A file that is
    there is in the way unless it may be replaced.
    """
    if target.exists() and not (replace and target.is_file()):
        raise ExportRefused(f"{target} already exists. Choose another name, or move it away.")
    if not target.absolute().parent.is_dir():
        raise ExportRefused(f"{target} was not written: there is no such folder. Choose another folder, or create it.")


def export_folder(run: RunFolder, target: Path, texts: Mapping[str, str], *, checkpoints: bool = False) -> list[str]:
    """Writes the run into the new folder `target`, with each of `texts` as a file of that name beside it.

    The folder is there whole or not at all. Returns the names of its files. Raises ExportRefused.
    """
    check_target(target)
    temporary = _beside(target)
    try:
        temporary.mkdir()
        for path in _files(run, checkpoints):
            copied = temporary / path.relative_to(run.path)
            copied.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as source, copied.open("wb") as stream:
                _copy(source, stream, path)
        for name, text in texts.items():
            (temporary / name).write_bytes(without_home(text.encode()))
        names = sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*") if path.is_file())
        temporary.rename(target)
    except OSError as error:
        raise _refusal(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return names


def export_zip(
    run: RunFolder, target: Path, texts: Mapping[str, str], *, checkpoints: bool = False, replace: bool = False
) -> list[str]:
    """The same as a zip file, in which everything lies in a folder named like the run; a file that is there is replaced
    only where `replace` says so.
    """
    check_target(target, replace=replace)
    temporary = _beside(target)
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in _files(run, checkpoints):
                name = f"{run.run_id}/{path.relative_to(run.path).as_posix()}"
                about = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
                # Weights don't get smaller.
                about.compress_type = zipfile.ZIP_DEFLATED if path.suffix in _TEXTS else zipfile.ZIP_STORED
                with path.open("rb") as source, archive.open(about, "w", force_zip64=True) as stream:
                    _copy(source, stream, path)
            for name, text in texts.items():
                archive.writestr(f"{run.run_id}/{name}", without_home(text.encode()))
            names = sorted(name.removeprefix(f"{run.run_id}/") for name in archive.namelist())
        os.replace(temporary, target)
    except OSError as error:
        raise _refusal(target, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return names


def without_home(text: bytes) -> bytes:
    """`text` with ~ in place of the user's home wherever a path begins with it."""
    homes = {str(Path.home()), os.path.realpath(Path.home())} - {os.sep}
    if not homes:
        return text
    either = b"|".join(re.escape(os.fsencode(home)) for home in sorted(homes, key=len, reverse=True))
    return re.sub(rb"(?<![\w.-])(?:" + either + rb")(?![\w.-])", b"~", text)


def _files(run: RunFolder, checkpoints: bool) -> Iterator[Path]:
    for path in sorted(run.path.iterdir()):
        # A link may lead anywhere.
        if path.suffix in _TEXTS and path.is_file() and not path.is_symlink() and path != run.supervisor_file:
            yield path
    for path in sorted(run.path.glob(f"{FOLDER}/[!.]*/{EVALUATION_FILE}")):
        if not any(each.is_symlink() for each in (path, *path.parents[:2])):
            yield path
    if checkpoints:
        yield from (path for path in sorted(run.checkpoints.glob("*.pt")) if path.is_file() and not path.is_symlink())


def _copy(source: IO[bytes], stream: IO[bytes], path: Path) -> None:
    if path.suffix not in _TEXTS:
        shutil.copyfileobj(source, stream, _BLOCK_BYTES)
        return
    while lines := source.readlines(_BLOCK_BYTES):  # whole lines, so that no path is cut in two
        stream.write(without_home(b"".join(lines)))


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _refusal(target: Path, error: OSError) -> ExportRefused:
    where = f" ({error.filename})" if error.filename else ""
    return ExportRefused(
        f"{target} was not written: {error.strerror or error}{where}. Choose another folder, or free some space there."
    )
