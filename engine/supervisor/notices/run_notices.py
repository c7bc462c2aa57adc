"""Notifications about a run, which are sent to the desktop and to the user's command even if no window is open.

`engine.runs.notices` describes the user's settings. A separate process (`sending`) in a session of its own sends each
notification, so that it can't delay the run. If this process is still sending when the supervisor exits, it continues
alone. Problems with the user's command are logged as warnings or, after `RunFinished`, written to supervisor.log.

A run stalls if it makes no progress (step, validation, checkpoint or new phase) for `STALL_S` after a warning of
`watchdog`. While training, it also stalls if it makes no progress for `STALL_S` or the time of `STALL_STEPS` steps,
whichever is longer. Each stall is reported once. If a run is killed together with its supervisor, nobody sends a
notification.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.contract.catalogue import Measure
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    EpochStarted,
    PhaseChanged,
    Planned,
    Restarting,
    RunFinished,
    StepMetrics,
    Validation,
    Waiting,
    Warned,
)
from engine.contract.job import Job
from engine.runs.folder import RunFolder
from engine.runs.metrics import format_measure
from engine.runs.notes import read_notes
from engine.runs.notices import SENDER, Notice, NoticeKind, NoticeSent, NoticeSettings, load_notices
from engine.supervisor.notices import desktop
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import describe_exit, duration

STALL_S = 120.0
STALL_STEPS = 20.0

_POLL_S = 0.5
_NEWEST_WEIGHT = 0.1
"""Weight of the newest step in the moving average of the duration of a step."""
_MAX_TEXT_CHARS = 400
_MAX_VARIABLE_CHARS = 4000
"""Maximum length of a variable in the command's environment, whose total size the system limits."""
_PROGRESS = (StepMetrics, Validation, CheckpointSaved, EpochStarted, Planned, PhaseChanged, Restarting, Waiting)
_TITLES: dict[NoticeKind, str] = {
    "ended": "has finished",
    "failed": "has failed",
    "stalled": "has stalled",
    "restarted": "is restarting",
}


