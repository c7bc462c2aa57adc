"""What a terminal says of a run's choices and of what holds it back."""

from __future__ import annotations

import io
from pathlib import Path

from engine.cli.progress import STEADY, Progress
from engine.contract.events import Advice, AnyEvent, Chosen, TimeSpent, Validation, Verdict
from engine.runs.folder import RunFolder

VALIDATION = Validation(epoch=1, step=9, measures={"top1": 0.5}, images=3, seconds=1.0)
FINE = Advice(sentence="The CPU is busy 97 % of the time; there is no bottleneck.")
WAITS = Advice(sentence="The CPU waits: 2 more would feed it.", field="loader_workers", value=4, live=True)


def told(*events: AnyEvent) -> list[str]:
    out = io.StringIO()
    progress = Progress(RunFolder(Path("/runs/a-run")), out, io.StringIO())
    for event in events:
        progress.show(event)
    return out.getvalue().splitlines()


def spent(advice: Advice) -> TimeSpent:
    return TimeSpent(step=9, step_s=0.1, parts={"data": 0.1}, advice=advice)


def test_that_what_was_chosen_is_told_with_its_reason() -> None:
    lines = told(Chosen(field="picture_cache", choice="memory", why="they take 3 MiB"))
    assert lines == ["Decoded images: memory. They take 3 MiB."]


def test_that_advice_is_told_after_the_epoch_with_the_flag_for_the_next_time() -> None:
    lines = told(spent(FINE), spent(WAITS), VALIDATION)
    assert lines[1:] == ["The CPU waits: 2 more would feed it. Next time: --loader-workers 4"]


def test_that_the_same_advice_is_told_once() -> None:
    lines = told(spent(FINE), VALIDATION, spent(FINE), VALIDATION, *[spent(FINE)] * STEADY)
    assert lines.count(FINE.sentence) == 1


def test_that_steady_advice_does_not_wait_for_the_end_of_a_long_epoch() -> None:
    assert told(*[spent(WAITS)] * (STEADY - 1)) == []
    assert len(told(*[spent(WAITS)] * STEADY)) == 1
    assert told(*[spent(WAITS), spent(FINE)] * STEADY) == []


def test_that_a_verdict_is_told_with_the_command_or_the_flags_that_follow_from_it() -> None:
    falling = Verdict(code="falling", sentence="It was still falling.", changes={"epochs": 26})
    assert told(falling) == ["It was still falling.", "  footplate resume a-run --epochs 26"]
    rare = Verdict(
        code="weak_classes", sentence="“ant” is rare.", changes={"oversample": True, "augmentation": "light"}
    )
    assert told(rare) == ["“ant” is rare.", "  Next time: --oversample --augmentation light"]
    at_rest = Verdict(code="converged", sentence="Converged: the best epoch was 17 of 20.")
    assert told(at_rest) == [at_rest.sentence]
    newer = Verdict(code="overfitted", sentence="Turn it down.", changes={"warp": 9})
    assert told(newer) == ["Turn it down."]
