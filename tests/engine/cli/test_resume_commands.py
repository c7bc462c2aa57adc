"""``footplate stop``, ``pause``, ``save`` and ``resume``."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import msgspec
import pytest

from engine.cli import resume, watching
from engine.cli.progress import ProgressDisplay
from engine.cli.terminal import BAD_REQUEST, COMPLETED, FAILED, INTERRUPTED, UNSAVED
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    DevicesFree,
    Outcome,
    PhaseChanged,
    Planned,
    Restarting,
    RunFinished,
    RunStarted,
    Validation,
    Warned,
)
from engine.contract.job import Job
from engine.contract.protocol import Command, Pause, SaveElsewhere, Stop
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder, create_run, list_runs
from engine.runs.index import find_run
from engine.runs.slurm_job import SlurmJob, write_slurm
from tests.engine.cli.terminal import Answer, TerminalStream, footplate, run_in_this_process
from tests.engine.supervisor.supervised import make_images
from tests.engine.supervisor.tiny_worker import step_metrics
from tests.gui.sources.written_runs import append_events, supervise_here, write_run
from tests.support.served import LocalServer
from tests.support.waiting import wait_until

FREE = DevicesFree(seconds=1.0, verified=True)
UNVERIFIED = DevicesFree(seconds=1.0, verified=False)
SMALL = ("--model", "mnist_cnn", "--batch-size", "8", "--loader-workers", "1")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "images", 8)


@pytest.mark.long
def test_resume_adds_epochs_on_other_devices(images: Path) -> None:
    assert footplate("train", str(images), *SMALL, "--epochs", "1").code == 0
    refused = footplate("resume", "last", "--seed", "4", "--strategy", "ddp", "--devices", "cpu,cpu", "--epohcs", "2")
    assert refused.code == 2
    for text in ("--epochs", "is completed", "--seed: Seed can't be changed", "Did you mean --epochs?"):
        assert text in refused.err, refused.err
    again = footplate("resume", "last", "--epochs", "2", "--strategy", "ddp", "--devices", "cpu,cpu")
    assert again.code == 0, again.err
    assert "Resuming run" in again.err
    assert "epoch 2: top1" in again.out
    assert "epoch 1: top1" not in again.out, "it shows its own execution"
    (run,) = list_runs()
    events = list(run.events())
    assert [(e.execution, e.world_size) for e in events if isinstance(e, RunStarted)] == [(1, 1), (2, 2)]
    assert [event.epoch for event in events if isinstance(event, Validation)] == [1, 2]
    assert run.state() == "completed"
    attached = footplate("attach", "last")
    assert attached.code == 0
    assert "epoch 1: top1" in attached.out
    assert "epoch 2: top1" in attached.out


@pytest.mark.long
def test_pause_and_resume_a_detached_run(images: Path) -> None:
    started = footplate("train", str(images), *SMALL, "--epochs", "100000", "--detach")
    run = find_run(started.out.strip())
    assert run is not None
    wait_until(lambda: any(isinstance(event, Validation) for event in run.events()), "the training")
    assert "has not ended" in footplate("resume", run.run_id).err
    answer = footplate("pause", run.run_id)
    assert answer.code == 0
    assert "is paused; its devices are free" in answer.out
    assert "it is paused" in footplate("pause", run.run_id).out
    resumed = footplate("resume", run.run_id, "--detach", "--name", "again")
    assert resumed.out.strip() == run.run_id, resumed.err
    wait_until(lambda: run.state() == "running", "the training")
    assert footplate("stop", "again").code == 0
    assert run.state() == "stopped"


def test_resume_starts_the_changed_job(monkeypatch: pytest.MonkeyPatch, images: Path) -> None:
    started: list[RunFolder] = []
    monkeypatch.setattr(resume, "start_supervisor", started.append)
    model = images / "net.py"
    model.write_text("def build_model(classes): ...")
    run = write_run(8, "paused", dataset=str(images), model=str(model))
    (run.checkpoints / "last.pt").touch()
    flags = ("--epochs", "9", "--seed", "4", "--epohcs", "2", "--batch-size", "0", "--strategy", "ddp")
    refused = run_in_this_process("resume", run.run_id, *flags)
    assert refused.code == BAD_REQUEST
    for field in ("--epohcs", "--seed", "--batch-size", "--model", "--strategy"):
        assert refused.err.count(f"footplate: {field}: ") == 1, refused.err
    other = write_run(8, "paused", dataset=str(images), options={"a": 1})
    options = run_in_this_process("resume", other.run_id, "--option", "b=2").err
    assert all(f"footplate: --option {name}: " in options for name in "ab"), "those of the run are kept"
    assert started == []
    flags = ("--epochs", "9", "--trust-model-file", "--detach")
    answer = run_in_this_process("resume", run.run_id, *flags)
    assert (answer.code, answer.out) == (COMPLETED, f"{run.run_id}\n"), answer.err
    job = run.job()
    assert job is not None
    assert (job.training.epochs, [each.run_id for each in started]) == (9, [run.run_id])
    run.job_file.write_text("epochs = ")
    assert run_in_this_process("resume", run.run_id, "--detach").code == BAD_REQUEST


def make_checkpoint(kind: Literal["last", "best"], step: int) -> CheckpointSaved:
    return CheckpointSaved(kind=kind, path=f"checkpoints/{kind}.pt", epoch=1, step=step, bytes=7, seconds=0.0)


def run_with_supervisor(command: str, sent: Sequence[Command], events: Sequence[AnyEvent]) -> tuple[str, Answer]:
    """Create a run with a simulated supervisor, and execute `command`, in which RUN stands for the run's id.

    The supervisor waits until it has received as many commands as `sent`, and then sends `events`. Returns the id of
    the run and the output of the command.
    """
    run = create_run(Job())
    server = LocalServer(run.path, [PhaseChanged(phase="training")])
    supervise_here(run, endpoint=server.server.endpoint.text)
    has_returned = threading.Event()

    def serve() -> None:
        try:
            server.poll_until_true(lambda: len(server.commands) == len(sent))
            for event in events:
                server.log.append(event)
            server.poll_until_true(has_returned.is_set)
        finally:
            server.close()

    with ThreadPoolExecutor(1) as executor:
        serving = executor.submit(serve)
        answer = run_in_this_process(*command.replace("RUN", run.run_id).split())
        has_returned.set()
        serving.result()
    assert server.commands == sent
    return run.run_id, answer


@pytest.mark.parametrize(
    ("command", "sent", "events", "outcome", "output"),
    [
        ("stop RUN", [Stop()], [FREE], "stopped", "its devices are free.\nThere was nothing to save yet.\n"),
        (
            "stop RUN --now", [Stop(), Stop()], [UNVERIFIED, make_checkpoint("last", 5), make_checkpoint("best", 7)],
            "stopped", "its devices may still be in use.\ncheckpoints/last.pt holds step 5.\n",
        ),
        (
            "pause RUN", [Pause()], [make_checkpoint("last", 5), make_checkpoint("last", 6)],
            "paused", "its devices may still be in use.\ncheckpoints/last.pt holds step 6.\n",
        ),
        ("pause RUN", [Pause()], [FREE], "unsaved", "its devices are free.\n"),
    ],
)  # fmt: skip
def test_stop_and_pause_report_devices_and_checkpoint(
    command: str, sent: list[Command], events: list[AnyEvent], outcome: Outcome, output: str
) -> None:
    end = RunFinished(outcome=outcome, cause="The disk is full.")
    run_id, answer = run_with_supervisor(command, sent, [*events, end])
    assert answer.out == f"{run_id} is {outcome}; {output}"
    assert (answer.code, "The disk is full." in answer.err) == (
        (UNSAVED, True) if outcome == "unsaved" else (COMPLETED, False)
    )


@pytest.mark.parametrize(
    ("events", "code", "message"),
    [
        ([Warned(code="saved_elsewhere", message="."), RunFinished(outcome="unsaved", cause="In /b.")], COMPLETED, "In /b."),
        ([Warned(code="not_saved_elsewhere", message="/b is full.")], BAD_REQUEST, "footplate: /b is full."),
        ([RunFinished(outcome="unsaved", cause="The disk is full.")], UNSAVED, "footplate: The disk is full."),
        ([RunFinished(outcome="failed", cause="A fault.")], FAILED, "footplate: A fault."),
        ([RunFinished(outcome="paused")], COMPLETED, "RUN is paused: its last state was saved in its own folder."),
    ],
)  # fmt: skip
def test_save_reports_the_result(
    events: list[AnyEvent], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    run_id, answer = run_with_supervisor("save RUN --to b", [SaveElsewhere(folder="/b")], events)
    texts = (answer.out, answer.err) if code == COMPLETED else (answer.err, answer.out)
    assert (answer.code, *texts) == (code, f"{message.replace('RUN', run_id)}\n", "")


@pytest.mark.parametrize(
    ("stop_on_interrupt", "interrupts", "sent", "end", "code"),
    [
        (True, 1, [Stop()], "stopped", INTERRUPTED),
        (True, 2, [Stop(), Stop()], "stopped", INTERRUPTED),
        (True, 2, [Stop(), Stop()], "completed", COMPLETED),
        (True, 3, [Stop(), Stop()], None, INTERRUPTED),  # detaches
        (False, 1, [], None, COMPLETED),
    ],
)
def test_interrupts_stop_a_run_or_detach_from_it(
    stop_on_interrupt: bool,
    interrupts: int,
    *,
    sent: list[Command],
    end: Outcome | None,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = create_run(Job())
    server = LocalServer(run.path, [Warned(code="x", message="It begins.")])
    supervise_here(run, endpoint=server.server.endpoint.text)
    returned, messages = threading.Event(), list[str]()

    def serve() -> None:
        try:
            server.poll_until_true(lambda: "It begins." in messages)
            for number in range(1, interrupts + 1):
                signal.raise_signal(signal.SIGINT)
                expected = min(number, len(sent))
                server.poll_until_true(lambda n=expected: returned.is_set() or len(server.commands) >= n)  # type: ignore[misc]
            if end is not None:
                server.log.append(RunFinished(outcome=end))
            server.poll_until_true(returned.is_set)
        finally:
            server.close()

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            messages.extend(line for line in ("It begins.",) if line in text)
            return super().write(text)

    handler = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as executor, contextlib.redirect_stdout(Screen()) as screen:
        serving = executor.submit(serve)
        try:
            assert watching.follow(run, json=False, stop_on_interrupt=stop_on_interrupt) == code
        finally:
            returned.set()
        serving.result()
    assert server.commands == sent
    assert signal.getsignal(signal.SIGINT) == handler
    announced = [text in screen.getvalue() for text in ("Stopping after the current step.", "Stopping now.")]
    assert announced == [bool(sent), len(sent) > 1]
    assert ("in the background" in capsys.readouterr().err) == (end is None)


@pytest.mark.parametrize("is_silent", [True, False])
def test_late_supervisor_receives_interrupts_and_repeats_no_events(
    is_silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the supervisor answer only after its log was read, or listen only after Ctrl+C."""
    monkeypatch.setattr(watching, "ANSWER_S", 0.0 if is_silent else watching.ANSWER_S)
    run, returned, handler = create_run(Job()), threading.Event(), signal.getsignal(signal.SIGINT)
    connect = Mock(wraps=RunConnection)
    monkeypatch.setattr(watching, "RunConnection", connect)

    def serve() -> list[Command]:
        if not is_silent:
            wait_until(lambda: signal.getsignal(signal.SIGINT) != handler, "the handler")
            signal.raise_signal(signal.SIGINT)
            enough = connect.call_count + 2
            wait_until(lambda: connect.call_count >= enough or returned.is_set(), "further attempts to connect")
        server = LocalServer(run.path, [Warned(code="x", message="It begins.")])
        supervise_here(run, endpoint=server.server.endpoint.text)
        try:
            if is_silent:
                wait_until(lambda: "It begins." in screen.getvalue(), "the events in the log")
            else:
                server.poll_until_true(lambda: server.commands or returned.is_set())
            server.log.append(RunFinished(outcome="stopped"))
            server.poll_until_true(returned.is_set)
        finally:
            server.close()
        return server.commands

    with ThreadPoolExecutor(1) as executor, contextlib.redirect_stdout(io.StringIO()) as screen:
        serving = executor.submit(serve)
        try:
            assert watching.follow(run, json=False, stop_on_interrupt=True) == INTERRUPTED
        finally:
            returned.set()
        assert serving.result() == ([] if is_silent else [Stop()])
    assert screen.getvalue().count("It begins.") == 1


