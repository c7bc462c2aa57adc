"""A terminal redrawn in place, and given back as it was."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, TextIO

from engine.cli.gpus.layout import Line, Tone
from engine.system.plain_text import escaped

# Of xterm's control sequences (ctlseqs), which all terminals of today know; an unknown private mode is passed over.
_BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the other screen, no cursor, lines that are cut rather than wrapped
_END = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOLD, _RELEASE = "\x1b[?2026h", "\x1b[?2026l"  # what comes between is shown at once
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_TONES: dict[Tone, str] = {"plain": "", "head": "\x1b[1m", "dim": "\x1b[2m", "warning": "\x1b[33m"}
_PLAIN = "\x1b[0m"


class Screen:
    """Within its `with` block the whole terminal of `stream` belongs to what `show` is given.

    SIGTERM and a closed terminal leave the block by SystemExit, so that the terminal is restored then, too.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._echo = _Echo()
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Screen:
        self._handlers = {number: signal.signal(number, _leave) for number in _endings()}
        self._echo.off()
        self._stream.write(_BEGIN)
        return self

    def show(self, lines: Sequence[Line]) -> None:
        """Draws `lines` over what was there; what is below the terminal's end is told as missing."""
        rows = shutil.get_terminal_size().lines
        if len(lines) > rows:
            hidden = len(lines) - rows + 1
            lines = [*lines[: rows - 1], Line(f"… {hidden} more lines: a taller terminal shows them", "dim")]
        coloured = in_colours(self._stream)
        drawn = f"{_REST_OF_LINE}\n".join(painted(line, coloured=coloured) for line in lines)
        self._stream.write(f"{_HOLD}{_HOME}{drawn}{_REST_OF_LINE}{_REST_OF_SCREEN}{_RELEASE}")
        self._stream.flush()

    def __exit__(self, *_error: object) -> None:
        with suppress(OSError):  # a terminal that was closed
            self._stream.write(_END)
            self._stream.flush()
            self._echo.restore()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


def in_colours(stream: TextIO) -> bool:
    """Whether `stream` is a terminal whose user has not asked for none (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_lines(stream: TextIO, lines: Sequence[Line]) -> None:
    """Prints `lines` below what `stream` has said before."""
    coloured = in_colours(stream)
    stream.writelines(f"{painted(line, coloured=coloured)}\n" for line in lines)
    stream.flush()


def painted(line: Line, *, coloured: bool) -> str:
    """The line in its tone, where `coloured`; what a terminal would obey of its text is shown in place."""
    tone, text = _TONES[line.tone] if coloured else "", escaped(line.text)
    return f"{tone}{text}{_PLAIN}" if tone else text


class _Echo:
    """Keeps keys that are pressed from being written over the screen, and from reaching the shell afterwards."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def off(self) -> None:
        if os.name == "nt" or not sys.stdin.isatty():
            return
        import termios

        self._before = termios.tcgetattr(sys.stdin)
        quiet = list(self._before)
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)

    def restore(self) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, self._before)


def _endings() -> list[signal.Signals]:
    return [signal.SIGTERM] if os.name == "nt" else [signal.SIGTERM, signal.SIGHUP]


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
