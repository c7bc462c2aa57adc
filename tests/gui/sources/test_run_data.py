"""Conversion of a run's events to arrays and log lines."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter

import numpy as np
import pytest

from engine.contract.events import (
    AnyEvent,
    Chosen,
    ClassMeasures,
    CommandReceived,
    DevicesFree,
    EventsLost,
    Failed,
    Fetching,
    LogLine,
    PhaseChanged,
    Predicted,
    RunFinished,
    StepMetrics,
    TimeSpent,
    Validation,
    Waiting,
    Warned,
)
from gui.sources.run_data import RunData
from tests.gui.run.evaluated_run import CLASSES, CONFUSION, events, iou
from tests.gui.sources.executions import (
    BEGUN,
    KILLED,
    NIGHT_S,
    STEPS,
    make_first_execution,
    make_restart_events,
    make_second_execution,
    steps,
)
from tests.gui.sources.written_runs import EPOCHS, STEP_S, job, make_plan, write_run
from tests.gui.split_points.example import make_step_times, make_trace
from tests.support.run_data import make_run_data


def test_run_data_collects_all_numbers() -> None:
    data = make_run_data(write_run(40).events())
    steps = data.steps
    assert steps.step.values.tolist() == list(range(1, 41))
    np.testing.assert_allclose(steps.seconds.values, STEP_S * np.arange(1, 41), atol=1e-4)
    assert (steps.images_per_second.last, steps.learning_rate.last) == (840, 0.01)
    assert data.validations.measures["top1"].values.tolist() == [0.8] * EPOCHS
    assert data.validations.epoch.values.tolist() == [1, 2, 3, 4]
    for seconds in (data.validations.seconds, data.devices["cpu"].seconds):
        assert seconds.values == pytest.approx([1, 2, 3, 4])
    assert data.devices["cpu"].utilization_percent.values.tolist() == [90.0] * 4
    assert data.devices["cpu"].step.values.tolist() == [10, 20, 30, 40]
    assert data.checkpoints["best"].step == 40
    assert data.finished is not None


def test_run_data_unknown_values_are_nan() -> None:
    step = StepMetrics(
        epoch=1, step=1, loss=1.0, learning_rate=0.1, images_per_second=1.0, data_wait_s=0.0, compute_s=0.0
    )
    validations = [
        Validation(epoch=epoch, step=epoch, measures=measures, images=1, seconds=0.0)
        for epoch, measures in ((1, {"loss": 1.0}), (2, {"top1": 0.5}))
    ]
    data = make_run_data([step, *validations])
    assert np.isnan(data.steps.accuracy.values).all()
    assert np.isnan(data.validations.measures["top1"].values).tolist() == [True, False]
    assert np.isnan(data.validations.measures["loss"].values).tolist() == [False, True]


def test_run_data_ignores_repeated_events() -> None:
    logged = list(write_run(40).events())
    data = RunData()
    data.apply_all(logged[:30])
    data.apply_all(logged)
    lines = len(data.lines)
    for event in logged:
        data.apply(event)
    assert data.steps.step.values.tolist() == list(range(1, 41))
    assert len(data.lines) == lines


@pytest.mark.parametrize(
    ("logged", "text", "kinds"),
    [
        (events(job()), "Validation after epoch 1: loss 0.5000, top1 80.00%, top5 99.00%", ["info"]),
        (events(job(task="one's own")), "Validation after epoch 1: loss 0.5000, top1 0.8000, top5 0.9900", ["info"]),
        ([make_plan(shares=(0.62, 0.38))], "Shares of each batch: 62%, 38%, by measured speed", ["info"]),
        ([Chosen(field="picture_cache", choice="disk", why="Decoded once.")], "Decoded images: disk. Decoded once.", ["info"]),
        ([Chosen(field="precision", choice="bf16", why="it is fast")], "Precision: bf16. It is fast.", ["info"]),
        ([EventsLost(count=12, reason="the disk was full")], "12 events are missing here: the disk was full", ["warning"]),
        ([EventsLost(count=1, reason="the disk was full")], "1 event is missing here: the disk was full", ["warning"]),
        ([Failed(cause="Loss became NaN")], "Loss became NaN", ["error"]),
        (make_first_execution(25), "3 images could not be read and are left out", ["warning"]),
        ([LogLine(text="hello", rank=0), LogLine(text="hello", level="debug")], "[rank 0] hello", ["info"]),
        ([LogLine(text="hello", rank=0), LogLine(text="hello", level="debug")], "hello", ["info", "debug"]),
        ([Waiting(position=2, behind=("a", "b"), others=("c of d",))], "position 2, behind a, b, c of d", ["info"]),
        ([Waiting(position=2, behind=("a", "b"), held=True)], "in the queue at position 2, on hold", ["info"]),
        ([PhaseChanged(phase="fetching", detail=detail) for detail in "aab"], "Fetching: ", ["info"] * 3),
        ([PhaseChanged(phase=phase) for phase in ("training", "saving", "training")], "Training", ["info"]),
        ([PhaseChanged(phase="training"), make_first_execution(3)[0], PhaseChanged(phase="training")], "Training", ["info"] * 2),
        ([DevicesFree(seconds=1, verified=verified) for verified in (False, True, False)], "memory could not be checked", ["info"] * 2),
        ([CommandReceived(command="use_loader_workers")], "Asked to use loader workers", ["info"]),
        ([RunFinished(outcome=outcome) for outcome in ("unsaved", "failed", "stopped")], "", ["error", "error", "info"]),
    ],
)  # fmt: skip
def test_run_data_logs_events(logged: list[AnyEvent], text: str, kinds: list[str]) -> None:
    assert [line.kind for line in make_run_data(logged).lines if text in line.text] == kinds


@pytest.mark.parametrize(
    ("logged", "field", "value"),
    [
        ([CommandReceived(command=name) for name in ("stop", "pause")], "end_request", "stop"),
        ([Failed(cause=cause) for cause in ("the cause", "a consequence")], "failure.cause", "the cause"),
        ([make_plan(from_step=20)], "epoch", 3),
        ([make_plan(from_step=40)], "epoch", EPOCHS),
        ([*make_first_execution(25), make_plan()], "epoch", 0),
        ([TimeSpent(step=step, step_s=0.1, parts={}) for step in (8, 16)], "time_spent.step", 16),
        ([Fetching(source="w", done_bytes=n) for n in (1, 3, 9)], "fetching", (1, 9)),
        ([Warned(code="unsaved", message="It can't be saved.")], "unsaved", True),
        ([Warned(code="unsaved", message="It can't be saved."), Warned(code="other", message="")], "unsaved", True),
        ([Warned(code="unsaved", message=""), RunFinished(outcome="unsaved")], "unsaved", False),
        ([Warned(code="unsaved", message=""), *make_first_execution(3)[:1]], "unsaved", False),
        ([Warned(code="unsaved", message=""), *make_restart_events(3, 1)[:1]], "unsaved", False),
        (make_first_execution(3, dataset="/" + "d" * 9000), "started.job.data.dataset", "/" + "d" * 9000),
        ([Fetching(source="w", done_bytes=1), *make_first_execution(3)[:1]], "fetching", ()),
        ([CommandReceived(command="stop"), *make_first_execution(3)[:1]], "end_request", ""),
        ([CommandReceived(command="pause")], "end_request", "pause"),
        ([CommandReceived(command="use_loader_workers")], "end_request", ""),
        (make_first_execution(3, devices=("GPU-1",)) + make_second_execution(3), "device_names", {"GPU-1": "NVIDIA H200", "cpu": "AMD EPYC"}),
        (make_first_execution(3) + make_restart_events(3, BEGUN + 1, devices=("cpu",), changes={"strategy": "ddp"}), "started.job.parallel.strategy", "ddp"),
    ],
)  # fmt: skip
def test_run_data_field_after_events(logged: list[AnyEvent], field: str, value: object) -> None:
    found = attrgetter(field)(make_run_data(logged))
    assert (tuple(each.done_bytes for each in found) if field == "fetching" else found) == value


@pytest.mark.parametrize("from_step", [0, 10, 24, 25, 40])
def test_run_data_replaces_repeated_steps(from_step: int) -> None:
    data = make_run_data(make_first_execution(25), make_second_execution(from_step))
    retained = min(from_step, 25)
    assert data.steps.step.values.tolist() == [*range(1, retained + 1), *range(from_step + 1, STEPS + 1)]
    assert (np.diff(data.steps.seconds.values) > 0).all()
    assert len({len(column) for column in vars(data.steps).values()}) == 1
    assert (data.rollbacks == 1) == (from_step < 25)


def test_run_data_replaces_validations_but_no_device_samples() -> None:
    data = make_run_data(make_first_execution(25), make_second_execution(15))
    assert data.validations.step.values.tolist() == [10, 20, 30, 40]
    assert data.validations.measures["top1"].values.tolist() == [0.8] * 4
    assert data.validations.epoch.values.tolist() == [1, 2, 3, 4]
    assert data.devices["cpu"].step.values.tolist() == [10, 15, 20, 30, 40]
    assert (np.diff(data.devices["cpu"].seconds.values) > 0).all()
    only_validated = make_run_data(
        make_first_execution(30),
        [event for event in make_second_execution(25, 26) if not isinstance(event, StepMetrics)],
    )
    assert only_validated.validations.step.values.tolist() == [10, 20]


def test_run_data_apply_all_equals_apply() -> None:
    logged = list(chain(make_first_execution(25), [Waiting(time=BEGUN + 3, position=2)], make_second_execution(15)))
    together, one_by_one = make_run_data(logged), RunData()
    for event in logged:
        one_by_one.apply(event)
    for name, column in vars(together.steps).items():
        np.testing.assert_array_equal(column.values, getattr(one_by_one.steps, name).values, err_msg=name)
    for name in ("seconds", "step"):
        values = [getattr(data.devices["cpu"], name).values.tolist() for data in (together, one_by_one)]
        assert values[0] == values[1]
    assert together.lines == one_by_one.lines
    assert (together.epoch, together.last_number, together.last_time) == (
        one_by_one.epoch, one_by_one.last_number, one_by_one.last_time,
    )  # fmt: skip


def test_run_data_does_not_overwrite_held_views() -> None:
    data = make_run_data(make_first_execution(25))
    losses = data.steps.loss.values
    before = losses.copy()
    for n, event in enumerate(make_second_execution(10), 1000):
        event.n = n
        data.apply(event)
    np.testing.assert_array_equal(losses, before)


@pytest.mark.parametrize("pause_s", [NIGHT_S, -NIGHT_S], ids=["a night", "clock set back"])
def test_run_data_excludes_pause_from_time(pause_s: float) -> None:
    data = make_run_data(make_first_execution(25), make_second_execution(25, 30, begun=BEGUN + pause_s))
    assert data.steps.seconds.values[-1] == pytest.approx(30 * STEP_S)
    assert data.steps.seconds.values[24:26] == pytest.approx([25 * STEP_S, 26 * STEP_S])
    assert ("after 8:59:58 h" in "".join(line.text for line in data.lines)) == (pause_s > 0)


def test_run_data_excludes_queueing_from_time() -> None:
    started, *rest = make_second_execution(0, 10, begun=BEGUN + NIGHT_S)
    started.time = BEGUN
    queued: list[AnyEvent] = [
        Waiting(time=BEGUN + 1, position=2, behind=("a", "b")),
        LogLine(time=BEGUN + 60, text="still waiting"),
        Waiting(time=BEGUN + 3600, position=1, behind=("b",)),
    ]
    assert make_run_data([started], queued).waiting is not None
    data = make_run_data([started], queued, rest)
    assert data.waiting is None
    assert data.steps.seconds.values[0] == pytest.approx(1 + STEP_S)
    interrupted = make_run_data(
        [make_first_execution()[0], Waiting(time=BEGUN + 2, position=1)], make_second_execution(0, 10)
    )
    assert interrupted.steps.seconds.values[-1] == pytest.approx(2 + 10 * STEP_S)


def test_restart_continues_curves_on_the_new_devices() -> None:
    at = BEGUN + 26 * STEP_S
    restart = make_restart_events(20, at, kind="lost_machine", devices=("a:cpu", "b:cpu"), changes={"accumulation": 2})
    data = make_run_data(make_first_execution(25), restart, steps(range(21, 31), at + 1))
    assert data.failure is None
    assert data.steps.step.values.tolist() == list(range(1, 31))
    assert data.steps.loss.values[20:].tolist() == [9.0] * 10
    assert (data.started.job.parallel.devices, data.started.world_size) == (("a:cpu", "b:cpu"), 2)
    assert any(line.kind == "warning" and KILLED in line.text for line in data.lines)
    assert any("(2 devices, gradient accumulation 2)" in line.text for line in data.lines)
    assert [line.text for line in data.lines].count("Training") == 2


def test_resume_drops_measurements_of_workers() -> None:
    measured: list[AnyEvent] = [make_trace(time=BEGUN + 3), make_step_times()]
    assert make_run_data(make_first_execution(25), measured).trace is not None
    data = make_run_data(make_first_execution(25), measured, make_second_execution(20, 30))
    assert (data.trace, data.rank_times, data.time_spent) == (None, None, None)


def test_fork_starts_at_step_of_source() -> None:
    data = make_run_data(make_second_execution(20)[:4])
    assert (data.step, data.rollbacks, len(data.steps.step)) == (20, 0, 0)


def test_validation_details_have_gaps_for_missing_classes() -> None:
    details = make_run_data(events(job())).validation_details
    assert [figures.step for figures in details.classes] == [10, 20, 30, 40]
    assert [predicted.step for predicted in details.predicted] == [10, 20, 30, 40]
    first_iou, second_iou, third_iou = details.classes[1].measures["IoU"]
    assert (first_iou, second_iou) == iou(2)[:2]
    assert np.isnan(third_iou)
    assert details.classes[1].confusion.tolist() == [list(row) for row in CONFUSION]


def test_validation_details_are_cut_and_replaced() -> None:
    logged = list(events(job()))
    data = make_run_data(logged, [make_plan(from_step=20, classes=CLASSES)])
    assert [figures.step for figures in data.validation_details.classes] == [10, 20]
    assert [predicted.step for predicted in data.validation_details.predicted] == [10, 20]
    assert data.rollbacks == make_run_data(logged).rollbacks + 1
    repeated = ClassMeasures(epoch=4, step=40, measures={"IoU": (0.5, 0.5, 0.5)})
    details = make_run_data(logged, [repeated, Predicted(epoch=4, step=40, samples=())]).validation_details
    assert [figures.step for figures in details.classes] == [10, 20, 30, 40]
    assert details.classes[-1].measures["IoU"].tolist() == [0.5] * 3
    assert details.classes[-1].confusion is None
    ragged = ClassMeasures(epoch=4, step=40, measures={}, confusion=((1, 2), (3,)))
    assert make_run_data(logged, [ragged]).validation_details.classes[-1].confusion is None
    assert [len(predicted.samples) for predicted in details.predicted] == [3, 3, 3, 0]
