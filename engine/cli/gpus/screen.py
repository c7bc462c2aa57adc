"""Print snapshots to the terminal, one below the other, or in place on a screen that is restored afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

WIDTH = 100
"""Width of tables in characters if there is no terminal."""


class _Console(Console):
    """Console that leaves the handling of a closed pipe to `engine.cli.main`."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError again, which rich would turn into an exit of the process."""
        raise  # noqa: PLE0704  (called in an except block; `main` handles it)


def create_console(stream: TextIO) -> Console:
    """Return a console for `stream`, without colors if the user disables them (no-color.org)."""
    width = None if stream.isatty() else shutil.get_terminal_size((WIDTH, 40)).columns
    return _Console(file=stream, width=width, color_system=None if os.environ.get("NO_COLOR") else "auto")


@contextmanager
def full_screen(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Switch to the terminal's alternate screen inside the context, and yield the function that draws on it.

    SIGTERM and a closed terminal raise SystemExit in the context, so that the terminal is restored.
    """
    end_signals = [signal.SIGTERM] if os.name == "nt" else [signal.SIGTERM, signal.SIGHUP]
    previous_handlers = {number: signal.signal(number, _exit) for number in end_signals}
    with _hidden_keys():
        console.set_alt_screen(True)
        console.show_cursor(False)
        try:
            yield lambda content: _redraw(console, content)
        finally:
            with suppress(OSError):  # the terminal was closed
                console.show_cursor(True)
                console.set_alt_screen(False)
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)


def _redraw(console: Console, content: RenderableType) -> None:
    """Draw `content` over the previous content. If not all lines fit, the last one shows the number of hidden lines."""
    lines, rows = console.render_lines(content), console.height
    if len(lines) > rows:
        hidden_count = len(lines) - rows + 1  # the last visible line is used for the notice
        lines[rows - 1 :] = [[Segment(f"… {hidden_count} more lines: a taller terminal shows them", Style(dim=True))]]
    console.update_screen_lines(Segment.set_shape(lines, console.width, rows))


@contextmanager
def _hidden_keys() -> Iterator[None]:
    """Hide typed keys inside the context and discard them at its end."""
    if os.name == "nt" or not sys.stdin.isatty():
        yield
        return
    import termios

    previous = termios.tcgetattr(sys.stdin)
    without_echo = list(previous)
    without_echo[3] &= ~termios.ECHO  # index 3 has the local modes
    termios.tcsetattr(sys.stdin, termios.TCSANOW, without_echo)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, previous)


def _exit(number: int, _frame: FrameType | None) -> None:
    """Handle a signal by raising SystemExit, so that the terminal is restored."""
    raise SystemExit(128 + number)
