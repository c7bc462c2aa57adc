"""What becomes of a run is told: on the desktop and by a command of the user's, without holding anything up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.contract.events import (
    AnyEvent,
    EpochStarted,
    PhaseChanged,
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
from engine.runs.notices import KINDS, Notice, NoticeSettings, save_notices, settings_file
from engine.supervisor.event_log import EventLog
from engine.supervisor.notices import desktop, sending
from engine.supervisor.notices.run_notices import STALL_S, Notices
from engine.supervisor.notices.sending import send
from tests.engine.supervisor.supervised import PATIENCE_S, ROOT, Start, gone, wait_until

TELL = 'printf "%s: %s / %s\\n" "$FOOTPLATE_NOTICE" "$FOOTPLATE_TITLE" "$FOOTPLATE_TEXT" >> "$FOOTPLATE_FOLDER/told"'
ALL = dict.fromkeys(KINDS, True)


class Spoken(Notices):
    """Keeps what it would send."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.said: list[Notice] = []

    def _send(self, notice: Notice) -> None:
        self.said.append(notice)


class Told:
    """A run whose log is written by the test, and its notices (of the class `how`), by a clock of the test's own."""

    def __init__(self, how: type[Notices], command: str, **settings: Any) -> None:
        save_notices(NoticeSettings(**({"least_minutes": 0, "desktop": False} | ALL | settings), command=command))
        job = Job(name="night", epochs=9)
        self.run: RunFolder = create_run(job)
        self.log = EventLog(self.run.events_file)
        self.now = 1000.0
        self.notices = how(self.run, job, self.log, clock=lambda: self.now)

    def says(self, *events: AnyEvent, after_s: float = 1.0) -> None:
        for event in events:
            self.log.append(event)
        self.waits(after_s)

    def waits(self, seconds: float) -> None:
        self.now += seconds
        self.notices.tick()

    @property
    def said(self) -> list[str]:
        """What there was to tell."""
        assert isinstance(self.notices, Spoken)
        told = [notice.variables for notice in self.notices.said]
        return [f"{of['FOOTPLATE_NOTICE']}: {of['FOOTPLATE_TITLE']} / {of['FOOTPLATE_TEXT']}" for of in told]

    @property
    def sending(self) -> bool:
        """Whether a sender is there, be it one that has ended and that nobody has taken note of."""
        return bool(psutil.Process().children())

    def sent(self) -> list[str]:
        """What the command has written, once all that was under way has finished."""

        def quiet() -> bool:
            self.waits(1.0)
            return not self.sending

        wait_until(quiet, "the notices to have been sent")
        told = self.run.path / "told"
        return told.read_text().splitlines() if told.exists() else []

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.run.events() if isinstance(event, Warned)]


def step(number: int, seconds: float = 0.1) -> StepMetrics:
    return StepMetrics(
        epoch=1, step=number, loss=1.0, learning_rate=0.1, images_per_second=1.0, data_wait_s=0.0, compute_s=seconds
    )


TRAINING = PhaseChanged(phase="training")
STUCK = Warned(code="stuck", message="No progress for 30 s: rank 0 has been computing step 8. Stop ends the run.")
DONE = RunFinished(outcome="completed", best={"top1": 0.9412, "loss": 0.2}, best_epoch=7, seconds=3723.0)


@pytest.fixture
def make() -> Iterator[Callable[..., Told]]:
    made: list[Told] = []

    def make(how: type[Notices], command: str = TELL, **settings: Any) -> Told:
        made.append(Told(how, command, **settings))
        return made[-1]

    yield make
    for one in made:
        one.log.close()


@pytest.fixture
def spoken(make: Callable[..., Told]) -> Callable[..., Told]:
    """A run of which is only noted what would be told."""
    return lambda **settings: make(Spoken, **settings)


@pytest.fixture
def told(make: Callable[..., Told]) -> Callable[..., Told]:
    """A run whose notices are sent."""
    return lambda *words, **settings: make(Notices, *words, **settings)


# What is told, and what is not


def test_that_the_end_is_told_with_the_best_measures(spoken: Callable[..., Told]) -> None:
    run = spoken()
    run.says(TRAINING, step(1), DONE)
    assert run.said == [
        "ended: night has finished / Top-1 accuracy 94.1 %, Validation loss 0.2000 (epoch 7 of 9); 1:02:03 h in total."
    ]


def test_that_a_failure_is_told_with_its_cause(spoken: Callable[..., Told]) -> None:
    run = spoken()
    run.says(RunFinished(outcome="failed", cause="Rank 1 was killed by SIGKILL.\nIts last words"))
    assert run.said == ["failed: night has failed / Rank 1 was killed by SIGKILL."]


