"""``python -m engine.data FOLDER``: inspect a dataset folder and print `INSPECTION` lines.

Progress lines come first, and the last line is the report. On an interrupt, and when its output or its parent process
is closed, the process exits without an error message. On Linux the inspection runs in a child process, so that the
parent can report a file that crashes its decoder.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

import msgspec

from engine.contract.dataset import DatasetReport, InspectionProgress
from engine.contract.job import FIELDS
from engine.contract.messages import Done
from engine.data.formats.registry import FORMATS, IMAGES_BY_CLASS
from engine.data.inspection.inspector import inspect
from engine.data.memory_limit import limit_memory
from engine.data.splits import dataset_error, printable
from engine.system import linux
from engine.system.plain_text import shorten_texts
from engine.system.regular_files import LAST_OPENED

PROGRESS_INTERVAL_S = 0.1
_WATCHED_SIGNALS = (signal.SIGINT, signal.SIGCHLD) if sys.platform == "linux" else ()
"""Signals that the parent process waits for during an inspection.

They stay blocked. Otherwise, a signal that arrives between `fork` and the wait would be lost.
"""


def main() -> int:
    """Inspect the dataset folder on the command line, print the result as JSON lines, and return the exit status.

    On Linux, a child process with a memory limit inspects it.
    """
    parser = argparse.ArgumentParser(prog="python -m engine.data", description="Inspects a dataset folder.")
    parser.add_argument("folder")
    parser.add_argument("--val-fraction", type=float, default=FIELDS["val_fraction"].default)
    parser.add_argument("--seed", type=int, default=FIELDS["seed"].default)
    parser.add_argument("--ignore-value", type=int)
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=IMAGES_BY_CLASS)
    parser.add_argument("--format", default="")
    parser.add_argument("--samples", type=int, default=0)
    arguments = parser.parse_args()
    if sys.platform == "linux":  # on other systems, writing to the parent's closed pipe ends the process
        linux.signal_at_parents_death(signal.SIGKILL)
    FORMATS.load_plugins()  # so that importing plug-ins affects neither the memory limit nor the time of the inspection
    try:
        return _inspect_in_child(arguments) if sys.platform == "linux" else _inspect(arguments)
    except KeyboardInterrupt:
        exit_code = 128 + signal.SIGINT  # as shells report it
    except BrokenPipeError:
        exit_code = 0
    # Exit without waiting for decoding threads, or flushing the standard output, which may be closed.
    os._exit(exit_code)


def _inspect_in_child(arguments: argparse.Namespace) -> int:
    """Inspect the folder in a child process and return the exit code.

    If a signal kills the child, for example because a decoder crashes, a second child inspects the folder with a single
    thread. If a signal kills that child, too, a report is printed that names the last opened file as the cause.
    """
    parent = os.getpid()
    for threads in (None, 1):
        LAST_OPENED.share()  # so that this process knows the last file that the child has opened
        # `_wait_for_exit_code` waits for these signals. Blocking them before the fork loses none.
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED_SIGNALS)
        pid = os.fork()
        if pid == 0:
            linux.die_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED_SIGNALS)
            limit_memory()
            return _inspect(arguments, threads)
        code = _wait_for_exit_code(pid)
        if code >= 0:  # no signal killed the child
            return code
    _print(Done(_create_crash_report(arguments.folder, -code)))
    return 0


def _wait_for_exit_code(pid: int) -> int:
    """Wait for the child with the id `pid` and return its exit code, or minus the number of the signal that killed it.

    Raises KeyboardInterrupt if the user interrupts the wait.
    """
    while signal.sigwait(_WATCHED_SIGNALS) != signal.SIGINT:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
    raise KeyboardInterrupt


def _inspect(arguments: argparse.Namespace, threads: int | None = None) -> int:
    """Inspect the folder in this process, print the progress and the report, and return the exit status 0.

    `threads` is the number of threads, or None for one per core, but at most four.
    """
    report = inspect(
        arguments.folder,
        val_fraction=arguments.val_fraction,
        seed=arguments.seed,
        kinds=arguments.kinds,
        format=arguments.format,
        samples=arguments.samples,
        ignored=arguments.ignore_value,
        progress=_ProgressPrinter().report,
        threads=threads,
    )
    _print(Done(report))
    return 0


def _create_crash_report(folder: str, number: int) -> DatasetReport:
    """Create a report that names the last opened file as the cause of the signal `number` that killed the child."""
    path = LAST_OPENED.path()
    name = printable(os.path.relpath(path, folder) if path else folder)
    signal_name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    problem = dataset_error(f"{name} crashes the program that reads it ({signal_name}).", "Rewrite it, or remove it.")
    return shorten_texts(DatasetReport(folder=printable(folder), format="", problems=(problem,)))


class _ProgressPrinter:
    """Printer of progress messages, with at least `PROGRESS_INTERVAL_S` between two of them."""

    def __init__(self) -> None:
        self._next_message_at = 0.0

    def report(self, done: int, total: int) -> None:
        """Print that `done` of `total` images are inspected, unless the last message is too recent."""
        now = time.monotonic()
        if now >= self._next_message_at:
            self._next_message_at = now + PROGRESS_INTERVAL_S
            _print(InspectionProgress(done, total))


def _print(message: InspectionProgress | Done[DatasetReport]) -> None:
    """Write a message to the standard output as a line of JSON, without delay."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
