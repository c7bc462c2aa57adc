"""Notifications about a run, on the desktop and through the user's command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest

from engine.contract.catalogue import Measure
from engine.contract.events import (
    AnyEvent,
    EpochStarted,
    Outcome,
    PhaseChanged,
    Planned,
    Restarting,
    RunFinished,
    StepMetrics,
    Validation,
    Waiting,
    Warned,
)
from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes
from engine.runs.notices import KINDS, Notice, NoticeSent, NoticeSettings, save_notices, settings_file
from engine.supervisor.notices import desktop
from engine.supervisor.notices.run_notices import STALL_S, RunNotifier
from engine.supervisor.notices.sending import TermHandler, send
from tests.engine.supervisor.supervised import ROOT, Start, has_exited
from tests.support.scripts import write_script
from tests.support.waiting import PATIENCE_S, wait_until

COMMAND = 'printf "%s: %s / %s\\n" "$FOOTPLATE_NOTICE" "$FOOTPLATE_TITLE" "$FOOTPLATE_TEXT" >> "$FOOTPLATE_FOLDER/sent"'
ALL = dict.fromkeys(KINDS, True)
TRAINING = PhaseChanged(phase="training")
STUCK = Warned(code="stuck", message="No progress for 30 s: rank 0 has been computing step 8. Stop ends the run.")
DONE = RunFinished(outcome="completed", best={"top1": 0.9412, "loss": 0.2}, best_epoch=7, seconds=3723.0)
PLAN = Planned(
    epochs=9, steps_per_epoch=4, train_images=32, val_images=8, classes=("a", "b"), image_size=28, parameters=9,
    trainable_parameters=9, metrics=(Measure("top1", "Top-1 accuracy", True, percent=True),
    Measure("loss", "Validation loss", False)),
)  # fmt: skip
FAILED = RunFinished(outcome="failed", cause="It broke.")


class Recorder(RunNotifier):
    """Notification sender that only records the notifications."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sent: list[Notice] = []

    def _send(self, notice: Notice) -> None:
        self.sent.append(notice)


class NotifiedRun:
    """Run folder with a real sender of notifications, which a test drives with events and a simulated clock."""

    def __init__(self, notices: type[RunNotifier], command: str, **settings: Any) -> None:
        save_notices(NoticeSettings(**({"least_minutes": 0, "desktop": False} | ALL | settings), command=command))
        job = Job.from_fields(name="night", epochs=9)
        self.folder: RunFolder = create_run(job)
        self._earlier = set(psutil.Process().children())  # for example forkers that tests share
        self.now = 1000.0
        self.warnings: list[str] = []
        self.notices = notices(
            self.folder, job, lambda warning: self.warnings.append(warning.message), clock=lambda: self.now
        )

    def emit(self, *events: AnyEvent, then_wait_s: float = 1.0) -> None:
        for event in events:
            self.notices.on_event(event)
        self.wait(then_wait_s)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.notices.tick()

    @property
    def recorded(self) -> list[str]:
        assert isinstance(self.notices, Recorder)
        variables = [notice.variables for notice in self.notices.sent]
        return [f"{of['FOOTPLATE_NOTICE']}: {of['FOOTPLATE_TITLE']} / {of['FOOTPLATE_TEXT']}" for of in variables]

    @property
    def has_senders(self) -> bool:
        return bool(set(psutil.Process().children()) - self._earlier)

    def read_sent(self) -> list[str]:
        """Wait until all processes that send notifications have exited.

        Returns the lines that the user's command has written.
        """

        def is_done() -> bool:
            self.wait(1.0)
            return not self.has_senders

        wait_until(is_done, "senders to exit")
        file = self.folder.path / "sent"
        return file.read_text().splitlines() if file.exists() else []


def step(number: int, seconds: float = 0.1) -> StepMetrics:
    return StepMetrics(
        epoch=1,
        step=number,
        loss=1.0,
        learning_rate=0.1,
        images_per_second=1.0,
        data_wait_s=0.25 * seconds,
        compute_s=0.75 * seconds,
    )


def restart_event(attempt: int = 1) -> Restarting:
    return Restarting(cause="Rank 1 is gone.", attempt=attempt, max_attempts=3)


