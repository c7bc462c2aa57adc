"""Estimates that the form shows, from past runs and from a child process that computes the memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from engine.contract.advice import MemoryEstimate
from engine.contract.messages import Done
from engine.runs.estimates import Estimate, PastRun
from engine.runs.folder import create_run
from gui.form.followers import create_sample_job
from gui.form.readiness import describe_estimate_basis, format_estimate
from gui.sources import estimator as estimator_module
from gui.sources.background import Background
from gui.sources.estimator import EstimateRequest, Estimator, MemoryProcess
from tests.gui.sources.written_runs import job, write_run


def request(**fields: object) -> EstimateRequest:
    job = create_sample_job().with_fields(**({"model": "mnist_cnn", "image_size": 28, "devices": ("cpu",)} | fields))
    return EstimateRequest(job, 28, ("EPYC",), (350, 100))


@pytest.fixture
def estimator(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estimator]:
    """Yield an estimator that doesn't wait for further edits."""
    monkeypatch.setattr(estimator_module, "_TYPING_MS", 0)
    monkeypatch.setattr(estimator_module, "_PAUSE_MS", 0)
    found = Estimator()
    yield found
    found.close()


def is_waiting(estimator: Estimator) -> bool:
    return any(timer.isActive() for timer in estimator.findChildren(QTimer))


def is_computing(estimator: Estimator) -> bool:
    return estimator.findChild(MemoryProcess).running


def request_of_past_runs(epochs: int = 4, **fields: object) -> EstimateRequest:
    """Return a request that takes 11 s per epoch at the speed and image size of a run from `write_run(8)`."""
    return EstimateRequest(job(epochs=epochs, **fields), 64, ("AMD EPYC",), (8045, 20))


def test_request_without_past_runs_has_no_estimate(estimator: Estimator, qtbot: QtBot) -> None:
    with qtbot.waitSignal(estimator.changed):
        estimator.set_request(request())
    assert estimator.request == request()
    assert estimator.estimate is None
    with qtbot.waitSignal(estimator.changed):
        estimator.set_runs((write_run(8).summary(),))
    estimator.set_request(None)
    assert estimator.request is None
    estimator.close()
    assert not is_waiting(estimator)


@pytest.mark.usefixtures("computed_memory")
@pytest.mark.parametrize("memory_bytes", [5 << 30, None])
def test_memory_is_computed_once_for_past_runs_without_it(
    estimator: Estimator, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory_bytes: int | None
) -> None:
    """Let the child process compute `memory_bytes`, or fail if they are None."""
    answer = msgspec.json.encode(Done(answer=MemoryEstimate(memory_bytes))).decode() if memory_bytes else ""
    command = ("sh", ["-c", f"cat >> {tmp_path}/jobs; echo '{answer}'"])
    monkeypatch.setattr(MemoryProcess, "command", lambda _process, _arguments: command)
    with qtbot.waitSignal(estimator.changed):
        estimator.set_request(request_of_past_runs())
    assert estimator.estimate is None
    runs = (write_run(8).summary(),)
    estimator.set_runs(runs)
    estimate = Estimate(
        seconds=pytest.approx(44.0), memory_bytes=memory_bytes, is_computed=bool(memory_bytes), run_id=runs[0].run_id
    )
    qtbot.waitUntil(
        lambda: not is_waiting(estimator) and not is_computing(estimator) and estimator.estimate == estimate
    )
    estimator.set_runs((runs[0],))
    assert not is_waiting(estimator)
    estimator.set_request(request_of_past_runs(2, learning_rate=0.5))
    qtbot.waitUntil(lambda: estimator.request == request_of_past_runs(2, learning_rate=0.5))
    assert estimator.estimate == msgspec.structs.replace(estimate, seconds=pytest.approx(22.0))
    assert (is_waiting(estimator), is_computing(estimator)) == (False, False)
    assert (tmp_path / "jobs").read_text().count("dataset") == 1


@pytest.mark.usefixtures("computed_memory")
def test_computation_ends_only_for_another_request(
    estimator: Estimator, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryProcess, "command", lambda _process, _arguments: ("sleep", ["600"]))
    estimator.set_request(request())
    qtbot.waitUntil(lambda: is_computing(estimator))
    estimator.set_request(request())
    assert is_computing(estimator)
    estimator.set_request(request(batch_size=7))
    assert not is_computing(estimator)
    qtbot.waitUntil(lambda: is_computing(estimator))
    estimator.close()
    assert not is_computing(estimator)
    estimator.set_request(request(model="net.py"))  # computing it would execute the file
    qtbot.waitUntil(lambda: estimator.request is not None and not is_waiting(estimator))
    assert not is_computing(estimator)


def test_late_estimate_of_an_earlier_request_is_ignored(
    estimator: Estimator, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_started, gate, answered = threading.Event(), threading.Event(), list[EstimateRequest | None]()
    estimator.changed.connect(lambda: answered.append(estimator.request))

    def read_past_runs(*_arguments: object) -> list[PastRun]:
        has_started.set()
        gate.wait()
        return []

    monkeypatch.setattr(estimator_module, "read_past_runs", read_past_runs)
    estimator.set_request(request())
    qtbot.waitUntil(has_started.is_set)
    estimator.set_request(request(epochs=3))
    gate.set()
    qtbot.waitUntil(lambda: bool(answered))
    assert answered == [request(epochs=3)]


def test_estimates_by_model_use_default_image_sizes(estimator: Estimator, qtbot: QtBot) -> None:
    sizes = {"resnet18": 64, "resnet34": 128, "resnet50": 64, "vit_b_16": 64}
    runs = [write_run(8), write_run(8, model="resnet34"), create_run(job(model="resnet50"))]
    estimator.set_runs(tuple(run.summary() for run in runs))
    qtbot.waitUntil(lambda: not is_waiting(estimator) and not estimator.findChildren(Background))
    assert estimator.prepare_estimates_by_model(sizes)() == {}
    for image_size, seconds in ((None, {"resnet18": 44, "resnet34": 176}), (64, {"resnet18": 44, "resnet34": 44})):
        estimator.set_request(request_of_past_runs(model="vit_b_16", image_size=image_size))
        found = estimator.prepare_estimates_by_model(sizes)()
        assert {model: estimate.seconds for model, estimate in found.items()} == pytest.approx(seconds)
        assert [estimate.run_id for estimate in found.values()] == [run.run_id for run in runs[:2]]


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
