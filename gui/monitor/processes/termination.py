"""Ending a process that uses a GPU: permission, confirmation and result."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Literal

import psutil
from PySide6.QtCore import QElapsedTimer, QTimer, Signal

from engine.system.format import duration
from gui.format import significant, size
from gui.monitor.processes.process_rows import ProcessRow
from gui.titles import format_gpu_names
from gui.translation import tr
from gui.widgets.banner import QuestionBar, Severity

_POLL_MS = 100
_CONTAINER = tr(
    "Footplate runs in a container, where the driver reports the host's pids. Their owners are unknown, so processes "
    "can't be ended from here."
)
_Action = Literal["nothing", "asked", "killed"]


class CannotEnd(Exception):  # noqa: N818  (a state of things more than an error)
    """Raised when a process can't be ended. The message is written for the user."""


def disabled_reason(process: ProcessRow | None, foreign_pids: bool) -> str:
    """Return the reason why a process can't be ended from this window, or "" if it can.

    `foreign_pids` is True if NVML reports the host's pids inside a container (`Snapshot.foreign_pids`).
    """
    if process is None:
        return _CONTAINER if foreign_pids else tr("Choose a process to end it.")
    problems = (
        (
            process.host != "",
            tr("Runs on {host_title}; only processes on this machine can be ended here.").format(
                host_title=process.host_title
            ),
        ),
        (foreign_pids, _CONTAINER),
        (process.group, tr("Choose one of the processes under it.")),
        (process.pid == os.getpid(), tr("This is Footplate's own window.")),
        (
            process.started is None,
            tr("Its start time is unknown, so ending it might hit a later process with the same pid."),
        ),
        (
            not process.mine and not is_privileged(),
            tr("Belongs to {user}: only they or an administrator can end it.").format(
                user=process.user or tr("an unknown user")
            ),
        ),
    )
    return next((reason for applies, reason in problems if applies), "")


def is_privileged() -> bool:
    """Return True if the user may end processes of other users."""
    if sys.platform == "win32":
        return bool(ctypes.windll.shell32.IsUserAnAdmin())
    return os.geteuid() == 0


def end_process(pid: int, started: float, *, kill: bool = False) -> None:
    """Send SIGTERM to a process, or SIGKILL if `kill`. On Windows, both end it immediately.

    `started` is the start time of the process in seconds since the epoch. Raises CannotEnd if the process has ended,
    its pid has been reused by a process with another start time, or the system refuses.
    """
    if not _is_running(pid, started):
        raise CannotEnd(tr("Process {pid} has already ended.").format(pid=pid))
    try:
        process = psutil.Process(pid)  # psutil checks again that it is the same process
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        raise CannotEnd(tr("Process {pid} has already ended.").format(pid=pid)) from None
    except psutil.AccessDenied:
        raise CannotEnd(tr("You are not permitted to end process {pid}.").format(pid=pid)) from None


