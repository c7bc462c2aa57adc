"""Keys can be changed, never given to two commands at once, and are kept."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from pytestqt.qtbot import QtBot

from gui.actions import Actions
from gui.commands.keymap import Keymap
from gui.commands.shortcuts import ShortcutsDialog
from gui.main_window import MainWindow
from gui.sources.settings import Settings
from tests.support.widgets import OpenWindow


def opened(window: MainWindow) -> ShortcutsDialog:
    window.acts.shortcuts.trigger()
    return window.findChild(ShortcutsDialog)


def test_shortcuts_are_changed_saved_and_reset(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitActive(window)
    dialog = opened(window)
    dialog.choose("job_panel")
    dialog.keys.setKeySequence(QKeySequence("Ctrl+Shift+J"))
    dialog.assign.click()
    assert window.acts.job_panel.keys == ("Ctrl+Shift+J",)
    assert "(Ctrl+Shift+J)" in window.header.job.toolTip()
    dialog.close()
    shown = window.acts.job_panel.isChecked()
    window.activateWindow()
    qtbot.keyClick(window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert window.acts.job_panel.isChecked() is not shown
    window.close()
    again = open_window()
    assert again.acts.job_panel.keys == ("Ctrl+Shift+J",)
    dialog = opened(again)
    dialog.choose("job_panel")
    dialog.reset.click()
    assert again.acts.job_panel.keys == ("F8",)
    again.close()
    acts = Actions(again)
    Keymap(acts, Settings(), again)
    assert acts.job_panel.keys == ("F8",)


def test_conflicting_shortcut_is_refused(window: MainWindow) -> None:
    dialog = opened(window)
    dialog.choose("help")
    dialog.keys.setKeySequence(QKeySequence("Ctrl+."))
    assert not dialog.assign.isEnabled()
    assert "belongs to “Stop”" in dialog.problem.text()
    keymap = window.commands.keymap
    assert keymap.assign(window.acts.help, "Ctrl+.") is window.acts.stop
    assert window.acts.help.keys == ("F1",)
    # A command of one table alone gets in the way of the window's, and not of another page's.
    runs = window.workspace.runs.acts
    assert keymap.holder(window.acts.help, "Ctrl+R") is runs.resume
    keymap.assign(window.acts.stop, "")
    assert keymap.assign(window.acts.help, "Ctrl+.") is None
    assert keymap.reset(window.acts.stop) is window.acts.help
    keymap.reset_all()
    assert (window.acts.help.keys, window.acts.stop.keys) == (("F1",), ("Ctrl+.",))


def test_shortcut_list_is_searchable(window: MainWindow, qtbot: QtBot) -> None:
    dialog = opened(window)
    qtbot.keyClicks(dialog.search, "ctrl+. stop")
    assert [dialog.table.item(row, 0).text() for row in range(dialog.table.rowCount())] == ["Stop"]
