"""Actions of the window, which buttons, shortcuts and menus share."""

from __future__ import annotations

import re
from collections import Counter

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QApplication, QMainWindow, QPushButton, QTabBar, QWidget
from pytestqt.qtbot import QtBot

from gui.actions import WITHIN, Action, Actions, bind, chosen_keys
from gui.commands.keymap import Keymap, can_conflict
from gui.commands.shortcuts import ShortcutsDialog
from gui.main_window import MainWindow
from gui.monitor.toolbar import PROCESSES
from gui.pages import MONITOR, TRAIN
from gui.sources.settings import Settings
from gui.style.icons import icon
from tests.gui.sources.written_runs import write_run
from tests.support.painted import draw_icon
from tests.support.widgets import OpenWindow

NAMED_KEY = re.compile(r"\bCtrl\+\w|\(F\d+\)")


def test_commands_have_unique_ids_and_keys(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    work = window.workspace
    work.monitor.show_view(PROCESSES)
    work.runs.compare_requested.emit([])
    window.header.show_page(TRAIN)
    qtbot.waitUntil(lambda: work.run.charts is not None)  # afterwards, the window contains the views of a run
    actions = window.acts.all()
    assert len(actions) > 50
    assert all(action.objectName() and action.text() for action in actions)
    assert [name for name, count in Counter(action.objectName() for action in actions).items() if count > 1] == []
    shared = [
        (one.objectName(), other.objectName())
        for number, one in enumerate(actions)
        for other in actions[number + 1 :]
        if {*one.shortcuts()} & {*other.shortcuts()} and can_conflict(one, other)
    ]
    assert shared == []
    keymap = window.commands.keymap
    for action in actions:
        keymap.assign(action, "")
    window.status.show_others(())
    tips = {
        tip for widget in window.findChildren(QWidget) for tip in (widget.toolTip(), widget.accessibleDescription())
    }
    tips |= {tabs.tabToolTip(tab) for tabs in window.findChildren(QTabBar) for tab in range(tabs.count())}
    chosen_keys.clear()
    assert sorted(tip for tip in tips if NAMED_KEY.search(tip)) == []


def test_button_follows_its_action(styled: QApplication, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    action = Action(window, "pause", "&Pause", "Frees the devices", "Ctrl+P", icon="pause")
    button, named = bind(QPushButton(window), action), bind(QPushButton(window), action, "Pause the run")
    assert (button.text(), button.accessibleName(), named.accessibleName()) == ("&Pause", "Pause", "Pause the run")
    assert button.toolTip() == button.accessibleDescription() == "Frees the devices (Ctrl+P)"
    action.set_disabled_reason("Nothing is running")
    assert not button.isEnabled()
    assert button.toolTip() == "Nothing is running"
    action.set_appearance("Resume", "Goes on", "resume", "accent")
    assert draw_icon(button.icon()) == draw_icon(icon("resume", "accent"))
    assert named.accessibleName() == "Pause the run"
    assert (button.text(), button.accessibleName(), button.toolTip()) == ("Resume", "Resume", "Nothing is running")
    action.set_disabled_reason()
    assert button.toolTip() == "Goes on (Ctrl+P)"
    with qtbot.waitSignal(action.triggered):
        button.click()


def test_button_of_switch_starts_and_stays_in_its_state(styled: QApplication, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    action = Action(window, "panel", "Panel", on=True)
    button = bind(QPushButton(window), action)
    states = [(button.isChecked(), action.isChecked())]
    for switch in (button.click, action.trigger):
        switch()
        states.append((button.isChecked(), action.isChecked()))
    assert states == [(True, True), (False, False), (True, True)]


def test_offered_button_hides_when_disabled(styled: QApplication, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    action = Action(window, "pause", "Pause")
    button = bind(QPushButton(window), action, hide_disabled=True)
    window.show()
    assert button.isVisible()
    action.set_disabled_reason("Nothing is running")
    assert not button.isVisible()


def test_always_enabled_action_works_by_key(styled: QApplication, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    action = Action(window, "train", "Train", "", "Ctrl+Return", always_enabled=True)
    button = bind(QPushButton(window), action)
    with qtbot.waitActive(window):
        window.show()
        window.activateWindow()
    action.set_disabled_reason("The folder is still being looked through")
    assert not button.isEnabled()
    with qtbot.waitSignal(action.triggered):
        qtbot.keyClick(window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)


def test_switches_agree_for_key_and_button(open_window: OpenWindow, qtbot: QtBot) -> None:
    write_run(8)
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    window.header.devices.click()
    assert not window.acts.devices_panel.isChecked()
    assert not window.dock.panel.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_F7)
    assert window.header.devices.isChecked()
    assert window.dock.panel.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_3, Qt.KeyboardModifier.ControlModifier)
    assert (window.acts.page, window.header.tabs.currentIndex(), window.pages.currentIndex()) == (2, 2, 2)
    window.header.tabs.setCurrentIndex(1)
    assert (window.acts.page, window.pages.currentIndex()) == (1, 1)


def test_tabs_name_their_pages_and_keys(window: MainWindow) -> None:
    tabs, pages = window.header.tabs, window.acts.pages
    window.commands.keymap.assign(pages[MONITOR], "Ctrl+Shift+U")
    assert "Ctrl+Shift+U" in tabs.tabToolTip(MONITOR)
    window.commands.keymap.reset(pages[MONITOR])
    assert [tabs.tabToolTip(number) for number in range(4)] == [page.toolTip() for page in pages]
    assert [tabs.accessibleTabName(number) for number in range(4)] == [f"{page.text()} page" for page in pages]


def open_shortcuts(window: MainWindow) -> ShortcutsDialog:
    window.acts.shortcuts.trigger()
    return window.findChild(ShortcutsDialog)


def test_shortcuts_are_changed_saved_and_reset(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    dialog = open_shortcuts(window)
    dialog.choose("devices_panel")
    dialog.keys.setKeySequence(QKeySequence("Ctrl+Shift+J"))
    dialog.assign.click()
    assert window.acts.devices_panel.keys == ("Ctrl+Shift+J",)
    assert "(Ctrl+Shift+J)" in window.header.devices.toolTip()
    dialog.close()
    was_visible = window.acts.devices_panel.isChecked()
    window.activateWindow()
    qtbot.keyClick(window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert window.acts.devices_panel.isChecked() is not was_visible
    window.close()
    again = open_window()
    assert again.acts.devices_panel.keys == ("Ctrl+Shift+J",)
    dialog = open_shortcuts(again)
    dialog.choose("devices_panel")
    assert dialog.table.item(dialog.table.currentRow(), 0).font().bold()
    dialog.reset.click()
    assert not dialog.table.item(dialog.table.currentRow(), 0).font().bold()
    assert again.acts.devices_panel.keys == ("F7",)
    again.close()
    acts = Actions(again)
    Keymap(acts, Settings(), again)
    assert acts.devices_panel.keys == ("F7",)


def test_conflicting_shortcut_is_refused(window: MainWindow) -> None:
    dialog = open_shortcuts(window)
    dialog.choose("help")
    dialog.keys.setKeySequence(QKeySequence("Ctrl+."))
    assert not dialog.assign.isEnabled()
    assert "belongs to “Stop”" in dialog.problem.text()
    keymap = window.commands.keymap
    assert keymap.assign(window.acts.help, "Ctrl+.") is window.acts.stop
    assert window.acts.help.keys == ("F1",)
    # A command that belongs to a table conflicts with those of the window, but not with those of another page.
    runs = window.workspace.runs.acts
    assert keymap.find_conflict(window.acts.help, "Ctrl+R") is runs.resume
    other_page = Action(window.workspace.monitor, "other", "Other", context=WITHIN)
    in_page = Action(window.workspace.runs, "page", "Page", context=WITHIN)
    assert [keymap.find_conflict(each, "Ctrl+R") for each in (other_page, in_page)] == [None, runs.resume]
    assert (can_conflict(runs.resume, in_page), can_conflict(in_page, runs.undo)) == (True, True)
    assert keymap.assign(window.acts.help, "F1") is None, "its own key is not taken"
    keymap.assign(window.acts.stop, "")
    assert keymap.assign(window.acts.help, "Ctrl+.") is None
    assert keymap.reset(window.acts.stop) is window.acts.help
    two_keys = Action(window.workspace.runs, "two", "Two", "", "Ctrl+Alt+1", "Ctrl+.", context=WITHIN)
    assert keymap.reset(two_keys) is window.acts.help
    dialog.choose("stop")
    dialog.reset.click()
    assert "belongs to “Help”" in dialog.problem.text()
    dialog.choose("help")
    assert not dialog.problem.text()
    keymap.reset_all()
    assert (window.acts.help.keys, window.acts.stop.keys) == (("F1",), ("Ctrl+.",))


def test_shortcut_list_is_searchable(window: MainWindow, qtbot: QtBot) -> None:
    dialog = open_shortcuts(window)
    dialog.choose("stop")
    assert dialog.focusWidget() is dialog.search
    qtbot.keyClicks(dialog.search, "page")
    assert dialog.table.currentRow() == 0
    assert dialog.chosen is not window.acts.stop
    dialog.search.setText("stop")
    dialog.choose("stop")
    dialog.search.clear()
    assert dialog.chosen is window.acts.stop
    assert dialog.table.currentRow() > 0
    qtbot.keyClicks(dialog.search, "ctrl+. STOP")
    assert [dialog.table.item(row, 0).text() for row in range(dialog.table.rowCount())] == ["Stop"]
    dialog.keys.setKeySequence(QKeySequence("Ctrl+Shift+9"))
    qtbot.keyClick(dialog.search, Qt.Key.Key_Return)
    assert (window.acts.stop.keys, dialog.isVisible()) == (("Ctrl+.",), True)
    for key, target in ((Qt.Key.Key_Tab, dialog.remove), (Qt.Key.Key_Backtab, dialog.table)):
        dialog.keys.clear()
        dialog.keys.setFocus()
        qtbot.keyClick(dialog.keys, key)
        assert (dialog.focusWidget(), dialog.keys.keySequence().toString()) == (target, "")
    qtbot.keyClick(dialog.keys, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_shortcuts_are_removed_and_all_reset(window: MainWindow, qtbot: QtBot) -> None:
    dialog = open_shortcuts(window)
    dialog.search.clear()
    for name, keys in (("devices_panel", "F7"), ("stop", "Ctrl+.")):
        dialog.choose(name)
        row = dialog.table.currentRow()
        assert dialog.table.item(row, 2).text() == keys
        assert dialog.remove.isEnabled()
        dialog.remove.click()
        assert (dialog.chosen.keys, dialog.table.item(row, 2).text()) == ((), "")
        assert not dialog.remove.isEnabled()
    for key, text in ((Qt.Key.Key_J, "Ctrl+J"), (Qt.Key.Key_Escape, "Ctrl+Esc"), (Qt.Key.Key_U, "Ctrl+U")):
        qtbot.keyClick(dialog.keys, key, Qt.KeyboardModifier.ControlModifier)
        assert dialog.keys.keySequence().toString() == text
    dialog.reset_all.click()
    assert (window.acts.devices_panel.keys, dialog.chosen.keys) == (("F7",), ("Ctrl+.",))
    assert dialog.remove.isEnabled()
    assert not dialog.keys.keySequence().toString()
    window.commands.keymap.assign(window.acts.help, "Ctrl+Shift+H")
    other = QMainWindow()
    qtbot.addWidget(other)
    acts = Actions(other)
    Keymap(acts, window.settings, other)
    assert (acts.stop.keys, acts.help.keys) == (("Ctrl+.",), ("Ctrl+Shift+H",))
    window.commands.keymap.reset_all()
    assert window.settings.text("shortcuts") == ""


def test_shortcut_reset_survives_search_for_old_keys(window: MainWindow) -> None:
    dialog = open_shortcuts(window)
    window.commands.keymap.assign(window.acts.devices_panel, "Ctrl+Shift+J")
    dialog.search.setText("ctrl+shift+j")
    dialog.reset.click()
    assert window.acts.devices_panel.keys == ("F7",)
    assert dialog.table.rowCount() == 0
    assert (dialog.chosen, dialog.reset.isEnabled(), dialog.remove.isEnabled()) == (None, False, False)
