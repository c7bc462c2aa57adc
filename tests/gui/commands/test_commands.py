"""Commands of the window, and its menus."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QMainWindow, QMenu
from pytestqt.qtbot import QtBot

from gui.actions import Actions
from gui.commands.commands import Menus, Recent, fill_recent_menu
from gui.commands.palette import Palette
from gui.main_window import MainWindow
from gui.pages import MONITOR
from gui.run.header import EVALUATE, PREDICT
from gui.run.use.view import CONVERT, UseView
from gui.runs.remote_dialog import RemoteRunsDialog
from tests.gui.sources.devices.snapshots import gpu, snapshot
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import OpenWindow


@pytest.mark.usefixtures("normal_text")
def test_text_size_changes_in_steps(window: MainWindow) -> None:
    acts, sizes = window.acts, []
    for action in (acts.larger_text, acts.larger_text, acts.smaller_text, acts.usual_text, acts.smaller_text):
        action.trigger()
        sizes.append(window.commands.preferences.number("text_percent"))
    window.commands.preferences.set("text_percent", 200)
    window.show_message("")
    acts.larger_text.trigger()
    assert (window.commands.preferences.number("text_percent"), window.message.text()) == (200, "")
    acts.usual_text.trigger()
    assert sizes == [110, 120, 110, 100, 90]


def test_queue_command_focuses_the_queue_if_there_is_one(window: MainWindow) -> None:
    window.acts.queue.trigger()
    runs = window.workspace.runs
    assert window.pages.currentWidget() is runs
    assert window.message.text() == "No run waits for devices."
    window.show_message("")
    runs.queue.show()
    window.header.show_page(MONITOR)
    window.acts.queue.trigger()
    assert (window.focusWidget(), window.message.text()) == (runs.queue.table, "")
    runs.queue.hide()


def test_default_recipe_applies_to_the_form(window: MainWindow) -> None:
    for recipe in ("quick-look", ""):
        window.commands.preferences.set("default_recipe", recipe)
        assert window.form.field_value("recipe") == (recipe or "fine-tune")


def test_find_commands_click_the_button_of_their_field(open_window: OpenWindow) -> None:
    window = open_window()
    acts, clicked = window.acts, []
    for name, button in window.form.find_buttons.items():
        button.clicked.disconnect()
        button.clicked.connect(lambda _on=False, name=name: clicked.append(name))
    for action in (acts.advise, acts.find_rate, acts.find_batch):
        action.trigger()
    assert clicked == ["strategy", "learning_rate", "batch_size"]


def test_menus_separate_groups_and_place_submenus(window: MainWindow) -> None:
    bar = [menu for menu in window.menuBar().findChildren(QMenu) if menu.parent() is window.menuBar()]
    for menu in bar:
        separators = [action.isSeparator() for action in menu.actions()]
        assert not separators[0]
        assert not separators[-1]
        assert (True, True) not in list(pairwise(separators))
    assert all(menu.toolTipsVisible() for menu in bar if menu.menuAction() in window.menuBar().actions())
    menus = window.commands.menus
    file = next(menu.actions() for menu in bar if menus.datasets.menuAction() in menu.actions())
    for submenu, action in ((menus.datasets, window.acts.open_job), (menus.runs, window.acts.quit)):
        at = file.index(submenu.menuAction())
        assert file[at + 1].isSeparator()
        assert file[at + 2] is action
    assert menus.selected.isEnabled()
    starting = QMainWindow()
    assert not Menus(starting, Actions(starting)).selected.isEnabled()  # the runs' commands don't exist yet


def test_dialogs_open_once(window: MainWindow) -> None:
    def list_visible() -> list[QDialog]:
        return [dialog for dialog in window.findChildren(QDialog) if dialog.isVisible()]

    for command in (window.acts.about, window.acts.shortcuts):
        command.trigger()
        (dialog,) = list_visible()
        command.trigger()
        assert list_visible() == [dialog]
        dialog.close()


def test_recent_menu_chooses_its_entries(window: MainWindow) -> None:
    chosen: list[str] = []
    menu = window.commands.menus.datasets
    fill_recent_menu(menu, [Recent(name, name, lambda name=name: chosen.append(name)) for name in ("a & b", "c")], "-")
    assert [action.text() for action in menu.actions()] == ["a && b", "c"]
    for action in menu.actions():
        action.trigger()
    assert chosen == ["a & b", "c"]
    fill_recent_menu(menu, [], "empty", chosen.clear)
    assert [(action.text(), action.isEnabled()) for action in menu.actions()] == [("empty", False)]


def test_commands_of_the_open_run_follow_it(open_window: OpenWindow, qtbot: QtBot) -> None:
    runs = {name: write_run(8, name=name) for name in ("first", "second")}
    window = open_window()
    acts, page = window.acts, window.workspace.run
    run_actions = (acts.fork, acts.try_image, acts.evaluate_run, acts.predict_with_run, acts.convert_run)
    qtbot.waitUntil(lambda: window.workspace.session.run is not None or len(recent_titles(window)) == 2)
    window.workspace.session.close()
    assert [action.ready for action in run_actions] == [False] * 5
    for name, run in runs.items():
        position = next(number for number, title in enumerate(recent_titles(window)) if title.startswith(name))
        window.commands.menus.runs.actions()[position].trigger()
        assert window.workspace.session.run.path == run.path
        assert [action.ready for action in run_actions] == [True] * 5
    acts.fork.trigger()
    qtbot.waitUntil(lambda: "“second”" in window.message.text())  # it has no checkpoint
    views = []
    for action in (acts.evaluate_run, acts.predict_with_run, acts.convert_run):
        action.trigger()
        views.append(page.header.tabs.currentIndex())
    assert views == [EVALUATE, PREDICT, PREDICT]
    assert page.findChild(UseView).tabs.currentIndex() == CONVERT


def test_palette_offers_gpus_datasets_and_models_of_tasks(open_window: OpenWindow, qtbot: QtBot) -> None:
    for _run in range(12):
        write_run(1, dataset="/data/lilies")
    window = open_window()
    qtbot.waitUntil(lambda: len(recent_titles(window)) == 10)
    assert window.workspace is not None
    window.workspace.hosts.add_snapshot("", snapshot(gpu(0, name="NVIDIA L4")))
    window.acts.palette.trigger()
    palette = window.findChild(Palette)

    def search_commands(text: str) -> list[tuple[str, str]]:
        palette.field.setText(text)
        return [(entry.kind, entry.title) for entry in palette.model.matches]

    assert [title for kind, title in search_commands("monitor") if kind == "GPU"] == ["GPU 1"]
    next(entry for entry in palette.model.matches if entry.kind == "GPU").act()
    assert window.pages.currentWidget() is window.workspace.monitor
    assert window.workspace.monitor.gpus.detail.isVisible()
    assert ("Dataset", "lilies") in search_commands("lilies")
    kind, title = search_commands("rf-detr seg-large")[0]
    assert kind == "Model"
    assert window.form.field_value("task") == "classification"
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    model = window.form.catalogue.model(window.form.field_value("model"))
    assert model is not None
    assert (model.title, window.form.field_value("task"), model.task) == (title, *2 * ["instance_segmentation"])
    window.acts.full_screen.trigger()
    assert window.isFullScreen()
    window.acts.full_screen.trigger()
    assert not window.isFullScreen()


def test_run_of_another_machine_opens_once_connected(window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    run, followed, requests = write_run(8), window.workspace.followed, []
    # This test emits the signals of the follower.
    monkeypatch.setattr(followed, "follow", lambda name, run_id: requests.append((name, run_id)))
    window.acts.open_remote.trigger()
    window.findChild(RemoteRunsDialog).chosen.emit("tower", run.run_id)
    assert (requests, window.message.text()) == ([("tower", run.run_id)], "Connecting to tower…")
    followed.followed.emit(run)
    assert (window.message.text(), window.workspace.session.run.path) == ("", run.path)
    followed.failed.emit("The connection has ended.")
    assert window.message.text() == "The connection has ended."


def recent_titles(window: MainWindow) -> list[str]:
    window.commands.menus.runs.aboutToShow.emit()
    return [action.text() for action in window.commands.menus.runs.actions()]
