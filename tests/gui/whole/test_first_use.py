"""First use of the window with the user's own folder, with the real engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialogButtonBox, QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.problems import Problem, errors
from gui.main_window import MainWindow
from gui.widgets.labels import ProblemLabel
from tests.engine.conftest import make_images
from tests.gui.whole.test_whole_path import points, status, wait_for_status
from tests.support.widgets import OpenWindow

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("real_inspector", "preloader")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with 72 training and 21 validation images of three classes."""
    return make_images(tmp_path / "own", {"train": 24, "val": 7})


@pytest.fixture
def red_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives all errors which the window shows during the test."""
    found: list[str] = []
    show = ProblemLabel.show_problems

    def record(label: ProblemLabel, problems: Sequence[Problem]) -> None:
        found.extend(map(str, errors(list(problems))))
        show(label, tuple(problems))

    monkeypatch.setattr(ProblemLabel, "show_problems", record)
    return found


def open_dialog(window: MainWindow, qtbot: QtBot) -> QFileDialog:
    """Wait for the file dialog that is about to open."""
    qtbot.waitUntil(lambda: any(dialog.isVisible() for dialog in window.findChildren(QFileDialog)))
    return next(dialog for dialog in window.findChildren(QFileDialog) if dialog.isVisible())


def wait_for_dataset(window: MainWindow, folder: Path, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: window.form.field_value("dataset") == str(folder))
    qtbot.waitUntil(lambda: window.form.train.isEnabled() and not window.form.is_validation_pending)
    assert "3 classes" in window.form.card.text()


def test_own_folder_trains_after_three_clicks(
    open_window: OpenWindow, qtbot: QtBot, folder: Path, red_texts: list[str]
) -> None:
    window = open_window()
    clicks: list[str] = []

    def click(button: QWidget) -> None:
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
        clicks.append(button.accessibleName())

    assert window.train.welcome is not None
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
