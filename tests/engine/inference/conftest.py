"""Fixture that provides a trained run of every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest

from engine.processes import worker_process
from tests.support.nvml_stub import built_once
from tests.support.trained_runs import Trained, cached_run
from tests.support.worker_group import Forker


@pytest.fixture(scope="module", autouse=True)
def _forked_workers(forker: Forker) -> Iterator[None]:
    """Fork workers from a process that has imported torch, as Footplate does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "_spawn", forker.spawn)
        yield


@pytest.fixture(scope="session")
def trained(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """Return a function that returns the trained run of a task.

    All test processes share it, so tests must not change its folder.
    """
    return cache(lambda task: built_once(tmp_path_factory, f"run-of-{task}", partial(cached_run, forker, task=task)))
