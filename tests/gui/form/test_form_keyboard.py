"""Choosing recipes with the keyboard in the real window."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication, QMenu, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from gui.form.fields import METHOD
from gui.form.recipe_dialog import RecipeDialog
from gui.form.recipes import RecipeEditor
from tests.support.widgets import OpenWindow

KEYS_AT_MOST = 60


def press(qtbot: QtBot, *keys: Qt.Key) -> None:
    """Press keys one after another. Each goes to the widget that has the focus at that time."""
    for key in keys:
        focus = QApplication.focusWidget()
        assert focus is not None
        qtbot.keyClick(focus, key)


def go_to(qtbot: QtBot, widget: QWidget, key: Qt.Key = Qt.Key.Key_Tab) -> None:
    for _ in range(KEYS_AT_MOST):
        if QApplication.focusWidget() is widget:
            return
        press(qtbot, key)
    raise AssertionError(f"{key} does not lead to {widget.accessibleName() or widget}")


def choose_from_menu(qtbot: QtBot, editor: RecipeEditor, letter: Qt.Key) -> None:
    """Open the menu of the focused button of `editor` with Space, and press `letter` in the menu.

    The menu runs a nested event loop, so the letter is pressed by a timer.
    """

    def press_in_menu() -> None:
        menu = QApplication.activePopupWidget()
        assert isinstance(menu, QMenu)
        qtbot.keyClick(menu, letter)

    QTimer.singleShot(0, editor.more, press_in_menu)
    press(qtbot, Qt.Key.Key_Space)


def test_recipe_is_managed_by_keyboard(open_window: OpenWindow, qtbot: QtBot, separate_home: Path) -> None:
    window = open_window()
    form = window.form
    qtbot.waitUntil(form.train.isEnabled)
    qtbot.waitUntil(window.isActiveWindow)
    recipe, epochs = form.rows["recipe"].editor, form.rows["epochs"]
    assert isinstance(recipe, RecipeEditor)

    form.rows["model"].editor.control.setFocus()
    go_to(qtbot, form.body.section(METHOD).button)
    press(qtbot, Qt.Key.Key_Space)
    go_to(qtbot, recipe.box)
    press(qtbot, *[Qt.Key.Key_Down] * (recipe.box.findData("quick-look") - recipe.box.currentIndex()))
    qtbot.waitUntil(lambda: epochs.value() == 5)

    go_to(qtbot, epochs.editor.control, Qt.Key.Key_Backtab)
    press(qtbot, Qt.Key.Key_Up)
    assert epochs.value() == 6
    go_to(qtbot, epochs.reset)
    press(qtbot, Qt.Key.Key_Space)
    assert epochs.value() == 5

    go_to(qtbot, epochs.editor.control, Qt.Key.Key_Backtab)
    press(qtbot, Qt.Key.Key_Up)
    go_to(qtbot, recipe.more)
    choose_from_menu(qtbot, recipe, Qt.Key.Key_S)
    (recipe_dialog,) = form.findChildren(RecipeDialog)
    qtbot.waitUntil(recipe_dialog.isActiveWindow)
    qtbot.keyClicks(QApplication.focusWidget(), "Mine")
    press(qtbot, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: recipe.value() == "mine" and not epochs.is_changed and not form.findChildren(RecipeDialog))
    window.activateWindow()  # as window managers do after a dialog has closed
    qtbot.waitUntil(lambda: QApplication.focusWidget() is recipe.more)
    assert (separate_home / "recipes" / "mine.toml").is_file()

    choose_from_menu(qtbot, recipe, Qt.Key.Key_D)
    (asking,) = form.findChildren(QMessageBox)
    qtbot.waitUntil(asking.isActiveWindow)
    go_to(qtbot, next(button for button in asking.buttons() if button.text() == "Delete"))
    press(qtbot, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: recipe.value() == "fine-tune" and epochs.value() == 15)
    assert not (separate_home / "recipes" / "mine.toml").exists()
