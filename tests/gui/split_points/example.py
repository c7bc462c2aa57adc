"""Example of a model's split and of a traced step, small enough to be verified by hand.

The split has six segments that take 1, 2, 3, 3, 2 and 1 ms.
"""

from __future__ import annotations

from engine.contract.devices import CPU
from engine.contract.events import Action, RanksTimed, RankTimes, ScheduleTraced
from engine.contract.model_split import ModelSplit, Segment

MILLISECONDS = (1, 2, 3, 3, 2, 1)
SPLIT_POINTS = ("stem", "block1", "block2", "block3", "block4", "")


def make_split(
    points: tuple[str, ...] = ("block2",), devices: tuple[str, ...] = (CPU, CPU), **changes: object
) -> ModelSplit:
    """Return the example split at `points` on `devices`. `changes` override its fields.

    The forward pass takes a third of each segment's time. Segment n has n thousand parameters and sends n KiB.
    """
    segments = tuple(
        Segment(
            split_point=split_point,
            module=split_point or "head",
            layers=1,
            parameters=1000 * number,
            forward_s=tuple(ms / 3000 for _ in devices),
            backward_s=tuple(ms / 1500 for _ in devices),
            activation_bytes=100_000,
            output_bytes=1024 * number,
            first_module=split_point or "head",
        )
        for number, (split_point, ms) in enumerate(zip(SPLIT_POINTS, MILLISECONDS, strict=True), start=1)
    )
    values: dict[str, object] = {
        "segments": segments,
        "split_points": points,
        "stage_ranks": tuple(range(len(devices))),
        "devices": devices,
        "microbatch_size": 4,
        "microbatches": 8,
        "in_flight": tuple(range(len(devices), 0, -1)),
        "state_bytes": 12,
        "memory_bytes": tuple(None for _ in devices),
    }
    return ModelSplit(**(values | changes))  # type: ignore[arg-type]


def make_trace(**changes: object) -> ScheduleTraced:
    """Return the trace of a step with two microbatches on two stages.

    A forward pass takes 10 ms, a backward pass 20 ms. `changes` override fields of the trace.
    """
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


def make_step_times(straggler: int | None = 1) -> RanksTimed:
    waits = RankTimes(compute_s=0.05, communication_s=0.004, waiting_s=0.016)
    slow = RankTimes(compute_s=0.066, communication_s=0.004, waiting_s=0.0)
    return RanksTimed(step=40, ranks=(waits, slow), straggler=straggler)
