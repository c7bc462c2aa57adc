"""Pipeline schedules from torch.distributed.pipelining. Importing this module is slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from engine.strategies.pipelining.timeline import Kind, Order, Pass, gpipe, one_f_one_b

SINGLE: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
"""Pipeline schedules for one stage per device, by name."""
MULTI: dict[str, Any] = {
    "interleaved_1f1b": ScheduleInterleaved1F1B,
    "zb1p": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
}
"""Pipeline schedules for one or several stages per device, by name."""


def create_schedule(name: str, stages: Sequence[PipelineStage], microbatches: int, loss: Callable[..., Tensor]) -> Any:
    """Create the schedule `name` for this rank's `stages`, given in the order of computation.

    It runs `microbatches` microbatches per step and adds up their losses, as computed by `loss`.
    """
    options: dict[str, Any] = {"loss_fn": loss, "scale_grads": False}
    if name in SINGLE:
        (stage,) = stages
        return SINGLE[name](stage, microbatches, **options)
    return MULTI[name](list(stages), microbatches, **options)


def pass_order(name: str, schedule: Any, devices: int, microbatches: int) -> Order:
    """Return the passes of each device in the order of execution.

    `schedule` is the object that `create_schedule` returned for the schedule `name`.
    """
    if name == "gpipe":
        return gpipe(devices, microbatches)
    if name == "1f1b":
        return one_f_one_b(devices, microbatches)
    return tuple(
        tuple(
            Pass(cast(Kind, action.computation_type.value), action.stage_index, action.microbatch_index)
            for action in schedule.pipeline_order[rank]
            if action is not None
        )
        for rank in range(devices)
    )