def start_recording(**settings: Any) -> NotifiedRun:
    return NotifiedRun(Recorder, COMMAND, **settings)


def start_sending(command: str = COMMAND, **settings: Any) -> NotifiedRun:
    return NotifiedRun(RunNotifier, command, **settings)


# Events


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            DONE,
            "ended: night has finished / "
            "Top-1 accuracy 94.1%, Validation loss 0.2000 (epoch 7 of 9); 1:02:03 h in total.",
        ),
        (RunFinished(outcome="completed", seconds=61.0), "ended: night has finished / 1:01 min in total."),
        (
            RunFinished(outcome="failed", cause="Rank 1 was killed by SIGKILL.\nIts last words"),
            "failed: night has failed / Rank 1 was killed by SIGKILL.",
        ),
        (
            restart_event(2),
            "restarted: night is restarting / Rank 1 is gone. Resuming from the last checkpoint, if there is one "
            "(restart 2 of 3 without a new checkpoint).",
        ),
        (
            RunFinished(outcome="unsaved", cause="The disk is full."),
            "failed: night has failed / The disk is full.",
        ),
        (RunFinished(outcome="stopped"), None),
        (RunFinished(outcome="paused"), None),
        (Waiting(position=2), None),
        (EpochStarted(epoch=1), None),
    ],
)
def test_notices_describe_events(event: AnyEvent, expected: str | None) -> None:
    run = start_recording()
    run.emit(PLAN, TRAINING, step(1), event)
    run.wait(100 * STALL_S if isinstance(event, RunFinished) else 0.0)
    assert run.recorded == ([expected] if expected else [])


def test_notices_have_a_case_for_each_outcome() -> None:
    (cases,) = (mark.args[1] for mark in test_notices_describe_events.pytestmark)  # type: ignore[attr-defined]
    assert {event.outcome for event, _ in cases if isinstance(event, RunFinished)} == set(get_args(Outcome))


@pytest.mark.parametrize("kind", ["ended", "failed", "restarted"])
def test_notices_respect_the_chosen_kinds(kind: str) -> None:
    run = start_recording(**(dict.fromkeys(KINDS, False) | {kind: True}))
    run.emit(restart_event(), FAILED if kind == "failed" else DONE)
    assert [line.partition(":")[0] for line in run.recorded] == [kind]


def test_notices_skip_short_runs_and_count_waiting() -> None:
    run = start_recording(least_minutes=1)
    run.emit(Waiting(position=1), then_wait_s=30)
    run.emit(restart_event())
    assert not run.recorded
    run.wait(30)
    run.emit(DONE)
    assert len(run.recorded) == 1


def test_notices_use_the_name_given_later() -> None:
    run = start_recording()
    change_notes(run.folder.path, name="dusk")
    run.emit(DONE)
    change_notes(run.folder.path, name="")
    run.emit(restart_event())
    assert run.recorded[0].startswith("ended: dusk has finished")
    assert run.folder.run_id[-4:] in run.recorded[1], "without a name, it has that of the dataset"


# Stalls


def test_stall_is_reported_once() -> None:
    run = start_recording()
    run.emit(TRAINING, step(8), then_wait_s=0)
    run.wait(STALL_S)
    assert not run.recorded
    run.wait(1.0)
    run.wait(10 * STALL_S)
    assert run.recorded == ["stalled: night has stalled / No progress for 2:01 min after step 8."]
    run.emit(step(9))
    run.wait(STALL_S + 1)
    assert len(run.recorded) == 2, "progress ends a stall"


@pytest.mark.parametrize("code", ["stuck", "silent", "stopped"])
def test_stall_includes_the_warning_of_the_watchdog(code: str) -> None:
    run = start_recording()
    run.emit(PhaseChanged(phase="validating"))
    run.emit(Warned(code=code, message=STUCK.message), Warned(code="other", message="It is slow."), then_wait_s=30)
    assert not run.recorded
    run.wait(STALL_S - 30)
    assert run.recorded == [f"stalled: night has stalled / {STUCK.message} It has now made no progress for 2:01 min."]


