"""Fixtures that start real runs and a folder that several users share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.supervisor.conftest import start
from tests.faults.conftest import (
    allowed,
    ends,
    follow,
    gate,
    hold,
    images,
    job,
    known,
    model_file,
    small_disk,
    start_cold,
    start_held,
    start_run,
    started,
    stepwise,
    stepwise_file,
    uninterrupted,
)

__all__ = [
    "allowed",
    "ends",
    "follow",
    "gate",
    "hold",
    "images",
    "job",
    "known",
    "model_file",
    "small_disk",
    "start",
    "start_cold",
    "start_held",
    "start_run",
    "started",
    "stepwise",
    "stepwise_file",
    "uninterrupted",
]  # fmt: skip


@pytest.fixture
def common() -> Iterator[Path]:
    """Create a temporary folder that all users of the machine can access."""
    folder = Path(tempfile.mkdtemp(prefix="fp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)
