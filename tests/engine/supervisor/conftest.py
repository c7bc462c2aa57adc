"""Fixture that starts runs with the tiny worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.supervisor.supervised import Start, Supervised


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a supervisor with the tiny worker.

    Its arguments are the worker's behavior, the number of workers, options, and job fields.
    """
    started: list[Supervised] = []

    def starter(behavior: str, world_size: int = 1, *arguments: str, **fields: Any) -> Supervised:
        started.append(Supervised(behavior, world_size, *arguments, **fields))
        return started[-1]

    yield starter
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
