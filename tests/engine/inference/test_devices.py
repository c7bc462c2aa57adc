"""Waiting for the devices of a request, and the progress of its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.contract.events import AnyEvent, Failed, StepMetrics, Waiting, Warned
from engine.contract.inference.prediction import PredictRequest
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.worker import WorkerSpec
from engine.inference import devices, worker
from engine.inference.devices import run_on_devices
from engine.inference.trained_model import CannotLoad
from engine.inference.worker import Shard
from engine.runs.folder import create_run
from engine.runs.queue import CannotQueue
from tests.support.specs import make_worker_spec


def metrics(epoch: int, step: int) -> StepMetrics:
    zeros = dict.fromkeys(("loss", "learning_rate", "images_per_second", "data_wait_s", "compute_s"), 0.0)
    return StepMetrics(epoch=epoch, step=step, **zeros)


REPORTS: list[tuple[float, AnyEvent]] = [
    (10.0, metrics(1, 3)),
    (10.9, metrics(2, 2)),
    (12.0, metrics(1, 6)),
    (12.0, Warned(code="inference", message="Skipping a.png", rank=0)),
    (14.0, metrics(2, 6)),
]
"""Times in seconds and events of two workers."""


class Slot:
    """Position in a queue that delivers the devices after the reasons for waiting in `waits`."""

    def __init__(self, waits: Iterator[Waiting | None]) -> None:
        self._waits = waits
        self.has_devices = self.is_closed = False

    def poll(self) -> Waiting | None:
        for waiting in self._waits:
            return waiting
        self.has_devices = True
        return None

    def close(self) -> None:
        self.is_closed = True


def fail() -> Iterator[Waiting | None]:
    raise CannotQueue("The queue is full")
    yield None


@pytest.fixture
def request_devices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Iterator[Waiting | None], Failed | None, int], list[Progress]]:
    """Return a function that runs a request for `total` samples, whose workers send `REPORTS`, and returns its progress."""

    def run(waits: Iterator[Waiting | None], failure: Failed | None, total: int) -> list[Progress]:
        slot, clock, reported = Slot(waits), SimpleNamespace(now=0.0), list[Progress]()

        def run_workers(specs: list[WorkerSpec], _: str, on_event: Callable[[AnyEvent], object]) -> Failed | None:
            assert [(spec.rank, spec.world_size) for spec in specs] == [(0, 2), (1, 2)]
            for clock.now, event in REPORTS:
                on_event(event)
            return failure

        monkeypatch.setattr(devices, "QueueSlot", lambda run, job: slot)
        monkeypatch.setattr(devices, "run_workers", run_workers)
        monkeypatch.setattr(devices, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=lambda seconds: None))
        created = create_run(Job.from_fields())
        request = PredictRequest(run=str(created.path), paths=(), out="", devices=("cpu", "cpu"))
        try:
            run_on_devices(request, tmp_path, reported.append, total=total, what="Predicting")
        finally:
            assert slot.is_closed
        return reported

    return run


def test_progress_is_that_of_all_workers(request_devices: Callable[..., list[Progress]]) -> None:
    waits = [Waiting(position=3, behind=("a", "b")), None, Waiting(position=1)]
    reported = request_devices(iter(waits), None, 10)
    assert [message.what for message in reported[:4]] == [
        "Waiting for the devices: 2 runs before this",
        "Waiting for the devices",
        "Loading PyTorch",
        "Loading the model",
    ]
    assert {message.what for message in reported[4:]} == {"Predicting"}
    # Speeds are measured from the first report on, and later than a second after it.
    assert [
        (message.fraction, message.images_per_second, message.seconds_left, message.warnings)
        for message in reported[4:]
    ] == [
        (0.3, None, None, ()),
        (0.5, None, None, ()),
        (0.8, 4.0, 0.5, ()),
        (0.8, 4.0, 0.5, ("Skipping a.png",)),
        (1.0, 3.0, 0.0, ()),
    ]
    reported = request_devices(iter(()), None, 0)
    assert [(message.fraction, message.seconds_left) for message in reported] == [(0.0, None)] * 7
    assert reported[-1].images_per_second == 3.0


def test_shard_reports_its_samples_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sent = SimpleNamespace(now=0.0), list[StepMetrics]()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: clock.now))
    reporter: Any = SimpleNamespace(send=sent.append, set_activity=lambda _: None)
    shard = Shard(make_worker_spec(Job.from_fields(), rank=1), reporter)
    for clock.now in (100.0, 100.1, 100.25, 100.3, 100.5):
        shard.advance(2)
    assert [(event.epoch, event.step) for event in sent] == [(2, 2), (2, 6), (2, 10)]


@pytest.mark.parametrize(
    ("failure", "field"),
    [(Failed(cause="broken", field="data"), "data"), (Failed(cause="broken", kind="out_of_memory"), "batch_size")],
)
def test_failed_workers_are_a_problem(
    request_devices: Callable[..., list[Progress]], failure: Failed, field: str
) -> None:
    with pytest.raises(CannotLoad, match="broken") as raised:
        request_devices(iter(()), failure, 10)
    assert [problem.field for problem in raised.value.problems] == [field]


def test_unusable_queue_is_a_problem(request_devices: Callable[..., list[Progress]]) -> None:
    with pytest.raises(CannotLoad, match="The queue is full") as raised:
        request_devices(fail(), None, 10)
    assert [problem.field for problem in raised.value.problems] == ["devices"]