def test_stall_limit_grows_with_average_step_time() -> None:
    run = start_recording()
    for seconds in (50.0, 50.0, 150.0):  # the newest counts 10%
        run.emit(TRAINING, step(1, seconds), then_wait_s=0)
    run.wait(20 * 60)
    assert not run.recorded
    run.wait(1)
    assert len(run.recorded) == 1


@pytest.mark.parametrize("phase", ["starting", "preparing", "validating", "saving", "stopping"])
def test_stall_outside_training_needs_a_warning(phase: Any) -> None:
    run = start_recording()
    run.emit(step(1), PhaseChanged(phase=phase), then_wait_s=100 * STALL_S)
    run.emit(STUCK, Validation(epoch=1, step=1, measures={}, images=1, seconds=1.0), then_wait_s=100 * STALL_S)
    run.emit(Waiting(position=1), then_wait_s=100 * STALL_S)
    assert not run.recorded


# Command


def test_command_gets_the_notice_in_its_environment() -> None:
    run = start_sending("env -0 > environment; pwd > folder")
    run.wait(75)
    cause = f"It broke\0 'off';\n$(touch x){'!' * 5000}"
    run.emit(RunFinished(outcome="failed", cause=cause, best={"top1": 0.5, "loss": 1.23456789}))
    run.read_sent()
    lines = (run.folder.path / "environment").read_bytes().decode().split("\0")
    variables = dict(line.split("=", 1) for line in lines if line.startswith("FOOTPLATE_"))
    assert variables["FOOTPLATE_CAUSE"] == f"It broke 'off';\n$(touch x){'!' * 5000}"[:4000]
    assert (variables["FOOTPLATE_BEST"], variables["FOOTPLATE_SECONDS"]) == ("top1=0.5 loss=1.23457", "75")
    assert (variables["FOOTPLATE_NOTICE"], variables["FOOTPLATE_OUTCOME"]) == ("failed", "failed")
    assert (variables["FOOTPLATE_RUN"], variables["FOOTPLATE_NAME"]) == (run.folder.run_id, "night")
    assert (run.folder.path / "folder").read_text().strip() == variables["FOOTPLATE_FOLDER"] == str(run.folder.path)


def test_command_runs_in_a_separate_session() -> None:
    run = start_sending("ps -o sid=,pgid= -p $$ > sent")
    run.emit(restart_event())
    session, group = map(int, run.read_sent()[0].split())
    assert session not in (os.getsid(0), 0)
    assert group not in (os.getpgid(0), 0)


def test_command_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    run = start_sending(f"cat {tmp_path}/gate >> sent")
    run.emit(restart_event())
    for _ in range(100):
        run.wait(1.0)
    (sender,) = run.notices.senders
    assert os.getsid(sender.pid) == sender.pid, "signals to the supervisor's session don't end it"
    (tmp_path / "gate").write_text("through\n")
    assert run.read_sent() == ["through"]


@pytest.mark.parametrize("is_found", [False, True])
def test_notice_that_cannot_be_sent_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_found: bool
) -> None:
    program = tmp_path / "python"
    if is_found:
        write_script(program, "cat > /dev/null\nexit 3")
    monkeypatch.setattr(sys, "executable", str(program))
    run = start_sending()
    for attempt in (1, 2):
        run.emit(restart_event(attempt))
        run.read_sent()
    (warning,) = run.warnings
    assert warning.startswith("A notification could not be sent: ")
    assert ("exited with code 3" if is_found else "No such file") in warning


def test_command_failure_is_logged_once() -> None:
    run = start_sending("seq 9999; echo this is wrong >&2; exit 7")
    for attempt in (1, 2):
        run.emit(restart_event(attempt))
        run.read_sent()
    assert run.warnings == ["The notification command exited with code 7. Its last line: this is wrong"]


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_command_finishes_after_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_closed_first: bool
) -> None:
    os.mkfifo(tmp_path / "gate")
    run = start_sending(f"cat {tmp_path}/gate >> sent; exit 4")
    run.notices.on_event(RunFinished(outcome="completed"))
    (process,) = run.notices.senders
    if is_closed_first:
        run.notices.close()
    (tmp_path / "gate").write_text("through\n")
    process.wait(PATIENCE_S)
    if not is_closed_first:
        run.notices.close()
    output = capfd.readouterr()
    assert "exited with code 4" in (output.err if is_closed_first else output.out)
    assert (run.folder.path / "sent").read_text() == "through\n"
    assert run.warnings == [], "RunFinished stays the last event"


