"""Estimates that the form shows, from past runs and from a child process that computes the memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from engine.runs.estimates import Estimate
from gui.form.followers import create_sample_job
from gui.form.readiness import describe_estimate_basis, format_estimate
from gui.sources.estimator import EstimateRequest, Estimator


def request(**fields: object) -> EstimateRequest:
    job = create_sample_job().with_fields(model="mnist_cnn", image_size=28, devices=("cpu",), **fields)
    return EstimateRequest(job, 28, ("EPYC",), (350, 100))


@pytest.fixture
def estimator(qtbot: QtBot) -> Iterator[Estimator]:
    found = Estimator()
    yield found
    found.close()


def test_request_without_past_runs_has_no_estimate(estimator: Estimator, qtbot: QtBot) -> None:
    with qtbot.waitSignal(estimator.changed):
        estimator.set_request(request())
    assert estimator.request == request()
    assert estimator.estimate is None
    estimator.set_request(None)
    assert estimator.request is None


@pytest.mark.usefixtures("computed_memory")
def test_memory_is_computed_without_past_runs(estimator: Estimator, qtbot: QtBot) -> None:
    estimator.set_request(request())
    qtbot.waitUntil(lambda: estimator.estimate is not None)
    assert estimator.estimate is not None
    assert estimator.estimate.is_computed
    assert 100 << 20 < (estimator.estimate.memory_bytes or 0) < 4 << 30
    assert estimator.estimate.seconds is None


@pytest.mark.parametrize(
    ("estimate", "devices", "text"),
    [
        (Estimate(seconds=720.0, memory_bytes=9 << 30), ("GPU-a", "GPU-b"),
         "Estimate: about 12 min on 2 GPUs, 9.0 of 48.0 GiB each"),
        (Estimate(seconds=22.0, memory_bytes=9 << 30, is_upper_bound=True), ("GPU-a",),
         "Estimate: about 22 s on 1 GPU, at most 9.0 of 48.0 GiB"),
        (Estimate(seconds=22.0), ("cpu",), "Estimate: about 22 s on the CPU"),
        (Estimate(seconds=None, memory_bytes=9 << 30), ("cpu",),
         "Estimate: 9.0 of 48.0 GiB, time known after a first run"),
    ],
)  # fmt: skip
def test_estimate_is_a_sentence(estimate: Estimate, devices: tuple[str, ...], text: str) -> None:
    assert format_estimate(estimate, devices, 48 << 30) == text


def test_estimate_names_its_origin() -> None:
    tips = [
        describe_estimate_basis(Estimate(seconds=1.0, run_id="a", is_computed=computed)) for computed in (False, True)
    ]
    assert all("run a" in tip for tip in tips)
    assert tips[0] != tips[1].splitlines()[0]
    computed = describe_estimate_basis(Estimate(seconds=None, memory_bytes=1, is_computed=True))
    assert computed
    assert "run" not in computed
