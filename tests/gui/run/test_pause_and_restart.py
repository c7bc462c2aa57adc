"""Data, status and notes of runs that wait, restart, pause and resume."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain

import numpy as np
import pytest

from engine.contract.events import (
    AnyEvent,
    CommandReceived,
    DevicesFree,
    Failed,
    LogLine,
    PhaseChanged,
    Planned,
    Restarting,
    RunFinished,
    StepMetrics,
    Waiting,
    Warned,
)
from gui.format import clock
from gui.run.header import notes
from gui.sources.run_data import RunData
from gui.sources.run_status import status_of
from tests.gui.run.strategy.steps import timed, trace
from tests.gui.sources.written_runs import STEP_S, job, story
from tests.support.run_data import data_from

BEGUN = 1_790_000_000.0
NIGHT_S = 9 * 3600.0
KILLED = "Rank 1 was killed by signal 9 (SIGKILL). Its last words, in worker-1.log: …"
STEPS = 40


def first(until: int = STEPS, **changes: object) -> list[AnyEvent]:
    """Return the first execution up to the step `until`."""
    events = list(story(job(**changes), STEPS, "completed", begun=BEGUN))
    return events[: _after(events, until)]


def second(
    from_step: int, until: int | None = None, begun: float = BEGUN + NIGHT_S, **changes: object
) -> list[AnyEvent]:
    """Return the next execution after `from_step` of the first one's steps."""
    events = list(story(job(**changes), STEPS, "completed", begun=begun, from_step=from_step, execution=2))
    return events if until is None else events[: _after(events, until)]


def _after(events: list[AnyEvent], step: int) -> int:
    return next(i for i, event in enumerate(events) if isinstance(event, StepMetrics) and event.step == step) + 1


def restarted(from_step: int, at: float, **changes: object) -> list[AnyEvent]:
    """Return the events of a restart until training."""
    values = {"cause": KILLED, "rank": 1, "attempt": 1, "max_attempts": 3, "time": at}
    return [
        Restarting(**(values | changes)),  # type: ignore[arg-type]
        PhaseChanged(time=at, phase="starting"),
        PhaseChanged(time=at, phase="preparing"),
        Planned(
            time=at + 1, epochs=4, from_step=from_step, steps_per_epoch=10, train_images=320, val_images=20,
            classes=("daisy", "rose"), image_size=64, parameters=1000, trainable_parameters=1000,
        ),
        PhaseChanged(time=at + 1, phase="training"),
    ]  # fmt: skip