def command_notice(command: str, folder: Path) -> Notice:
    return Notice(title="", text="", folder=str(folder), desktop=False, command=command, variables={})


def test_command_is_killed_with_its_children_after_the_timeout(tmp_path: Path) -> None:
    result = send(command_notice(f"sleep 600 & echo $! > {tmp_path}/child; sleep 600", tmp_path), timeout_s=2.0)
    assert "had not finished after 2 s and was killed" in result.command_problem
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: has_exited(child), "the child to end")


def test_command_may_leave_a_background_process(tmp_path: Path) -> None:
    result = send(command_notice(f"sleep 600 & echo $! > {tmp_path}/child", tmp_path / "gone"))
    assert (result.command_code, result.command_output, result.command_problem) == (0, "", "")
    psutil.Process(int((tmp_path / "child").read_text())).kill()


def test_command_with_nul_is_a_problem_and_allows_sigterm(tmp_path: Path) -> None:
    on_term = TermHandler()
    result = send(command_notice("echo \0", tmp_path), on_term=on_term)
    assert result.command_problem.startswith("The notification command could not be started: ")
    with pytest.raises(SystemExit):
        on_term(signal.SIGTERM, None)


def test_result_has_the_end_of_the_output_and_the_duration(tmp_path: Path) -> None:
    result = send(command_notice("sleep 0.1; seq 1000; exit 3", tmp_path))
    assert (result.command_code, len(result.command_output)) == (3, 1999)
    assert result.command_output.endswith("999\n1000")
    assert 0.1 <= result.command_s < 60


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_command_is_killed_if_sigterm_arrives_while_it_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start_and_signal(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_and_signal)
    on_term = TermHandler()
    before = signal.signal(signal.SIGTERM, on_term)
    try:
        with pytest.raises(SystemExit):
            send(command_notice("sleep 600", tmp_path), on_term=on_term)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert started[0].returncode == -signal.SIGKILL


def test_invalid_settings_are_logged_once_and_ignored() -> None:
    run = start_sending()
    settings_file().write_text(
        f"failed = 3\nrestarted = 4\nleast_minutes = 0\ndesktop = false\ncommand = {json.dumps(COMMAND)}\n"
    )
    run.emit(TRAINING)
    for warning, setting in zip(run.warnings, ("failed = 3", "restarted = 4"), strict=True):
        assert setting in warning
    run.emit(FAILED)
    assert run.read_sent() == ["failed: night has failed / It broke."]
    assert len(run.warnings) == 2


# Desktop


@pytest.fixture
def notify_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace `notify-send` by a script that appends its arguments to a file. Return the path of the file.

    Each argument ends with a NUL character.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "notify-send"
    script.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" >> {tmp_path}/shown\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    return tmp_path / "shown"


def test_desktop_notifies_with_notify_send(notify_send: Path) -> None:
    run = start_sending("", desktop=True)
    run.emit(RunFinished(outcome="failed", cause="--not <b>an\\option"))
    run.read_sent()
    assert notify_send.read_text().split("\0")[:-1] == [
        "--app-name=Footplate", "--icon=footplate", "--", "night has failed", "--not &lt;b&gt;an\\\\option",
    ]  # fmt: skip


def test_commands_of_macos_and_windows_have_texts_as_separate_data() -> None:
    title, text = "a <b>", 'c "d" & e'
    assert desktop.create_command("osascript", title, text)[-2:] == [title, text]
    assert not {title, text} & {*desktop.create_command("powershell", title, text)}


