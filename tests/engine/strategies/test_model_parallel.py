"""Model parallelism, compared with a single device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.contract.events import ScheduleTraced
from engine.contract.job import Job

Make = Callable[..., Job]
Start = Callable[..., Any]


def test_model_parallel_uses_one_device_at_a_time(job: Make, start: Start) -> None:
    group = start(job(cpus=2, strategy="model_parallel", epochs=3, accumulation=2)).completed()
    event, *_ = group.of(ScheduleTraced, 0)
    assert event.theory == 0.5
    assert event.bubble >= 0.5
    assert [[action.kind for action in actions] for actions in event.ranks] == [["F", "B"], ["F", "B"]]
