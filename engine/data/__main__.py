"""``python -m engine.data FOLDER``: prints `InspectionMessage` lines, progress first and the report last.

Ends quietly when interrupted, when nobody reads any more, and with its parent. On Linux the looking is a child's, so
that a file that makes its decoder crash is named.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import NoReturn

import msgspec

from engine.contract.dataset import DatasetReport, InspectionDone, InspectionMessage, InspectionProgress
from engine.contract.job import FIELDS
from engine.data.formats.registry import FORMATS, IMAGES_BY_CLASS
from engine.data.inspection.inspector import inspect
from engine.data.memory_limit import limit_memory
from engine.data.splits import dataset_error, printable
from engine.system import linux
from engine.system.plain_text import shorten_texts
from engine.system.regular_files import LAST_OPENED

PROGRESS_INTERVAL_S = 0.1
_AWAITED = (signal.SIGINT, signal.SIGCHLD) if sys.platform == "linux" else ()
"""What the watcher waits for, blocked all the while: a Ctrl-C that came as it forked, or just before it slept, was
lost."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.data", description="Inspects a dataset folder.")
    parser.add_argument("folder")
    parser.add_argument("--val-fraction", type=float, default=FIELDS["val_fraction"].default)
    parser.add_argument("--seed", type=int, default=FIELDS["seed"].default)
    parser.add_argument("--ignore-value", type=int)
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=IMAGES_BY_CLASS)
    parser.add_argument("--format", default="")
    parser.add_argument("--samples", type=int, default=0)
    arguments = parser.parse_args()
    _die_with_parent()
    FORMATS.added()  # what plug-ins import counts neither as the dataset's memory nor as its time
    try:
        return _watch_over(arguments) if sys.platform == "linux" else _look(arguments)
    except KeyboardInterrupt:
        _leave(130)
    except BrokenPipeError:
        _leave(0)


def _watch_over(arguments: argparse.Namespace) -> int:
    """Has a child look the folder through. Where a signal ends it, another one looks at a file at a time: what it has
    opened last is what ends it.
    """
    parent = os.getpid()
    for threads in (None, 1):
        LAST_OPENED.share()
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        pid = os.fork()
        if pid == 0:
            linux.die_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
            limit_memory()
            return _look(arguments, threads)
        code = _exit_code(pid)
        if code >= 0:
            return code
    _print(InspectionDone(_crashed(arguments.folder, -code)))
    return 0


def _exit_code(pid: int) -> int:
    """Waits for the child to end. Raises KeyboardInterrupt."""
    while signal.sigwait(_AWAITED) != signal.SIGINT:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
    raise KeyboardInterrupt


def _look(arguments: argparse.Namespace, threads: int | None = None) -> int:
    report = inspect(
        arguments.folder,
        val_fraction=arguments.val_fraction,
        seed=arguments.seed,
        kinds=arguments.kinds,
        format=arguments.format,
        samples=arguments.samples,
        ignored=arguments.ignore_value,
        progress=_Printer().progress,
        threads=threads,
    )
    _print(InspectionDone(report))
    return 0


def _crashed(folder: str, number: int) -> DatasetReport:
    path = LAST_OPENED.path()
    name = printable(os.path.relpath(path, folder) if path else folder)
    signal_name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    problem = dataset_error(f"{name} crashes the program that reads it ({signal_name}).", "Rewrite it, or remove it.")
    return shorten_texts(DatasetReport(folder=printable(folder), format="", problems=(problem,)))


class _Printer:
    def __init__(self) -> None:
        self._next = 0.0

    def progress(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_INTERVAL_S
            _print(InspectionProgress(done, total))


def _print(message: InspectionMessage) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def _leave(code: int) -> NoReturn:
    """At once: neither waits for threads that are decoding nor flushes into a closed pipe."""
    os._exit(code)


def _die_with_parent() -> None:
    """On Linux the kernel ends this process with the one that started it; elsewhere the closed pipe does."""
    if sys.platform == "linux":
        linux.signal_at_parents_death(signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
