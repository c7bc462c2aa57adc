"""Events of a run with 40 steps that is resumed or restarted."""

from __future__ import annotations

from collections.abc import Iterable

from engine.contract.events import AnyEvent, PhaseChanged, Restarting, StepMetrics, Warned
from tests.gui.sources.written_runs import STEP_S, job, list_run_events, make_plan

BEGUN = 1_790_000_000.0
NIGHT_S = 9 * 3600.0
KILLED = "Rank 1 was killed by signal 9 (SIGKILL). Its last words, in worker-1.log: …"
STEPS = 40


def make_first_execution(until: int = STEPS, **changes: object) -> list[AnyEvent]:
    """Return the events of the run's first execution, up to step `until`. `changes` are fields of its job."""
    events = list(list_run_events(job(**changes), STEPS, "completed", begun=BEGUN))
    return events[: _after(events, until)]


def make_second_execution(
    from_step: int, until: int | None = None, begun: float = BEGUN + NIGHT_S, **changes: object
) -> list[AnyEvent]:
    """Return the events of the run's second execution, which starts at time `begun` and resumes after step `from_step`.

    The last event is that of step `until`, or the end of the run if `until` is None. `changes` are fields of the job.
    """
    events = list(list_run_events(job(**changes), STEPS, "completed", begun=begun, from_step=from_step, execution=2))
    return events if until is None else events[: _after(events, until)]


def _after(events: list[AnyEvent], step: int) -> int:
    return next(i for i, event in enumerate(events) if isinstance(event, StepMetrics) and event.step == step) + 1


def make_restart_events(from_step: int, at: float, **changes: object) -> list[AnyEvent]:
    """Return the events of a restart of the workers at time `at`, until training continues after step `from_step`.

    `changes` override fields of the `Restarting` event.
    """
    values = {"cause": KILLED, "rank": 1, "attempt": 1, "max_attempts": 3, "time": at}
    return [
        Restarting(**(values | changes)),  # type: ignore[arg-type]
        PhaseChanged(time=at, phase="starting"),
        PhaseChanged(time=at, phase="preparing"),
        make_plan(time=at + 1, from_step=from_step),
        PhaseChanged(time=at + 1, phase="training"),
    ]


def steps(numbers: Iterable[int], begun: float) -> list[AnyEvent]:
    return [
        StepMetrics(
            time=begun + position * STEP_S, epoch=(step - 1) // 10 + 1, step=step, loss=9.0, learning_rate=0.01,
            images_per_second=100.0, data_wait_s=0.0, compute_s=0.1,
        )
        for position, step in enumerate(numbers, 1)
    ]  # fmt: skip


def drop_warnings(events: list[AnyEvent]) -> list[AnyEvent]:
    return [event for event in events if not isinstance(event, Warned)]
