"""The window's commands: one action each, which buttons, keys and menus share."""

from __future__ import annotations

from collections import Counter

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from gui.actions import TRAIN, Action, bind
from gui.commands.keymap import overlap
from gui.monitor.toolbar import PROCESSES
from tests.gui.sources.written_runs import a_run
from tests.support.widgets import OpenWindow


def test_commands_have_unique_ids_and_keys(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    work = window.workspace
    work.monitor.show_view(PROCESSES)
    work.runs.compare_requested.emit([])
    window.header.show_page(TRAIN)
    qtbot.waitUntil(lambda: work.run.charts is not None)  # from when on the views of a run are in the window
    actions = window.acts.all()
    assert len(actions) > 50
    assert all(action.objectName() and action.text() for action in actions)
    assert [name for name, count in Counter(action.objectName() for action in actions).items() if count > 1] == []
    shared = [
        (one.objectName(), other.objectName())
        for number, one in enumerate(actions)
        for other in actions[number + 1 :]
        if {*one.shortcuts()} & {*other.shortcuts()} and overlap(one, other)
    ]
    assert shared == []


def test_button_follows_its_action(styled: QApplication, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    action = Action(window, "pause", "&Pause", "Frees the devices", "Ctrl+P", icon="pause")
    button, named = bind(QPushButton(window), action), bind(QPushButton(window), action, "Pause the run")
    assert (button.text(), button.accessibleName(), named.accessibleName()) == ("&Pause", "Pause", "Pause the run")
    assert button.toolTip() == button.accessibleDescription() == "Frees the devices (Ctrl+P)"
    action.allow("Nothing is running")
    assert not button.isEnabled()
    assert button.toolTip() == "Nothing is running"
    action.set_appearance("Resume", "Goes on", "resume")
    assert (button.text(), button.accessibleName(), button.toolTip()) == ("Resume", "Resume", "Nothing is running")
    action.allow()
    assert button.toolTip() == "Goes on (Ctrl+P)"
    with qtbot.waitSignal(action.triggered):
        button.click()


def test_offered_button_hides_when_disabled(styled: QApplication, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    action = Action(window, "pause", "Pause")
    button = bind(QPushButton(window), action, offered=True)
    window.show()
    assert button.isVisible()
    action.allow("Nothing is running")
    assert not button.isVisible()


def test_always_enabled_action_works_by_key(styled: QApplication, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    action = Action(window, "train", "Train", "", "Ctrl+Return", always_enabled=True)
    button = bind(QPushButton(window), action)
    with qtbot.waitActive(window):
        window.show()
        window.activateWindow()
    action.allow("The folder is still being looked through")
    assert not button.isEnabled()
    with qtbot.waitSignal(action.triggered):
        qtbot.keyClick(window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)


def test_switches_agree_for_key_and_button(open_window: OpenWindow, qtbot: QtBot) -> None:
    a_run(8)
    window = open_window()
    qtbot.waitActive(window)
    window.header.devices.click()
    assert not window.acts.devices_panel.isChecked()
    assert not window.devices_holder.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_F7)
    assert window.header.devices.isChecked()
    assert window.devices_holder.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_3, Qt.KeyboardModifier.ControlModifier)
    assert (window.acts.page, window.header.tabs.currentIndex(), window.pages.currentIndex()) == (2, 2, 2)
    window.header.tabs.setCurrentIndex(1)
    assert (window.acts.page, window.pages.currentIndex()) == (1, 1)
