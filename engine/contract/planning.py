"""What ``python -m engine.advisor.planning`` says: how far its measuring has come, then the cut or why there is none.

It reads one job as JSON from its standard input, which it reads to the end, and prints a message a line.
"""

from __future__ import annotations

import msgspec

from engine.contract.cut import Cut
from engine.contract.problems import Problem


class PlanningProgress(msgspec.Struct, tag="progress", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """How far it has come; `fraction` is from 0 to 1, `what` a short sentence on what is being done."""

    fraction: float
    what: str


class PlanningDone(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """The last line where all went well. `Cut.chosen` is false where the job names its own cuts."""

    cut: Cut


class PlanningFailed(msgspec.Struct, tag="failed", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """The last line where the model cannot be cut as the job asks: the field to mark, why, and what to do."""

    problem: Problem


PlanningMessage = PlanningProgress | PlanningDone | PlanningFailed
"""One line of the planner's output."""

PLANNING = msgspec.json.Decoder(PlanningMessage)
