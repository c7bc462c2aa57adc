"""Where everything that commands say goes out, so that no name within it can act on the terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from engine.system.plain_text import escaped


def say(*lines: str, to: TextIO | None = None) -> None:
    """Prints each of `lines` as one line, with what a terminal would obey shown in place; on standard output unless
    told otherwise.
    """
    stream = sys.stdout if to is None else to
    stream.writelines(f"{escaped(line)}\n" for line in lines)
    stream.flush()


class Line:
    """The line at the bottom of a terminal; silent where `stream` is none."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._alive = stream.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        if self._alive:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{escaped(text)[:width]}")
            self._stream.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
