"""Export of a run without private data: its job, log, notes, evaluations, and the output of its processes.

Paths in the user's home are written as ~. Images, converted models, and reviews (which name the dataset's files) are
left out, checkpoints unless requested, and supervisor.json, which may hold a key to the supervisor.
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
from engine.system.files import open_file

_TEXTS = (".toml", ".json", ".jsonl", ".log")
_BLOCK_BYTES = 1 << 20


class ExportRefused(Exception):  # noqa: N818  (it says why)
    """Nothing was written; the text tells why and what to do."""


def check_target(target: Path, *, replace: bool = False) -> None:
    """Check that `target` can be written, as far as known beforehand. Raises ExportRefused.

    An existing file is refused unless `replace` is set.
    """
    if target.exists() and not (replace and target.is_file()):
        raise ExportRefused(f"{target} already exists. Choose another name, or move it away.")
    if not target.absolute().parent.is_dir():
        raise ExportRefused(f"{target} was not written: there is no such folder. Choose another folder, or create it.")


def export_folder(run: RunFolder, target: Path, texts: Mapping[str, str], *, checkpoints: bool = False) -> list[str]:
    """Export the run to the new folder `target`, with `texts` as additional files by name.

    Returns the names of all files. The folder appears complete or not at all. Raises ExportRefused.
    """
    check_target(target)
    temporary = _temporary(target)
    try:
        temporary.mkdir()
        for path in _files(run, checkpoints):
            copied = temporary / path.relative_to(run.path)
            copied.parent.mkdir(parents=True, exist_ok=True)
            with open_file(path) as source, copied.open("wb") as stream:
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
    """Export the run to a zip file with a folder named after the run; see `export_folder`.

    An existing file is replaced only with `replace`.
    """
    check_target(target, replace=replace)
    temporary = _temporary(target)
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in _files(run, checkpoints):
                name = f"{run.run_id}/{path.relative_to(run.path).as_posix()}"
                about = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
                # Weights don't get smaller.
                about.compress_type = zipfile.ZIP_DEFLATED if path.suffix in _TEXTS else zipfile.ZIP_STORED
                with open_file(path) as source, archive.open(about, "w", force_zip64=True) as stream:
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
    """Replace the user's home with ~ where a path begins with it."""
    homes = {str(Path.home()), os.path.realpath(Path.home())} - {os.sep}
    if not homes:
        return text
    either = b"|".join(re.escape(os.fsencode(home)) for home in sorted(homes, key=len, reverse=True))
    return re.sub(rb"(?<![\w.-])(?:" + either + rb")(?![\w.-])", b"~", text)


def _files(run: RunFolder, checkpoints: bool) -> Iterator[Path]:
    for path in sorted(run.path.iterdir()):
        # A link may point anywhere.
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


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _refusal(target: Path, error: OSError) -> ExportRefused:
    where = f" ({error.filename})" if error.filename else ""
    return ExportRefused(
        f"{target} was not written: {error.strerror or error}{where}. Choose another folder, or free some space there."
    )