class RunNotifier:
    """Sender of notifications about one execution of `run`.

    All events must be passed to `on_event`. `tick` must be called often, and `close` after `RunFinished`. No method
    waits, raises an exception or starts a thread. `warn` is called with warnings about problems with notifications.
    """

    def __init__(
        self,
        run: RunFolder,
        job: Job,
        warn: Callable[[Warned], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._job = job
        self._warn = warn
        self._clock = clock
        self._started_at = self._progress_at = self._poll_at = clock()
        self._phase = ""  # current phase, or "" before the first one
        self._metrics: tuple[Measure, ...] = ()
        self._step: StepMetrics | None = None  # metrics of the last reported steps
        self._usual_step_s = 0.0  # moving average of the duration of a step
        self._watchdog_warning = ""  # last warning since the last progress
        self._is_stall_reported = False
        self._is_over = False  # True after `RunFinished`
        self._reported_problems: set[str] = set()  # problems that `warn` has received
        self.senders: list[subprocess.Popen[bytes]] = []
        """Running processes that each send one notification."""

    def on_event(self, event: AnyEvent) -> None:
        """Record the progress, and send a notification if the run restarts, has ended or has failed."""
        if isinstance(event, _PROGRESS):
            self._progress_at, self._watchdog_warning, self._is_stall_reported = self._clock(), "", False
        match event:
            case StepMetrics():
                seconds = event.data_wait_s + event.compute_s
                weight = _NEWEST_WEIGHT if self._step is not None else 1.0
                self._usual_step_s += weight * (seconds - self._usual_step_s)
                self._step = event
            case Planned():
                self._metrics = event.metrics
            case PhaseChanged(phase=phase):
                if phase == "training" and not self._phase:
                    self._load_settings()  # reports mistakes in them early
                self._phase = phase
            case Warned(code="stuck" | "silent" | "stopped", message=message):
                self._watchdog_warning = message
            case Restarting(cause=cause, attempt=attempt, max_attempts=limit):
                count = f" (restart {attempt} of {limit} without a new checkpoint)" if attempt > 1 else ""
                text = f"{_extract_first_line(cause)} Resuming from the last checkpoint, if there is one{count}."
                self._notify("restarted", text, cause=cause)
            case RunFinished(outcome="completed"):
                self._is_over = True
                self._notify("ended", self._describe_result(event), outcome="completed", best=event.best)
            case RunFinished(outcome="failed" | "unsaved" as outcome, cause=cause):
                self._is_over = True
                self._notify("failed", _extract_first_line(cause), outcome=outcome, cause=cause, best=event.best)
            case RunFinished():
                self._is_over = True

    def tick(self) -> None:
        """Check whether the run has stalled, and collect the results of sent notifications."""
        now = self._clock()
        if now >= self._poll_at:
            self._poll_at = now + _POLL_S
            self._check_stall(now)
            self._collect_results()

    def close(self) -> None:
        """Stop waiting for the results of notifications. The processes that send them continue."""
        self._is_over = True
        self._collect_results()
        for process in self.senders:
            if process.stdout is not None:
                process.stdout.close()

    def _check_stall(self, now: float) -> None:
        """Send a notification if the run has stalled, once per stall. `now` is a time of the monotonic clock."""
        idle_s = now - self._progress_at
        if self._is_stall_reported or self._is_over or idle_s <= self._get_stall_timeout_s():
            return
        self._is_stall_reported = True
        step = f" after step {self._step.step:,}" if self._step is not None else ""
        text = f"No progress for {duration(idle_s)}{step}."
        if self._watchdog_warning:
            text = f"{_extract_first_line(self._watchdog_warning)} It has now made no progress for {duration(idle_s)}."
        self._notify("stalled", text, cause=self._watchdog_warning)

    def _get_stall_timeout_s(self) -> float:
        """Return the time without progress after which the run counts as stalled, in seconds, or infinity.

        In any phase, a run can stall after a warning of the watchdog. Otherwise only the training can, because other
        phases report no progress.
        """
        if self._watchdog_warning:
            return STALL_S
        if self._phase == "training" and self._step is not None:
            return max(STALL_S, STALL_STEPS * self._usual_step_s)
        return float("inf")

    def _describe_result(self, event: RunFinished) -> str:
        """Describe the best metrics and the total duration of a completed run."""
        values = [
            format_measure(self._job.task, name, value, described=self._metrics) for name, value in event.best.items()
        ]
        epoch = f" (epoch {event.best_epoch} of {self._job.training.epochs})" if event.best_epoch is not None else ""
        best = f"{', '.join(values)}{epoch}; " if values else ""
        return f"{best}{duration(event.seconds)} in total."

    def _notify(
        self, kind: NoticeKind, text: str, *, outcome: str = "", cause: str = "", best: dict[str, float] | None = None
    ) -> None:
        """Send a notification if the user's settings request it.

        `outcome`, `cause` and `best` are passed to the user's command as environment variables.
        """
        seconds = self._clock() - self._started_at
        settings = self._load_settings()
        if not settings.wants(kind, seconds):
            return
        on_desktop = settings.desktop and desktop.find_program() is not None
        if not on_desktop and not settings.command.strip():
            return  # neither a desktop nor a command can show the notice
        name = self._get_run_name()
        title = f"{name} {_TITLES[kind]}"
        variables = {
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
        self._send(
            Notice(
                title=title,
                text=text,
                folder=str(self._run.path),
                desktop=on_desktop,
                command=settings.command,
                variables={key: value.replace("\0", "")[:_MAX_VARIABLE_CHARS] for key, value in variables.items()},
            )
        )

    def _get_run_name(self) -> str:
        """Return the name of the run as shown in the run list."""
        user_name = read_notes(self._run.path).name
        name = self._job.name if user_name is None else user_name
        return name or f"{Path(self._job.data.dataset).name} · {self._run.run_id[-4:]}"

    def _load_settings(self) -> NoticeSettings:
        """Return the user's settings, and report the problems in them."""
        settings, problems = load_notices()
        for problem in problems:
            self._report_problem(str(problem))
        return settings

    def _send(self, notice: Notice) -> None:
        """Start a process that sends a notification. The notification fits into a pipe, so writing it can't block."""
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", SENDER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=paths.PACKAGES,
                start_new_session=sys.platform != "win32",
                bufsize=0,
            )
            self.senders.append(process)
            assert process.stdin is not None
            with process.stdin as stream:
                stream.write(msgspec.json.encode(notice))
        except OSError as error:
            self._report_problem(f"A notification could not be sent: {error}.")

    def _collect_results(self) -> None:
        """Report problems of the notifications whose sending processes have exited."""
        for process in [process for process in self.senders if process.poll() is not None]:
            self.senders.remove(process)
            assert process.stdout is not None
            with process.stdout as stream:
                output = stream.read()
            try:
                result = msgspec.json.decode(output, type=NoticeSent)
            except NOT_DECODED:
                self._report_problem(f"A notification could not be sent: {SENDER} {describe_exit(process.returncode)}.")
                continue
            if result.command_problem:
                self._report_problem(result.command_problem)
            if result.desktop_problem:  # not a warning: the machine may have no desktop
                print(result.desktop_problem, flush=True)

    def _report_problem(self, problem: str) -> None:
        """Log a problem, but only once.

        After `RunFinished`, print it instead, because nothing may follow in the run's log.
        """
        if problem in self._reported_problems:
            return
        self._reported_problems.add(problem)
        if self._is_over:
            print(problem, flush=True)
        else:
            self._warn(Warned(code="notices", message=problem))


def _extract_first_line(text: str) -> str:
    """Return the first line of a text, shortened for display on the desktop."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MAX_TEXT_CHARS else f"{line[: _MAX_TEXT_CHARS - 1]}…"
