"""Fixtures for commands: the NVML stub for child processes, and cached results of child processes."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.cli import children
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport, InspectionProgress, inspector_options
from engine.contract.inference.messages import InferenceRequest
from engine.contract.job import Job
from engine.contract.messages import Done, Progress, Refused
from engine.inference.__main__ import _FUNCTIONS
from engine.processes import worker_process
from engine.processes.requests import RequestError
from tests.support.nvml_stub import NvmlStub
from tests.support.worker_group import Forker


@pytest.fixture
def nvml_stub(compiled_stub: NvmlStub, tmp_path: Path) -> NvmlStub:
    """Return the compiled NVML stub. Its profile, which determines its GPUs, belongs to this test alone."""
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
        patch.setattr(children, "read_snapshot", functools.cache(children.read_snapshot))
        patch.setattr(children, "inspect", inspected)
        yield


@pytest.fixture
def inference_in_this_process(forker: Forker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands that use a trained model work in this process, with forked workers.

    This saves two imports of PyTorch, in a child process and in its workers.
    """
    run_child = children._run_module

    def messages(module: str, *arguments: Any, request: Any = None, **options: Any) -> Iterator[Any]:
        if not isinstance(request, InferenceRequest):
            yield from run_child(module, *arguments, request=request, **options)
            return
        module, _, name = _FUNCTIONS[type(request)].partition(":")
        reported: list[Progress] = []
        try:
            result = Done(str(getattr(importlib.import_module(module), name)(request, reported.append)))
        except RequestError as error:
            yield Refused(error.problems)
        else:
            yield from (*reported, result)

    monkeypatch.setattr(worker_process, "_spawn", forker.spawn)
    monkeypatch.setattr(children, "_run_module", messages)
