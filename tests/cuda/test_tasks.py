"""All tasks on a stub GPU: steps don't wait for the GPU, except in some torchvision models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.events import Chosen
from engine.contract.job import Job
from tests.gpu.hooks import of_libraries, recorded
from tests.gpu.jobs import TASKS, job_of
from tests.support.cases import some
from tests.support.cuda_stub import CudaMachine

from .conftest import Machine, Start

Make = Callable[..., Job]
EVERYDAY = ("semantic segmentation", "edge detection", "instance segmentation", "a task of one's own")


def small(host: CudaMachine, task: str, folder: Path, **fields: object) -> Job:
    """Return a job of at least four steps on the machine's GPU, without predictions."""
    return job_of(task, folder, host.uuids[0], train=24, batch=6, predictions=0, **fields)


@pytest.mark.parametrize("task", some(TASKS, EVERYDAY))
def test_task_steps_do_not_wait_for_the_gpu(machine: Machine, start: Start, tmp_path: Path, task: str) -> None:
    host = machine()
    group = start(host, small(host, task, tmp_path), prepare="tests.gpu.hooks:count_waits")
    group.read_steps(4)  # detectors can't validate meaningless outputs
    assert not [place for place in recorded(group.folder) if not of_libraries(place, task)]


def test_runs_do_not_wait_for_cudnn_benchmarks(machine: Machine, job: Make, start: Start) -> None:
    host = machine()
    start(host, job(host, precision="fp32")).read_steps(4)  # only cuDNN's newer interface supports bf16
    assert not host.notes("search")


def test_short_run_skips_depthwise_trials(machine: Machine, job: Make, start: Start) -> None:
    host = machine()
    fields = {"model": "mobilenet_v3_small", "image_size": 32, "epochs": 30, "precision": "fp32"}  # as above
    group = start(host, job(host, **fields), prepare="tests.support.impatience:compile_for_an_hour")
    group.read(lambda _, message: isinstance(message, Chosen) and message.field == "memory_format")
    (chosen,) = (event for event in group.of(Chosen) if event.field == "memory_format")
    assert chosen.choice == "contiguous"
    assert "too short to repay the 60 min" in chosen.why
