"""Settings and help by keyboard alone: Tab reaches all controls, and Escape closes the dialog."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QWidget
from pytestqt.qtbot import QtBot

from gui.main_window import MainWindow
from tests.gui.test_app_names import get_spoken_name, list_focusable_widgets
from tests.gui.test_every_page import is_against_reading_order

MAX_TABS = 600
"""Maximum number of presses for a walk. The page of help has many links, and Tab stops at each."""


@pytest.fixture(params=["preferences", "help"])
def dialog(window: MainWindow, request: pytest.FixtureRequest, qtbot: QtBot) -> Iterator[QDialog]:
    """Open a dialog with its shortcut while the number of epochs has the focus, and close it after the test."""
    window.show_form()
    window.form.focus_field("epochs")
    action = window.acts.by_name[request.param]
    before = {each for each in window.findChildren(QDialog) if each.isVisible()}
    action.trigger()
    (opened,) = {each for each in window.findChildren(QDialog) if each.isVisible()} - before
    qtbot.waitUntil(opened.isActiveWindow)
    yield opened
    opened.close()


def list_focused_widgets(dialog: QDialog, qtbot: QtBot, key: Qt.Key) -> list[QWidget]:
    """Press `key` until the focus returns to the first widget, and return the widgets with the focus in order."""
    first = dialog.focusWidget()
    found = [first]
    for _ in range(MAX_TABS):
        qtbot.keyClick(dialog.focusWidget(), key)
        if dialog.focusWidget() is not found[-1]:
            if dialog.focusWidget() is first:
                return found
            found.append(dialog.focusWidget())
    raise AssertionError(f"the focus stays in {get_spoken_name(found[-1])}")


def test_tab_reaches_every_control_of_a_dialog(dialog: QDialog, qtbot: QtBot) -> None:
    forward = list_focused_widgets(dialog, qtbot, Qt.Key.Key_Tab)
    present = [each for each in list_focusable_widgets(dialog) if each.isVisible() and each.isEnabled()]
    assert [get_spoken_name(each) for each in present if each not in forward] == []
    assert len(forward) == len(set(forward))
    order = [
        f"{get_spoken_name(a)} before {get_spoken_name(b)}"
        for a, b in pairwise(forward)
        if is_against_reading_order(a, b, dialog)
    ]
    assert order == []
    backward = list_focused_widgets(dialog, qtbot, Qt.Key.Key_Backtab)
    assert backward == [forward[0], *forward[:0:-1]]


def test_escape_closes_a_dialog_from_every_control(window: MainWindow, dialog: QDialog, qtbot: QtBot) -> None:
    before = window.focusWidget()
    assert before is not None
    for control in list_focused_widgets(dialog, qtbot, Qt.Key.Key_Tab):
        dialog.show()
        dialog.activateWindow()
        qtbot.waitUntil(dialog.isActiveWindow)
        control.setFocus()
        qtbot.keyClick(control, Qt.Key.Key_Escape)
        assert not dialog.isVisible(), get_spoken_name(control)
        window.activateWindow()  # as a window manager does
        qtbot.waitUntil(before.hasFocus, timeout=20_000)
