"""``python -m engine.data FOLDER``: prints `InspectionMessage` lines, progress first and the report last.

Ends quietly when interrupted, when nobody reads any more, and with its parent.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import NoReturn

import msgspec

from engine import linux
from engine.contract.dataset import InspectionDone, InspectionMessage, InspectionProgress
from engine.contract.job import FIELDS
from engine.data.formats import PICTURES_BY_CLASS
from engine.data.inspection import inspect
from engine.data.memory import limit_memory

PROGRESS_INTERVAL_S = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.data", description="Looks a dataset folder through.")
    parser.add_argument("folder")
    parser.add_argument("--val-fraction", type=float, default=FIELDS["val_fraction"].default)
    parser.add_argument("--seed", type=int, default=FIELDS["seed"].default)
    parser.add_argument("--ignore-value", type=int)
    parser.add_argument("--formats", type=lambda text: tuple(text.split(",")), default=PICTURES_BY_CLASS)
    arguments = parser.parse_args()
    _die_with_parent()
    limit_memory()
    try:
        report = inspect(
            arguments.folder,
            val_fraction=arguments.val_fraction,
            seed=arguments.seed,
            formats=arguments.formats,
            ignored=arguments.ignore_value,
            progress=_Printer().progress,
        )
        _print(InspectionDone(report))
    except KeyboardInterrupt:
        _leave(130)
    except BrokenPipeError:
        _leave(0)
    return 0


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
