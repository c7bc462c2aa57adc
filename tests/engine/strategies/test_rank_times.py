"""Parts of each rank's step time, and the rank that the others wait for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from engine.contract.events import RanksTimed, RankTimes
from engine.contract.job import Job
from engine.strategies import profiler, rank_times
from engine.strategies.collectives import Collectives
from engine.strategies.rank_times import (
    HostTimer,
    KernelTimer,
    RankProfiler,
    StepTime,
    combine_step_times,
    compute_blocked_times,
    compute_length_outside,
    find_straggler,
    merge_intervals,
    time_reduction,
)
from tests.support.cases import mark_long_cases
from tests.support.clock import Clock

PAUSE_S = 0.1

SLOW = f"""
import time
import torch.distributed as dist
from torch import nn

class Slow(nn.Sequential):
    def forward(self, x):
        if dist.get_rank() == SLOW_RANK:
            time.sleep({PAUSE_S})
        return super().forward(x)

def build_model(num_classes):
    rows = [Slow(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 32), *rows, nn.Linear(32, num_classes))
"""


def test_expensive_and_late_recordings_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, skipped, learned = Clock(), [], []
    monkeypatch.setattr(profiler, "time", clock)
    rank_profiler = RankProfiler(torch.device("cpu"))
    event = combine_step_times(1, [StepTime(1.0, (0.5,))])
    monkeypatch.setattr(rank_profiler, "_collect_event", lambda *_: event)
    monkeypatch.setattr(rank_profiler.watch, "skip", lambda: skipped.append(True))
    monkeypatch.setattr(rank_profiler.watch, "learn_fractions", lambda *arguments: learned.append(arguments))
    assert rank_profiler.is_due
    for started, cost_s, interval in ((0.0, 0.3, 30), (30.0, 0.0, 2), (1000.0, 0.0, 21)):
        clock.now, rank_profiler.cost_s = started, cost_s
        rank_profiler.begin(record=True)
        assert rank_profiler.end(1, Collectives()) is event
        assert not rank_profiler.recording
        rank_profiler.begin(record=False)
        assert rank_profiler.end(2, Collectives()) is None
        while not rank_profiler.is_due:
            clock.now += 1
        assert clock.now - started == interval
    assert (skipped, learned) == ([True] * 3, [(event, ("backward",))] * 3)


@pytest.mark.parametrize(
    "case",
    mark_long_cases([("ddp", 2, 0), ("ddp", 3, 2), ("fsdp", 2, 1), ("hsdp", 4, 2)], everyday=[("ddp", 3, 2)]),
    ids=str,
)
def test_slowest_rank_is_found(
    job: Callable[..., Job],
    start: Callable[..., Any],
    model_file: Callable[[str], dict[str, str]],
    case: tuple[str, int, int],
) -> None:
    strategy, cpus, slow = case
    group = start(job(cpus=cpus, strategy=strategy, **model_file(SLOW.replace("SLOW_RANK", str(slow)))))
    group.completed()
    timed = group.of(RanksTimed, 0)
    assert timed
    assert not group.of(RanksTimed, 1)
    for event in timed:
        assert event.straggler == slow
        assert len(event.ranks) == cpus
        assert event.ranks[slow].compute_s >= 2 * PAUSE_S
        for rank, times in enumerate(event.ranks):
            assert rank == slow or times.waiting_s - event.ranks[slow].waiting_s > PAUSE_S


def test_rank_times_need_a_recorded_step(job: Callable[..., Job], start: Callable[..., Any]) -> None:
    group = start(job(cpus=2, strategy="ddp", batch_size=72, epochs=1)).completed()  # a single step
    assert not group.of(RanksTimed)


def test_union_merges_intervals() -> None:
    assert merge_intervals([]) == []
    assert merge_intervals([(3, 4), (0, 1), (0.5, 2), (2, 2.5)]) == [(0, 2.5), (3, 4)]
    assert merge_intervals([(0, 9), (1, 2)]) == [(0, 9)]


def test_length_outside_of_covered_intervals() -> None:
    covered = [(0.0, 2.0), (3.0, 4.0)]
    assert compute_length_outside((1.0, 5.0), covered) == 2.0
    assert compute_length_outside((0.5, 1.5), covered) == 0.0
    assert compute_length_outside((5.0, 6.0), covered) == 1.0


def test_kernel_timer_knows_the_kernels_of_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        ("ncclDevKernel_AllReduce_Sum_f32", 1.0, 4.0),
        ("ncclKernel_Broadcast", 6.0, 7.0),
        ("NCCL_SendRecv", 9.0, 9.5),
        ("sgemm_128x64", 2.0, 3.5),
    ]
    passed: list[float] = []  # in seconds
    profile = SimpleNamespace(start=lambda: passed.append(5.0), stop=lambda: passed.append(7.0))
    monkeypatch.setattr(rank_times, "device_events", lambda _profile, _kind: events)
    monkeypatch.setattr(rank_times, "time", SimpleNamespace(perf_counter=lambda: sum(passed)))
    monkeypatch.setattr(torch.profiler, "profile", lambda **_: profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: passed.append(1.0))
    timer = KernelTimer(torch.device("cuda"))
    timer.start()
    assert timer.stop() == StepTime(1.0, (1.5, 1.0, 0.5))
    rank_profiler = RankProfiler(torch.device("cpu"))
    rank_profiler.timer, rank_profiler.recording = timer, True
    with rank_profiler.time_step():
        passed.append(2.0)
    assert rank_profiler.cost_s == 13.0


def test_blocked_times_exclude_overlapping_computation() -> None:
    computing = [(0.0, 4.0), (7.0, 8.0)]
    # In order of their starts: one is hidden, one is half exposed, and two overlap.
    assert compute_blocked_times([(3.0, 6.0), (1.0, 2.0), (5.0, 9.0)], computing) == (0.0, 2.0, 2.0)
    assert compute_blocked_times([(10.0, 14.0), (11.0, 12.0), (13.0, 15.0)], computing) == (4.0, 0.0, 1.0)
    assert compute_blocked_times([], computing) == ()


def test_communication_is_the_last_ranks_blocked_time() -> None:
    event = combine_step_times(7, [StepTime(10.0, (1.0, 2.0)), StepTime(10.0, (4.0, 0.5)), StepTime(9.0, (1.0, 1.5))])
    assert event == RanksTimed(
        step=7,
        ranks=(
            RankTimes(compute_s=7.0, communication_s=1.5, waiting_s=1.5),
            RankTimes(compute_s=5.5, communication_s=1.5, waiting_s=3.0),
            RankTimes(compute_s=6.5, communication_s=1.5, waiting_s=1.0),
        ),
        straggler=None,
    )


@pytest.mark.parametrize(("seconds", "straggler"), [(4.0, 0), (40.0, None)])
def test_ranks_with_different_collectives_are_compared_by_sums(seconds: float, straggler: int | None) -> None:
    event = combine_step_times(7, [StepTime(3.0, (0.25, 0.25)), StepTime(seconds, (1.5,))])
    assert event == RanksTimed(
        step=7,
        ranks=(
            RankTimes(compute_s=2.5, communication_s=0.5, waiting_s=0.0),
            RankTimes(compute_s=seconds - 1.5, communication_s=0.5, waiting_s=1.0),
        ),
        straggler=straggler,
    )


def test_host_timer_counts_only_its_own_step() -> None:
    timer = HostTimer()
    for count in (2, 1):
        timer.start()
        for _ in range(count):
            timer.add_blocked_since(0.0)
        assert len(timer.stop().blocked_s) == count
        timer.add_blocked_since(0.0)


def test_reduction_is_timed_in_its_own_pass_only() -> None:
    timer, model = HostTimer(), nn.Linear(2, 2)
    timer.start()
    with time_reduction(timer, SimpleNamespace(parameters=model.parameters, module=model)):  # type: ignore[arg-type]
        model(torch.ones(1, 2)).sum().backward()
    model(torch.ones(1, 2)).sum().backward()
    assert len(timer.stop().blocked_s) == 2  # before the forward pass, and after the last gradient


def test_straggler_is_the_rank_that_all_others_wait_for() -> None:
    def make_rank_times(*seconds: float) -> list[RankTimes]:
        return [RankTimes(compute_s=1.0, communication_s=0.1, waiting_s=each) for each in seconds]

    assert find_straggler(make_rank_times(0.2, 0.0, 0.3), 2.0) == 1
    assert find_straggler(make_rank_times(0.2, 0.0, 0.1), 2.0) is None
    assert find_straggler(make_rank_times(0.2, 0.0, 0.0), 2.0) is None
    assert find_straggler(make_rank_times(0.0), 2.0) is None
