"""Tells a run's user what becomes of it, whatever window is open: see `engine.runs.notices` for what is told and how.

It reads the run's own log, as any client does, and so needs no word from those who write there: a supervisor makes a
`Notices` once its log is open, calls `tick` in every turn of its loop, and `close` once `RunFinished` is in the log.
None of these waits for anything, raises, or starts a thread. A notice is sent by a process of its own (`sending`), in
a session of its own, so that it is never among the run's; one that is under way when the supervisor ends goes on
alone. What went wrong with the user's command stands in the run's log as a warning, and, after `RunFinished`, in
supervisor.log.

A run stalls where nothing goes on in it (no step, validation, checkpoint or new phase) for `STALL_S`, once `watchdog`
has warned of that, or else in training for `STALL_S` or `STALL_STEPS` usual steps, whichever is longer. It is told of
once, until something goes on again. A run that was killed together with its supervisor cannot tell of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.contract.catalogue import load_catalogue
from engine.contract.events import EVENT, AnyEvent, PhaseChanged, Restarting, RunFinished, StepMetrics, Warned
from engine.contract.job import Job
from engine.runs.folder import RunFolder
from engine.runs.notes import read_notes
from engine.runs.notices import SENDER, Notice, NoticeKind, NoticeSent, NoticeSettings, load_notices
from engine.supervisor.event_log import EventLog
from engine.supervisor.notices import desktop
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import duration, exit_words

STALL_S = 120.0
STALL_STEPS = 20.0

_LOOK_S = 0.5
_USUAL = 0.1
"""The weight of the newest step in the moving average of step time."""
_MOST_SHOWN, _MOST_TOLD = 400, 4000
"""The most characters of a cause: on the desktop, and in the command's environment, whose size is limited."""
_PREFIX = b'{"type":"'
_SIGNS = frozenset(
    (b"step", b"validation", b"checkpoint", b"epoch_started", b"planned", b"phase", b"restarting", b"waiting")
)
"""Events that show progress."""
_READ = frozenset((b"phase", b"restarting", b"warning", b"run_finished"))
"""Events that are always decoded; of step metrics, only the newest is."""


