"""Export runs and problem reports without private data.

The export of a run contains its job, log, notes and evaluations, and the output of its processes. Paths in the user's
home start with ~. Images, converted models, reviews (they contain names of dataset files), supervisor.json (it may
contain a key to the supervisor) and, unless requested, checkpoints are left out.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from engine.contract.events import ENCODE, EVENT, Failed, RunFinished, RunStarted, Warned
from engine.contract.inference.evaluation import EVALUATION_FILE
from engine.runs.evaluations import FOLDER
from engine.runs.folder import RunFolder, run_names
from engine.runs.notes import read_notes
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_LINE_BYTES, open_file, read_end
from engine.system.redaction import Redactor

_TEXTS = (".toml", ".json", ".jsonl", ".log")
_BLOCK_BYTES = 1 << 20


class ExportRefused(Exception):  # noqa: N818 - describes the outcome
    """Raised when an export can't be written. The message gives the reason and the remedy."""


def check_target(target: Path, *, replace: bool = False) -> None:
    """Raise ExportRefused if an export to `target` can't be written, before anything is copied.

    An existing file is refused unless `replace` is True.
    """
    if target.exists() and not (replace and target.is_file()):
        raise ExportRefused(f"{target} already exists. Choose another name, or move it away.")
    if not target.absolute().parent.is_dir():
        raise ExportRefused(f"{target} was not written: there is no such folder. Choose another folder, or create it.")


