"""Division of step times into phases, as complete runs report it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.checks.findings.bottleneck import RunProfile
from engine.contract.events import Event, LogLine, StepMetrics, TimeSpent
from engine.contract.job import Job
from engine.contract.protocol import Adjust
from engine.strategies import stopwatch
from engine.strategies.base import ResolvedJob
from engine.strategies.single import SingleDevice
from engine.training.callbacks import step_profile
from engine.training.callbacks.callback import StepEnd
from engine.training.callbacks.step_profile import StepProfile
from engine.training.split_loader import SplitLoader
from tests.gui.split_points.example import make_step_times
from tests.support.clock import Clock
from tests.support.gates import ON_COMMAND
from tests.support.specs import make_worker_spec

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


def test_step_profile_of_short_run(job: Make, start: Start) -> None:
    group = start(job(epochs=1), prepare=AT_THE_END).completed()
    (spent,) = group.of(TimeSpent)
    assert (spent.step, spent.advice is not None) == (6, True)
    assert set(spent.parts) == {"data", "augment", "forward", "backward", "optimizer", "logging"}
    assert sum(spent.parts.values()) == pytest.approx(spent.step_s)


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
    group = start(job(**fields), prepare=ON_COMMAND)
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
    monkeypatch.setattr(step_profile.linux, "read_core_wait_s", lambda: 0.0)
    monkeypatch.setattr(step_profile, "EMIT_S", 0.0)
    spec = make_worker_spec(job(cpus=2, strategy="ddp"), run_folder=str(tmp_path), rank=rank)
    strategy = SingleDevice(spec)
    strategy.resolved_job = ResolvedJob(spec.job)
    events: list[Event] = []
    teller = StepProfile(strategy, SplitLoader(9, 9, None), events.append, first_epoch=1, first_step=1)
    strategy.profiler.watch.start()
    for slowest in (1, 0, 1, 1):
        teller.store(make_step_times(slowest))
        strategy.profiler.watch.mark("forward")
        teller.on_step_end(StepEnd(1, 2, 0.1, report=True, read_now=False, record=False, last=False))
    advised = [event.advice.field for event in events if isinstance(event, TimeSpent) and event.advice is not None]
    assert advised == expected


def test_advice_is_based_on_recent_steps(job: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited, profiles = Clock(100.0), iter((1.0, 2.0, 5.0)), []
    for each in (step_profile, stopwatch):
        monkeypatch.setattr(each, "time", clock)
    monkeypatch.setattr(step_profile.linux, "read_core_wait_s", lambda: next(waited))
    monkeypatch.setattr(step_profile, "find_bottleneck", profiles.append)
    threads = torch.get_num_threads()
    strategy = SingleDevice(make_worker_spec(job(), run_folder=str(tmp_path), threads=threads + 2))
    strategy.resolved_job = ResolvedJob(strategy.spec.job)
    loader, watch = SimpleNamespace(decoding_s=1.0, threads=3), strategy.profiler.watch
    profile = StepProfile(strategy, SplitLoader(9, 9, loader), lambda _: None, first_epoch=1, first_step=1)  # type: ignore[arg-type]
    clock.now += 50.0  # the first step does not count
    profile.on_step_end(StepEnd(1, 1, 0.1, report=True, read_now=True, record=False, last=True))
    for epoch, forward_s, loader.decoding_s in ((1, 2.0, 4.0), (3, 6.0, 10.0)):
        for number in (2, 3):
            for step_part, seconds in (("forward", forward_s), ("backward", 2.0)):
                clock.now += seconds
                watch.mark(step_part)  # type: ignore[arg-type]
            profile.on_step_end(
                StepEnd(epoch, number, 0.1, report=number == 3, read_now=False, record=False, last=False)
            )
    assert [each.decoding_s for each in profiles] == [1.5, 3.0]
    assert profiles[1] == RunProfile(
        job=strategy.job, step_s=8.0, parts={"forward": 5.0, "backward": 3.0, "logging": 0.0}, readers=3, decoding_s=3.0, spare_cores=2,
        computing_threads=threads, cpu_wait_fraction=3.0 / 16.0, epochs_before=2,
    )  # fmt: skip
