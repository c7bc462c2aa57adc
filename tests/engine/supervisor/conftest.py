"""Runs with the tiny worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.supervisor.supervised import Start, Supervised


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a supervisor with the tiny worker: start("forever", world_size, "spawn", "tcp")."""
    started: list[Supervised] = []

    def starter(behaviour: str, world_size: int = 1, *words: str) -> Supervised:
        started.append(Supervised(behaviour, world_size, *words))
        return started[-1]

    yield starter
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
