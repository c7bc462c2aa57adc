"""Events sorted into arrays, and the status of their run."""

from __future__ import annotations

import numpy as np
import pytest

from engine.contract.events import DevicesFree, EventsLost, Failed, PhaseChanged, RunFinished, StepMetrics, Validation
from engine.runs.folder import RunFolder
from gui.sources.run_data import RunData
from gui.sources.run_status import RunStatus, status_of
from tests.gui.sources.written_runs import EPOCHS, STEP_S, a_run, job, story


def taken_in(run: RunFolder) -> RunData:
    data = RunData()
    for event in run.events():
        data.apply(event)
    return data


def part(steps: int, of: int = 40) -> RunData:
    """Return a run after `steps` of its steps."""
    data = RunData()
    for n, event in enumerate(story(job(), of, None), 1):
        event.n = n
        data.apply(event)
        if isinstance(event, StepMetrics) and event.step == steps:
            break
    return data


def test_run_data_collects_all_numbers() -> None:
    data = taken_in(a_run(40))
    steps = data.steps
    assert steps.step.values.tolist() == list(range(1, 41))
    np.testing.assert_allclose(steps.seconds.values, STEP_S * np.arange(1, 41), atol=1e-4)
    assert steps.images_per_second.last == 840
    assert steps.learning_rate.last == 0.01
    assert data.validations.measures["top1"].values.tolist() == [0.8] * EPOCHS
    assert data.validations.epoch.values.tolist() == [1, 2, 3, 4]
    assert data.devices["cpu"].utilization_percent.values.tolist() == [90.0] * 4
    assert data.devices["cpu"].step.values.tolist() == [10, 20, 30, 40]
    assert data.checkpoints["best"].step == 40
    assert data.finished is not None


def test_run_data_unknown_values_are_nan() -> None:
    data = RunData()
    step = StepMetrics(
        n=1, epoch=1, step=1, loss=1.0, learning_rate=0.1, images_per_second=1.0, data_wait_s=0.0, compute_s=0.0
    )
    data.apply(step)
    assert np.isnan(data.steps.accuracy.values).all()
    data.apply(Validation(n=2, epoch=1, step=1, measures={"loss": 1.0}, images=1, seconds=0.0))
    data.apply(Validation(n=3, epoch=2, step=2, measures={"top1": 0.5}, images=1, seconds=0.0))
    assert np.isnan(data.validations.measures["top1"].values).tolist() == [True, False]
    assert np.isnan(data.validations.measures["loss"].values).tolist() == [False, True]


def test_run_data_ignores_repeated_event() -> None:
    run = a_run(8)
    data = taken_in(run)
    before = len(data.steps.loss), len(data.lines)
    for event in run.events():
        data.apply(event)
    assert (len(data.steps.loss), len(data.lines)) == before


def test_run_data_logs_warnings_errors_and_losses() -> None:
    data = taken_in(a_run(8, "failed", cause="Loss became NaN at step 8"))
    data.apply(EventsLost(n=1000, count=12, reason="the disk was full"))
    kinds = {line.text: line.kind for line in data.lines}
    assert kinds["3 images could not be read and are left out"] == "warning"
    assert kinds["Loss became NaN at step 8"] == "error"
    assert kinds["12 events are missing here: the disk was full"] == "warning"
    assert kinds["That was all"] == "info"


def test_status_of_running_run() -> None:
    status = status_of(part(20), "running")
    assert status.label == "Running"
    assert status.text == "Running · epoch 2 of 4"
    assert (status.epoch, status.epochs, status.step, status.steps) == (2, 4, 20, 40)
    assert status.fraction == 0.5
    assert status.seconds_left == pytest.approx(20 * STEP_S, rel=1e-3)
    assert status.images_per_second == 820
    assert status.devices_free is False
    assert status.active


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("validating", "Running · epoch 2 of 4, validating"), ("saving", "Running · epoch 2 of 4, saving a checkpoint")],
)
def test_status_of_busy_phases(phase: str, expected: str) -> None:
    data = part(20)
    data.apply(PhaseChanged(n=10_000, phase=phase))  # type: ignore[arg-type]
    assert status_of(data, "running").text == expected