def test_that_a_start_after_a_fault_is_told(spoken: Callable[..., Told]) -> None:
    run = spoken()
    run.says(Restarting(cause="Rank 1 is gone.", attempt=2, most=3))
    assert run.said == [
        "restarted: night is restarting / Rank 1 is gone. Resuming from the last checkpoint, if there is one (restart 2 of 3 without a new checkpoint)."
    ]


def test_that_what_its_user_does_to_a_run_is_not_told(spoken: Callable[..., Told]) -> None:
    run = spoken()
    for event in (
        RunFinished(outcome="stopped"),
        RunFinished(outcome="paused"),
        Waiting(position=2),
        EpochStarted(epoch=1),
    ):
        run.says(event)
        assert not run.said


@pytest.mark.parametrize("kind", ["ended", "failed", "restarted"])
def test_that_only_what_is_wanted_is_told(spoken: Callable[..., Told], kind: str) -> None:
    run = spoken(**(dict.fromkeys(KINDS, False) | {kind: True}))
    run.says(Restarting(cause="", attempt=1, most=3))
    run.says(RunFinished(outcome="failed" if kind == "failed" else "completed", cause="It broke."))
    assert [line.partition(":")[0] for line in run.said] == [kind]


def test_that_a_short_run_is_not_told_and_its_waiting_counts(spoken: Callable[..., Told]) -> None:
    run = spoken(least_minutes=1)
    run.says(Waiting(position=1), after_s=30)
    run.says(Restarting(cause="Gone.", attempt=1, most=3))
    assert not run.said
    run.waits(30)
    run.says(DONE)
    assert len(run.said) == 1


def test_that_what_was_said_before_is_not_told_again(spoken: Callable[..., Told]) -> None:
    run = spoken()
    run.says(RunFinished(outcome="failed", cause="It broke."))
    assert len(run.said) == 1
    again = Spoken(run.run, Job(), run.log)
    again.tick()
    again.close()
    assert again.said == []


def test_that_a_name_given_later_is_the_one_that_is_told(spoken: Callable[..., Told]) -> None:
    run = spoken()
    change_notes(run.run.path, name="dusk")
    run.says(DONE)
    assert run.said[0].startswith("ended: dusk has finished")


# Stalls


def test_that_a_run_in_which_nothing_goes_on_is_told_once(spoken: Callable[..., Told]) -> None:
    run = spoken()
    run.says(TRAINING, step(8), after_s=0)
    run.waits(STALL_S)
    assert not run.said
    run.waits(1.0)
    run.waits(10 * STALL_S)
    assert run.said == ["stalled: night has stalled / No progress for 2:01 min after step 8."]


def test_that_the_reason_of_the_watch_is_told_too(spoken: Callable[..., Told]) -> None:
    run = spoken()
    run.says(PhaseChanged(phase="validating"))
    run.says(STUCK, after_s=30)
    assert not run.said
    run.waits(STALL_S - 29)
    assert run.said == [f"stalled: night has stalled / {STUCK.message} It has now made no progress for 2:01 min."]


def test_that_a_run_that_goes_on_again_may_stall_again(spoken: Callable[..., Told]) -> None:
    run = spoken()
    for number in (1, 2):
        run.says(TRAINING, step(number))
        run.waits(STALL_S + 1)
    assert len(run.said) == 2


def test_that_long_steps_are_given_their_time(spoken: Callable[..., Told]) -> None:
    run = spoken()
    for number in range(1, 20):
        run.says(TRAINING, step(number, 60.0), after_s=60)
    run.waits(1000)
    assert not run.said
    run.waits(201)
    assert len(run.said) == 1


@pytest.mark.parametrize("phase", ["starting", "preparing", "validating", "saving", "stopping"])
def test_that_what_has_no_usual_time_does_not_stall_unless_it_is_warned_of(
    spoken: Callable[..., Told], phase: str
) -> None:
    run = spoken()
    run.says(step(1), PhaseChanged(phase=phase), after_s=100 * STALL_S)  # type: ignore[arg-type]
    run.says(STUCK, Validation(epoch=1, step=1, measures={}, images=1, seconds=1.0), after_s=100 * STALL_S)
    assert not run.said


def test_that_a_run_in_line_does_not_stall(spoken: Callable[..., Told]) -> None:
    run = spoken()
    run.says(Waiting(position=1), after_s=100 * STALL_S)
    assert not run.said


