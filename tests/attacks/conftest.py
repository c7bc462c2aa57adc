"""Fixtures for attacks: real runs, and a folder that all users can access."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.supervisor.conftest import start
from tests.faults.conftest import (
    checkpoint_cache,
    follow,
    gate,
    hold,
    images,
    job,
    model_file,
    runs,
    small_disk,
    start_cold,
    start_held,
    start_run,
    start_stepwise,
    stepwise,
    stepwise_file,
    uninterrupted,
    write_permitted_model,
)

__all__ = [
    "checkpoint_cache",
    "follow",
    "gate",
    "hold",
    "images",
    "job",
    "model_file",
    "runs",
    "small_disk",
    "start",
    "start_cold",
    "start_held",
    "start_run",
    "start_stepwise",
    "stepwise",
    "stepwise_file",
    "uninterrupted",
    "write_permitted_model",
]  # fmt: skip


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """Create a temporary folder that all users of the machine can access."""
    folder = Path(tempfile.mkdtemp(prefix="fp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)
