"""Fixtures for commands: the NVML stub for child processes, and cached results of child processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.cli import children
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport, InspectionProgress, inspector_options
from engine.contract.job import Job
from tests.support.nvml_stub import NvmlStub


@pytest.fixture
def nvml_stub(compiled_stub: NvmlStub, tmp_path: Path) -> NvmlStub:
    """Return the stub with a profile for this test."""
    return NvmlStub(compiled_stub.folder, tmp_path / "profile")


@pytest.fixture(scope="module")
def cached_children() -> Iterator[None]:
    """Cache snapshots of the machine and inspections of folders for all tests of a module."""
    inspect = children.inspect
    reports: dict[tuple[str, ...], DatasetReport] = {}

    def inspected(job: Job, on_progress: Callable[[InspectionProgress], None], samples: int = 0) -> DatasetReport:
        asked = (job.data.dataset, *inspector_options(job, load_catalogue(), samples))
        if asked not in reports:
            reports[asked] = inspect(job, on_progress, samples)
        return reports[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children, "snapshot", functools.cache(children.snapshot))
        patch.setattr(children, "inspect", inspected)
        yield
