"""Selection of the test cases that the everyday suite runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mark_long_cases(cases: Iterable[Any], everyday: Collection[Any]) -> list[Any]:
    """Return `cases` as pytest parameters, and mark those that are not in `everyday` as `long`."""
    return [case if case in everyday else pytest.param(case, marks=pytest.mark.long) for case in cases]
