"""Print lines, tables, problems and progress for all commands.

All output passes through `escaped`, so that no file name or log line can control the terminal.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.contract.advice import AdviceProgress
from engine.contract.dataset import InspectionProgress
from engine.contract.job import FIELDS, Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem, errors
from engine.system import paths
from engine.system.format import counted, duration, speed
from engine.system.plain_text import CsvWriter, escape

COMPLETED = 0
BAD_REQUEST = 2
FAILED = 3
UNSAVED = 4
"""Exit code of a run whose training ended, but whose last state could not be written to disk."""
INTERRUPTED = 130

_MAX_TABLE_WIDTH = 10_000


class CommandError(Exception):
    """Raised to end a command with an exit code, after the reason has been printed."""

    def __init__(self, code: int = BAD_REQUEST) -> None:
        super().__init__(code)
        self.code = code


def print_lines(*lines: str, to: TextIO | None = None) -> None:
    """Print `lines` to `to`, by default standard output."""
    stream = sys.stdout if to is None else to
    stream.writelines(f"{escape(line)}\n" for line in lines)
    stream.flush()


def print_error(message: str, code: int = BAD_REQUEST) -> int:
    """Print an error message to standard error, and return `code`."""
    print_lines(f"footplate: {message}", to=sys.stderr)
    return code


def report(problems: Iterable[Problem]) -> int:
    """Print problems with their flags and remedies to standard error, and return the exit code `BAD_REQUEST`."""
    for problem in problems:
        severity = "warning: " if problem.severity == "warning" else ""
        flag = f"{flag_of(problem)}: " if problem.field else ""
        print_error(f"{severity}{flag}{problem.message}")
        if problem.remedy:
            print_lines(f"  {problem.remedy}", to=sys.stderr)
        for choice in problem.choices:
            if "format" in choice.values:  # all other choices only repeat the remedy
                flags = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in choice.values.items())
                print_lines(f"  {choice.title}: {flags}", to=sys.stderr)
    return BAD_REQUEST


def flag_of(problem: Problem) -> str:
    """Return the flag or argument that sets the field of a problem."""
    if problem.field == "dataset":
        return "DATASET"
    if problem.field.startswith("options."):
        return f"--option {problem.field.removeprefix('options.')}"
    field = FIELDS.get(problem.field)
    return field.flag if field is not None else problem.field


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format a table as lines of text with left-aligned columns, two spaces apart."""
    grid = Table(*head, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for row in rows:
        grid.add_row(*(Text(escape(cell), no_wrap=True) for cell in row))
    text = io.StringIO()
    Console(file=text, width=_MAX_TABLE_WIDTH, color_system=None).print(grid)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def require_valid(job: Job | None, problems: Iterable[Problem]) -> Job:
    """Print the problems with a job, and return the job. Raises CommandError if it is None or there are errors."""
    problems = list(problems)
    report(problems)
    if job is None or errors(problems):
        raise CommandError
    return job


@contextmanager
def report_unwritable() -> Iterator[None]:
    """Context manager that turns a failed write to a run's folder into a printed message and a CommandError."""
    try:
        yield
    except OSError as error:
        print_error(f"the run's folder can't be written: {error}.")
        print_lines(
            "  Make room or get write permission there, or set FOOTPLATE_HOME to another folder.", to=sys.stderr
        )
        raise CommandError from error


def require_writable(flag: str, file: Path | None) -> None:
    """Print an error and raise CommandError if `file`, the value of `flag`, can't be written.

    Call this before a long computation, whose results would otherwise be lost.
    """
    if file is None:
        return
    target = file.expanduser().absolute()
    if target.is_dir():
        reason = f"{target} is a folder"
    elif not target.parent.is_dir():
        reason = f"there is no folder {target.parent}"
    elif not os.access(target.parent, os.W_OK | os.X_OK):
        reason = f"you have no permission to write to {target.parent}"
    else:
        return
    raise CommandError(print_error(f"{flag}: The file can't be written: {reason}. Choose another file."))


def write_csv(file: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file for other programs. If that fails, print an error and raise CommandError."""
    text = io.StringIO()
    writer = CsvWriter(text, line_end="\n")
    for row in rows:
        writer.write_row(row)
    try:
        paths.write_atomically(file.expanduser(), text.getvalue().encode())
    except OSError as error:
        raise CommandError(
            print_error(f"{file} can't be written: {error.strerror}. Choose another file.", FAILED)
        ) from error


class StatusLine:
    """Line at the bottom of a terminal that is overwritten in place.

    It writes nothing if `stream` is not a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_visible = False

    def show(self, text: str) -> None:
        """Replace the line by `text`, cropped to the width of the terminal."""
        if self._is_terminal:
            cropped = Text(escape(text))
            cropped.truncate(shutil.get_terminal_size().columns - 1)
            self._stream.write(f"\r\x1b[K{cropped.plain}")
            self._stream.flush()
            self._is_visible = True

    def clear(self) -> None:
        """Remove the line, so that other text can be printed."""
        if self._is_visible:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_visible = False


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[Callable[[Progress | InspectionProgress], None]]:
    """Context manager that yields a function to display progress messages of a child process on standard error.

    Warnings in the messages are printed as lines, even if `quiet` is True.
    """
    line = StatusLine(sys.stderr)

    def show(message: Progress | InspectionProgress) -> None:
        for warning in message.warnings if isinstance(message, Progress) else ():
            line.clear()
            print_error(warning)
        if not quiet:
            line.show(_format_progress(message))

    try:
        yield show
    finally:
        line.clear()


def _format_progress(message: Progress | InspectionProgress) -> str:
    """Format the progress of a child process as a status line."""
    if isinstance(message, InspectionProgress):
        return f"Inspecting the images: {message.done} of {message.total or '…'}"
    if isinstance(message, AdviceProgress):
        pending = f", {counted(message.left, 'candidate')} after it" if message.left else ""
        first = message.table[0] if message.table else None  # the fastest candidate, if any was measured
        fastest = ""
        if first is not None and first.images_per_second is not None:
            fastest = f"; fastest: {first.name}, {speed(first.images_per_second)}"
        return f"{message.what}{pending}, {duration(message.seconds_left)} left{fastest} (Ctrl+C ends with this)"
    rate = f", {speed(message.images_per_second)}" if message.images_per_second else ""
    remaining = f", {duration(message.seconds_left)} left" if message.seconds_left is not None else ""
    return f"{message.what}: {100 * message.fraction:.0f}%{rate}{remaining}"
