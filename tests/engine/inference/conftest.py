"""Fixture that forks the workers of requests for trained models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.processes import worker_process
from tests.support.worker_group import Forker


@pytest.fixture(scope="module", autouse=True)
def _forked_workers(forker: Forker) -> Iterator[None]:
    """Fork workers from a process that has imported torch, as Footplate does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "_spawn", forker.spawn)
        yield
