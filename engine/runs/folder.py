"""Run folders, and functions that read them.

job.toml           job, as resolved
notes.json         name, tags and notes from the user (see `notes`)
supervisor.json    process and endpoint of the supervisor (`SupervisorFile`)
events.jsonl       all events of the run (see `events`)
worker-<rank>.log  output of the rank's process
supervisor.log     output of the supervisor's process
slurm.json         SLURM job of the run, if any (see `slurm_job`), with slurm.sh and slurm.log
checkpoints/       last.pt, best.pt, and older ones (epoch-2-step-345.pt)
evaluations/       evaluations of the run's models (see `evaluations`)
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from engine.contract.events import (
    ENCODE,
    EVENT,
    AnyEvent,
    Event,
    Fetching,
    PhaseChanged,
    Planned,
    RunFinished,
    RunStarted,
    StepMetrics,
    Validation,
    Waiting,
)
from engine.contract.job import Job, load_job, save_job
from engine.runs.notes import read_notes
from engine.runs.slurm_job import SlurmJob, read_slurm
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED, decode_file
from engine.system.files import iterate_complete_lines, open_file, read_end
from engine.system.plain_text import shorten

State = Literal["starting", "waiting", "running", "completed", "paused", "stopped", "failed", "unsaved", "interrupted"]

ENDED: tuple[State, ...] = ("completed", "paused", "stopped", "failed", "unsaved", "interrupted")
"""States of a run without a supervisor. A run can be resumed from all of them except "completed"."""

OLDER_CHECKPOINT = re.compile(r"epoch-(?P<epoch>\d+)-step-(?P<step>\d+)\.pt")
"""Pattern of the names of checkpoints older than last.pt."""

START_GRACE_S = 30.0
"""Seconds after its creation during which a run without a supervisor counts as starting, not as interrupted."""


class UnreadableJob(ValueError):  # noqa: N818 - describes the job
    """Raised when the job of a run can't be read. The message says why."""


_END_BYTES, _TAIL_BYTES = 1 << 16, 1 << 22
"""Number of bytes that are read from the end of a log.

The first number suffices for the last event, and the second for the progress of an unfinished run.
"""


class SupervisorFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Process of a run's supervisor, as stored in supervisor.json.

    Attributes:
        pid: Process id.
        start_time: Result of `process_start`, which distinguishes the process from a later one with the same pid.
        endpoint: Address for clients: "unix:PATH", or "tcp:PORT:TOKEN" on the loopback address.
        execution: Number of the execution, as in `RunStarted`.
    """

    pid: Annotated[int, msgspec.Meta(gt=0)]
    start_time: float
    endpoint: str
    execution: int = 1

    def alive(self) -> bool:
        return is_process_alive(self.pid, self.start_time)


_SUPERVISOR = msgspec.json.Decoder(SupervisorFile)


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a run for the run list.

    `started` is in seconds since the epoch. `phase`, `epoch` and `step` are the progress of an unfinished run, if the
    end of its log contains it. `set_aside` is True if the user has dismissed the notice that the run was interrupted.
    `slurm` describes the state of its SLURM job, or is "" if there is none. `has_checkpoint` is True if the run can
    continue from a checkpoint.
    """

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
    epochs: int = 0
    phase: str = ""
    epoch: int | None = None
    step: int | None = None
    resume_from: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""
    favorite: bool = False
    set_aside: bool = False
    slurm: str = ""
    has_checkpoint: bool = False


def process_start(pid: int) -> float:
    """Return the start time of a process, which distinguishes it from other processes with the same pid.

    The result is in seconds since boot, plus a large number that identifies the boot. On Linux, the start time in
    wall-clock time would change whenever the clock is set (proc(5): `starttime`, and `btime` of /proc/stat). Raises
    psutil.Error if there is no such process.
    """
    import psutil  # slow to import

    process = psutil.Process(pid)
    if sys.platform != "linux":
        return process.create_time()
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        raise psutil.NoSuchProcess(pid) from None
    ticks = int(stat.rpartition(b")")[2].split()[19])  # field 22; the name, field 2, may contain spaces
    return ticks / os.sysconf("SC_CLK_TCK") + _read_boot_number() * _MAX_UPTIME_S


_MAX_UPTIME_S = float(1 << 31)


@cache
def _read_boot_number() -> int:
    """Return a number that identifies the current boot.

    It is below 4,096, so that `process_start`, a float of which it is a part, keeps hundredths of seconds.
    """
    try:
        return int(Path("/proc/sys/kernel/random/boot_id").read_text()[:3], 16)
    except (OSError, ValueError):
        return 0


