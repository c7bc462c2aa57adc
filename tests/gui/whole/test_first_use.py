"""First use of the window with the user's own folder: by mouse, and by keyboard alone, with the real engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QDialogButtonBox, QFileDialog, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.problems import Problem, errors
from engine.runs.folder import list_runs
from gui.main_window import MainWindow
from gui.run.header import EVALUATE
from gui.run.model.view import ModelView
from gui.run.request_pages import RESULT
from gui.run.use.view import UseView
from gui.widgets.labels import ProblemLabel
from tests.engine.conftest import make_images
from tests.gui.whole.test_whole_path import points, press_tab_until, status, wait_for_status
from tests.support.widgets import OpenWindow

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("real_inspector", "preloader")]

CONTROL = Qt.KeyboardModifier.ControlModifier
View = TypeVar("View", ModelView, UseView)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with 72 training and 21 validation images of three classes."""
    return make_images(tmp_path / "own", {"train": 24, "val": 7})


@pytest.fixture
def red_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects all errors that the window shows during the test."""
    found: list[str] = []
    show = ProblemLabel.show_problems

    def record(label: ProblemLabel, problems: Sequence[Problem]) -> None:
        found.extend(map(str, errors(list(problems))))
        show(label, tuple(problems))

    monkeypatch.setattr(ProblemLabel, "show_problems", record)
    return found


def open_dialog(window: MainWindow, qtbot: QtBot) -> QFileDialog:
    """Wait until a file dialog has opened, and return it."""
    qtbot.waitUntil(lambda: any(dialog.isVisible() for dialog in window.findChildren(QFileDialog)))
    return next(dialog for dialog in window.findChildren(QFileDialog) if dialog.isVisible())


def wait_for_dataset(window: MainWindow, folder: Path, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: window.form.field_value("dataset") == str(folder))
    qtbot.waitUntil(lambda: window.form.train.isEnabled() and "3 classes" in window.form.card.text())


def test_own_folder_trains_after_three_clicks(
    open_window: OpenWindow, qtbot: QtBot, folder: Path, red_texts: list[str]
) -> None:
    window = open_window()
    clicks: list[str] = []

    def click(button: QWidget) -> None:
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
        clicks.append(button.accessibleName())

    click(window.train.welcome.open)
    dialog = open_dialog(window, qtbot)
    dialog.selectFile(str(folder))
    click(dialog.findChild(QDialogButtonBox).button(QDialogButtonBox.StandardButton.Open))
    wait_for_dataset(window, folder, qtbot)
    click(window.form.train)
    qtbot.waitUntil(lambda: points(window) > 0)
    assert status(window).startswith("Running")
    assert len(clicks) == 3
    assert red_texts == []
    window.acts.stop.trigger()
    wait_for_status(window, "Stopped", qtbot)


def test_first_use_by_keyboard_alone(open_window: OpenWindow, qtbot: QtBot, folder: Path, red_texts: list[str]) -> None:
    window = open_window()
    assert window.workspace is not None
    run_page = window.workspace.run

    def activate() -> None:
        """Return the focus to the window, as desktops do after a dialog."""
        with qtbot.waitActive(window):
            window.activateWindow()

    def press(name: str) -> None:
        press_tab_until(window, name, [], qtbot)
        qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Space)

    def type_path(path: Path) -> None:
        line = open_dialog(window, qtbot).findChild(QLineEdit)
        qtbot.waitUntil(lambda: QApplication.focusWidget() is line)
        qtbot.keyClicks(line, str(path))
        qtbot.keyClick(line, Qt.Key.Key_Return)

    def visible(kind: type[View]) -> View:
        qtbot.waitUntil(lambda: any(view.isVisible() for view in run_page.findChildren(kind)))
        return run_page.findChild(kind)

    activate()
    qtbot.waitUntil(window.train.welcome.open.isVisible)
    press("Open a folder…")
    type_path(folder)
    wait_for_dataset(window, folder, qtbot)
    activate()
    assert QApplication.focusWidget() is window.form.train
    qtbot.keyClick(window, Qt.Key.Key_Return, CONTROL)
    qtbot.waitUntil(lambda: points(window) > 0)
    assert status(window).startswith("Running")
    qtbot.keyClick(window, Qt.Key.Key_Period, CONTROL)
    wait_for_status(window, "Stopped", qtbot)
    (run,) = list_runs()

    while run_page.header.tabs.currentIndex() != EVALUATE:
        qtbot.keyClick(window, Qt.Key.Key_PageDown, CONTROL)
    evaluation = visible(ModelView)
    qtbot.waitUntil(lambda: evaluation.form.start.isVisible() and evaluation.form.start.isEnabled())
    press("Evaluate")
    qtbot.waitUntil(lambda: evaluation.pages.currentIndex() == RESULT)
    assert list((run.path / "evaluations").iterdir())

    qtbot.keyClick(window, Qt.Key.Key_PageDown, CONTROL)
    prediction = visible(UseView)
    press("Add files…")
    type_path(next((folder / "val").rglob("*.png")))
    qtbot.waitUntil(prediction.predict_form.start.isEnabled)
    activate()
    press("Predict")
    qtbot.waitUntil(lambda: prediction.predict.currentIndex() == RESULT)
    assert red_texts == []
