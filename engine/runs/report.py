"""Problem report: a zip file with doctor's findings and the ends of logs, without names and paths.

It holds `doctor.txt`, the window's log, and for the newest runs (called run-1, run-2 …) the output of their supervisors
and workers and the warnings and errors of their event logs. It holds no images, jobs, models or settings.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.contract.events import ENCODE, EVENT, Failed, RunFinished, RunStarted, Warned
from engine.runs.export import ExportRefused
from engine.runs.folder import RunFolder, run_names
from engine.runs.notes import read_notes
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import read_end
from engine.system.redaction import Redactor

MAX_RUNS = 3
MAX_LOG_BYTES = 256 << 10
"""Bytes from the end of each log."""
_REPORTED = (Warned, Failed, RunFinished)


def problem_report(doctor: str) -> dict[str, str]:
    """Return the texts of a report by file name; `doctor` is the output of `footplate doctor`."""
    runs = {f"run-{number}": RunFolder(paths.runs_folder() / name) for number, name in enumerate(_newest(), 1)}
    redactor = Redactor(_secrets(runs))
    texts = {"doctor.txt": doctor}
    for file in sorted(paths.home().glob("logs/*.log*")):
        texts[f"logs/{file.name}"] = _end(file)
    for alias, run in runs.items():
        for file in (run.path / "supervisor.log", *sorted(run.path.glob("worker-*.log"))):
            texts[f"{alias}/{file.name}"] = _end(file)
        texts[f"{alias}/events.jsonl"] = _reported(run)
    return {name: redactor.text(text) for name, text in texts.items() if text}


def write_report(texts: dict[str, str], target: Path) -> None:
    """Write a report as a zip file, atomically. Raises ExportRefused."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(f"footplate-report/{name}", text)
    try:
        paths.write_atomically(target.absolute(), packed.getvalue())
    except OSError as error:
        raise ExportRefused(f"{target} was not written: {error.strerror or error}. Choose another folder.") from error


def _newest() -> list[str]:
    with suppress(OSError):
        return run_names()[:MAX_RUNS]
    return []


def _secrets(runs: dict[str, RunFolder]) -> Iterator[tuple[str, str]]:
    """Yield names of all runs, datasets, models and classes, with their replacements."""
    aliases = {run.run_id: alias for alias, run in runs.items()}
    with suppress(OSError):
        for run_id in run_names():
            run, alias = RunFolder(paths.runs_folder() / run_id), aliases.get(run_id, "<run>")
            yield run_id, alias
            notes = read_notes(run.path)
            yield notes.name or "", alias
            yield from ((tag, "<tag>") for tag in notes.tags)
            job = run.job()
            planned = run.planned() if run_id in aliases else None
            yield from ((name, "<class>") for name in (planned.classes if planned is not None else ()) if len(name) > 2)
            if job is None:
                continue
            yield job.name, alias
            yield job.data.dataset, "<dataset>"
            yield Path(job.data.dataset).name, "<dataset>"
            if job.model_is_file:
                yield from ((job.model.name, "<model>"), (Path(job.model.name).name, "<model>"))


def _reported(run: RunFolder) -> str:
    """Return the warnings and errors at the end of a run's event log, and its environment, as JSON lines."""
    lines = []
    for line in _end(run.events_file).splitlines():
        with suppress(*NOT_DECODED):
            event = EVENT.decode(line)
            if isinstance(event, RunStarted):
                lines.append(msgspec.json.encode({"type": "started", "environment": event.environment}).decode())
            elif isinstance(event, _REPORTED):
                lines.append(ENCODE.encode(event).decode())
    return "\n".join(lines)


def _end(file: Path) -> str:
    """Return the last complete lines of a log; "" if it is missing or a link."""
    try:
        if file.is_symlink():
            return ""
        end = read_end(file, MAX_LOG_BYTES)
    except OSError:
        return ""
    text = end.decode(errors="replace")
    return text if len(end) < MAX_LOG_BYTES else text.partition("\n")[2]
