"""Actions for a run in the status bar, and the reasons why an action is disabled."""

from __future__ import annotations

from functools import partial

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.runs.folder import create_run
from gui.actions import Actions
from gui.pages import RUNS, TRAIN
from gui.sources.run_status import RunStatus, StatusLabel
from gui.status_bar import StatusBar
from tests.gui.sources.written_runs import job
from tests.support.widgets import ShowWidget

HALF = {"fraction": 0.5, "images_per_second": 1840.0, "seconds_left": 192.0}


@pytest.fixture
def window(styled: QApplication, qtbot: QtBot) -> QWidget:
    created = QWidget()
    qtbot.addWidget(created)
    return created


@pytest.fixture
def actions(window: QWidget) -> Actions:
    return Actions(window)


@pytest.fixture
def bar(show_widget: ShowWidget, window: QWidget, actions: Actions) -> StatusBar:
    return show_widget(StatusBar(actions), 1280, 40)


@pytest.mark.parametrize(
    ("label", "pause", "stop", "resume"),
    [
        ("Idle", False, False, False),
        ("Starting", True, True, False),
        ("Fetching", False, True, False),
        ("Waiting", False, True, False),
        ("Running", True, True, False),
        ("Restarting", True, True, False),
        ("Pausing", False, True, False),
        ("Stopping", False, False, False),
        ("Completed", False, False, False),
        ("Paused", False, False, True),
        ("Stopped", False, False, True),
        ("Failed", False, False, True),
        ("Interrupted", False, False, True),
    ],
)
def test_actions_depend_on_the_status(
    bar: StatusBar, label: StatusLabel, pause: bool, stop: bool, resume: bool
) -> None:
    bar.show_run(RunStatus(label=label, text=label, has_checkpoint=True))
    assert bar.pause.accessibleName() == ("Resume" if resume else "Pause")
    assert (bar.pause.isEnabled() and not resume, bar.stop.isEnabled()) == (pause, stop)
    assert bar.pause.isEnabled() == (pause or resume)
    for button, shortcut in ((bar.pause, "Ctrl+P"), (bar.stop, "Ctrl+.")):
        assert (shortcut in button.toolTip()) == button.isEnabled()
        assert button.accessibleDescription() == button.toolTip() != ""


@pytest.mark.parametrize("label", ["Paused", "Stopped", "Failed", "Interrupted"])
def test_run_without_checkpoint_is_trained_again(bar: StatusBar, label: StatusLabel) -> None:
    bar.show_run(RunStatus(label=label, text=label))
    assert (bar.pause.accessibleName(), bar.pause.isEnabled()) == ("Train again", True)
    assert "no checkpoint" in bar.pause.toolTip()


def test_queued_run_has_no_progress(bar: StatusBar) -> None:
    bar.show_run(RunStatus(label="Running", text="Running", **HALF))
    assert bar.progress.isVisible()
    assert [bar.percentage.text(), bar.speed.text(), bar.remaining.text()] == ["50%", "1,840 images/s", "3:12 min left"]
    bar.show_run(RunStatus(label="Waiting", text="Waiting · next in the queue for GPU 0", **HALF))
    assert not bar.progress.isVisible()
    assert [bar.percentage.text(), bar.speed.text(), bar.remaining.text()] == ["", "", ""]
    assert "from the queue" in bar.stop.toolTip()
    bar.show_run(RunStatus(label="Starting", text="Starting"))
    assert (bar.progress.isVisible(), bar.progress.maximum(), bar.percentage.text()) == (True, 0, "")
    assert "from the queue" not in bar.stop.toolTip()
    bar.show_run(RunStatus(label="Completed", text="Completed", **HALF))
    assert (bar.progress.isVisible(), bar.percentage.text(), bar.remaining.text()) == (False, "", "")


def test_buttons_trigger_the_actions(bar: StatusBar, actions: Actions, qtbot: QtBot) -> None:
    bar.show_run(RunStatus(label="Running", text="Running"))
    with qtbot.waitSignal(actions.pause.triggered):
        bar.pause.click()
    with qtbot.waitSignal(actions.stop.triggered):
        bar.stop.click()
    bar.show_run(RunStatus(label="Paused", text="Paused"))
    with qtbot.waitSignal(actions.pause.triggered):
        bar.pause.click()
    with qtbot.assertNotEmitted(actions.stop.triggered):
        bar.stop.click()


def test_click_opens_the_run_and_others_are_named(bar: StatusBar, qtbot: QtBot) -> None:
    assert not bar.run.isVisible()
    bar.show_run(RunStatus(label="Running", text="Running", **HALF), "a night's work " * 5)
    assert "…" in bar.run.text()
    assert bar.run.accessibleName() == "a night's work " * 5
    assert bar.run.toolTip() == f"{bar.run.accessibleName()}\nShow the run"
    with qtbot.assertNotEmitted(bar.page_requested):
        qtbot.mouseClick(bar.status, Qt.MouseButton.RightButton)
    for press in (
        partial(qtbot.mouseClick, bar.status, Qt.MouseButton.LeftButton),
        *(partial(qtbot.keyClick, bar.run, key) for key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)),
    ):
        with qtbot.waitSignal(bar.page_requested) as requested:
            press()
        assert requested.args == [TRAIN]
    runs = [create_run(job(name=name)).summary() for name in ("one", "two")]
    bar.show_others(runs[:1])
    assert bar.others.text() == "one · starting"
    with qtbot.waitSignal(bar.run_requested) as requested:
        bar.others.click()
    assert requested.args == runs[:1]
    bar.show_others(runs)
    assert bar.others.text() == "2 other active runs"
    with qtbot.waitSignal(bar.page_requested) as requested:
        bar.others.click()
    assert requested.args == [RUNS]
    bar.show_others(())
    assert (bar.others.isVisible(), bar.others.accessibleName()) == (False, "Other active runs")
    assert bar.progress.isVisible()
    bar.show_idle("Idle · ready to train")
    assert not bar.run.isVisible()
    assert not bar.progress.isVisible()
    assert [bar.percentage.text(), bar.speed.text(), bar.remaining.text()] == ["", "", ""]
    assert (bar.pause.isEnabled(), bar.stop.isEnabled()) == (False, False)
    assert bar.pause.toolTip() == bar.stop.toolTip() == "Nothing is running"
    bar.show_run(RunStatus(label="Paused", text="Paused"))
    bar.show_idle("Idle · ready to train")
    assert bar.pause.accessibleName() == "Pause"
    with qtbot.assertNotEmitted(bar.page_requested):
        qtbot.mouseClick(bar.status, Qt.MouseButton.LeftButton)