def started_before_this_boot(start_time: float) -> bool:
    """Return True if a process started before the machine last booted. `start_time` is a result of `process_start`.

    Returns False on other systems than Linux, where this is unknown.
    """
    return sys.platform == "linux" and int(start_time // _MAX_UPTIME_S) != _read_boot_number()


def is_process_alive(pid: int, start_time: float) -> bool:
    """Return True if a process with this pid and start time is running and is not a zombie."""
    import psutil

    try:
        is_same_process = abs(process_start(pid) - start_time) < 1.0  # stored start times are rounded
        return is_same_process and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class RunFolder:
    """Access to the folder of a run. Nothing is cached, so every access reads the disk."""

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
        """Return the run's job, or None if it is missing or invalid."""
        return load_job(self.job_file)[0]

    def _read_job(self) -> Job:
        """Read the run's job. Raises UnreadableJob if the job is invalid, and OSError if the file can't be read."""
        job, problems = load_job(self.job_file)
        if job is None:
            open_file(self.job_file).close()  # raises OSError if the file is missing or unreadable
            raise UnreadableJob(problems[0].message.removesuffix("."))
        return job

    def supervisor(self) -> SupervisorFile | None:
        """Read supervisor.json. Returns None if it is missing or invalid."""
        return decode_file(self.supervisor_file, _SUPERVISOR)

    def is_supervised(self) -> bool:
        """Return True if the supervisor in supervisor.json is alive. It exits a moment after its last event."""
        supervisor = self.supervisor()
        return supervisor is not None and supervisor.alive()

    def write_supervisor(self, content: SupervisorFile) -> None:
        """Replace supervisor.json atomically. Only this user can read the new file. Raises OSError."""
        temporary = self.supervisor_file.with_suffix(".part")
        temporary.unlink(missing_ok=True)
        with open(temporary, "wb", opener=paths.open_private) as stream:  # the endpoint may contain a token
            stream.write(ENCODE.encode(content))
        os.replace(temporary, self.supervisor_file)

    def events(self) -> Iterator[AnyEvent]:
        """Yield all events on disk in order, except invalid ones and an incomplete last line."""
        with suppress(OSError), open_file(self.events_file) as stream:
            yield from filter(None, map(_decode_event, iterate_complete_lines(stream)))

    def read_plan(self) -> Planned | None:
        """Return the plan of the last execution that has started to train, or None if no execution has."""
        prefix, planned = _get_event_prefix(Planned), None
        with suppress(OSError), open_file(self.events_file) as stream:
            for line in iterate_complete_lines(stream):
                if line.startswith(prefix):
                    event = _decode_event(line)
                    if isinstance(event, Planned):
                        planned = event
        return planned

    def last_event(self) -> AnyEvent | None:
        """Return the last complete event, read from the end of the log, or None if there is none."""
        return next(_iterate_events_backwards(_read_tail(self.events_file, _END_BYTES)), None)

    def state(self) -> State:
        """Determine the current state of the run from its log and the process table. The state is not stored."""
        last = self.last_event()
        supervisor = self.supervisor()
        slurm = read_slurm(self.path)
        if slurm is not None and slurm.is_pending:
            return "waiting"
        # Only SLURM knows if a process of another machine is alive.
        is_alive = supervisor is not None and (supervisor.alive() or (slurm is not None and slurm.is_active))
        if isinstance(last, RunFinished):
            is_resumed = is_alive and supervisor is not None and supervisor.execution > last.execution
            return "starting" if is_resumed else last.outcome
        if is_alive:
            return "waiting" if isinstance(last, Waiting) else "running"
        if slurm is not None and supervisor is None:
            return _get_state_before_supervisor(slurm)
        if supervisor is None and self._get_age_s() < START_GRACE_S:
            return "starting"
        # The supervisor may have written its last event in the meantime.
        last = self.last_event()
        return last.outcome if isinstance(last, RunFinished) else "interrupted"

    def _get_age_s(self) -> float:
        """Return the seconds since the run's job was written, or infinity if it is missing."""
        try:
            return time.time() - self.job_file.stat().st_mtime
        except OSError:
            return float("inf")

    def summary(self) -> RunSummary:
        """Summarize the run. Raises UnreadableJob and OSError.

        Since logs may be long, only their first and last events are read. The metrics of an unfinished run are those of
        its last validation.
        """
        beginning, last = self._read_beginning(), self.last_event()
        first = beginning[0] if beginning is not None else None
        finished = last if isinstance(last, RunFinished) else None
        never_resumed = finished is not None and finished.execution == 1
        # Only a resumed run needs to read the job from its folder, which takes longer.
        job = first.job if never_resumed and first is not None else self._read_job()
        started = first.time if first is not None else self.job_file.stat().st_mtime
        slurm = read_slurm(self.path)
        # Under SLURM, a resumed run may be pending for long, while its log still ends with RunFinished.
        state: State = finished.outcome if finished is not None and slurm is None else self.state()
        progress = _Progress() if finished is not None else _read_progress(_read_tail(self.events_file, _TAIL_BYTES))
        notes = read_notes(self.path)
        is_working = finished is None and state not in ENDED and (slurm is None or not slurm.is_pending)
        return RunSummary(
            run_id=self.run_id,
            folder=str(self.path),
            name=shorten(job.name if notes.name is None else notes.name),
            model=job.model.name,
            strategy=job.resolved_strategy,
            devices=job.parallel.devices,
            dataset=job.data.dataset,
            state=state,
            started=started,
            seconds=self._compute_worked_s(beginning, last, time.time() if is_working else None),
            best=finished.best if finished is not None else progress.measures,
            cause=shorten(finished.cause) if finished is not None and state in ENDED else "",
            epochs=job.training.epochs,
            phase=progress.phase,
            epoch=progress.epoch,
            step=progress.step,
            resume_from=job.checkpoints.resume_from,
            tags=notes.tags,
            notes=notes.text,
            favorite=notes.favorite,
            set_aside=notes.set_aside,
            slurm=shorten(slurm.text) if slurm is not None else "",
            has_checkpoint=bool(job.checkpoints.resume_from) or self.last_checkpoint() is not None,
        )

    def last_checkpoint(self) -> Path | None:
        """Return the path of last.pt or, without it, of the newest older checkpoint, or None if there is none."""
        last = self.checkpoints / "last.pt"
        if last.exists():  # even if it is not a file: reading it reports an error
            return last
        # On file systems without hard links, last.pt is missing for a moment while it is replaced.
        older = older_checkpoints(self.checkpoints)
        return older[max(older)] if older else None

    def worked_s(self) -> float:
        """Return the duration of all executions in seconds until the last event, without their time in the queue."""
        return self._compute_worked_s(self._read_beginning(), self.last_event(), None)

    def _compute_worked_s(
        self, beginning: tuple[RunStarted, float] | None, last: AnyEvent | None, now: float | None
    ) -> float:
        """Return the result of `worked_s`, given the result of `_read_beginning` and the last event.

        If `now` (seconds since the epoch) is given, the current execution lasts until then.
        """
        if last is None or beginning is None:
            return 0.0
        first, start = beginning
        never_resumed = isinstance(last, RunFinished) and last.execution == 1
        tail = b"" if never_resumed else self._read_tail_of_execution(last)
        latest = _find_last_event(tail, RunStarted) or first
        if latest.execution > 1:
            lines_after_start = tail[tail.rfind(_get_event_prefix(RunStarted)) :].splitlines()[1:]
            start = _find_queue_exit_time(latest, lines_after_start)
        earlier_executions_s = latest.worked_s
        end = last.time if now is None else now
        return earlier_executions_s + max(0.0, end - start)

    def _read_tail_of_execution(self, last: AnyEvent) -> bytes:
        """Return the end of the run's log. For a resumed run, it contains at least the events of the last execution.

        `last` is the last event in the log.
        """
        supervisor, max_bytes = self.supervisor(), _TAIL_BYTES
        is_resumed = (supervisor is not None and supervisor.execution > 1) or (
            isinstance(last, RunFinished) and last.execution > 1
        )
        tail = _read_tail(self.events_file, max_bytes)
        # A shorter tail is the entire log.
        while is_resumed and len(tail) == max_bytes and _get_event_prefix(RunStarted) not in tail:
            max_bytes *= 8
            tail = _read_tail(self.events_file, max_bytes)
        return tail

    def _read_beginning(self) -> tuple[RunStarted, float] | None:
        """Return the first event of the run, and the time at which its first execution left the queue.

        Returns None if there are no events.
        """
        try:
            with open_file(self.events_file) as stream:
                lines = iterate_complete_lines(stream)
                event = _decode_event(next(lines, b""))
                return (event, _find_queue_exit_time(event, lines)) if isinstance(event, RunStarted) else None
        except OSError:
            return None


def _get_state_before_supervisor(slurm: SlurmJob) -> State:
    """Return the state of a run whose SLURM job is not pending, and which has never had a supervisor."""
    if slurm.is_active:
        return "starting"
    return "stopped" if slurm.state == "CANCELLED" else "interrupted"


@dataclass(frozen=True)
class _Progress:
    """Progress of an unfinished run, taken from the end of its log. Unknown values are None or empty."""

    phase: str = ""
    epoch: int | None = None
    step: int | None = None
    measures: dict[str, float] = field(default_factory=dict)


def _read_progress(tail: bytes) -> _Progress:
    """Return the progress of a run, given the end of its log."""
    phase = _find_last_event(tail, PhaseChanged)
    validation = _find_last_event(tail, Validation)
    candidates = [event for event in (_find_last_event(tail, StepMetrics), validation) if event is not None]
    latest = max(candidates, key=lambda event: event.n, default=None)
    return _Progress(
        phase=phase.phase if phase is not None else "",
        epoch=latest.epoch if latest is not None else None,
        step=latest.step if latest is not None else None,
        measures=validation.measures if validation is not None else {},
    )


def _read_tail(file: Path, max_bytes: int) -> bytes:
    """Return the last `max_bytes` bytes of a run's log, or b"" if it can't be read."""
    try:
        return read_end(file, max_bytes)
    except OSError:
        return b""


def _iterate_events_backwards(tail: bytes) -> Iterator[AnyEvent]:
    """Yield the events at the end of a log, newest first, skipping invalid ones and an incomplete last line."""
    end = tail.rfind(b"\n")
    while end >= 0:
        start = tail.rfind(b"\n", 0, end)
        event = _decode_event(tail[start + 1 : end])
        if event is not None:
            yield event
        end = start


_Kind = TypeVar("_Kind", bound=Event)


def _find_last_event(tail: bytes, kind: type[_Kind]) -> _Kind | None:
    """Return the event of type `kind` in the last such complete line at the end of a log, or None if there is none."""
    start = tail.rfind(_get_event_prefix(kind), 0, tail.rfind(b"\n") + 1)
    event = _decode_event(tail[start : tail.find(b"\n", start)]) if start >= 0 else None
    return event if isinstance(event, kind) else None


def _get_event_prefix(kind: type[Event]) -> bytes:
    """Return the bytes with which each encoded event of type `kind` starts."""
    return b'{"type":"%b"' % str(kind.__struct_config__.tag).encode()


def _find_queue_exit_time(started: RunStarted, lines: Iterable[bytes]) -> float:
    """Return the time at which an execution left the queue, in seconds since the epoch.

    This is its start if it did not wait, and infinity while it waits. `lines` are its encoded events after the first
    one.
    """
    time_s = started.time
    for line in lines:
        event = _decode_event(line)
        if isinstance(event, Waiting):
            time_s = math.inf
        elif event is not None and time_s == math.inf:
            return event.time
        elif not isinstance(event, PhaseChanged | Fetching | None):
            break  # it is training and did not wait
    return time_s


def _decode_event(line: bytes) -> AnyEvent | None:
    """Decode a line of a log, or return None if it is invalid."""
    try:
        return EVENT.decode(line)
    except NOT_DECODED:
        return None


def create_run(job: Job, before_job: Callable[[RunFolder], None] | None = None) -> RunFolder:
    """Create the folder of a new run, readable only by this user, and write its job. Raises OSError.

    `before_job` is called to write other files before the job, since the folder counts as a run as soon as it has a job.
    """
    stem = re.sub(r"[^a-z0-9]+", "-", Path(job.model.name).stem.lower()).strip("-") or "run"
    paths.make_home()
    runs = paths.make_private_folder(paths.runs_folder())
    while True:
        folder = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{stem[:40]}-{os.urandom(2).hex()}"
        with suppress(FileExistsError):  # another run of the same second has the same random name
            folder.mkdir(mode=0o700)
            break
    run = RunFolder(folder)
    run.checkpoints.mkdir(mode=0o700)
    if before_job is not None:
        before_job(run)
    save_job(job, run.job_file)
    return run


def run_at(folder: str | Path) -> RunFolder | None:
    """Return the run in `folder`, or None if no job can be found there."""
    path = Path(folder).expanduser().absolute()
    return RunFolder(path) if os.path.isfile(path / "job.toml") else None


def list_runs() -> list[RunFolder]:
    """Return the folders of all runs, newest first."""
    root = paths.runs_folder()
    return [RunFolder(root / name) for name in run_names() if os.path.isfile(f"{root}/{name}/job.toml")]


def older_checkpoints(folder: Path) -> dict[int, Path]:
    """Return the paths of the checkpoints older than last.pt, keyed by step, in ascending order.

    The result is empty if `folder` can't be read.
    """
    try:
        found = [(match, path) for path in folder.iterdir() if (match := OLDER_CHECKPOINT.fullmatch(path.name))]
    except OSError:
        return {}
    return dict(sorted((int(match["step"]), path) for match, path in found))


def run_names() -> list[str]:
    """Return the names of all entries in the runs folder, newest first, including entries that are not runs."""
    try:
        return sorted(os.listdir(paths.runs_folder()), reverse=True)
    except FileNotFoundError:
        return []