def test_status_of_stopping_run() -> None:
    data = part(20)
    assert status_of(data, "running", "stop").text.startswith("Stopping after 20 steps")
    data.apply(DevicesFree(n=10_000, seconds=0.2, verified=True))
    data.apply(RunFinished(n=10_001, outcome="stopped"))
    ended = status_of(data, "stopped", "stop")
    assert ended.text == "Stopped after 20 steps · devices are free"
    assert ended.devices_free is True
    assert not ended.active


def test_devices_free_unverified() -> None:
    data = part(20)
    data.apply(DevicesFree(n=10_000, seconds=0.2, verified=False))
    assert status_of(data, "stopped").text == "Stopped after 20 steps · the workers have exited"


def test_status_of_failed_run_has_cause() -> None:
    data = part(20)
    data.apply(Failed(n=10_000, cause="gloo: connection closed by peer", rank=0))
    running = status_of(data, "running")
    assert (running.label, running.text) == ("Stopping", "Stopping: gloo: connection closed by peer")
    data.apply(Failed(n=10_001, cause="another that follows from it", rank=1))
    assert status_of(data, "failed").text == "Failed: gloo: connection closed by peer"
    data.apply(RunFinished(n=10_002, outcome="failed", cause="Out of memory on NVIDIA H200 at step 20"))
    assert status_of(data, "failed").text == "Failed: Out of memory on NVIDIA H200 at step 20"


def test_status_of_unsaved_run() -> None:
    data = RunData()
    data.apply(RunFinished(n=1, outcome="unsaved", cause="last.pt could not be saved: the disk is full."))
    status = status_of(data, "unsaved")
    assert status.text == "Unsaved: last.pt could not be saved: the disk is full."
    assert not status.active
    assert status.resumable
    assert [(line.kind, line.text) for line in data.lines] == [("error", "The run's last state could not be saved")]


@pytest.mark.parametrize(
    ("steps", "outcome", "text"),
    [
        (40, "completed", "Completed · 4 epochs · best top-1 80.0 %"),
        (1, "stopped", "Stopped after 1 step · devices are free"),
        (8, None, "Interrupted after 8 steps: the run's process exited without reporting an error"),
    ],
)
def test_status_of_past_run(steps: int, outcome: str | None, text: str) -> None:
    run = a_run(steps, outcome)  # type: ignore[arg-type]
    if outcome is None:
        _grow_old(run)
    assert status_of(taken_in(run), run.state()).text == text


def test_status_of_silent_run_is_starting() -> None:
    status = status_of(RunData(), "starting")
    assert status.label == "Starting"
    assert (status.step, status.fraction, status.seconds_left) == (None, None, None)
    assert RunStatus().text.startswith("Idle")


def _grow_old(run: RunFolder) -> None:
    import os

    os.utime(run.job_file, (0, 0))


def test_apply_all_equals_single_applies() -> None:
    run = a_run(40)
    one_by_one, together = taken_in(run), RunData()
    together.apply_all(list(run.events()))
    for name in ("seconds", "step", "loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s"):
        np.testing.assert_array_equal(
            getattr(together.steps, name).values, getattr(one_by_one.steps, name).values, err_msg=name
        )
    assert together.devices["cpu"].step.values.tolist() == one_by_one.devices["cpu"].step.values.tolist()
    assert together.lines == one_by_one.lines
    assert (together.epoch, together.last_n, together.last_time) == (
        one_by_one.epoch,
        one_by_one.last_n,
        one_by_one.last_time,
    )


def test_apply_all_ignores_repeated_events() -> None:
    events = list(a_run(40).events())
    data = RunData()
    data.apply_all(events[:30])
    data.apply_all(events)
    assert data.steps.step.values.tolist() == list(range(1, 41))
