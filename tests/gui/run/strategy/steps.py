"""Events of a pipeline step that is small enough to calculate by hand."""

from __future__ import annotations

from engine.contract.events import Action, RanksTimed, RankTimes, ScheduleTraced


def trace(**changes: object) -> ScheduleTraced:
    """Return a trace of two microbatches on two stages: 10 ms forward, 20 ms backward."""
    first = (
        Action("F", 0, 0, 0.00, 0.01), Action("F", 0, 1, 0.01, 0.02),
        Action("B", 0, 0, 0.04, 0.06), Action("B", 0, 1, 0.07, 0.09),
    )  # fmt: skip
    second = (
        Action("F", 1, 0, 0.01, 0.02), Action("I", 1, 0, 0.02, 0.03), Action("W", 1, 0, 0.03, 0.04),
        Action("F", 1, 1, 0.04, 0.05), Action("B", 1, 1, 0.05, 0.07),
    )  # fmt: skip
    values: dict[str, object] = {
        "step": 40, "schedule": "1f1b", "ranks": (first, second), "span_s": 0.09, "bubble": 0.333, "theory": 0.111,
    }  # fmt: skip
    return ScheduleTraced(**(values | changes))  # type: ignore[arg-type]


def timed(straggler: int | None = 1) -> RanksTimed:
    waits = RankTimes(compute_s=0.05, communication_s=0.004, waiting_s=0.016)
    slow = RankTimes(compute_s=0.066, communication_s=0.004, waiting_s=0.0)
    return RanksTimed(step=40, ranks=(waits, slow), straggler=straggler)
