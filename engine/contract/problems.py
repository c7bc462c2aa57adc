"""Problems with user input. Checks collect all of them instead of raising the first one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Remedy that a button in the window can apply: it sets job fields to `values`."""

    title: str
    values: Mapping[str, int | float | str | bool]


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Problem with a user's request, and its remedy.

    `field` is the job field ("dataset", "devices", …). An error prevents the run, but a warning does not. `choices` are
    remedies from which the user can choose.
    """

    field: str
    message: str
    remedy: str = ""
    severity: Severity = "error"
    choices: tuple[Choice, ...] = ()

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that prevent a job from starting."""
    return [problem for problem in problems if problem.severity == "error"]
