"""Names that an attacker could give to a class, file, run, process or GPU, and a trap that detects their effect."""

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
"""Names by kind of attack. Lone surrogates are left out, because no message or file of Footplate can contain them."""


@contextmanager
def trap(folder: Path) -> Iterator[Path]:
    """Create a FIFO in `folder` to which all names refer; yield the path of a file that appears if it is opened.

    A reader finds the FIFO empty, and removed the next time, so that the test fails instead of hanging.
    """
    fifo, sprung = folder / FIFO, folder / "sprung"
    os.mkfifo(fifo)
    shell = subprocess.Popen(["/bin/sh", "-c", 'exec 3> "$0"; rm "$0"; : > "$1"', str(fifo), str(sprung)])
    try:
        yield sprung
    finally:
        shell.kill()
        shell.wait()
