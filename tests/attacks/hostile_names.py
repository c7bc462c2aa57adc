"""Names that an attacker might give to a class, a file, a run, a process or a GPU, and what tells whether one was
obeyed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FIFO = "fifo"
NAMES = {
    "image": f"<img src={FIFO}>",
    "image in a link": f'<a href="file:///"><img src="{FIFO}"></a>',
    "bold": "<b>bold</b>",
    "table": "<table><tr><td>cell</td></tr></table>",
    "entity": "R&amp;D &lt;b&gt; &File",
    "right to left": "\u202egpj.exe\u2066",
    "lines": "Completed\nCompleted\r\n\tCompleted",
    "many lines": "line\n" * 500,
    "escapes": "\x1b[2J\x1b]0;title\x07\x9b31m\r",
    "long": "x" * 255,
    "endless": "x" * 10_000,
    "many words": "word " * 2_000,
    "nul": "before\0after",
    "formula": '=HYPERLINK("http://example.invalid","press")',
}
"""By what is evil in them. None holds a lone surrogate: no message and no file of ours can carry one."""


@contextmanager
def trap(folder: Path) -> Iterator[Path]:
    """A FIFO in `folder`, for all names that lead there; yields the file that is there once it has been opened. Who
    opens it finds it empty and gone the next time, so that the test fails and does not stand still.
    """
    fifo, sprung = folder / FIFO, folder / "sprung"
    os.mkfifo(fifo)
    shell = subprocess.Popen(["/bin/sh", "-c", 'exec 3> "$0"; rm "$0"; : > "$1"', str(fifo), str(sprung)])
    try:
        yield sprung
    finally:
        shell.kill()
        shell.wait()
