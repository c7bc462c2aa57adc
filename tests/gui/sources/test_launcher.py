"""Launcher, which starts and resumes runs."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run, list_runs
from engine.runs.notes import change_notes, read_notes
from engine.system import paths
from gui.pages import RUNS
from gui.sources import launcher as launcher_module
from gui.sources.background import Background
from gui.sources.launcher import IDLE_MS, Launcher, _save_job, make_creation_problem, with_absolute_paths
from gui.sources.resume_fork import Prefill
from gui.sources.settings import Settings
from gui.widgets.column_model import select_row
from tests.gui.sources.written_runs import job, write_run
from tests.support.waiting import wait_until
from tests.support.widgets import HoldCalls, OpenWindow

needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="supervisors are forked on Linux only")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """Start no supervisors, and return the list of runs that were to be started without the preloaded process."""
    runs: list[RunFolder] = []

    def start_supervisor(run: RunFolder) -> int:
        runs.append(run)
        return 1

    for module in ("engine.runs.launch", "gui.sources.launcher"):
        monkeypatch.setattr(f"{module}.start_supervisor", start_supervisor)
    return runs


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({}, "epochs", "it has trained all of its 4 epochs"),
        ({"epochs": 9, "seed": 3}, "seed", "a different training"),
        ({"epochs": 0}, "epochs", "out of range"),
    ],
)
def test_resume_with_problems_keeps_job(qtbot: QtBot, changes: dict[str, Any], field: str, reason: str) -> None:
    launcher = Launcher()
    run = write_run(8)
    before = run.job_file.read_bytes()
    with qtbot.waitSignal(launcher.failed) as failed, qtbot.assertNotEmitted(launcher.started):
        launcher.resume(run, changes)
        assert launcher.busy
    (problem,) = failed.args[0]
    assert problem.field == field
    assert reason in str(problem)
    assert not launcher.busy
    assert run.job_file.read_bytes() == before


def test_resume_of_active_run_is_refused(qtbot: QtBot) -> None:
    launcher = Launcher()
    with qtbot.waitSignal(launcher.failed) as failed:
        launcher.resume(create_run(job()), {})
    assert "has not ended" in str(failed.args[0][0])


def test_resumed_run_is_offered_after_interruption() -> None:
    run = write_run(8, "paused")
    change_notes(run.path, set_aside=True, tags=("paper",))
    _save_job(run, {"epochs": 9})
    assert read_notes(run.path).set_aside is False
    assert read_notes(run.path).tags == ("paper",)
    assert run.job() == job(epochs=9)
    relative = write_run(8, "paused", dataset="flowers")
    _save_job(relative, {"epochs": 9})
    assert relative.job() == job(epochs=9, dataset=str(Path("flowers").absolute()))


def test_launcher_is_free_after_it_started_a_run(qtbot: QtBot, started: list[RunFolder]) -> None:
    launcher = Launcher()
    run = write_run(8, "paused")
    with qtbot.waitSignal(launcher.started):
        launcher.resume(run, {"epochs": 9})
    assert [each.path for each in started] == [run.path]
    assert not launcher.busy


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        ("create_run", ValueError("unexpected"), "Could not create the run."),
        ("create_run", OSError(errno.ENOSPC, "no space"), "is full"),
        ("start_supervisor", OSError(errno.ENOSPC, "no space"), "is full"),
    ],
)
def test_launcher_is_not_busy_after_a_failed_start(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, broken: str, error: Exception, message: str
) -> None:
    monkeypatch.setattr(f"gui.sources.launcher.{broken}", Mock(side_effect=error))
    launcher = Launcher()
    with qtbot.captureExceptions() as raised, qtbot.assertNotEmitted(launcher.started):
        with qtbot.waitSignal(launcher.failed) as failed:
            launcher.start(job())
        launcher.close()
    assert message in failed.args[0][0].message
    assert not launcher.busy
    assert [kind for kind, _, _ in raised] == ([ValueError] if isinstance(error, ValueError) else [])


Preload = Callable[..., None]
_FOREVER_MS = 1 << 30


@pytest.fixture
def preload(preloader: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preload:
    """Return a function that replaces the preloaded process with a shell script, which can write to `tmp_path`."""

    def replace(script: str, patience_ms: int = _FOREVER_MS) -> None:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{script}")
        file.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(file))
        monkeypatch.setattr("gui.sources.launcher.PATIENCE_MS", patience_ms)

    return replace


FORK = 'echo ready; while read -r folder; do touch "$folder/forked"; echo "started 1 $folder"; done'
SILENT = "exec sleep 600"


@needs_fork
@pytest.mark.parametrize("script", [FORK, SILENT, "exit 1", None])
def test_run_waits_for_the_preloaded_process_while_it_may_help(
    qtbot: QtBot, preload: Preload, started: list[RunFolder], caplog: pytest.LogCaptureFixture, script: str | None
) -> None:
    """Start a run while the preloaded process is ready, is slow, ends early, or can't be started."""
    preload(script or "", patience_ms=0 if script == SILENT else _FOREVER_MS)
    if script is None:
        paths.make_home()
        (paths.home() / "logs").write_text("not a folder")
    launcher = Launcher()
    with qtbot.waitSignal(launcher.started) as signal:
        launcher.start(job())
        assert launcher.busy
    (run,) = list_runs()
    assert signal.args[0].path == run.path
    assert not launcher.busy
    if script == FORK:
        wait_until((run.path / "forked").exists, "the run to be forked")
    assert [each.path for each in started] == ([] if script == FORK else [run.path])
    with qtbot.assertNotEmitted(launcher.started):
        launcher.close()
    assert [record.levelname for record in caplog.records] == (["WARNING"] if script is None else [])
    caplog.clear()


