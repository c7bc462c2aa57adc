"""The terminal that snapshots are drawn on: below one another, or in place on a whole screen that is given back."""

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
"""How wide a table may be where no terminal says it."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  (it is called where that is handled: nobody reading any more is no failure here)


def console(stream: TextIO) -> Console:
    """Draws on `stream`, without colours where the user asks for none (no-color.org)."""
    width = None if stream.isatty() else shutil.get_terminal_size((WIDTH, 40)).columns
    return _Console(file=stream, width=width, color_system=None if os.environ.get("NO_COLOR") else "auto")


@contextmanager
def whole_screen(to: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Within the block the terminal belongs to what the function that it gives is called with.

    SIGTERM and a closed terminal leave the block by SystemExit, so that the terminal is restored then, too.
    """
    handlers = {number: signal.signal(number, _leave) for number in _endings()}
    with _keys_unseen():
        to.set_alt_screen(True)
        to.show_cursor(False)
        try:
            yield lambda shown: _redraw(to, shown)
        finally:
            with suppress(OSError):  # a terminal that was closed
                to.show_cursor(True)
                to.set_alt_screen(False)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _redraw(to: Console, shown: RenderableType) -> None:
    """Draws over what was there; what is below the terminal's end is told as missing."""
    lines, rows = to.render_lines(shown), to.height
    if len(lines) > rows:
        hidden = len(lines) - rows + 1
        lines[rows - 1 :] = [[Segment(f"… {hidden} more lines: a taller terminal shows them", Style(dim=True))]]
    to.update_screen_lines(Segment.set_shape(lines, to.width, rows))


@contextmanager
def _keys_unseen() -> Iterator[None]:
    """Keeps keys that are pressed from being written over the screen, and from reaching the shell afterwards."""
    if os.name == "nt" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    quiet = list(before)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # a terminal that was closed
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, before)


def _endings() -> list[signal.Signals]:
    return [signal.SIGTERM] if os.name == "nt" else [signal.SIGTERM, signal.SIGHUP]


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
