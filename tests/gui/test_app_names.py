"""Names of the window's widgets for screen readers."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QMenu,
    QWidget,
)
from pytestqt.qtbot import QtBot

from engine.contract.devices import CPU
from gui.actions import Action
from gui.main_window import MainWindow
from tests.support.widgets import OpenWindow

FIELDS = ("Dataset folder", "Model", "Epochs", "Batch size", "Image size")
"""Accessible names of the fields that are always visible, in their order."""


def get_spoken_name(widget: QWidget) -> str:
    """Return the text that a screen reader speaks for a widget: its accessible name, its label, or its own text."""
    interface = QAccessible.queryAccessibleInterface(widget)
    return interface.text(QAccessible.Text.Name) if interface is not None else ""


def list_focusable_widgets(window: QWidget) -> list[QWidget]:
    """Return the widgets that can get the focus with Tab, including invisible ones.

    Components of spin boxes and combo boxes are left out.
    """
    return [
        widget
        for widget in window.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and not isinstance(widget.parent(), QAbstractSpinBox | QComboBox | QAbstractScrollArea)
        and widget.focusProxy() is None
        and widget.window() is window
    ]


def test_menus_hold_every_command(window: MainWindow) -> None:
    menu_actions = {action for menu in window.findChildren(QMenu) for action in menu.actions()}
    window_actions = [action for action in window.acts.all() if action.parent() is window]
    assert [action.objectName() for action in window_actions if action not in menu_actions] == []
    off = [action for action in menu_actions if isinstance(action, Action) and not action.isEnabled()]
    assert window.acts.stop in off
    spoken = {action.objectName(): action.toolTip() for action in off if action.toolTip() != action.disabled_reason}
    assert spoken == {}
    assert [action.objectName() for action in off if not action.disabled_reason] == []
    reasons: dict[str, set[str]] = {}
    for action in off:
        reasons.setdefault(action.disabled_reason, set()).add(action.objectName())
    run_actions = {"fork", "try_image", "evaluate_run", "predict_with_run", "convert_run"}
    assert (reasons["Open a run first"], reasons["Nothing is running"]) == (run_actions, {"pause", "stop"})
    # Not the extension menu for actions without space.
    menus = [menu for menu in window.menuBar().findChildren(QMenu) if menu.title()]
    assert len(menus) >= 9
    assert [menu.title() for menu in menus if not menu.toolTipsVisible()] == []


def test_fixed_names_are_unique(window: MainWindow) -> None:
    names = [widget.accessibleName() for widget in window.findChildren(QWidget)]
    for name in (*FIELDS, "CPU workers", "Train", "Stop", "Run status", "Runs"):
        assert names.count(name) == 1, name
    buttons = [button.accessibleName() for button in window.findChildren(QAbstractButton)]
    assert sum(name.startswith("CPU") for name in buttons) == 1


def test_fields_have_label_buddies(window: MainWindow) -> None:
    buddies = {label.buddy() for label in window.findChildren(QLabel) if label.buddy() is not None}
    fields = [w for w in list_focusable_widgets(window) if isinstance(w, QLineEdit | QComboBox | QAbstractSpinBox)]
    without = [widget.accessibleName() for widget in fields if widget not in buddies]
    assert without == []


def test_labels_are_accessible(window: MainWindow) -> None:
    """Check that labels with an accessible name also expose their text, which Qt doesn't do by itself."""
    labels = [label for label in window.findChildren(QLabel) if label.text()]
    assert len(labels) > 40
    spoken = {label: f"{get_spoken_name(label)} {label.accessibleDescription()}".lower() for label in labels}
    assert [label.text() for label in labels if label.text().replace("&", "").lower() not in spoken[label]] == []


def test_tab_scrolls_to_the_focus(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(window.form.train.isEnabled)
    window.resize(1000, 500)
    for section in window.form.sections:
        section.set_open(True)
    qtbot.waitUntil(lambda: window.form.sections[-1].y() > 4 * window.height())
    window.header.tabs.setFocus()
    unacknowledged = []
    rounds = 0
    while rounds < 2:  # in the second round, the form is scrolled to its end when Tab reaches its start
        window.focusNextChild()
        focused = window.focusWidget()
        rounds += focused is window.header.tabs
        if focused.visibleRegion().isEmpty():
            unacknowledged.append(get_spoken_name(focused))
    assert unacknowledged == []


def test_status_starts_with_a_state(window: MainWindow) -> None:
    assert window.form.values()["devices"] == [CPU]
    interface = QAccessible.queryAccessibleInterface(window.status.status)
    assert interface.text(QAccessible.Text.Name) == "Run status"
    for reason, text in (("The dataset is missing", "Idle · the job is not ready"), ("", "Idle · ready to train")):
        window.acts.train.set_disabled_reason(reason)
        window.job_panel.changed.emit()
        assert window.status.status.text() == window.status.status.toolTip() == text
        assert window.status.status.accessibleDescription() == text
