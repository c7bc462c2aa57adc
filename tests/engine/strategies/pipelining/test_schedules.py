"""Idle time of pipeline schedules, and traces of steps."""

from __future__ import annotations

import itertools
import time
from typing import cast

import pytest
import torch

from engine.strategies.pipelining.timeline import (
    Kind,
    Order,
    Pass,
    ScheduleProfiler,
    compute_idle_fraction,
    create_trace,
    gpipe,
    one_f_one_b,
    simulate,
)

SIZES = [(2, 2), (2, 8), (3, 5), (4, 2), (4, 16)]


@pytest.mark.parametrize(("devices", "microbatches"), SIZES)
@pytest.mark.parametrize("order", [gpipe, one_f_one_b])
def test_idle_fraction_matches_papers(order: object, devices: int, microbatches: int) -> None:
    assert callable(order)
    idle = compute_idle_fraction(simulate(order(devices, microbatches)))
    assert idle == pytest.approx((devices - 1) / (microbatches + devices - 1))


def test_idle_fraction_of_single_microbatch() -> None:
    assert compute_idle_fraction(simulate(gpipe(4, 1))) == pytest.approx(3 / 4)


@pytest.mark.parametrize(("devices", "microbatches"), SIZES)
def test_one_f_one_b_limits_retained_microbatches(devices: int, microbatches: int) -> None:
    for stage, passes in enumerate(one_f_one_b(devices, microbatches)):
        retained = list(itertools.accumulate(1 if task.kind == "F" else -1 for task in passes))
        assert max(retained) == min(devices - stage, microbatches)
        assert retained[-1] == 0


def test_divided_backward_reduces_idle_time() -> None:
    """Simulate the order of the schedule ZB1P for two devices and three microbatches (Qi et al. 2023)."""
    order: Order = (
        _passes("F0 F1 I0 W0 F2 I1 W1 I2 W2", stage=0),
        _passes("F0 I0 F1 I1 W0 F2 I2 W1 W2", stage=1),
    )
    times = simulate(order)
    assert [end for _, end in times[1]] == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert compute_idle_fraction(times) < compute_idle_fraction(simulate(one_f_one_b(2, 3)))


def _passes(text: str, stage: int) -> tuple[Pass, ...]:
    return tuple(Pass(cast(Kind, text_of_pass[0]), stage, int(text_of_pass[1:])) for text_of_pass in text.split())


def test_simulated_stages_share_device() -> None:
    zigzag: Order = (
        (Pass("F", 0, 0), Pass("F", 3, 0), Pass("B", 3, 0), Pass("B", 0, 0)),
        (Pass("F", 1, 0), Pass("F", 2, 0), Pass("B", 2, 0), Pass("B", 1, 0)),
    )
    assert simulate(zigzag)[0] == [(0, 0.5), (1.5, 2), (2, 3), (5, 6)]


def test_simulated_refuses_deadlock() -> None:
    with pytest.raises(ValueError, match="deadlocks"):
        simulate(((Pass("B", 0, 0), Pass("F", 0, 0)),))


def test_traced_starts_at_first_action() -> None:
    ranks = [
        [(Pass("F", 0, 0), 10.0, 11.0), (Pass("B", 0, 0), 14.0, 16.0)],
        [(Pass("F", 1, 0), 11.0, 12.0), (Pass("B", 1, 0), 12.0, 14.0)],
    ]
    event = create_trace(7, "gpipe", ranks, 0.5)
    assert event is not None
    assert (event.step, event.schedule, event.theory, event.span_s) == (7, "gpipe", 0.5, 6.0)
    assert event.bubble == pytest.approx(0.5)
    assert [(action.kind, action.begin_s, action.end_s) for action in event.ranks[1]] == [("F", 1, 2), ("B", 2, 4)]
    assert create_trace(7, "gpipe", [[], []], 0.5) is None


def test_profiler_uses_host_clock() -> None:
    profiler = ScheduleProfiler(torch.device("cpu"))
    with profiler.time_pass("F", 0, 0):
        pass
    assert profiler.read_timed_passes() == [], "no step is recorded"
    profiler.begin(record=True)
    with profiler.time_pass("F", 0, 0):
        pass
    profiler.drop_passes()
    before = time.perf_counter()
    with profiler.time_pass("F", 0, 1):
        inside = time.perf_counter()
    ((_, _, short),) = profiler.read_timed_passes()
    profiler.extend_last_pass()
    ((task, start, end),) = profiler.read_timed_passes()
    assert task == Pass("F", 0, 1)
    assert before <= start <= inside <= short <= end <= time.perf_counter()


def test_profiler_converts_events_to_the_host_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record a pass with events of a device that is 1 s behind, and whose clock starts 90 s before the host's clock."""
    clock = [5.0]

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = 91.0 + clock[0]

        def synchronize(self) -> None:
            clock[0] = max(clock[0], self.at - 90.0)

        def elapsed_time(self, other: Event) -> float:
            return 1000 * (other.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    profiler = ScheduleProfiler(torch.device("cuda"))
    profiler.begin(record=True)
    clock[0] = 7.0
    with profiler.time_pass("B", 1, 2):
        clock[0] = 7.5
    assert profiler.read_timed_passes() == [(Pass("B", 1, 2), 8.0, 8.5)]
    clock[0] = 9.25
    profiler.extend_last_pass()
    assert profiler.read_timed_passes() == [(Pass("B", 1, 2), 8.0, 10.25)]
