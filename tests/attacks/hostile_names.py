"""Hostile names for classes, files, runs, processes and GPUs, and a trap that detects if one of them takes effect."""

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
"""Names by kind of attack.

Lone surrogates are missing, because no message or file of Footplate can contain them.
"""


@contextmanager
def set_trap(folder: Path) -> Iterator[Path]:
    """Create a FIFO in `folder` that all hostile names refer to, and detect when it is opened.

    Yields the path of a file that is created when a process opens the FIFO. The FIFO is empty, so that the process
    doesn't block.
    """
    fifo, sprung = folder / FIFO, folder / "sprung"
    os.mkfifo(fifo)
    shell = subprocess.Popen(["/bin/sh", "-c", 'exec 3> "$0"; rm "$0"; : > "$1"', str(fifo), str(sprung)])
    try:
        yield sprung
    finally:
        shell.kill()
        shell.wait()
