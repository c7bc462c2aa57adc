"""Selection of the test cases that the everyday suite runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], everyday: Collection[Any]) -> list[Any]:
    """Return `cases` as pytest parameters. Cases that are not in `everyday` are marked `long`."""
    return [case if case in everyday else pytest.param(case, marks=pytest.mark.long) for case in cases]