# The command


def test_that_the_command_finds_what_is_to_be_told_in_its_environment(told: Callable[..., Told]) -> None:
    run = told("env -0 > environment; pwd > folder")
    run.says(RunFinished(outcome="failed", cause="It broke\0 'off';\n$(touch x)", best={"top1": 0.5}))
    run.sent()
    lines = (run.run.path / "environment").read_bytes().decode().split("\0")
    found = dict(line.split("=", 1) for line in lines if line.startswith("FOOTPLATE_"))
    assert found["FOOTPLATE_CAUSE"] == "It broke 'off';\n$(touch x)"
    assert found["FOOTPLATE_BEST"] == "top1=0.5"
    assert (found["FOOTPLATE_NOTICE"], found["FOOTPLATE_OUTCOME"]) == ("failed", "failed")
    assert (found["FOOTPLATE_RUN"], found["FOOTPLATE_NAME"]) == (run.run.run_id, "night")
    assert (run.run.path / "folder").read_text().strip() == found["FOOTPLATE_FOLDER"] == str(run.run.path)


def test_that_the_command_is_apart_from_the_run_and_nothing_of_it_is_left(told: Callable[..., Told]) -> None:
    run = told("ps -o sid=,pgid= -p $$ > told")
    run.says(Restarting(cause="", attempt=1, most=3))
    session, group = map(int, run.sent()[0].split())
    assert session not in (os.getsid(0), 0)
    assert group not in (os.getpgid(0), 0)


def test_that_nobody_waits_for_a_command(told: Callable[..., Told], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    run = told(f"cat {tmp_path}/gate >> told")
    run.says(Restarting(cause="", attempt=1, most=3))
    for _ in range(100):
        run.waits(1.0)
    assert run.sending
    (tmp_path / "gate").write_text("through\n")
    assert run.sent() == ["through"]


def test_that_a_command_that_fails_is_told_once_in_the_log(told: Callable[..., Told]) -> None:
    run = told("echo this is wrong >&2; exit 7")
    for attempt in (1, 2):
        run.says(Restarting(cause="", attempt=attempt, most=3))
        run.sent()
    assert run.warnings == ["The notification command exited with code 7. Its last line: this is wrong"]


def test_that_what_is_under_way_at_the_end_goes_on_alone(
    told: Callable[..., Told], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "gate")
    run = told(f"cat {tmp_path}/gate >> told; exit 4")
    run.log.append(RunFinished(outcome="completed"))
    run.notices.close()  # while nothing opens the gate
    (tmp_path / "gate").write_text("through\n")
    for process in run.notices._under_way:
        process.wait(PATIENCE_S)
    assert "exited with code 4" in capfd.readouterr().err
    assert (run.run.path / "told").read_text() == "through\n"
    assert isinstance(run.run.last_event(), RunFinished)


def test_that_a_command_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path) -> None:
    command = f"sleep 600 & echo $! > {tmp_path}/child; sleep 600"
    notice = Notice(title="", text="", folder=str(tmp_path), desktop=False, command=command, variables={})
    sent = send(notice, command_s=2.0)
    assert (
        sent.command_problem
        == "The notification command had not finished after 2 s and was killed. It printed nothing."
    )
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: gone(child), "its child to end")


def test_that_what_a_command_leaves_in_the_background_holds_nothing_up(tmp_path: Path) -> None:
    command = f"sleep 600 & echo $! > {tmp_path}/child"
    notice = Notice(title="", text="", folder=str(tmp_path / "gone"), desktop=False, command=command, variables={})
    sent = send(notice)
    assert (sent.command_code, sent.command_problem) == (0, "")
    psutil.Process(int((tmp_path / "child").read_text())).kill()


def test_that_wrong_settings_are_told_in_the_log_and_end_nothing(told: Callable[..., Told]) -> None:
    run = told()
    settings_file().write_text(f"failed = 3\nleast_minutes = 0\ndesktop = false\ncommand = {json.dumps(TELL)}\n")
    run.says(TRAINING)
    assert len(run.warnings) == 1
    assert "failed = 3" in run.warnings[0]
    run.says(RunFinished(outcome="failed", cause="It broke."))
    assert run.sent() == ["failed: night has failed / It broke."]
    assert len(run.warnings) == 1


# The desktop


@pytest.fixture
def notify_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for `notify-send`: its arguments, each ended by a NUL, are added to the file that this gives."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "notify-send"
    script.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" >> {tmp_path}/shown\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    return tmp_path / "shown"


