"""A user's mistake as a value: collected, never raised one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A remedy that a button can apply: `values` for fields of the job, under a `title`."""

    title: str
    values: Mapping[str, int | float | str | bool]


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is wrong with a request, and what to do about it.

    `field` is the job's field that it belongs to ("dataset", "devices", …). An error keeps Train off;
    a warning is shown and does not. `choices` are remedies to choose from.
    """

    field: str
    message: str
    remedy: str = ""
    severity: Severity = "error"
    choices: tuple[Choice, ...] = ()

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Those of `problems` that keep a job from starting."""
    return [problem for problem in problems if problem.severity == "error"]
