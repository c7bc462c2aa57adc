"""Progress of child processes as status lines."""

from __future__ import annotations

import sys

import pytest

from engine.cli.terminal import show_progress
from engine.contract.advice import AdviceProgress, Candidate
from engine.contract.dataset import InspectionProgress
from engine.contract.messages import Progress
from tests.engine.cli.terminal import TerminalStream

FASTEST, SECOND = (
    Candidate(name=name, strategy="ddp", devices=("cpu",), changes={}, images_per_second=rate)
    for name, rate in (("FSDP", 90.0), ("Pipeline", None))
)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (InspectionProgress(0, 0), "Inspecting the images: 0 of …"),
        (InspectionProgress(7, 90), "Inspecting the images: 7 of 90"),
        (Progress(0.254, "Evaluating"), "Evaluating: 25%"),
        (Progress(0.5, "Evaluating", 192.0, 1840.4), "Evaluating: 50%, 1,840 images/s, 3:12 min left"),
        (Progress(1.0, "Evaluating", 0.0), "Evaluating: 100%, 0 s left"),
        (AdviceProgress(0.5, "DDP", 12.0), "DDP, 12 s left (Ctrl+C ends with this)"),
        (
            AdviceProgress(0.5, "DDP", 12.0, left=1, table=(FASTEST, SECOND)),
            "DDP, 1 candidate after it, 12 s left; fastest: FSDP, 90 images/s (Ctrl+C ends with this)",
        ),
        (AdviceProgress(0.5, "DDP", 12.0, table=(SECOND,)), "DDP, 12 s left (Ctrl+C ends with this)"),
    ],
)
def test_progress_text_has_the_known_values(
    message: Progress | InspectionProgress, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = TerminalStream()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "200")
    with show_progress() as show:
        show(message)
        assert screen.getvalue() == f"\r\x1b[K{text}"
    assert screen.getvalue().endswith("\r\x1b[K")