def test_desktop_failure_is_not_a_warning(notify_send: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (notify_send.parent / "bin" / "notify-send").write_text(
        "#!/bin/sh\necho first >&2\necho nobody there >&2\nexit 1\n"
    )
    run = start_sending(COMMAND, desktop=True)
    run.emit(restart_event())
    assert len(run.read_sent()) == 1
    assert run.warnings == []
    assert "notify-send reported: nobody there" in capfd.readouterr().out
    (notify_send.parent / "bin" / "notify-send").write_text("#!/bin/sh\nexit 3\n")
    assert desktop.show("notify-send", "a", "b").startswith("Desktop notifications don't work: ")


def test_machine_without_desktop_starts_no_sender(notify_send: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    run = start_sending("", desktop=True)
    run.emit(DONE)
    assert not run.has_senders
    assert desktop.find_program() is None
    (Path(os.environ["XDG_RUNTIME_DIR"]) / "bus").touch()
    assert desktop.find_program() == "notify-send"
    (notify_send.parent / "bin" / "notify-send").rename(notify_send.parent / "bin" / "gdbus")
    monkeypatch.setenv("PATH", str(notify_send.parent / "bin"))
    assert desktop.find_program() == "gdbus"
    notice = Notice(title="", text="", folder="", desktop=True, command="", variables={})
    assert send(notice) == NoticeSent(desktop_by="gdbus")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    result = send(notice)
    assert result.desktop_by == ""
    assert "notify-send (package libnotify-bin)" in result.desktop_problem


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """Start a message bus and a notification service, and yield the process of the service.

    The service prints each notification. Programs of the test use this bus.
    """
    daemon = shutil.which("dbus-daemon")
    if daemon is None or shutil.which("gdbus") is None:
        pytest.skip("dbus-daemon or gdbus is missing")
    bus = subprocess.Popen(
        [daemon, "--session", "--nofork", "--nopidfile", "--print-address"], stdout=subprocess.PIPE, text=True
    )
    assert bus.stdout is not None
    address = bus.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.support.notification_service", address],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert service.stdout is not None
    assert service.stdout.readline() == "ready\n"
    yield service
    for process in (service, bus):
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_desktop_notifies_with_gdbus(service: subprocess.Popen[str]) -> None:
    text = "“night” is 'off':\n<93 °C> \\ \t \"$HOME\""
    assert desktop.show("gdbus", "--5", text) == ""
    assert service.stdout is not None
    notification = json.loads(service.stdout.readline())
    assert (notification["app"], notification["title"]) == ("Footplate", "--5")
    assert notification["text"] == text.replace("<", "&lt;").replace(">", "&gt;")


def test_desktop_reports_a_bus_without_service(service: subprocess.Popen[str]) -> None:
    service.terminate()
    service.wait()
    assert desktop.show("gdbus", "a", "b").startswith("Desktop notifications don't work: gdbus reported: ")


# Real supervisor


def wait_for_lines(run: RunFolder, lines: int) -> list[str]:
    file = run.path / "sent"
    wait_until(lambda: file.is_file() and file.read_text().count("\n") >= lines, "the command")
    return sorted(file.read_text().splitlines())


def test_supervisor_notifies_of_the_end(start: Start) -> None:
    save_notices(NoticeSettings(least_minutes=0, desktop=False, command=COMMAND))
    supervised = start("train 3")
    supervised.wait()
    assert wait_for_lines(supervised.run, 1)[0].startswith("ended: train 3 has finished / Top-1 accuracy 50.0%")
    assert isinstance(supervised.run.last_event(), RunFinished)


def test_supervisor_notifies_of_restart_and_failure(start: Start) -> None:
    save_notices(NoticeSettings(least_minutes=0, restarted=True, desktop=False, command=COMMAND))
    supervised = start("exit 3", restarts=1)
    supervised.wait()
    failed, restarted = wait_for_lines(supervised.run, 2)
    assert failed.startswith("failed: exit 3 has failed / Rank 0 exited with code 3 without reporting an error.")
    assert restarted.startswith("restarted: exit 3 is restarting / Rank 0 exited with code 3")
    assert restarted.endswith("Resuming from the last checkpoint, if there is one.")


def test_supervisor_does_not_repeat_notices_of_earlier_executions(start: Start) -> None:
    save_notices(NoticeSettings(least_minutes=0, desktop=False, command=COMMAND))
    supervised = start("train 3")
    supervised.wait()
    wait_for_lines(supervised.run, 1)
    supervised.process = supervised.start()
    supervised.wait()
    assert len(wait_for_lines(supervised.run, 2)) == 2