class Notices:
    """Tells of one execution of `run`, from its log; see the module."""

    def __init__(self, run: RunFolder, job: Job, log: EventLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._job = job
        self._log = log
        self._clock = clock
        self._offset = log.end
        self._began = self._sign_at = self._look_at = clock()
        self._phase = ""
        self._step: StepMetrics | None = None
        self._usual_s = 0.0
        self._warned = ""
        self._stall_told = False
        self._over = False
        self._complaints: set[str] = set()
        self._under_way: list[subprocess.Popen[bytes]] = []

    def tick(self) -> None:
        """Reads what is new in the log, judges whether the run stalls, and hears what became of notices."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        self._read(now)
        self._judge(now)
        self._hear()

    def close(self) -> None:
        """Tells of the end; what is under way goes on by itself."""
        self._read(self._clock())
        self._over = True
        self._hear()
        for process in self._under_way:
            if process.stdout is not None:
                process.stdout.close()

    # What the log says

    def _read(self, now: float) -> None:
        while self._offset < self._log.end:
            data = self._log.read(self._offset)
            if not data:
                return
            self._offset += len(data)
            self._take(data.splitlines(), now)

    def _take(self, lines: list[bytes], now: float) -> None:
        newest = b""
        for line in lines:
            tag = line[len(_PREFIX) : line.find(b'"', len(_PREFIX))]
            if tag in _SIGNS:
                self._sign_at, self._warned, self._stall_told = now, "", False
            if tag == b"step":
                newest = line
            elif tag in _READ:
                self._consider(EVENT.decode(line))
        if newest:
            self._learn(EVENT.decode(newest))

    def _learn(self, event: AnyEvent) -> None:
        if isinstance(event, StepMetrics):
            seconds = event.data_wait_s + event.compute_s
            self._usual_s = (1 - _USUAL) * self._usual_s + _USUAL * seconds if self._step is not None else seconds
            self._step = event

    def _consider(self, event: AnyEvent) -> None:
        match event:
            case PhaseChanged(phase=phase):
                if phase == "training" and not self._phase:
                    self._settings()  # so that what is wrong with them is told early
                self._phase = phase
            case Warned(code="stuck" | "silent" | "stopped", message=message):
                self._warned = message
            case Restarting(cause=cause, attempt=attempt, most=most):
                again = f" (restart {attempt} of {most} without a new checkpoint)" if attempt > 1 else ""
                self.tell(
                    "restarted",
                    f"{_short(cause)} Resuming from the last checkpoint, if there is one{again}.",
                    cause=cause,
                )
            case RunFinished(outcome="completed"):
                self._over = True
                self.tell("ended", self._result(event), outcome="completed", best=event.best)
            case RunFinished(outcome="failed" | "unsaved" as outcome, cause=cause):
                self._over = True
                self.tell("failed", _short(cause), outcome=outcome, cause=cause, best=event.best)
            case RunFinished():
                self._over = True

    def _judge(self, now: float) -> None:
        """Sees whether nothing goes on."""
        quiet = now - self._sign_at
        if self._stall_told or self._over or quiet <= self._patience_s():
            return
        self._stall_told = True
        at = f" after step {self._step.step:,}" if self._step is not None else ""
        text = f"No progress for {duration(quiet)}{at}."
        if self._warned:
            text = f"{_short(self._warned)} It has now made no progress for {duration(quiet)}."
        self.tell("stalled", text, cause=self._warned)

    def _patience_s(self) -> float:
        if self._warned:
            return STALL_S
        if self._phase == "training" and self._step is not None:
            return max(STALL_S, STALL_STEPS * self._usual_s)
        return float("inf")

    def _result(self, event: RunFinished) -> str:
        task = load_catalogue().task(self._job.task)
        measures = {measure.id: measure for measure in task.measures} if task is not None else {}
        said = []
        for name, value in event.best.items():
            measure = measures.get(name)
            title = measure.title if measure is not None else name
            said.append(
                f"{title} {100 * value:.1f} %" if measure is not None and measure.percent else f"{title} {value:.4f}"
            )
        after = f" (epoch {event.best_epoch} of {self._job.epochs})" if event.best_epoch is not None else ""
        best = f"{', '.join(said)}{after}; " if said else ""
        return f"{best}{duration(event.seconds)} in total."

    # Telling it

    def tell(
        self, kind: NoticeKind, text: str, *, outcome: str = "", cause: str = "", best: dict[str, float] | None = None
    ) -> None:
        """Has the user told of it, if that is wanted. The rest is for the command's environment."""
        seconds = self._clock() - self._began
        settings = self._settings()
        if not settings.wants(kind, seconds):
            return
        shown = settings.desktop and desktop.way() is not None
        if not shown and not settings.command.strip():
            return
        name = self._name()
        title = f"{name} {_HAS[kind]}"
        told = {
            "FOOTPLATE_NOTICE": kind,
            "FOOTPLATE_TITLE": title,
            "FOOTPLATE_TEXT": text,
            "FOOTPLATE_RUN": self._run.run_id,
            "FOOTPLATE_NAME": name,
            "FOOTPLATE_FOLDER": str(self._run.path),
            "FOOTPLATE_OUTCOME": outcome,
            "FOOTPLATE_CAUSE": cause,
            "FOOTPLATE_BEST": " ".join(f"{measure}={value:.6g}" for measure, value in (best or {}).items()),
            "FOOTPLATE_SECONDS": f"{seconds:.0f}",
        }
        variables = {variable: value.replace("\0", "")[:_MOST_TOLD] for variable, value in told.items()}
        self._send(
            Notice(
                title=title,
                text=text,
                folder=str(self._run.path),
                desktop=shown,
                command=settings.command,
                variables=variables,
            )
        )

    def _name(self) -> str:
        """As the list of runs names it."""
        named = read_notes(self._run.path).name
        name = self._job.name if named is None else named
        return name or f"{Path(self._job.dataset).name} · {self._run.run_id[-4:]}"

    def _settings(self) -> NoticeSettings:
        settings, problems = load_notices()
        for problem in problems:
            self._complain(str(problem))
        return settings

    def _send(self, notice: Notice) -> None:
        """Starts the process that sends it. What it is given fits into a pipe, so that nobody is waited for."""
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", SENDER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=paths.PACKAGES,
                start_new_session=sys.platform != "win32",
                bufsize=0,
            )
        except OSError as error:
            self._complain(f"A notification could not be sent: {error}.")
            return
        self._under_way.append(process)
        assert process.stdin is not None
        try:
            with process.stdin as given:
                given.write(msgspec.json.encode(notice))
        except OSError as error:
            self._complain(f"A notification could not be sent: {error}.")

    def _hear(self) -> None:
        """Takes note of the notices whose process has ended."""
        for process in [process for process in self._under_way if process.poll() is not None]:
            self._under_way.remove(process)
            assert process.stdout is not None
            with process.stdout as answer:
                said = answer.read()
            try:
                sent = msgspec.json.decode(said, type=NoticeSent)
            except NOT_DECODED:
                self._complain(f"A notification could not be sent: {SENDER} {exit_words(process.returncode)}.")
                continue
            if sent.command_problem:
                self._complain(sent.command_problem)
            if sent.desktop_problem:  # a machine without a desktop is no fault
                print(sent.desktop_problem, flush=True)

    def _complain(self, problem: str) -> None:
        """Says once what is wrong with the notices: in the run's log as long as that is open."""
        if problem in self._complaints:
            return
        self._complaints.add(problem)
        if self._over:
            print(problem, flush=True)
        else:
            self._log.append(Warned(code="notices", message=problem))


_HAS: dict[NoticeKind, str] = {
    "ended": "has finished",
    "failed": "has failed",
    "stalled": "has stalled",
    "restarted": "is restarting",
}


def _short(text: str) -> str:
    """The first line of a cause, of a length that a desktop shows."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 1]}…"
