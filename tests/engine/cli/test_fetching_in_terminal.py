"""Progress of downloads of pretrained weights in the terminal."""

from __future__ import annotations

import io
from pathlib import Path

from engine.cli.progress import Progress
from engine.contract.events import Fetching, PhaseChanged
from engine.runs.folder import RunFolder

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_the_download_of_weights() -> None:
    out, line = io.StringIO(), Terminal()
    progress = Progress(RunFolder(Path("/runs/a-run")), out, line)
    progress.show(PhaseChanged(phase="fetching", detail="the pretrained weights of a from b"))
    for second in (1, 2, 3):
        progress.show(Fetching(time=second, source="a", done_bytes=10 * second * MIB, total_bytes=100 * MIB))
    assert out.getvalue() == "Fetching the pretrained weights of a from b.\n"
    assert line.getvalue().endswith(" 30%  30.0 MiB of 100.0 MiB  7 s left")
    progress.show(Fetching(time=4, source="a", done_bytes=40 * MIB))
    assert line.getvalue().endswith("40.0 MiB of the weights")