def export_folder(run: RunFolder, target: Path, texts: Mapping[str, str], *, checkpoints: bool = False) -> list[str]:
    """Export a run to a new folder `target`. Returns the names of all files.

    `texts` are additional files by name. The folder is created completely or not at all. Raises ExportRefused.
    """
    check_target(target)
    temporary = _choose_temporary_path(target)
    try:
        temporary.mkdir()
        for path in _list_files_to_export(run, checkpoints=checkpoints):
            copied = temporary / path.relative_to(run.path)
            copied.parent.mkdir(parents=True, exist_ok=True)
            with open_file(path) as source, copied.open("wb") as stream:
                _copy_content(source, stream, path)
        for name, text in texts.items():
            (temporary / name).write_bytes(replace_home(text.encode()))
        names = sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*") if path.is_file())
        temporary.rename(target)
    except OSError as error:
        raise _make_refusal(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return names


def export_zip(
    run: RunFolder, target: Path, texts: Mapping[str, str], *, checkpoints: bool = False, replace: bool = False
) -> list[str]:
    """Export a run to a zip file that contains a folder with the run's name. See `export_folder` for the arguments.

    An existing file is replaced only if `replace` is True.
    """
    check_target(target, replace=replace)
    temporary = _choose_temporary_path(target)
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in _list_files_to_export(run, checkpoints=checkpoints):
                name = f"{run.run_id}/{path.relative_to(run.path).as_posix()}"
                info = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
                # Weights can't be compressed.
                info.compress_type = zipfile.ZIP_DEFLATED if path.suffix in _TEXTS else zipfile.ZIP_STORED
                with open_file(path) as source, archive.open(info, "w", force_zip64=True) as stream:
                    _copy_content(source, stream, path)
            for name, text in texts.items():
                archive.writestr(f"{run.run_id}/{name}", replace_home(text.encode()))
            names = sorted(name.removeprefix(f"{run.run_id}/") for name in archive.namelist())
        os.replace(temporary, target)
    except OSError as error:
        raise _make_refusal(target, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return names


def replace_home(text: bytes) -> bytes:
    """Replace the path of the user's home folder by ~ in a text, and return the result."""
    homes = {str(Path.home()), os.path.realpath(Path.home())} - {os.sep}  # "/" is the home of some system users
    if not homes:
        return text
    pattern = b"|".join(re.escape(os.fsencode(home)) for home in sorted(homes, key=len, reverse=True))
    return re.sub(rb"(?<![\w.-])(?:" + pattern + rb")(?![\w.-])", b"~", text)


def _list_files_to_export(run: RunFolder, *, checkpoints: bool) -> Iterator[Path]:
    """Yield the files of a run that are exported: texts, evaluations and, if `checkpoints` is True, checkpoints."""
    for path in sorted(run.path.iterdir()):
        # Skip symbolic links, which may point to any file.
        if path.suffix in _TEXTS and path.is_file() and not path.is_symlink() and path != run.supervisor_file:
            yield path
    for path in sorted(run.path.glob(f"{FOLDER}/[!.]*/{EVALUATION_FILE}")):  # unfinished ones start with a dot
        if not any(each.is_symlink() for each in (path, *path.parents[:2])):
            yield path
    if checkpoints:
        yield from (path for path in sorted(run.checkpoints.glob("*.pt")) if path.is_file() and not path.is_symlink())


def _copy_content(source: IO[bytes], stream: IO[bytes], path: Path) -> None:
    """Copy the content of the file `path` from `source` to `stream`. In texts, replace the home folder by ~."""
    if path.suffix not in _TEXTS:
        shutil.copyfileobj(source, stream, _BLOCK_BYTES)
        return
    while block := source.read(_BLOCK_BYTES):
        block += source.readline(MAX_LINE_BYTES)  # up to the end of a line, so that no path is split
        stream.write(replace_home(block))


def _choose_temporary_path(target: Path) -> Path:
    """Return a hidden path next to `target`, and so on the same disk, which an export uses until it is complete."""
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _make_refusal(target: Path, error: OSError) -> ExportRefused:
    """Create the exception for an export to `target` that has failed with `error`."""
    location = f" ({error.filename})" if error.filename else ""
    return ExportRefused(
        f"{target} was not written: {error.strerror or error}{location}. Choose another folder, or free some space there."
    )


MAX_RUNS = 3
MAX_LOG_BYTES = 256 << 10
"""Maximum number of bytes that a problem report contains from the end of each log."""
_REPORTED = (Warned, Failed, RunFinished)


def collect_problem_report(doctor: str) -> dict[str, str]:
    """Collect the files of a problem report, as texts by file name.

    `doctor` is the output of `footplate doctor`. Names of runs, datasets, classes and other private things are replaced
    by neutral ones in all texts.
    """
    names: list[str] = []
    with suppress(OSError):  # a report without runs is still useful
        names = run_names()[:MAX_RUNS]
    runs = {f"run-{number}": RunFolder(paths.runs_folder() / name) for number, name in enumerate(names, 1)}
    redactor = Redactor(_list_private_names(runs))
    texts = {"doctor.txt": doctor}
    for file in sorted(paths.home().glob("logs/*.log*")):
        texts[f"logs/{file.name}"] = _read_end_of_log(file)
    for alias, run in runs.items():
        for file in (run.path / "supervisor.log", *sorted(run.path.glob("worker-*.log"))):
            texts[f"{alias}/{file.name}"] = _read_end_of_log(file)
        texts[f"{alias}/events.jsonl"] = _read_reported_events(run)
    return {name: redactor.redact(text) for name, text in texts.items() if text}


def write_report(texts: dict[str, str], target: Path) -> None:
    """Write the files of a problem report, `texts` by file name, to a zip file, atomically. Raises ExportRefused."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(f"footplate-report/{name}", text)
    try:
        paths.write_atomically(target.absolute(), packed.getvalue())
    except OSError as error:
        raise ExportRefused(f"{target} was not written: {error.strerror or error}. Choose another folder.") from error


def _list_private_names(runs: dict[str, RunFolder]) -> Iterator[tuple[str, str]]:
    """Yield pairs of a private name and its replacement, for runs, tags, datasets, model files and classes.

    `runs` are the runs in the report by their aliases.
    """
    aliases = {run.run_id: alias for alias, run in runs.items()}
    with suppress(OSError):
        for run_id in run_names():
            run, alias = RunFolder(paths.runs_folder() / run_id), aliases.get(run_id, "<run>")
            yield run_id, alias
            notes = read_notes(run.path)
            yield notes.name or "", alias
            yield from ((tag, "<tag>") for tag in notes.tags)
            job = run.job()
            planned = run.read_plan() if run_id in aliases else None  # only logs in the report contain class names
            if planned is not None:
                # Names of one or two letters would also be replaced where they don't mean the class.
                yield from ((name, "<class>") for name in planned.classes if len(name) > 2)
            if job is None:
                continue
            yield job.name, alias
            yield job.data.dataset, "<dataset>"
            yield Path(job.data.dataset).name, "<dataset>"
            if job.model_is_file:
                yield from ((job.model.name, "<model>"), (Path(job.model.name).name, "<model>"))


def _read_reported_events(run: RunFolder) -> str:
    """Return the environment of a run, and the warnings and errors at the end of its log, as lines of JSON."""
    lines = []
    for line in _read_end_of_log(run.events_file).splitlines():
        with suppress(*NOT_DECODED):
            event = EVENT.decode(line)
            if isinstance(event, RunStarted):
                lines.append(msgspec.json.encode({"type": "started", "environment": event.environment}).decode())
            elif isinstance(event, _REPORTED):
                lines.append(ENCODE.encode(event).decode())
    return "\n".join(lines)


def _read_end_of_log(file: Path) -> str:
    """Return the last complete lines of a log, or "" if the file is missing or a symbolic link."""
    try:
        if file.is_symlink():
            return ""
        end = read_end(file, MAX_LOG_BYTES)
    except OSError:
        return ""
    text = end.decode(errors="replace")
    return text if len(end) < MAX_LOG_BYTES else text.partition("\n")[2]
