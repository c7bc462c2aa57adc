"""Causes of interrupted runs, determined from files in their folders.

A supervisor that is killed by a signal can't write to the run's log. For a crash (SIGSEGV, SIGABRT …), Python's
faulthandler writes to supervisor.log. Other signals are recorded there by the parent process, if it is still alive.
"""

from __future__ import annotations

import signal
from pathlib import Path

from engine.contract.slurm import LOG
from engine.runs.folder import RunFolder, started_before_this_boot
from engine.runs.index import machine_of
from engine.runs.slurm_job import read_slurm
from engine.system.files import read_end
from engine.system.format import describe_exit

REPORTED_SIGNALS = (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGILL, getattr(signal, "SIGBUS", 0))
"""Signals for which Python's faulthandler writes a dump to supervisor.log."""
_TAIL_LINES = 5
_TAIL_BYTES = 1 << 16
_FATAL, _DUMPS_END = "Fatal Python error: ", "Extension modules: "
"""Beginning of the first line, and of the last line, that faulthandler writes."""


def explain_interruption(run: RunFolder) -> str:
    """Return the cause of the end of a run without a final event, as text for the end of a sentence."""
    slurm = read_slurm(run.path)
    if slurm is not None and slurm.state not in ("", "COMPLETED"):  # SLURM knows why it ended the job
        output = read_last_lines(run.path / LOG)
        return f"its SLURM {slurm.text}.{f' The end of {LOG}: {output}' if output else ''}"
    if machine := machine_of(run):
        return f"its supervisor on {machine} ended without reporting an error, or that machine shut down."
    log = run.path / "supervisor.log"
    supervisor = run.supervisor()
    output = read_last_lines(log)
    if supervisor is None:
        return f"the run did not start. {output} See {log}."
    if started_before_this_boot(supervisor.start_time):
        return "the machine shut down or restarted."
    who = f"its supervisor (pid {supervisor.pid})"
    if not output or _is_older(log, run.supervisor_file):  # an older log belongs to a previous execution
        return f"{who} was probably killed (SIGKILL), or its disk is full; {log.name} contains no error."
    return f"{who} ended early. The end of {log.name}: {output}"


def record_fatal_signal(folder: Path, exit_code: int) -> None:
    """Append the signal that killed a supervisor to supervisor.log.

    Nothing is written if the supervisor exited without a signal, or if faulthandler has reported the signal.
    """
    if exit_code < 0 and -exit_code not in REPORTED_SIGNALS:
        try:
            with (folder / "supervisor.log").open("a", encoding="utf-8") as log:
                log.write(f"The supervisor {describe_exit(exit_code)}.\n")
        except OSError:
            return  # the folder was deleted, or the disk is full


def _is_older(file: Path, other: Path) -> bool:
    """Return True if `file` was modified before `other`. Returns False if one of them is missing."""
    try:
        return file.stat().st_mtime_ns < other.stat().st_mtime_ns
    except OSError:
        return False


def read_last_lines(log: Path) -> str:
    """Return the last lines of a process's output, joined into one line.

    If the output ends with a dump of faulthandler, return the lines before the dump and its first line, the fatal
    error.
    """
    try:
        text = read_end(log, _TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[-1].startswith(_DUMPS_END):
        fatal = [index for index, line in enumerate(lines) if line.startswith(_FATAL)]
        lines = lines[: fatal[-1] + 1] if fatal else lines[:-1]
    return " · ".join(lines[-_TAIL_LINES:])