@pytest.mark.parametrize(
    ("command", "code"), [("stop RUN", COMPLETED), ("pause RUN", COMPLETED), ("save RUN --to /b", BAD_REQUEST)]
)
def test_commands_report_an_ended_run(command: str, code: int) -> None:
    run = write_run(8)
    answer = run_in_this_process(*command.replace("RUN", run.run_id).split())
    assert answer.code == code
    assert f"{run.run_id} is not running; it is completed. (" in (answer.err if code else answer.out)


def test_attach_explains_an_interrupted_run() -> None:
    run = write_run(8, None)
    os.utime(run.job_file, (0, 0))  # it would have started long ago
    answer = run_in_this_process("attach", run.run_id)
    assert (answer.code, "epoch 4: " in answer.out) == (INTERRUPTED, True)
    assert answer.err.startswith(f"footplate: {run.run_id} was interrupted: ")


def test_attach_reads_the_log_of_a_run_on_a_slurm_node(monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(8, None)
    write_slurm(run.path, SlurmJob(job_id=1, state="RUNNING"))

    def refresh(runs: list[RunFolder]) -> bool:
        assert [each.path for each in runs] == [run.path]
        append_events(run, RunFinished(outcome="stopped"))
        return True

    monkeypatch.setattr(watching, "refresh_slurm_states", refresh)
    answer = run_in_this_process("attach", run.run_id)
    assert (answer.code, answer.out.count("epoch 4: ")) == (INTERRUPTED, 1)


def planned(step: int) -> Planned:
    return Planned(
        epochs=2, from_step=step, steps_per_epoch=10, train_images=80, val_images=8, classes=("a", "b"),
        image_size=28, parameters=10, trainable_parameters=10,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task", "count"), [("detection", "80 images"), ("point_segmentation", "80 clouds"), ("custom", "80 samples")]
)
def test_progress_names_the_samples_of_the_task(task: str, count: str) -> None:
    out, job = io.StringIO(), Job(task=task)
    progress = ProgressDisplay(create_run(job), out, io.StringIO())
    progress.show(RunStarted(run_id="a", job=job, devices=(), world_size=1, environment={}, supervisor_pid=1))
    progress.show(planned(0))
    assert out.getvalue().splitlines()[-1].startswith(f"{count} to train on, 8 to validate on")


def test_status_line_has_the_time_of_the_remaining_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out, err = io.StringIO(), TerminalStream()
    progress = ProgressDisplay(create_run(Job()), out, err)
    steps = [msgspec.structs.replace(step_metrics(step), time=time) for step, time in ((4, 100.0), (8, 108.0))]
    for event in (planned(3), *steps):
        progress.show(event)
    assert err.getvalue().endswith("  24 s left")  # 12 steps remain
    assert "left" not in out.getvalue()


def test_progress_prints_restarts_with_their_cause() -> None:
    out = io.StringIO()
    progress = ProgressDisplay(create_run(Job()), out, io.StringIO())
    lost = Restarting(cause="Rank 1 was killed by SIGKILL.", rank=1, attempt=2, max_attempts=3)
    full = Restarting(
        cause="Out of memory.", kind="out_of_memory", attempt=1, max_attempts=4, changes={"accumulation": 2}
    )
    fewer = Restarting(
        cause="Gone.",
        kind="lost_machine",
        attempt=1,
        max_attempts=1,
        devices=("a:cpu",),
        changes={"strategy": "single"},
    )
    for event in (planned(0), lost, planned(7), full, fewer, PhaseChanged(phase="pausing")):
        progress.show(event)
    progress.show(RunFinished(outcome="failed", cause="It has been printed.", seconds=7.0))
    assert out.getvalue().splitlines()[1:] == [
        "Rank 1 was killed by SIGKILL.",
        "Restarting from the last checkpoint (2 of 3 in a row).",
        "Training resumes after step 7.",
        "Out of memory.",
        "Restarting from the last checkpoint with Gradient accumulation 2.",
        "Gone.",
        "Restarting from the last checkpoint with 1 device, Strategy single.",
        "Pausing.",
        "Failed after 7 s.",
    ]
