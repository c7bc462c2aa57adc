"""Advisor process that runs real trials on CPU workers."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.contract.advice import ADVISING, AdviceProgress, AdviceRequest, apply_candidate
from engine.contract.job import Job
from engine.contract.messages import Done, Refused
from engine.system import paths
from tests.support.deep import write_deep_model

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "engine.advisor.advice"]
SMALL = Job.from_fields(
    dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, devices=("cpu", "cpu"), strategy="ddp"
)


def run_advisor(folder: Path, request: AdviceRequest, cap: int = 0) -> list[Any]:
    """Run the advisor with temporary files in `folder` and return its messages.

    `cap` limits the data segment of its process in bytes. 0 means no limit.
    """
    folder.mkdir(exist_ok=True)
    result = subprocess.run(
        COMMAND,
        input=msgspec.json.encode(request),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_DATA, (cap, cap)) if cap else None,
        check=True,
        timeout=400,
    )
    assert not list(folder.iterdir())
    assert not paths.runs_folder().exists()
    return [ADVISING.decode(line) for line in result.stdout.splitlines()]


@pytest.mark.long
def test_advisor_ranks_setups_and_caches_answer(tmp_path: Path) -> None:
    *progress, last = run_advisor(tmp_path / "t", AdviceRequest(job=SMALL, seconds=30))
    assert all(isinstance(message, AdviceProgress) for message in progress)
    found = last.answer
    assert found.fits
    speeds = [row.images_per_second for row in found.table if row.images_per_second is not None]
    assert len(speeds) > 1
    assert speeds == sorted(speeds, reverse=True)
    assert found.took_s < 33
    first = found.table[0]
    assert first.time is not None
    assert first.time.total_s == pytest.approx(
        first.time.start_s + SMALL.training.epochs * (first.time.steps * first.time.step_s + first.time.validation_s)
    )
    assert f"{first.name} is fastest" in found.sentence
    several = [row for row in found.table if row.memory_bytes and row.estimated_bytes and len(row.devices) > 1]
    assert several
    assert all(row.estimated_bytes / row.memory_bytes == pytest.approx(1, abs=0.15) for row in several)
    assert sum(len(left.names) for left in found.left_out) + len(found.table) == found.considered
    assert any(row.is_requested for row in found.table) or any(
        "Distributed" in name for left in found.left_out for name in left.names
    )
    like = SMALL.with_fields(learning_rate=0.5, epochs=50)
    [cached] = run_advisor(tmp_path / "t", AdviceRequest(job=like, seconds=30, machines=2))
    again = cached.answer
    assert again.is_cached
    assert again.measured_at == found.measured_at
    assert again.table[0].time.epochs == 50
    assert again.machines[0].machines == 2
    assert apply_candidate(like, again.table[0]).optimizer.learning_rate == 0.5


@pytest.mark.long
def test_advisor_stopped_by_signal_answers(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    before = set(tmp_path.iterdir())
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(AdviceRequest(job=SMALL, seconds=60)))
        process.stdin.close()
        message = None
        for line in process.stdout:
            message = ADVISING.decode(line)
            if isinstance(message, AdviceProgress) and message.what.startswith("Tried"):
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert isinstance(message, Done)
    message = message.answer
    assert message.ended_by == "stopped"
    assert message.took_s > 1
    assert not {row.state for row in message.table} & {"waiting", "trying"}
    if all(len(row.devices) == 1 for row in message.table):
        assert "enough" not in message.sentence
    assert message.table
    assert message.table[0].images_per_second
    assert set(tmp_path.glob("footplate-trial-*")) <= before
    assert not paths.cache_folder().joinpath("advice").exists()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces memory limits")
def test_advisor_lists_remedies_for_too_large_job(tmp_path: Path) -> None:
    fields = {"image_size": 256, "batch_size": 320, "devices": ("cpu",), "strategy": "single"}
    job = SMALL.with_fields(**write_deep_model(tmp_path), **fields)
    *_, last = run_advisor(tmp_path / "t", AdviceRequest(job=job, seconds=60), cap=2_200_000_000)
    found = last.answer
    assert found.fits
    assert found.table[0].changes["accumulation"] > 1
    assert found.table[0].memory_bytes < 2_000_000_000
    assert "It fits with" in found.remedies[0]


@pytest.mark.long
def test_advisor_refuses_job_that_fails(tmp_path: Path) -> None:
    without_dataset = SMALL.with_fields(dataset=str(tmp_path / "nowhere"))
    *_, found = run_advisor(tmp_path / "t", AdviceRequest(job=without_dataset))
    assert isinstance(found, Refused)
    assert "nowhere" in found.problems[0].message
