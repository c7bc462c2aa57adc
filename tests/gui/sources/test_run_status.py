"""Status of a run, derived from its events, and the notes below its title."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    CommandReceived,
    DevicesFree,
    Failed,
    Fetching,
    PhaseChanged,
    RunFinished,
    RunStarted,
    Waiting,
    Warned,
)
from engine.runs.folder import State
from gui.format import clock
from gui.run.header import list_notes
from gui.sources.run_facts import RunFacts
from gui.sources.run_status import RunStatus, derive_status
from tests.gui.sources.executions import (
    BEGUN,
    drop_warnings,
    make_first_execution,
    make_restart_events,
    make_second_execution,
    steps,
)
from tests.gui.sources.written_runs import STEP_S
from tests.support.run_data import make_run_data

NOW = BEGUN + 3
FREE = DevicesFree(time=NOW, seconds=0.2, verified=True)
KILLED = Failed(time=NOW, cause="gloo: connection closed by peer", rank=0)
WEIGHTS = "the pretrained weights timm/resnet50.a1_in1k from huggingface.co"
MIB = 1 << 20


def command(name: str) -> CommandReceived:
    return CommandReceived(time=NOW, command=name)  # type: ignore[arg-type]


def phase(name: str, detail: str = "") -> PhaseChanged:
    return PhaseChanged(time=NOW, phase=name, detail=detail)  # type: ignore[arg-type]


def make_run_finished(outcome: str, cause: str = "") -> RunFinished:
    return RunFinished(time=NOW, outcome=outcome, cause=cause)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "rejection", "suffix"),
    [
        ("running", "", ""),
        ("running", "Too many clients.", " · following its log (Too many clients.)"),
        ("completed", "Too many clients.", ""),
    ],
)
def test_status_of_active_run_names_rejection(state: State, rejection: str, suffix: str) -> None:
    data = make_run_data(make_first_execution(25), [])
    facts = RunFacts(state=state, rejection=rejection)
    assert facts.status(data, "", {}).text == RunFacts(state=state).status(data, "", {}).text + suffix


@pytest.mark.parametrize(
    ("events", "state", "pending", "label", "text"),
    [
        ([], "running", "", "Running", "epoch 3 of 4"),
        ([phase("validating")], "running", "", "Running", "epoch 3 of 4, validating"),
        ([phase("saving")], "running", "", "Running", "epoch 3 of 4, saving a checkpoint"),
        ([Warned(time=NOW, code="unsaved", message=""), phase("saving")], "running", "", "Running", "4, retrying to save the last state"),
        ([command("pause")], "running", "", "Pausing", "after 25 steps"),
        ([phase("pausing")], "running", "", "Pausing", "after 25 steps"),
        ([], "running", "pause", "Pausing", "after 25 steps"),
        ([command("pause"), command("stop")], "running", "", "Stopping", "after 25 steps"),
        ([command("pause")], "running", "stop", "Stopping", "after 25 steps"),
        ([], "running", "stop", "Stopping", "after 25 steps"),
        ([command("stop")], "running", "pause", "Stopping", "after 25 steps"),
        ([command("pause"), make_run_finished("paused")], "starting", "", "Starting", ""),
        ([*make_restart_events(20, NOW)[:2], Waiting(time=NOW, position=1)], "running", "", "Restarting", "attempt 1 of 3"),
        ([FREE, make_run_finished("paused")], "paused", "", "Paused", "after 25 steps · devices are free"),
        ([FREE, make_run_finished("stopped")], "stopped", "stop", "Stopped", "after 25 steps · devices are free"),
        ([DevicesFree(time=NOW, seconds=1, verified=False)], "stopped", "", "Stopped", "after 25 steps · the workers have exited"),
        ([KILLED], "running", "", "Stopping", ": gloo: connection closed by peer"),
        ([KILLED, Failed(time=NOW, cause="another", rank=1)], "failed", "", "Failed", ": gloo: connection closed by peer"),
        ([KILLED, make_run_finished("failed", "Out of memory")], "failed", "", "Failed", ": Out of memory"),
        ([make_run_finished("failed")], "failed", "", "Failed", ": unknown cause; see the log"),
        ([make_run_finished("unsaved", "last.pt could not be saved.")], "unsaved", "", "Unsaved", ": last.pt could not be saved."),
        ([], "interrupted", "", "Interrupted", "after 25 steps: the run's process exited without reporting an error"),
        (make_restart_events(20, NOW)[:2], "running", "", "Restarting", "attempt 1 of 3, after: Rank 1 was killed by signal 9 (SIGKILL)"),
        ([*make_restart_events(20, NOW)[:2], KILLED], "running", "", "Stopping", ": gloo: connection closed by peer"),
        ([command("stop"), KILLED, make_run_finished("failed", "a fault")], "starting", "", "Starting", ""),
        ([KILLED, make_run_finished("failed"), *make_second_execution(20)[:1]], "running", "", "Starting", ""),
        ([KILLED, make_run_finished("failed"), *make_second_execution(20, 30)], "running", "", "Running", "epoch 3 of 4"),
    ],
)  # fmt: skip
def test_status_after_events(events: list[AnyEvent], state: State, pending: str, label: str, text: str) -> None:
    status = derive_status(make_run_data(make_first_execution(25), events), state, pending)
    assert (status.label, text in status.text) == (label, True)
    running = label in ("Running", "Starting", "Restarting")
    assert status.active == (running or label in ("Pausing", "Stopping"))
    assert status.can_resume == (label in ("Paused", "Stopped", "Failed", "Unsaved", "Interrupted"))
    assert bool(status.why_no_pause) != running
    assert bool(status.why_no_stop) == (not running and label != "Pausing")
    assert status.devices_free is not status.active
    assert (status.seconds_left is None) is (label != "Running")


def test_status_of_running_run_has_progress() -> None:
    status = derive_status(make_run_data(make_first_execution(20)), "running")
    assert (status.epoch, status.epochs, status.step, status.steps) == (2, 4, 20, 40)
    assert status.fraction == 0.5
    assert status.seconds_left == pytest.approx(20 * STEP_S, rel=1e-3)
    assert status.images_per_second == 820


def test_status_of_completed_run_has_best_metric() -> None:
    assert (
        derive_status(make_run_data(make_first_execution(), make_second_execution(40)), "completed").text
        == "Completed · 4 epochs · best top-1 80.0%"
    )
    assert derive_status(make_run_data(make_first_execution(25)), "completed").fraction == 1.0


def test_status_without_events() -> None:
    status = derive_status(make_run_data(), "starting")
    assert (status.label, status.step, status.fraction, status.seconds_left) == ("Starting", None, None, None)
    assert RunStatus().label == "Idle"
    assert not RunStatus(label="Checking").active
    started, preparing, plan, training, *_ = make_first_execution()
    for events, text in (
        ([preparing], "preparing the data and the model, and measuring which settings are fastest"),
        ([phase("preparing", "reading labels")], "reading labels"),
        ([plan, training], "waiting for the first step"),
    ):
        assert derive_status(make_run_data([started, *events]), "running").text == f"Running · {text}"
    started, *rest = make_first_execution(10)
    queued = [started, Waiting(time=BEGUN, position=1)]
    waiting = derive_status(make_run_data(queued), "waiting")
    assert (waiting.label, waiting.devices_free, waiting.epochs, waiting.steps) == ("Waiting", True, 4, None)
    assert derive_status(make_run_data(queued, rest), "waiting").label == "Running"


def test_status_knows_last_checkpoint() -> None:
    started, *rest = make_first_execution(10)
    run = [event for event in (started, *rest) if not isinstance(event, CheckpointSaved)]
    best, last = (
        CheckpointSaved(time=NOW, kind=kind, path=f"{kind}.pt", epoch=1, step=9, bytes=1, seconds=0.1)
        for kind in ("best", "last")
    )
    assert not derive_status(make_run_data(run), "failed").has_checkpoint
    assert not derive_status(make_run_data(run, [best]), "failed").has_checkpoint
    assert derive_status(make_run_data(run, [best, last]), "failed").has_checkpoint
    assert isinstance(started, RunStarted)
    forked = replace(started, job=started.job.with_fields(resume_from="/runs/other/last.pt"))
    assert derive_status(make_run_data([forked]), "failed").has_checkpoint


def test_status_ignores_speed_before_restart() -> None:
    restart = make_restart_events(20, NOW)
    before_step = derive_status(make_run_data(make_first_execution(25), restart), "running")
    assert (before_step.step, before_step.fraction, before_step.images_per_second) == (20, 0.5, None)
    for logged in ([21], [21, 21]):
        status = derive_status(make_run_data(make_first_execution(25), restart, steps(logged, BEGUN + 4)), "running")
        assert status.seconds_left is None
    later = derive_status(make_run_data(make_first_execution(25), restart, steps(range(21, 31), BEGUN + 4)), "running")
    assert (later.step, later.images_per_second) == (30, 100.0)
    assert later.seconds_left == pytest.approx(10 * STEP_S)
    assert (
        derive_status(
            make_run_data(make_first_execution(25), make_second_execution(20)[:2]), "running"
        ).images_per_second
        is None
    )
    resumed = derive_status(make_run_data(make_first_execution(25), make_second_execution(25, 30)), "running")
    assert (resumed.images_per_second, resumed.seconds_left) == (830, pytest.approx(10 * STEP_S, rel=1e-3))


@pytest.mark.parametrize(
    ("total", "progress", "fraction", "seconds_left"),
    [(100 * MIB, ", 30.0 MiB of 100.0 MiB", 0.3, 7.0), (None, ", 30.0 MiB", None, None)],
)
def test_status_reports_download(
    total: int | None, progress: str, fraction: float | None, seconds_left: float | None
) -> None:
    fetching = [make_first_execution()[0], phase("fetching", WEIGHTS)]
    assert derive_status(make_run_data(fetching), "running").text == f"Fetching · {WEIGHTS}"
    fetching += [
        Fetching(time=NOW + n, source="timm/resnet50.a1_in1k", done_bytes=10 * n * MIB, total_bytes=total)
        for n in (1, 2, 3)
    ]
    status = derive_status(make_run_data(fetching), "running")
    assert (status.label, status.text) == ("Fetching", f"Fetching · {WEIGHTS}{progress}")
    assert (status.fraction, status.seconds_left) == (fraction, seconds_left)
    assert status.active
    assert status.why_no_stop == ""
    status = derive_status(make_run_data(fetching, [phase("starting")]), "running")
    assert (status.label, status.fraction, status.seconds_left) == ("Starting", None, None)


def note_texts(*parts: Iterable[AnyEvent]) -> list[str]:
    return [note.text for note in list_notes(make_run_data(*parts))]


def test_notes_show_time_and_devices_of_resume() -> None:
    started, now, long_ago = (
        drop_warnings(make_first_execution(25)),
        time.time(),
        time.mktime((2026, 1, 5, 21, 40, 0, 0, 0, -1)),
    )
    assert note_texts(started) == []
    on_two = drop_warnings(make_second_execution(20, begun=now, devices=("cpu", "cpu")))
    assert note_texts(started, on_two) == [f"Resumed at {clock(now)} on 2 CPU workers"]
    third = drop_warnings(make_second_execution(30, begun=long_ago))
    assert note_texts(started, on_two, third) == ["Resumed 2 times, last at 05 Jan 21:40:00 on CPU"]


def test_notes_show_step_and_cause_of_restart() -> None:
    once = make_restart_events(20, NOW)
    started = drop_warnings(make_first_execution(25))
    assert note_texts(started, once) == ["Restarted once at step 25: Rank 1 was killed by signal 9 (SIGKILL)"]
    assert "since then" in note_texts(started, make_restart_events(20, NOW, devices=("cpu",)))[0]
    smaller = make_restart_events(
        20, BEGUN + 5, kind="out_of_memory", cause="Out of memory on GPU 1.", step=23, changes={"accumulation": 2}
    )
    assert note_texts(started, once, smaller) == [
        "Restarted 2 times, last at step 23 (since then gradient accumulation 2): Out of memory on GPU 1"
    ]


def test_notes_count_newest_warnings() -> None:
    warnings = [
        Warned(time=NOW, code=code, message=message)
        for code, message in (
            ("no_blocks", "The model has no blocks."),
            ("step_skipped", "Step 12 was skipped."),
            ("out_of_memory", "Out of memory at step 3."),
            ("step_skipped", "Step 30 was skipped."),
            ("unreadable", "b.jpg is left out."),
        )
    ]
    found = list_notes(make_run_data(drop_warnings(make_first_execution(25)), warnings))
    assert [(note.kind, note.text) for note in found] == [
        ("warning", "Step 30 was skipped (2 times)"),
        ("warning", "Out of memory at step 3"),
        ("warning", "b.jpg is left out"),
    ]
