"""Runs of every task, each trained once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.support.trained_runs import Trained, train
from tests.support.worker_group import Forker


@pytest.fixture(scope="session")
def trained(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """The run of a task, trained when it is first asked for. Nothing in its folder is to be changed by a test."""
    return cache(lambda task: train(forker, tmp_path_factory.mktemp(task), task))
