"""Fixture for all tests of inference, which makes their workers start quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.processes import worker_process
from tests.support.worker_group import Forker


@pytest.fixture(scope="module", autouse=True)
def _forked_workers(forker: Forker) -> Iterator[None]:
    """Start workers by forking a process that has already imported torch, in place of new interpreters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "_spawn", forker.spawn)
        yield