@needs_fork
def test_unused_preloaded_process_is_ended(qtbot: QtBot, preload: Preload, tmp_path: Path) -> None:
    preload(f"echo ready; {SILENT}")
    launcher = Launcher()
    (timer,) = (each for each in launcher.findChildren(QTimer) if each.interval() == IDLE_MS)
    assert (timer.isSingleShot(), timer.isActive()) == (True, False)
    for is_used in (False, True):
        launcher.preload()
        qtbot.waitUntil(lambda: launcher.ready)
        assert timer.isActive()
        if is_used:
            launcher.close()
        else:
            timer.timeout.emit()
        assert not launcher.ready
        qtbot.waitUntil(lambda: not launcher.findChildren(Background))
        assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert not timer.isActive()


@needs_fork
@pytest.mark.parametrize("is_waiting", [False, True])
def test_requested_run_starts_when_the_window_closes(
    qtbot: QtBot, preload: Preload, started: list[RunFolder], tmp_path: Path, is_waiting: bool
) -> None:
    """Close the launcher after the run was created, or while it waits for the preloaded process."""
    preload(SILENT)
    launcher = Launcher()
    launcher.start(job())
    if is_waiting:
        qtbot.waitUntil(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").stat().st_size > 0)
    else:
        wait_until(list_runs, "the run to be created")
    with qtbot.waitSignal(launcher.started):
        launcher.close()
    assert [run.path for run in started] == [run.path for run in list_runs()]
    assert (paths.home() / "logs" / "preloader.log").exists() == is_waiting
    if is_waiting:
        assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_window_explains_refused_resume(open_window: OpenWindow, qtbot: QtBot, images: Path) -> None:
    run = write_run(8, "paused", dataset=str(images), epochs=9)
    window = open_window()
    runs = window.workspace.runs
    window.header.show_page(RUNS)
    qtbot.waitUntil(lambda: runs.model.rowCount() == 1)
    select_row(runs.table, 0)
    runs.acts.change.trigger()

    def has_prefill() -> None:
        assert window.form.prefill is not None, window.message.text()

    qtbot.waitUntil(has_prefill)
    prefill = window.form.prefill
    assert isinstance(prefill, Prefill)
    assert prefill.job.training.epochs == 9
    assert window.form.isVisible()
    assert window.form.field_value("dataset") == str(images)
    run.job_file.write_text("no = [ job")
    runs.acts.resume.trigger()
    qtbot.waitUntil(lambda: "job.toml" in window.message.text())
    assert window.form.prefill is prefill
    form_job = window.job_panel.job_form.job
    window.close()
    assert form_job.data.dataset != str(images)
    assert Settings().last_job() == form_job


def test_next_window_reports_run_that_was_not_created_in_time(
    open_window: OpenWindow, qtbot: QtBot, hold_calls: HoldCalls, started: list[RunFolder]
) -> None:
    responds = hold_calls(launcher_module, "create_run")
    window = open_window()
    window.workspace.launcher.start(job())
    creation = window.workspace.launcher._creation
    assert creation is not None
    window.close()
    with qtbot.waitSignal(creation.destroyed):
        responds.set()
    assert started == []
    window = open_window()
    assert "was not started" in window.message.text()
    assert "Start it again." in window.message.text()
    window.close()
    window = open_window()
    assert not window.message.text()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EACCES, "No permission"),
        (errno.EROFS, "No permission"),
        (errno.EPERM, "No permission"),
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EIO, "Could not create"),
    ],
)
def test_problem_of_unwritable_run_names_folder_and_remedy(number: int, expected: str) -> None:
    problem = make_creation_problem(OSError(number, "as the system words it", "/data/runs"))
    assert expected in problem.message
    assert "/data/runs" in problem.message
    assert "FOOTPLATE_HOME" in problem.remedy
    assert str(paths.runs_folder()) in make_creation_problem(OSError(number, "as the system words it")).message


def test_resolved_job_has_absolute_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = with_absolute_paths(Job.from_fields(dataset="images", model="~/net.py", weights_file="net.pt"))
    assert job.data.dataset == str(tmp_path / "images")
    assert job.model.name == str(tmp_path / "home" / "net.py")
    assert job.model.weights_file == str(tmp_path / "net.pt")
    of_library = with_absolute_paths(Job.from_fields(dataset="images", weights_file="net.pt")).model
    assert (of_library.name, of_library.weights_file) == (Job().model.name, str(tmp_path / "net.pt"))
    assert with_absolute_paths(Job.from_fields(resume_from="run/last.pt")).checkpoints.resume_from == str(
        tmp_path / "run/last.pt"
    )
    unset = with_absolute_paths(Job.from_fields(model="net.py"))
    assert (unset.checkpoints.resume_from, unset.model.weights_file) == ("", "")


@pytest.mark.usefixtures("preloader")
@needs_fork
def test_killed_preloaders_pending_run_is_started(started: list[RunFolder]) -> None:
    launcher = Launcher()
    launcher.preload()
    (child,) = (each for each in psutil.Process().children() if "--preload" in each.cmdline())
    launcher.preload()
    assert [each for each in psutil.Process().children() if "--preload" in each.cmdline()] == [child]
    child.suspend()
    assert launcher._preloader is not None
    launcher._preloader.ready = True
    run = create_run(job())
    launcher._preloader.start_run(run)
    child.kill()
    wait_until(lambda: not launcher._preloader or not launcher._preloader.alive, "the child to go")
    launcher.preload()
    assert started == [run]
    launcher.close()