def steps(numbers: Iterable[int], begun: float, loss: float = 9.0) -> list[AnyEvent]:
    return [
        StepMetrics(
            time=begun + place * STEP_S, epoch=(step - 1) // 10 + 1, step=step, loss=loss, learning_rate=0.01,
            images_per_second=100.0, data_wait_s=0.0, compute_s=0.1,
        )
        for place, step in enumerate(numbers, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("from_step", [0, 10, 24, 25, 40])
def test_run_data_replaces_repeated_steps(from_step: int) -> None:
    data = data_from(first(25), second(from_step))
    retained = min(from_step, 25)
    assert data.steps.step.values.tolist() == [*range(1, retained + 1), *range(from_step + 1, STEPS + 1)]
    assert (np.diff(data.steps.seconds.values) > 0).all()
    assert len({len(column) for column in vars(data.steps).values()}) == 1
    assert (data.cuts == 1) == (from_step < 25)


def test_run_data_drops_validations_of_repeated_steps() -> None:
    data = data_from(first(25), second(15))
    assert data.validations.step.values.tolist() == [10, 20, 30, 40]
    assert data.validations.measures["top1"].values.tolist() == [0.8] * 4
    assert data.validations.epoch.values.tolist() == [1, 2, 3, 4]
    only_validated = data_from(first(30), [event for event in second(25, 26) if not isinstance(event, StepMetrics)])
    assert only_validated.validations.step.values.tolist() == [10, 20]


def test_run_data_keeps_device_samples_of_repeated_steps() -> None:
    data = data_from(first(25), second(15))
    device = data.devices["cpu"]
    assert device.step.values.tolist() == [10, 15, 20, 30, 40]
    assert (np.diff(device.seconds.values) > 0).all()


def test_run_data_apply_all_equals_apply() -> None:
    events = list(chain(first(25), [Waiting(time=BEGUN + 3, position=2)], second(15)))
    together, one_by_one = data_from(events), RunData()
    for event in events:
        one_by_one.apply(event)
    for name, column in vars(together.steps).items():
        np.testing.assert_array_equal(column.values, getattr(one_by_one.steps, name).values, err_msg=name)
    for name in ("seconds", "step"):
        assert (
            getattr(together.devices["cpu"], name).values.tolist()
            == getattr(one_by_one.devices["cpu"], name).values.tolist()
        )
    assert together.lines == one_by_one.lines


def test_run_data_does_not_overwrite_held_views() -> None:
    data = data_from(first(25))
    held = data.steps.loss.values
    before = held.copy()
    for n, event in enumerate(second(10), 1000):
        event.n = n
        data.apply(event)
    np.testing.assert_array_equal(held, before)


def test_run_data_excludes_pause_from_time() -> None:
    data = data_from(first(25), second(25, 30))
    assert data.steps.seconds.values[-1] == pytest.approx(30 * STEP_S)
    assert data.steps.seconds.values[24:26] == pytest.approx([25 * STEP_S, 26 * STEP_S])
    status = status_of(data, "running")
    assert status.seconds_left == pytest.approx(10 * STEP_S, rel=1e-3)
    assert status.images_per_second == 830
    assert "resumed with one worker after 8:59:58 h" in data.lines[-1 - _lines_since(data, "resumed")].text


def _lines_since(data: RunData, words: str) -> int:
    return next(i for i, line in enumerate(reversed(data.lines)) if words in line.text)


def test_run_data_tolerates_clock_set_back() -> None:
    data = data_from(first(25), second(25, 30, begun=BEGUN - NIGHT_S))
    assert data.steps.seconds.values[-1] == pytest.approx(30 * STEP_S)


def test_run_data_excludes_queueing_from_time() -> None:
    started, *rest = second(0, 10, begun=BEGUN + NIGHT_S)
    started.time = BEGUN
    queued: list[AnyEvent] = [
        Waiting(time=BEGUN + 1, position=2, behind=("a", "b")),
        LogLine(time=BEGUN + 60, text="still waiting"),
        Waiting(time=BEGUN + 3600, position=1, behind=("b",)),
    ]
    waiting = data_from([started], queued)
    assert waiting.waiting is not None
    assert status_of(waiting, "waiting").text == "Waiting · queued for its devices"
    data = data_from([started], queued, rest)
    assert data.waiting is None
    assert data.steps.seconds.values[0] == pytest.approx(1 + STEP_S)
    assert status_of(data, "waiting").label == "Running"


def test_run_data_excludes_interrupted_queueing_once() -> None:
    started, *_ = first()
    data = data_from([started, Waiting(time=BEGUN + 2, position=1)], second(0, 10))
    assert data.steps.seconds.values[-1] == pytest.approx(2 + 10 * STEP_S)


def test_restart_continues_curves() -> None:
    at = BEGUN + 26 * STEP_S
    restart = restarted(20, at)
    starting = data_from(first(25), restart[:2])
    status = status_of(starting, "running")
    assert (status.label, status.active, status.seconds_left, status.images_per_second) == (
        "Restarting",
        True,
        None,
        None,
    )
    assert status.text == "Restarting · attempt 1 of 3, after: Rank 1 was killed by signal 9 (SIGKILL)"
    line = starting.lines[-2 if starting.lines[-1].text == "Starting" else -1]
    assert (line.kind, line.text) == ("warning", f"Restarting from the last checkpoint (attempt 1 of 3): {KILLED}")
    data = data_from(first(25), restart, steps(range(21, 31), at + 1))
    assert data.failure is None
    assert data.steps.step.values.tolist() == list(range(1, 31))
    assert data.steps.loss.values[20:].tolist() == [9.0] * 10
    after = status_of(data, "running")
    assert (after.label, after.step, after.images_per_second) == ("Running", 30, 100.0)
    assert after.seconds_left == pytest.approx(10 * STEP_S)
    assert after.text == "Running · epoch 3 of 4"


def test_restart_updates_devices() -> None:
    at = BEGUN + 26 * STEP_S
    restart = restarted(20, at, kind="lost_machine", devices=("a:cpu", "b:cpu"), changes={"accumulation": 2})
    data = data_from(first(25), restart)
    assert (data.started.job.parallel.devices, data.started.world_size) == (("a:cpu", "b:cpu"), 2)
    assert any("(2 devices, gradient accumulation 2)" in line.text for line in data.lines)


def test_status_ignores_speed_before_restart() -> None:
    restart = restarted(20, BEGUN + 3)
    data = data_from(first(25), restart, steps([21], BEGUN + 4))
    assert status_of(data, "running").seconds_left is None
    before_the_first = status_of(data_from(first(25), restart), "running")
    assert (before_the_first.step, before_the_first.fraction) == (20, 0.5)
    assert before_the_first.images_per_second is None
    assert status_of(data_from(first(25), second(20)[:2]), "running").images_per_second is None


def test_status_shows_failure_after_restart() -> None:
    data = data_from(first(25), restarted(20, BEGUN + 3)[:2], [Failed(time=BEGUN + 4, cause="Rank 0 was killed")])
    assert status_of(data, "running").text == "Stopping: Rank 0 was killed"


@pytest.mark.parametrize(
    ("events", "state", "command", "text"),
    [
        ([CommandReceived(command="pause")], "running", "", "Pausing after 25 steps"),
        ([PhaseChanged(phase="pausing")], "running", "", "Pausing after 25 steps"),
        ([], "running", "pause", "Pausing after 25 steps"),
        ([CommandReceived(command="pause"), CommandReceived(command="stop")], "running", "", "Stopping after 25 steps"),
        ([CommandReceived(command="pause")], "running", "stop", "Stopping after 25 steps"),
        (
            [DevicesFree(seconds=1.0, verified=True), RunFinished(outcome="paused")],
            "paused", "", "Paused after 25 steps · devices are free",
        ),
    ],
)  # fmt: skip
def test_status_of_paused_run(events: list[AnyEvent], state: str, command: str, text: str) -> None:
    for event in events:
        event.time = BEGUN + 3
    status = status_of(data_from(first(25), events), state, command)  # type: ignore[arg-type]
    assert status.text.startswith(text)
    assert status.resumable == (state == "paused")
    assert bool(status.why_no_pause) == (status.label != "Running")
    assert bool(status.why_no_stop) == (status.label in ("Stopping", "Paused"))


def test_resume_resets_outcome() -> None:
    ended: list[AnyEvent] = [
        CommandReceived(time=BEGUN + 3, command="stop"),
        PhaseChanged(time=BEGUN + 3, phase="stopping"),
        Failed(time=BEGUN + 3, cause="a fault"),
        RunFinished(time=BEGUN + 3, outcome="failed", cause="a fault"),
    ]
    assert status_of(data_from(first(25), ended), "starting").label == "Starting"
    begun = data_from(first(25), ended, second(20, devices=("cpu", "cpu"), strategy="ddp")[:1])
    status = status_of(begun, "running")
    assert (status.label, begun.failure, begun.asked, begun.finished) == ("Starting", None, "", None)
    assert begun.started.job.parallel.devices == ("cpu", "cpu")
    assert status_of(data_from(first(25), ended, second(20, 30)), "running").text == "Running · epoch 3 of 4"


def test_resume_drops_measurements_of_workers() -> None:
    measured: list[AnyEvent] = [trace(), timed()]
    for event in measured:
        event.time = BEGUN + 3
    assert data_from(first(25), measured).trace is not None
    data = data_from(first(25), measured, second(20, 30))
    assert (data.trace, data.rank_times, data.time_spent) == (None, None, None)


def note_texts(*parts: Iterable[AnyEvent]) -> list[str]:
    return [note.text for note in notes(data_from(*parts))]


def without_warnings(events: list[AnyEvent]) -> list[AnyEvent]:
    return [event for event in events if not isinstance(event, Warned)]


def test_notes_show_time_and_devices_of_resume() -> None:
    started, now, long_ago = without_warnings(first(25)), time.time(), time.mktime((2026, 1, 5, 21, 40, 0, 0, 0, -1))
    assert note_texts(started) == []
    on_two = without_warnings(second(20, begun=now, devices=("cpu", "cpu")))
    assert note_texts(started, on_two) == [f"Resumed at {clock(now)} on 2 CPU workers"]
    third = without_warnings(second(30, begun=long_ago))
    assert note_texts(started, on_two, third) == ["Resumed 2 times, last at 05 Jan 21:40:00 on CPU"]


def test_notes_show_step_and_cause_of_restart() -> None:
    once = restarted(20, BEGUN + 3)
    assert note_texts(without_warnings(first(25)), once) == [
        "Restarted once at step 25: Rank 1 was killed by signal 9 (SIGKILL)"
    ]  # fmt: skip
    smaller = restarted(
        20, BEGUN + 5, kind="out_of_memory", cause="Out of memory on GPU 1.", step=23, changes={"accumulation": 2}
    )
    assert note_texts(without_warnings(first(25)), once, smaller) == [
        "Restarted 2 times, last at step 23 (since then gradient accumulation 2): Out of memory on GPU 1"
    ]


def test_notes_count_newest_warnings() -> None:
    def warned(code: str, message: str) -> Warned:
        return Warned(time=BEGUN + 3, code=code, message=message)

    warnings = [
        warned("no_blocks", "The model has no blocks."),
        warned("step_skipped", "Step 12 was skipped."),
        warned("out_of_memory", "Out of memory at step 3: parts of 8 images from now on."),
        warned("step_skipped", "Step 30 was skipped."),
        warned("unreadable", "b.jpg is left out."),
    ]
    data = data_from(without_warnings(first(25)), warnings)
    assert [note.kind for note in notes(data)] == ["warning"] * 3
    assert note_texts(without_warnings(first(25)), warnings) == [
        "Step 30 was skipped (2 times)",
        "Out of memory at step 3: parts of 8 images from now on",
        "b.jpg is left out",
    ]


def test_fork_starts_at_step_of_source() -> None:
    data = data_from(second(20)[:4])
    assert (data.step, data.cuts, len(data.steps.step)) == (20, 0, 0)
    assert status_of(data, "running").fraction == 0.5