def _is_running(pid: int, started: float) -> bool:
    """Return True if a process with this pid is running that started at `started`, in seconds since the epoch."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class EndingBar(QuestionBar):
    """Banner that asks for confirmation before it ends a process, and then shows the result.

    Attributes:
        patience_s: Seconds after which the bar offers to kill a process that hasn't ended.

    Signals:
        stop_run(str): the user wants to stop the run with this id.
        closed(): the bar has been dismissed.
    """

    stop_run = Signal(str)
    closed = Signal()

    def __init__(self) -> None:
        super().__init__(tr("Ending a process"))
        self.patience_s = 5.0
        self._process: ProcessRow | None = None
        self._last_action: _Action = "nothing"
        self._elapsed = QElapsedTimer()
        self._poll_timer = QTimer(self, interval=_POLL_MS)
        self._poll_timer.timeout.connect(self._poll)
        self.yes.clicked.connect(self._end_or_stop)
        self.no.clicked.connect(self.dismiss)

    def ask(self, process: ProcessRow) -> None:
        """Ask for confirmation to end a process, or to stop its run."""
        self._poll_timer.stop()
        self._process, self._last_action = process, "nothing"
        if process.run is not None:
            self.show_message(_make_stop_question(process), "warning", tr("Stop the run"), tr("Cancel"))
        else:
            self.show_message(_make_end_question(process), "warning", tr("End process"), tr("Cancel"))
        self.no.setFocus()

    def dismiss(self) -> None:
        """Hide the bar and stop watching the process."""
        self._poll_timer.stop()
        self._process = None
        self.hide()
        self.closed.emit()

    def _end_or_stop(self) -> None:
        """Stop the process's run, or ask the process to end, or kill it if it was already asked."""
        process = self._process
        if process is None:
            return
        if process.run is not None:
            run_id = process.run.run_id
            self.dismiss()
            self.stop_run.emit(run_id)
            return
        assert process.pid is not None  # `disabled_reason` excludes processes without pid or start time
        assert process.started is not None
        kill = self._last_action == "asked"
        try:
            end_process(process.pid, process.started, kill=kill)
        except CannotEnd as problem:
            self._finish(str(problem), "info")
            return
        self._last_action = "killed" if kill else "asked"
        self._elapsed.start()
        self._poll_timer.start()
        text = tr("{process} was killed…") if kill else tr("{process} was asked to end…")
        self.show_note(text.format(process=_name(process)))
        self.no.setFocus()

    def _poll(self) -> None:
        """Report that the process has ended, or that it is still running after `patience_s`."""
        process = self._process
        if process is None or process.pid is None or process.started is None:
            return
        has_reported = self.yes.isVisible()  # the bar already offers to kill the process
        if not _is_running(process.pid, process.started):
            self._finish(tr("{process} has ended.").format(process=_name(process)), "ok")
        elif self._elapsed.hasExpired(round(1000 * self.patience_s)) and not has_reported:
            self._report_running(process)

    def _report_running(self, process: ProcessRow) -> None:
        """Report that the process hasn't ended in time. Offer to kill it if it hasn't been killed."""
        waited = f"{significant(self.patience_s)} s"
        if self._last_action == "killed":
            self._finish(
                tr(
                    "{process} is still running {waited} after it was killed. It is waiting for the driver or a disk "
                    "and ends when that responds, or when the machine is rebooted."
                ).format(process=_name(process), waited=waited),
                "warning",
            )
        else:
            self.show_message(
                tr(
                    "{process} is still running after {waited}. It may be saving its work or ignoring the request. "
                    "Killing it loses all unsaved work."
                ).format(process=_name(process), waited=waited),
                "warning",
                tr("Kill it"),
                tr("Leave it"),
            )

    def _finish(self, text: str, severity: Severity) -> None:
        """Stop watching the process, and show `text` as the result."""
        self._poll_timer.stop()
        self.show_note(text, severity)


def _name(process: ProcessRow) -> str:
    return tr("{title} (pid {pid})").format(title=process.title, pid=process.pid)


def _make_stop_question(process: ProcessRow) -> str:
    assert process.run is not None
    return tr("Stop the run {name}? It stops after the current step and saves its state.").format(name=process.run.name)


def _make_end_question(process: ProcessRow) -> str:
    """Return the question "End …?" with the process's user, memory, GPUs and running time. Unknown ones are left out."""
    question = tr("End {process}?") if process.mine or process.user is None else tr("End {process} of {user}?")
    held = format_gpu_names(process.gpus)
    if process.memory_used_bytes is not None:
        held = tr("{memory} of {gpus}").format(memory=size(process.memory_used_bytes), gpus=held)
    use = tr("It holds {held}.") if process.running_s is None else tr("It holds {held} and has run for {time}.")
    effect = (
        tr("It ends immediately and loses unsaved work.")
        if sys.platform == "win32"
        else tr("It receives SIGTERM and may save its work first.")
    )
    sentences = (
        question.format(process=_name(process), user=process.user),
        use.format(held=held, time=duration(process.running_s)),
        effect,
    )
    return " ".join(sentences) + (f"\n{process.command}" if process.command else "")
