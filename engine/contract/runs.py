"""A run's folder: what is in it, and what can be said of a run from it alone.

job.toml           the job, as resolved
supervisor.json    who runs it and where it listens (`SupervisorFile`)
events.jsonl       everything that the run said (see `events`)
worker-<rank>.log  what the rank's process printed
supervisor.log     what the supervisor's process printed
checkpoints/       last.pt, best.pt
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from engine.contract import paths
from engine.contract.events import ENCODE, EVENT, AnyEvent, Outcome, RunFinished, RunStarted, Validation
from engine.contract.job import Job, load_job, save_job

State = Literal["starting", "running", "completed", "stopped", "failed", "interrupted"]

START_GRACE_S = 30.0
"""How long after its making a run without a supervisor counts as starting rather than interrupted."""


_TAIL_BYTES = 1 << 22
_VALIDATION = b'{"type":"validation"'
"""How a line of that event begins: the encoder writes the tag first."""


class SupervisorFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who runs a run. `start_time` is the process's own (seconds since the epoch), so that a pid used
    again is not taken for it. `endpoint` is "unix:PATH" or "tcp:PORT:TOKEN" on loopback."""

    pid: int
    start_time: float
    endpoint: str

    def alive(self) -> bool:
        return process_alive(self.pid, self.start_time)


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list of runs."""

    run_id: str
    folder: str
    name: str
    model: str
    strategy: str
    devices: tuple[str, ...]
    dataset: str
    state: State
    started: float
    seconds: float | None
    best: dict[str, float]
    cause: str = ""


def _for_the_user_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def process_alive(pid: int, start_time: float) -> bool:
    """Whether the process that had `pid` and was started at `start_time` still runs (a zombie does not)."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - start_time) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class RunFolder:
    """One run's folder. Nothing is cached: every property reads the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def job_file(self) -> Path:
        return self.path / "job.toml"

    @property
    def events_file(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def supervisor_file(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def worker_log(self, rank: int) -> Path:
        return self.path / f"worker-{rank}.log"

    def job(self) -> Job | None:
        return load_job(self.job_file)[0]

    def supervisor(self) -> SupervisorFile | None:
        """Who runs this run, or None where none has begun or the file cannot be understood."""
        try:
            return msgspec.json.decode(self.supervisor_file.read_bytes(), type=SupervisorFile)
        except (OSError, msgspec.DecodeError):
            return None

    def write_supervisor(self, content: SupervisorFile) -> None:
        temporary = self.supervisor_file.with_suffix(".part")
        temporary.unlink(missing_ok=True)
        with open(temporary, "wb", opener=_for_the_user_alone) as stream:  # it may hold a token
            stream.write(ENCODE.encode(content))
        os.replace(temporary, self.supervisor_file)

    def events(self) -> Iterator[AnyEvent]:
        """The events on disk, in order. A torn last line and lines of a newer Footplate are passed over."""
        try:
            stream = self.events_file.open("rb")
        except OSError:
            return
        with stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                try:
                    yield EVENT.decode(line)
                except msgspec.DecodeError:
                    continue

    def last_event(self) -> AnyEvent | None:
        """The last whole event, read from the end of the file."""
        try:
            with self.events_file.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - (1 << 16)))
                lines = stream.read().split(b"\n")[:-1]
        except OSError:
            return None
        for line in reversed(lines):
            try:
                return EVENT.decode(line)
            except msgspec.DecodeError:
                continue
        return None

    def state(self) -> State:
        """What is true of the run now: never a stored status, always the log and the process table."""
        last = self.last_event()
        supervisor = self.supervisor()
        if isinstance(last, RunFinished):
            return last.outcome
        if supervisor is not None and supervisor.alive():
            return "running"
        if supervisor is None and self._age_s() < START_GRACE_S:
            return "starting"
        # The last event may have been written between the two looks.
        last = self.last_event()
        return last.outcome if isinstance(last, RunFinished) else "interrupted"

    def _age_s(self) -> float:
        try:
            return time.time() - self.job_file.stat().st_mtime
        except OSError:
            return float("inf")

    def summary(self) -> RunSummary | None:
        """The run in one line, or None where the folder holds no readable job.

        Read from the first and the last events alone, since logs may be long and a list looks at all of them. The
        measures of a run that has not finished are those of its last validation.
        """
        job = self.job()
        if job is None:
            return None
        first, last = self._first_event(), self.last_event()
        finished = last if isinstance(last, RunFinished) else None
        begun = first.time if first is not None else self.job_file.stat().st_mtime
        state: State = finished.outcome if finished is not None else self.state()
        over = state not in ("running", "starting")
        return RunSummary(
            run_id=self.run_id,
            folder=str(self.path),
            name=job.name,
            model=job.model,
            strategy=job.strategy,
            devices=job.devices,
            dataset=job.dataset,
            state=state,
            started=begun,
            seconds=(last.time if last is not None and over else time.time()) - begun,
            best=finished.best if finished is not None else self._last_measures(),
            cause=finished.cause if finished is not None else "",
        )

    def _first_event(self) -> RunStarted | None:
        try:
            with self.events_file.open("rb") as stream:
                event = EVENT.decode(stream.readline())
        except (OSError, msgspec.DecodeError):
            return None
        return event if isinstance(event, RunStarted) else None

    def _last_measures(self) -> dict[str, float]:
        try:
            with self.events_file.open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
                tail = stream.read()
        except OSError:
            return {}
        begin = tail.rfind(_VALIDATION)
        end = tail.find(b"\n", begin)
        if begin < 0 or end < 0:
            return {}
        try:
            event = EVENT.decode(tail[begin:end])
        except msgspec.DecodeError:
            return {}
        return event.measures if isinstance(event, Validation) else {}


def create_run(job: Job) -> RunFolder:
    """Makes the folder of a new run and writes its job. Raises OSError where that cannot be done."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(job.model).stem.lower()).strip("-") or "run"
    folder = paths.runs_folder() / f"{time.strftime('%Y%m%d-%H%M%S')}-{stem[:40]}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    run.checkpoints.mkdir()
    save_job(job, run.job_file)
    return run


def list_runs() -> list[RunFolder]:
    """All runs there are, newest first."""
    root = paths.runs_folder()
    if not root.is_dir():
        return []
    return [RunFolder(path) for path in sorted(root.iterdir(), reverse=True) if (path / "job.toml").is_file()]


def find_run(name: str) -> RunFolder | None:
    """The run whose id is `name`, begins with it, or whose own name it is; "last" is the newest."""
    runs = list_runs()
    if name == "last":
        return runs[0] if runs else None
    for run in runs:
        if run.run_id == name:
            return run
    for run in runs:
        job = run.job()
        if job is not None and job.name == name:
            return run
    return next((run for run in runs if run.run_id.startswith(name)), None)


__all__ = [
    "Outcome",
    "RunFolder",
    "RunSummary",
    "State",
    "SupervisorFile",
    "create_run",
    "find_run",
    "list_runs",
    "process_alive",
]
