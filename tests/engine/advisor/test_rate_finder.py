"""Learning-rate finder process with real models and images."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import psutil
import pytest

from engine.advisor import rate_finder, rate_worker
from engine.advisor.rate_curve import FIRST_RATE, LAST_RATE, STEPS, rate_at
from engine.advisor.rate_finder import PREPARED, _create_trial_job, _ProgressReporter, find_rate
from engine.contract.advice import FINDING, BatchFound, FinderRequest, RateFound
from engine.contract.events import Failed, StepMetrics
from engine.contract.job import FIELDS, Job
from engine.contract.messages import Done, Progress, Refused
from engine.processes import worker_process
from engine.processes.requests import RequestError
from engine.strategies.collectives import Collectives
from engine.system import paths
from tests.support.clock import Clock
from tests.support.consent import permit_model_file
from tests.support.specs import make_worker_spec
from tests.support.worker_group import Forker

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "engine.advisor"]
Start = Callable[[Job], subprocess.Popen[bytes]]


def small(**fields: object) -> Job:
    fields_of_sample = {"dataset": str(paths.sample_dataset()), "model": "mnist_cnn", "image_size": 28, "batch_size": 8}
    return Job.from_fields(**(fields_of_sample | fields))


def test_rate_trial_changes_nothing_else_of_its_job() -> None:
    job = small(
        schedule="cosine", warmup_epochs=2.0, warmup_steps=7, on_not_finite="ignore", ema_decay=0.9, compile="on",
        picture_cache="disk", optimizer="adamw", epochs=3,
    )  # fmt: skip
    trial = _create_trial_job(job)
    assert {name: trial.value(name) for name in FIELDS if trial.value(name) != job.value(name)} == {
        "schedule": "none", "warmup_epochs": 0.0, "warmup_steps": 0, "on_not_finite": "stop", "ema_decay": None,
        "compile": "off", "picture_cache": "memory",
    }  # fmt: skip
    assert _create_trial_job(small(picture_cache="off")).data.picture_cache == "off"


def test_rate_progress_follows_the_logarithm_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Progress] = []
    progress, clock = _ProgressReporter(reported.append), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for rate in (FIRST_RATE, FIRST_RATE * (LAST_RATE / FIRST_RATE) ** 0.25, LAST_RATE):
        progress.on_event(
            StepMetrics(
                epoch=1, step=1, loss=1.0, learning_rate=rate, images_per_second=1.0, data_wait_s=0.0, compute_s=0.0
            )
        )
        clock[0] += 6.0
    assert [each.fraction for each in reported] == pytest.approx([PREPARED, PREPARED + (1 - PREPARED) / 4, 1.0])
    assert [each.seconds_left for each in reported] == [None, pytest.approx(18.0), pytest.approx(0.0)]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that starts the finder with temporary files in `tmp_path / "tmp"`."""
    (tmp_path / "tmp").mkdir()

    def start(job: Job) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(FinderRequest("rate", job)))
        process.stdin.close()
        process.stdin = None
        return process

    return start


def messages_of(process: subprocess.Popen[bytes]) -> list[Progress | Refused | Done[RateFound | BatchFound]]:
    out, errors = process.communicate(timeout=170)
    assert process.returncode == 0, errors.decode()
    return [FINDING.decode(line) for line in out.splitlines()]


def left_no_files(tmp_path: Path) -> bool:
    return not list((tmp_path / "tmp").iterdir()) and not paths.runs_folder().exists()


