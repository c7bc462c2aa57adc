"""Division of step times into phases, as complete runs report it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Event, LogLine, StepMetrics, TimeSpent
from engine.contract.job import Job
from engine.contract.protocol import Adjust
from engine.strategies.base import ResolvedJob
from engine.strategies.single import SingleDevice
from engine.training.callbacks import step_profile
from engine.training.callbacks.callback import StepEnd
from engine.training.callbacks.step_profile import StepProfile
from engine.training.split_loader import SplitLoader
from tests.gui.split_points.example import timed
from tests.support.gates import ONCE_ASKED
from tests.support.specs import spec_of

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]
AT_THE_END = "tests.support.impatience:report_times_at_the_end"

SLOW = """
import time
from torch import nn

class Slow(nn.Module):
    '''Takes a tenth of a second forward; waits in its third step until a file is there.'''
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.steps = 0

    def forward(self, x):
        from pathlib import Path
        self.steps += self.training
        while self.steps == 3 and not Path({gate!r}).exists():
            time.sleep(0.01)
        time.sleep(0.1)
        return self.layer(x.flatten(1))

def build_model(num_classes):
    return Slow(num_classes)
"""


def test_step_profile_divides_time(job: Make, start: Start, model_file: Write, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    group = start(job(epochs=3, **model_file(SLOW.format(gate=str(gate)))), prepare=AT_THE_END).completed()
    (spent,) = group.of(TimeSpent)
    assert sum(spent.parts.values()) == pytest.approx(spent.step_s)
    assert spent.parts["forward"] >= 0.1
    assert {"data", "augment", "forward", "backward", "optimizer", "logging"} == set(spent.parts)
    assert spent.advice is not None
    assert spent.step in {metrics.step for metrics in group.of(StepMetrics)}


def test_step_profile_of_short_run(job: Make, start: Start) -> None:
    group = start(job(epochs=1), prepare=AT_THE_END).completed()
    assert [each.step for each in group.of(TimeSpent)] == [6]


@pytest.mark.parametrize("strategy", ["ddp", "pipeline"])
def test_step_profile_has_communication(job: Make, start: Start, strategy: str) -> None:
    group = start(job(cpus=2, strategy=strategy, epochs=1), prepare=AT_THE_END).completed()
    (spent,) = group.of(TimeSpent)
    assert all(spent.parts[phase] > 0 for phase in ("forward", "backward", "communication", "optimizer"))
    assert sum(spent.parts.values()) == pytest.approx(spent.step_s)


@pytest.mark.parametrize("cpus", [1, 2])
def test_loader_workers_change_during_run(
    job: Make, start: Start, model_file: Write, tmp_path: Path, cpus: int
) -> None:
    gate = tmp_path / "gate"
    fields = {"cpus": cpus, "strategy": "ddp" if cpus > 1 else "single"} | model_file(SLOW.format(gate=str(gate)))
    group = start(job(**fields), prepare=ONCE_ASKED)
    group.read(lambda _rank, message: isinstance(message, StepMetrics))
    for rank in range(cpus):
        group.send(Adjust(loader_workers=4), rank)
    group.completed()
    lines = [line.text for line in group.of(LogLine)]
    assert lines == ["Each process now uses 4 loader workers"]


@pytest.mark.parametrize(("rank", "expected"), [(0, ["", "", "", "balance"]), (1, [])], ids=["first", "other"])
def test_slowest_rank_needs_two_reports(
    job: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, expected: list[str]
) -> None:
    # Independent of other work on this machine.
    monkeypatch.setattr(step_profile.linux, "waited_for_core_s", lambda: 0.0)
    monkeypatch.setattr(step_profile, "EMIT_S", 0.0)
    spec = spec_of(job(cpus=2, strategy="ddp"), run_folder=str(tmp_path), rank=rank)
    strategy = SingleDevice(spec)
    strategy.resolved_job = ResolvedJob(spec.job)
    events: list[Event] = []
    teller = StepProfile(strategy, SplitLoader(9, 9, None), events.append, first_epoch=1, first_step=1)
    strategy.profiler.watch.start()
    for slowest in (1, None, 1, 1):
        teller.store(timed(slowest))
        strategy.profiler.watch.mark("forward")
        teller.on_step_end(StepEnd(1, 2, 0.1, report=True, read_now=False, record=False, last=False))
    advised = [event.advice.field for event in events if isinstance(event, TimeSpent) and event.advice is not None]
    assert advised == expected
