"""Registry of pages. A single entry must be enough to add a page to the window."""

from __future__ import annotations

import os
from typing import Any

import pytest
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from gui import main_window, pages, workspace
from gui.pages import RUNS, TRAIN, JobInForm, PageEntry, TabEntry
from gui.sources.run_list import RunList
from gui.sources.settings import Settings
from tests.support.widgets import OpenWindow


class NotesPage(QWidget):
    """Example of a page that a developer could add, with some of the signals that the window connects."""

    closed = Signal()
    used = Signal(object)
    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.label = QLabel("Notes", self)
        self.shown: list[tuple[JobInForm, Any]] = []
        self.followed: list[JobInForm] = []
        self.is_work_closed = False

    def close_work(self) -> None:
        self.is_work_closed = True


ENTRY = PageEntry(
    "notes",
    f"{__name__}:NotesPage",
    RUNS,
    lambda page, job, argument: page.shown.append((job, argument)),
    lambda page, job: page.followed.append(job),
    title="Notes on jobs",
    tip="Shows the notes",
)


def test_one_entry_adds_a_page(open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "PAGES", (*pages.PAGES, ENTRY))
    window = open_window()
    qtbot.waitUntil(window.form.train.isEnabled)
    assert "notes" not in window.workspace.created, "it costs nothing until it is used"
    command = window.acts.by_name.get("notes_page") or next(
        action for action in window.commands.menus.tools.actions() if action.objectName() == "notes_page"
    )
    assert command.text() == "Notes on jobs"
    window.form.focus_field("epochs")
    focus = window.focusWidget()
    command.trigger()
    page = window.workspace.get_page("notes")
    assert window.pages.currentWidget() is page
    assert window.acts.page == RUNS
    ((job, argument),) = page.shown
    assert (job.edited, argument) == (window.form.job, None)
    assert page.followed[0].edited == window.form.job
    window.form.set_field("epochs", 9)
    window.form.validate()
    assert page.followed[-1].job.training.epochs == 9
    page.used.emit({"epochs": 11, "devices": ("cpu", "cpu")})
    assert window.form.field_value("epochs") == 11
    assert window.workspace.devices.selection() == ("cpu", "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(window.form, "job", Job.from_fields(dataset="images"))
        window.job_panel.changed.emit()
    followed = page.followed[-1]
    assert (followed.edited.data.dataset, followed.job.data.dataset) == ("images", os.path.abspath("images"))
    page.message.emit("Saved", "info")
    assert window.message.text() == "Saved"
    window.workspace.runs.compare_requested.emit([])
    page.closed.emit()
    assert window.pages.currentWidget() is window.train
    assert window.acts.page == TRAIN
    assert window.focusWidget() is focus
    window.close()
    assert page.is_work_closed


class JournalPage(QWidget):
    """Example of a page with its own tab that a developer could add."""

    message = Signal(str, str)

    def __init__(self, run_list: RunList) -> None:
        super().__init__()
        self.run_list = run_list
        self.is_work_closed = False

    def close_work(self) -> None:
        self.is_work_closed = True


def test_one_entry_adds_a_page_with_a_tab(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = TabEntry("journal", "Journal", "Shows the journal", f"{__name__}:JournalPage", ("run_list",))
    monkeypatch.setattr(main_window, "TABS", (*pages.TABS, entry))
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    page = window.workspace.tabs["journal"]
    assert page.run_list is window.workspace.run_list
    number = window.pages.indexOf(page)
    assert window.header.tabs.tabText(number) == "Journal"
    assert window.header.tabs.tabToolTip(number) == f"Shows the journal (Ctrl+{number + 1})"
    assert window.acts.by_name["journal_page"] in window.acts.menu_groups("view")[0]
    qtbot.keyClick(window, str(number + 1), Qt.KeyboardModifier.ControlModifier)
    assert window.pages.currentWidget() is page
    assert not window.acts.devices_panel.isChecked()
    page.message.emit("Written", "info")
    assert window.message.text() == "Written"
    window.acts.devices_panel.trigger()
    window.close()
    assert page.is_work_closed
    assert Settings().flag("show_devices_journal", False)


def test_entries_name_pages_that_can_be_created(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    window.header.tabs.setFocus()
    window.show_form()
    window.form.focus_field("epochs")
    qtbot.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    searches = window.workspace.get_page("search")
    assert window.focusWidget() in (searches.list, searches.first_button)
    for name in window.workspace.entries:
        page = window.workspace.get_page(name)
        assert hasattr(page, "closed") != any(tab.name == name for tab in pages.TABS)
        assert window.pages.indexOf(page) >= 0
    assert set(window.workspace.created) == {entry.name for entry in pages.PAGES}