def test_finder_reports_progress_and_leaves_no_files(
    forker: Forker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(worker_process, "_spawn", forker.spawn)
    reports: list[Progress] = []
    found = find_rate(small(), reports.append)
    fractions = [message.fraction for message in reports]
    assert fractions == sorted(fractions)
    assert reports[-1].seconds_left is not None
    assert found.suggestion is not None
    assert 1e-4 < found.suggestion < 1
    assert found.points[0].rate == pytest.approx(1e-7)
    assert len(found.points) > 50  # more than an epoch's 44 batches
    assert left_no_files(tmp_path)
    assert [path.name for path in paths.cache_folder().iterdir()] == ["compiled"]


@pytest.mark.parametrize(("kind", "field"), [("out_of_memory", "batch_size"), ("error", "")])
def test_finder_reports_failed_training(
    kind: Literal["out_of_memory", "error"], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_finder, "import_for", lambda _job: None)
    monkeypatch.setattr(rate_finder, "run_workers", lambda *_arguments: Failed(cause="It fails.", kind=kind))
    with pytest.raises(RequestError) as caught:
        find_rate(small(), lambda _progress: None)
    assert [(problem.field, problem.message) for problem in caught.value.problems] == [(field, "It fails.")]


class SimulatedSteps:
    """Training steps of `step_s` seconds each on `clock`. The loss falls by 0.01 per step up to step `divergence`."""

    def __init__(self, clock: Clock, step_s: float, divergence: int) -> None:
        self.collectives = Collectives()
        self.rates: list[float] = []
        self._clock, self._step_s, self._divergence = clock, step_s, divergence

    @property
    def step_count(self) -> int:
        return len(self.rates)

    def step(self, rate: float) -> float:
        # The first step takes longer.
        self._clock.now += self._step_s if self.rates else 100.0
        self.rates.append(rate)
        return 5 - 0.01 * len(self.rates) if len(self.rates) <= self._divergence else math.inf


@pytest.mark.parametrize(
    ("step_s", "divergence", "steps", "recorded"), [(0.1, 999, STEPS, STEPS), (3.0, 999, 50, 50), (9.0, 13, 40, 11)]
)
def test_curve_has_fewer_steps_if_they_are_slow(
    monkeypatch: pytest.MonkeyPatch, step_s: float, divergence: int, steps: int, recorded: int
) -> None:
    clock, sent = Clock(), list[StepMetrics]()
    monkeypatch.setattr(rate_worker, "time", clock)
    simulated: Any = SimulatedSteps(clock, step_s, divergence)
    reporter: Any = SimpleNamespace(set_phase=lambda _phase: None, send=sent.append)
    curve = rate_worker._record_curve(simulated, make_worker_spec(small()), reporter)
    assert (curve.steps, len(curve.losses), curve.diverged) == (steps, recorded, divergence < 99)
    assert simulated.rates[:3] == [FIRST_RATE] * 3  # the untimed one, and two that predict the time of the others
    assert simulated.rates[3:] == [rate_at(index, steps) for index in range(recorded)]
    assert [each.learning_rate for each in sent] == simulated.rates[3:]
    assert (sent[0].step, sent[0].loss) == (4, curve.losses[0])
    assert sent[-1].loss == (0 if curve.diverged else curve.losses[-1])


@pytest.mark.long
def test_finder_ended_by_signal_leaves_no_files(start: Start, tmp_path: Path) -> None:
    process = start(small())
    assert process.stdout is not None
    for line in process.stdout:
        message = FINDING.decode(line)
        if isinstance(message, Progress) and message.seconds_left is not None:
            break
    workers = psutil.Process(process.pid).children()
    assert workers
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert not psutil.wait_procs(workers, timeout=120)[1]
    assert left_no_files(tmp_path)


@pytest.mark.long
def test_finder_reports_nan_and_failing_model(start: Start, tmp_path: Path) -> None:
    def job(result: str) -> Job:
        file = tmp_path / "own.py"
        text = f"""
            import torch
            from torch import nn

            class Own(nn.Module):
                def __init__(self, classes):
                    super().__init__()
                    self.last = nn.Linear(1, classes)

                def forward(self, x):
                    print("errors by the model")
                    return {result}

            def build_model(num_classes):
                return Own(num_classes)
        """
        file.write_text(textwrap.dedent(text))
        return small(model=str(file), model_file_sha256=permit_model_file(file))

    found = messages_of(start(job("self.last(x.mean((2, 3))) * float('nan')")))[-1].answer
    assert isinstance(found, RateFound)
    assert found.suggestion is None
    assert "NaN or infinite at step 1" in found.why
    assert "fp32" in found.remedy
    failed = messages_of(start(job("self.nowhere(x)")))[-1]
    assert isinstance(failed, Refused)
    assert "nowhere" in str(failed.problems[0])
    assert left_no_files(tmp_path)


def test_finder_refuses_resumed_job(start: Start) -> None:
    (refused,) = messages_of(start(small(resume_from="/somewhere/last.pt")))
    assert isinstance(refused, Refused)
    (problem,) = refused.problems
    assert problem.field == "resume_from"
    assert problem.remedy


@pytest.mark.long
def test_finder_with_two_ranks_matches_one(start: Start) -> None:
    alone = messages_of(start(small()))[-1].answer
    together = messages_of(start(small(strategy="ddp", devices=("cpu", "cpu"))))[-1].answer
    assert isinstance(alone, RateFound)
    assert isinstance(together, RateFound)
    # Dropout draws differently on each rank.
    assert together.points[0].loss == pytest.approx(alone.points[0].loss, rel=0.05)
    assert alone.suggestion is not None
    assert together.suggestion == pytest.approx(alone.suggestion, rel=3)
    assert together.diverged


@pytest.mark.long
def test_finder_with_pipeline(start: Start) -> None:
    last = messages_of(start(small(strategy="pipeline", devices=("cpu", "cpu"))))[-1]
    assert isinstance(last, Done)
    found = last.answer
    assert isinstance(found, RateFound)
    assert found.suggestion is not None


@pytest.mark.long
def test_finder_keeps_rate_ratios_of_parameter_groups(start: Start) -> None:
    def losses(**fields: object) -> list[float]:
        job = small(optimizer="adamw", cpu_threads=1, memory_format="contiguous", **fields)
        found = messages_of(start(job))[-1].answer
        assert isinstance(found, RateFound)
        return [point.loss for point in found.points[:60]]

    tenfold = losses(head_rate=10.0)
    assert losses(head_rate=10.0, learning_rate=1.0) == pytest.approx(tenfold, rel=1e-3)
    assert losses() != pytest.approx(tenfold, rel=1e-3)