def test_that_the_desktop_is_told_by_notify_send(told: Callable[..., Told], notify_send: Path) -> None:
    run = told("", desktop=True)
    run.says(RunFinished(outcome="failed", cause="--not <b>an\\option"))
    run.sent()
    assert notify_send.read_text().split("\0")[:-1] == [
        "--app-name=Footplate", "--icon=footplate", "--", "night has failed", "--not &lt;b&gt;an\\\\option",
    ]  # fmt: skip


def test_that_a_desktop_that_fails_is_no_warning_of_the_run(
    told: Callable[..., Told], notify_send: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (notify_send.parent / "bin" / "notify-send").write_text("#!/bin/sh\necho nobody there >&2\nexit 1\n")
    run = told(TELL, desktop=True)
    run.says(Restarting(cause="Gone.", attempt=1, most=3))
    assert len(run.sent()) == 1
    assert run.warnings == []
    assert "notify-send reported: nobody there" in capfd.readouterr().out


def test_that_a_machine_without_a_desktop_starts_no_process_for_it(
    told: Callable[..., Told], notify_send: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    run = told("", desktop=True)
    run.says(DONE)
    assert not run.sending
    assert desktop.way() is None
    notice = Notice(title="", text="", folder="", desktop=True, command="", variables={})
    assert "notify-send (package libnotify-bin)" in send(notice).desktop_problem


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A bus with a notification service, which writes what it is to show."""
    daemon = shutil.which("dbus-daemon")
    if daemon is None or shutil.which("gdbus") is None:
        pytest.skip("there is no dbus-daemon or no gdbus here")
    bus = subprocess.Popen(
        [daemon, "--session", "--nofork", "--nopidfile", "--print-address"], stdout=subprocess.PIPE, text=True
    )
    assert bus.stdout is not None
    address = bus.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.gui.alerts.notification_service", address],
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


def test_that_a_real_service_is_told_by_gdbus(shown: subprocess.Popen[str]) -> None:
    text = "“night” is 'off':\n<93 °C> \\ \t \"$HOME\""
    assert desktop.show("gdbus", "--5", text) == ""
    assert shown.stdout is not None
    said = json.loads(shown.stdout.readline())
    assert (said["app"], said["title"]) == ("Footplate", "--5")
    assert said["text"] == text.replace("<", "&lt;").replace(">", "&gt;")


def test_that_a_bus_without_a_service_is_told_in_words(shown: subprocess.Popen[str]) -> None:
    shown.terminate()
    shown.wait()
    assert desktop.show("gdbus", "a", "b").startswith("Desktop notifications don't work: gdbus reported: ")


# By a real supervisor


def test_that_a_supervisor_tells_of_the_end_of_its_run(start: Start) -> None:
    save_notices(NoticeSettings(least_minutes=0, desktop=False, command=TELL))
    done = start("train 3")
    done.wait()
    told = done.run.path / "told"
    wait_until(lambda: told.is_file() and told.read_text().endswith("\n"), "the command")
    assert told.read_text().startswith("ended: train 3 has finished / Top-1 accuracy 50.0 %")
    assert isinstance(done.run.last_event(), RunFinished)


def test_that_a_supervisor_tells_of_a_start_after_a_fault_and_of_the_failure(start: Start) -> None:
    save_notices(NoticeSettings(least_minutes=0, restarted=True, desktop=False, command=TELL))
    run = start("exit 3", restarts=1)
    run.wait()
    told = run.run.path / "told"
    wait_until(lambda: told.is_file() and told.read_text().count("\n") >= 2, "the command")
    failed, restarted = sorted(told.read_text().splitlines())
    assert failed.startswith("failed: exit 3 has failed / Rank 0 exited with code 3 without reporting an error.")
    assert restarted.startswith(
        "restarted: exit 3 is restarting / Rank 0 exited with code 3 without reporting an error."
    )
    assert restarted.endswith("Resuming from the last checkpoint, if there is one.")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_that_a_command_that_is_just_being_started_is_ended_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = sending._start

    def start_and_be_asked_to_end(*words: Any) -> subprocess.Popen[bytes]:
        started.append(start(*words))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    notice = Notice(title="", text="", folder=str(tmp_path), desktop=False, command="sleep 600", variables={})
    monkeypatch.setattr(sending, "_start", start_and_be_asked_to_end)
    monkeypatch.setattr(sending, "_ending", sending._Ending())
    before = signal.signal(signal.SIGTERM, sending._ending)
    try:
        with pytest.raises(SystemExit):
            send(notice)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert started[0].returncode == -signal.SIGKILL
