"""Real runs for the attacks, as the fault suite has them."""

from __future__ import annotations

from tests.engine.supervisor.conftest import start
from tests.faults.conftest import (
    allowed,
    begin,
    begin_anew,
    begin_held,
    ends,
    follow,
    gate,
    hold,
    job,
    known,
    model_file,
    pictures,
    small_disk,
    started,
    starter,
    stepwise,
    stepwise_file,
    whole,
)

__all__ = [
    "allowed", "begin", "begin_anew", "begin_held", "ends", "follow", "gate", "hold", "job", "known", "model_file", "pictures",
    "small_disk", "start", "started", "starter", "stepwise", "stepwise_file", "whole",
]  # fmt: skip
