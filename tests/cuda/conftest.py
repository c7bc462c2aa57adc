"""Fixtures for machines with simulated GPUs, and for workers that train on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from engine.contract.job import Job
from tests.engine.conftest import make_images
from tests.support.cuda_stub import CudaMachine, CudaStub, find_obstacle
from tests.support.nvml_stub import build_once
from tests.support.worker_group import Forker, WorkerGroup

Machine = Callable[..., CudaMachine]
Start = Callable[..., WorkerGroup]
Call = Callable[..., Any]


@pytest.fixture(scope="session")
def cuda_stub(tmp_path_factory: pytest.TempPathFactory) -> CudaStub:
    if reason := find_obstacle():
        pytest.skip(reason)
    return build_once(tmp_path_factory, "cuda", CudaStub.compiled)


@pytest.fixture
def machine(cuda_stub: CudaStub, tmp_path: Path) -> Machine:
    """Return a function that creates a simulated machine. It takes the arguments of `CudaStub.create_machine`."""
    return lambda gpus=1, **values: cuda_stub.create_machine(tmp_path / "machine", gpus, **values)


@pytest.fixture(scope="session")
def cuda_forker(cuda_stub: CudaStub) -> Iterator[Forker]:
    forker = Forker(cuda_stub.environment)
    yield forker
    forker.close()


@pytest.fixture
def call(cuda_forker: Forker) -> Call:
    """Return a function that calls a module-level function in a new process on a simulated machine.

    Its arguments are the machine, the function, the function's arguments, and environment variables as keywords.
    """

    def call_on(machine: CudaMachine, function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
        return cuda_forker.call(function, arguments, machine.environment | variables)

    return call_on


@pytest.fixture
def start(cuda_forker: Forker, tmp_path: Path) -> Iterator[Callable[..., WorkerGroup]]:
    """Return a function that starts a job's workers on a machine. They are terminated after the test."""
    groups: list[WorkerGroup] = []

    def start_workers(
        machine: CudaMachine, job: Job, variables: Mapping[str, str] = MappingProxyType({}), **options: Any
    ) -> WorkerGroup:
        environment = machine.environment | {"CUDA_VISIBLE_DEVICES": ",".join(job.parallel.devices), **variables}
        folder = tmp_path / f"run-{len(groups)}"
        groups.append(WorkerGroup(cuda_forker, job, folder, environment=environment, every_step=True, **options))
        return groups[-1]

    yield start_workers
    for group in groups:
        group.close()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an ImageFolder of 72 training and 21 validation images, and return it."""
    return make_images(tmp_path_factory.mktemp("images"), {"train": 24, "val": 7})


@pytest.fixture
def job(images: Path) -> Callable[..., Job]:
    """Return a function that builds a small job on all GPUs of a machine. Keyword arguments override fields of the job.

    The job shows no predictions, because simulated GPUs compute nothing.
    """

    def make(machine: CudaMachine, **fields: Any) -> Job:
        values: dict[str, Any] = {
            "dataset": str(images),
            "model": "mnist_cnn",
            "image_size": 16,
            "batch_size": 12,
            "epochs": 1,
            "loader_workers": 1,
            "predictions": 0,
            "compile": "off",
            "devices": machine.uuids,
        }
        return Job.from_fields(**(values | fields))

    return make
