"""Output about a run in the terminal: choices, advice and findings."""

from __future__ import annotations

import io
from pathlib import Path

from engine.cli.progress import STEADY, ProgressDisplay
from engine.contract.events import Advice, AnyEvent, TimeSpent, Validation
from engine.runs.folder import RunFolder

VALIDATION = Validation(epoch=1, step=9, measures={"top1": 0.5}, images=3, seconds=1.0)
FINE = Advice(sentence="The CPU is busy 97% of the time; there is no bottleneck.")
STARVED = Advice(sentence="The CPU waits: 2 more would feed it.", field="loader_workers", value=4, live=True)


def printed_lines(*events: AnyEvent) -> list[str]:
    out = io.StringIO()
    progress = ProgressDisplay(RunFolder(Path("/runs/a-run")), out, io.StringIO())
    for event in events:
        progress.show(event)
    return out.getvalue().splitlines()


def spent(advice: Advice) -> TimeSpent:
    return TimeSpent(step=9, step_s=0.1, parts={"data": 0.1}, advice=advice)


def test_progress_prints_advice_after_the_epoch() -> None:
    lines = printed_lines(spent(FINE), spent(STARVED), VALIDATION)
    assert lines[1:] == ["The CPU waits: 2 more would feed it. Next time: --loader-workers 4"]


def test_progress_prints_repeated_advice_once() -> None:
    lines = printed_lines(spent(FINE), VALIDATION, spent(FINE), VALIDATION, *[spent(FINE)] * STEADY)
    assert lines.count(FINE.sentence) == 1


def test_progress_prints_steady_advice_within_an_epoch() -> None:
    assert printed_lines(*[spent(STARVED)] * (STEADY - 1)) == []
    assert len(printed_lines(*[spent(STARVED)] * STEADY)) == 1
    assert printed_lines(*[spent(STARVED), spent(FINE)] * STEADY) == []
