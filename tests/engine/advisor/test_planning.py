"""Planner process with real models and images."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import torch

from engine.advisor.planning.planner import plan
from engine.contract.job import Job
from engine.contract.messages import Done, Progress, Refused
from engine.contract.model_split import PLANNING, ModelSplit
from engine.contract.problems import Problem
from engine.parallel.split_points import compute_stages
from engine.processes.requests import RequestError
from tests.engine.supervisor.supervised import wait_until_exited
from tests.support.consent import permit_model_file
from tests.support.images import write_image
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "engine.advisor.planning"]


def run_planner(request: bytes) -> list[Progress | Refused | Done[ModelSplit]]:
    """Run the planner process with a request, and return its messages."""
    result = subprocess.run(COMMAND, input=request, capture_output=True, cwd=ROOT, timeout=170, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return [PLANNING.decode(line) for line in result.stdout.splitlines()]


def planned(**fields: object) -> ModelSplit:
    return plan(small(**fields), 1, lambda _fraction, _what: None)


def plan_refused(**fields: object) -> Problem:
    with pytest.raises(RequestError) as refusal:
        planned(**fields)
    return refusal.value.problems[0]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def small(**fields: object) -> Job:
    return Job.from_fields(
        **({"strategy": "pipeline", "devices": ("cpu", "cpu"), "model": "mnist_cnn", "batch_size": 16} | fields)
    )


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text("raise NotImplementedError")
    return path


def write_model_file(path: Path, body: str) -> dict[str, object]:
    """Write a model file with the forward pass `body`, and permit its execution. Return job fields that select it."""
    head = """
        import torch
        from torch import nn
        print("said while it is imported")

        class Own(nn.Module):
            def __init__(self, classes):
                super().__init__()
                self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, classes)

            def forward(self, x):
    """
    tail = """
        def build_model(num_classes):
            return Own(num_classes)
    """
    text = textwrap.dedent(head) + textwrap.indent(body, " " * 8) + "\n" + textwrap.dedent(tail)
    path.write_text(text)
    return {"model": str(path), "model_file_sha256": permit_model_file(path), "image_size": 16}


def test_planner_reports_progress_then_split() -> None:
    *progress, last = run_planner(msgspec.json.encode(small()))
    assert all(isinstance(message, Progress) for message in progress)
    fractions = [message.fraction for message in progress if isinstance(message, Progress)]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert (progress[0].what, progress[-1].what) == ("Starting the measurement", "Measuring on the CPU")
    assert isinstance(last, Done)
    split = last.answer
    assert split.chosen
    assert (split.devices, split.stage_ranks) == (("cpu", "cpu"), (0, 1))
    assert (split.microbatches, split.microbatch_size) == (8, 2)
    assert sum(stage.parameters for stage in compute_stages(split)) == 1_199_882
    assert all(stage.seconds > 0 and not stage.over_memory for stage in compute_stages(split))
    assert split.seconds_per_byte > 0


def test_planner_uses_classes_of_dataset(tmp_path: Path) -> None:
    for split in ("train", "val"):
        for name in ("one", "two", "three"):
            write_image(tmp_path / split / name / "a.png", 80, mode="L")
    # The measurement doesn't load pretrained weights.
    split = planned(dataset=str(tmp_path), model="squeezenet1_1", image_size=32, pretrained=True)
    parameters = 722_496 + 513 * 3 - 64 * 2 * 3 * 3  # for one channel
    assert sum(stage.parameters for stage in compute_stages(split)) == parameters


def test_planner_measures_custom_split_points() -> None:
    split = planned(split_points=("relu",), cpu_threads=2)
    assert (split.split_points, split.chosen) == (("relu",), False)
    assert torch.get_num_threads() == 2


def test_planner_measures_first_replica() -> None:
    alone = planned(pipeline_schedule="zbv")
    fields = {"devices": ("cpu",) * 4, "pipeline_schedule": "zbv", "batch_size": 64, "accumulation": 2}
    split = planned(strategy="ddp_pipeline", **fields)
    assert (split.devices, split.stage_ranks) == (("cpu", "cpu"), (0, 1, 1, 0))
    assert len(split.split_points) == 3
    assert split.microbatch_size == alone.microbatch_size
    measured, expected = (
        [(each.activation_bytes, each.output_bytes) for each in found.segments] for found in (split, alone)
    )
    assert measured == expected


def test_planner_reports_unsplittable_model_at_field(model_file: Path) -> None:
    branching = write_model_file(model_file, "return self.last(self.first(x if x.sum() > 0 else -x).mean((2, 3)))")
    problem = plan_refused(**branching)
    assert problem.field == "strategy"
    assert "can't be traced" in problem.message
    assert problem.remedy
    problem = plan_refused(devices=("cpu",) * 9, batch_size=64)
    assert problem.field == "devices"
    assert "9 stages need 8" in problem.message
    problem = plan_refused(split_points=("nowhere",))
    assert (problem.field, "nowhere" in problem.message) == ("split_points", True)
    assert plan_refused(strategy="ddp").field == "strategy"


def test_planner_reports_faulty_model_file(model_file: Path) -> None:
    small_batches_only = """
x = self.first(x).mean((2, 3))
torch._assert(x.shape[0] <= 2, "more than two images")
return self.last(x)
"""
    fields = write_model_file(model_file, small_batches_only)
    problem = plan_refused(**fields, batch_size=64)
    assert problem.field == "model"
    assert "more than two images" in problem.message
    problem = plan_refused(**fields | {"model_file_sha256": ""})
    assert (problem.field, "not allowed" in problem.message) == ("model", True)


def test_planner_reports_microbatches_too_small_for_batch_norm() -> None:
    problem = plan_refused(model="resnet18", image_size=32, batch_size=8)
    assert problem.field == "model"
    assert "a microbatch of 1 image of 32 px" in problem.message
    assert "fewer microbatches" in problem.remedy


@pytest.mark.long
def test_planner_ignores_output_of_model_file(model_file: Path) -> None:
    fields = write_model_file(model_file, "return self.last(self.first(x).mean((2, 3)))")
    last = run_planner(msgspec.json.encode(small(**fields)))[-1]
    assert isinstance(last, Done)
    assert last.answer.split_points in (("first",), ("mean",))


def test_planner_reports_missing_dataset(tmp_path: Path) -> None:
    assert plan_refused(dataset=str(tmp_path / "nowhere")).field == "dataset"


@pytest.mark.skipif(sys.platform != "linux", reason="a signal at the parent's death is Linux's")
def test_planner_ends_with_parent() -> None:
    parent = f"import subprocess; subprocess.Popen({COMMAND!r}, stdin=subprocess.PIPE).wait()"
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE) as process:
        parent_process = psutil.Process(process.pid)

        def planners() -> list[psutil.Process]:
            return [child for child in parent_process.children() if child.name() == "footplate-plan"]

        wait_until(lambda: bool(planners()), "the planner, which waits for its job")
        planner = planners()
        os.kill(process.pid, signal.SIGKILL)
        wait_until_exited(planner)
