"""Waiting for conditions of other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE_S = 120.0

_Result = TypeVar("_Result")


def wait_until(
    get: Callable[[], _Result],
    what: str,
    patience_s: float = PATIENCE_S,
    *,
    describe_state: Callable[[], Any] = str,
) -> _Result:
    """Call `get` until its result is true, and return the result.

    Raises:
        AssertionError: This takes longer than `patience_s`. The message contains `what` and the result of
            `describe_state` at that time.
    """
    deadline = time.monotonic() + patience_s
    while not (result := get()):
        assert time.monotonic() < deadline, f"waited {patience_s:g} s in vain for {what} {describe_state()}".rstrip()
        time.sleep(0.01)
    return result
