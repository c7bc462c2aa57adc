"""All tasks on a simulated GPU. Steps must not wait for the GPU, except in some torchvision models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.events import Chosen
from engine.contract.job import Job
from tests.gpu.hooks import is_caused_by_library, read_record
from tests.gpu.jobs import TASKS, make_job
from tests.support.cases import mark_long_cases
from tests.support.cuda_stub import CudaMachine
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined

from .conftest import Machine, Start

Make = Callable[..., Job]
EVERYDAY = ("semantic segmentation", "edge detection", "instance segmentation", "a task of one's own")


def make_small_job(host: CudaMachine, task: str, folder: Path, **fields: object) -> Job:
    """Make a job on the machine's GPU with at least four steps and without prediction images.

    `folder` is the folder for its dataset, and `fields` override fields of the job.
    """
    return make_job(task, folder, host.uuids[0], train=24, batch=6, predictions=0, **fields)


@pytest.mark.parametrize("task", mark_long_cases(TASKS, EVERYDAY))
def test_task_steps_do_not_wait_for_the_gpu(machine: Machine, start: Start, tmp_path: Path, task: str) -> None:
    host = machine()
    group = start(host, make_small_job(host, task, tmp_path), prepare="tests.gpu.hooks:record_waits")
    group.read_steps(4)  # detectors can't validate meaningless outputs
    assert not [place for place in read_record(group.folder) if not is_caused_by_library(place, task)]


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny_rtdetrv2", "tiny_rfdetr_masks", "tiny_mask2former", "tiny_eomt_pixels"])
def test_data_parallel_divides_batches_of_queries(machine: Machine, start: Start, tmp_path: Path, name: str) -> None:
    pytest.importorskip("transformers", reason="needs footplate[transformers]")
    from tests.support.hub_models import INSTALL, TINY

    host, task = machine(2), TINY[name].task
    make = make_masked if task == "segmentation" else make_outlined
    job = Job.from_fields(
        dataset=str(make(tmp_path / "data", {"train": 12, "val": 4}, 128)), task=task, model=name, image_size=128,
        batch_size=4, strategy="dp", devices=tuple(host.uuids), predictions=0,
    )  # fmt: skip
    start(host, job, prepare=INSTALL).read_steps(3)


def test_runs_do_not_wait_for_cudnn_benchmarks(machine: Machine, job: Make, start: Start) -> None:
    host = machine()
    start(host, job(host, precision="fp32")).read_steps(4)  # only cuDNN's newer interface supports bf16
    assert not host.read_events("search")


def test_short_run_skips_depthwise_trials(machine: Machine, job: Make, start: Start) -> None:
    host = machine()
    fields = {"model": "mobilenet_v3_small", "image_size": 32, "epochs": 30, "precision": "fp32"}  # as above
    group = start(host, job(host, **fields), prepare="tests.support.impatience:assume_slow_comparison")
    group.read(lambda _, message: isinstance(message, Chosen) and message.field == "memory_format")
    (chosen,) = (event for event in group.of(Chosen) if event.field == "memory_format")
    assert chosen.choice == "contiguous"
    assert "too short to repay the 60 min" in chosen.why
