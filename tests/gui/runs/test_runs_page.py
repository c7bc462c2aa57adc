"""Page with the list of runs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import PySide6
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QInputDialog, QLabel, QLineEdit, QMenu, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.events import Outcome
from engine.contract.job import job_to_toml
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes, read_notes
from engine.system import paths
from gui.runs.page import RunsPage
from gui.runs.table import NAME, STARTED
from gui.titles import list_unread_runs
from gui.widgets.column_model import PAD, select_row
from gui.widgets.run_drag import RunDrop, run_ids_in
from tests.gui.runs.conftest import Refresh, make_interrupted_run, read_column, select_runs
from tests.gui.sources.written_runs import NESTED_TOO_DEEP, job, write_run
from tests.support.widgets import OpenWindow, is_right_of


def texts(page: RunsPage) -> str:
    return "\n".join(label.text() for label in page.findChildren(QLabel) if label.isVisible())


@pytest.mark.parametrize(("outcome", "cause"), [("completed", ""), ("stopped", ""), ("failed", "a fault")])
def test_summary_has_outcome_and_best(outcome: Outcome, cause: str) -> None:
    summary = write_run(60, outcome, cause=cause).summary()
    assert (summary.state, summary.cause, summary.best["top1"]) == (outcome, cause, 0.8)


def test_summary_of_active_run_skips_middle_of_log() -> None:
    run = write_run(60, None)
    before = run.events_file.read_bytes().splitlines(keepends=True)
    summary = run.summary()
    assert summary.state == "starting"
    assert summary.best == {"loss": 0.5, "top1": 0.8, "top5": 0.99}
    run.events_file.write_bytes(before[0] + b"not even an event\n" + b"".join(before[-3:]))
    reread = run.summary()
    assert reread.started == summary.started


def test_runs_page_without_runs_hides_filters(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    refresh()
    assert not page.filters.isVisible()
    assert not page.details.isVisible()
    assert not page.interrupted.isVisible()
    assert "No runs yet." in texts(page)
    page.hide()
    write_run(8)
    with qtbot.waitSignal(page.run_list.complete):
        page.show()
    assert page.filters.isVisible()


def test_runs_page_searches_and_filters(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    write_run(8, name="warm up")
    tagged = write_run(8, "stopped", name="second", model="resnet50")
    change_notes(tagged.path, tags=("paper",), favorite=True)
    refresh()
    assert not page.filters.clear.isVisible()
    assert page.filters.tag.isVisible()
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert page.filters.text.hasFocus()
    qtbot.keyClicks(page.filters.text, "warm")
    qtbot.waitUntil(lambda: read_column(page, "Name") == ["warm up"])
    page.filters.clear.click()
    assert len(read_column(page, "Name")) == 2
    for combo, choice in (
        (page.filters.state, "Stopped (1)"),
        (page.filters.model, "ResNet-50 (1)"),
        (page.filters.tag, "paper (1)"),
    ):
        combo.setCurrentText(choice)
        assert combo.currentText() == choice
        assert read_column(page, "Name") == ["second"]
        refresh()
        assert combo.currentText() == choice
        page.filters.reset()
    page.filters.favorites.click()
    assert read_column(page, "Name") == ["second"]
    page.filters.text.setText("no such run")
    qtbot.waitUntil(lambda: "0 of 2" in texts(page))
    assert "No runs match." in texts(page)
    page.filters.clear.click()
    assert len(read_column(page, "Name")) == 2
    page.filters.period.setCurrentText("Last 7 days")
    assert page.filters.run_filter().since == pytest.approx(time.time() - 7 * 86_400, abs=60)


def test_runs_page_filters_new_runs(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    write_run(8, name="one")
    refresh()
    page.filters.text.setText("two")
    qtbot.waitUntil(lambda: page.model.rowCount() == 0)
    write_run(8, name="two")
    refresh()
    assert read_column(page, "Name") == ["two"]


@pytest.mark.parametrize("how", ["enter", "double click", "button", "menu"])
def test_runs_page_opens_run(page: RunsPage, refresh: Refresh, qtbot: QtBot, how: str) -> None:
    run = write_run(8)
    refresh()
    select_row(page.table, 0)
    with qtbot.waitSignal(page.run_chosen) as chosen:
        if how == "enter":
            qtbot.keyClick(page.table, Qt.Key.Key_Return)
        elif how == "double click":
            position = page.table.visualRect(page.model.index(0, 0)).center()
            qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=position)
            qtbot.mouseDClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=position)
        elif how == "button":
            next(b for b in page.findChildren(QPushButton) if b.text() == "&Show run").click()
        else:
            menu = page.acts.create_menu(page.selected(), [])
            next(action for action in menu.actions() if action.text() == "&Show run").trigger()
            menu.close()
    assert isinstance(chosen.args[0], RunFolder)
    assert chosen.args[0].path == run.path


def test_runs_page_compares_selected_runs(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    runs = [write_run(8) for _ in range(3)]
    refresh()
    select_runs(page, runs[0])
    assert page.acts.folder.toolTip() == str(runs[0].path)
    assert not page.acts.compare.isEnabled()
    select_runs(page, runs[0], runs[2])
    assert page.acts.folder.toolTip() == str(paths.runs_folder())
    with qtbot.waitSignal(page.compare_requested) as requested:
        qtbot.keyClick(
            page.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        )
    assert sorted(requested.args[0]) == sorted([runs[0].run_id, runs[2].run_id])


def test_runs_page_follows_changes_on_disk(page: RunsPage, refresh: Refresh) -> None:
    active = create_run(job(name="active"))
    deleted = write_run(8, name="deleted")
    refresh()
    assert sorted(zip(read_column(page, "Name"), read_column(page, "State"), strict=True)) == [
        ("active", "Starting"),
        ("deleted", "Completed"),
    ]
    shutil.rmtree(deleted.path)
    os.utime(active.job_file, (0, 0))
    refresh()
    assert list(zip(read_column(page, "Name"), read_column(page, "State"), strict=True)) == [("active", "Interrupted")]


def test_runs_table_fits_columns_until_user_resizes(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    write_run(8, name="short")
    refresh()
    narrow = page.table.columnWidth(NAME)
    write_run(8, name="a name that takes far more room than the first")
    refresh()
    page.resize(2400, 800)
    qtbot.waitUntil(lambda: page.table.columnWidth(NAME) >= page.table.sizeHintForColumn(NAME) > narrow)
    page.resize(1440, 800)
    qtbot.waitUntil(lambda: page.table.horizontalScrollBar().maximum() == 0)
    assert page.table.columnWidth(NAME) < page.table.sizeHintForColumn(NAME)
    page.table.setColumnWidth(NAME, narrow)
    refresh()
    assert page.table.columnWidth(NAME) == narrow


def test_runs_table_columns_have_no_surplus_width(page: RunsPage, refresh: Refresh) -> None:
    write_run(8)
    refresh()
    for order in (Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder):
        page.table.horizontalHeader().setSortIndicator(NAME, order)  # as a click on the header does
        assert page.model.sort_order == order
    text_width = page.table.fontMetrics().horizontalAdvance(read_column(page, "Started")[0])
    assert page.table.content_width(STARTED) - text_width in (2 * PAD, 2 * PAD + 1)


def test_details_are_below_the_list_in_narrow_page(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(60)
    refresh()
    select_runs(page, run)
    for width, is_beside in ((1350, True), (1349, False), (1350, True)):
        page.resize(width, 800)
        qtbot.waitUntil(lambda is_beside=is_beside: is_right_of(page.details, page.table) is is_beside)


def test_runs_table_keeps_selection_and_scroll_position(page: RunsPage, refresh: Refresh) -> None:
    runs = [write_run(8, name=f"run {n}") for n in range(60)]
    for n, run in enumerate(runs):
        change_started(run, 1_000_000 + n)
    refresh()
    select_runs(page, runs[10], runs[12])
    page.table.scrollTo(page.model.index(40, 0), page.table.ScrollHint.PositionAtTop)
    top = page.model.rows[page.table.rowAt(0)].name
    assert page.table.rowAt(0) > 20
    for n in range(3):
        write_run(8, name=f"new {n}")  # the row is above all others
    refresh()
    assert [run.name for run in page.selected()] == ["run 12", "run 10"]
    assert page.model.rows[page.table.rowAt(0)].name == top
    page.table.scrollToTop()
    write_run(8, name="newest")
    refresh()
    assert page.table.rowAt(0) == 0


def change_started(run: RunFolder, started: float) -> None:
    """Change the start time in the first line of the run's log."""
    first, rest = run.events_file.read_bytes().split(b"\n", 1)
    start = first.index(b'"time":') + 7
    end = first.index(b",", start)
    run.events_file.write_bytes(first[:start] + str(started).encode() + first[end:] + b"\n" + rest)


def test_runs_table_renames_run(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(8, name="before")
    refresh()
    with qtbot.waitActive(page):
        page.activateWindow()
    page.table.setFocus()
    assert page.selected() == []
    page.filters.text.setFocus()
    page.table.setFocus(Qt.FocusReason.TabFocusReason)
    assert [each.run_id for each in page.selected()] == [run.run_id]
    page.table.setCurrentIndex(page.model.index(0, NAME + 1))
    qtbot.keyClick(page.table, Qt.Key.Key_F2)
    editor = next(e for e in page.table.viewport().findChildren(QLineEdit))
    assert (editor.text(), bool(editor.accessibleName())) == ("before", True)
    editor.selectAll()
    qtbot.keyClicks(editor, "after")
    with qtbot.assertNotEmitted(page.run_chosen), qtbot.waitSignal(page.notes_writer.written):
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert read_column(page, "Name") == ["after"]
    assert read_notes(run.path).name == "after"
    refresh()
    assert read_column(page, "Name") == ["after"]
    assert run.job().name == "before"


def test_runs_page_toggles_favorites(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    runs = [write_run(8) for _ in range(2)]
    refresh()
    select_runs(page, *runs)
    assert page.model.index(0, NAME).data(Qt.ItemDataRole.DecorationRole) is None
    for favorite in (True, False):
        with qtbot.waitSignals([page.notes_writer.written, page.notes_writer.written]):
            qtbot.keyClick(page.table, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
        assert [read_notes(run.path).favorite for run in runs] == [favorite, favorite]
        star = page.model.index(0, NAME).data(Qt.ItemDataRole.DecorationRole)
        assert (star is not None) == favorite
        assert page.acts.favorite.isChecked() == favorite
    change_notes(runs[0].path, favorite=True)
    refresh()
    assert not page.acts.favorite.isChecked()  # because only one of the runs is a favorite
    with qtbot.waitSignal(page.notes_writer.written):
        page.acts.favorite.trigger()
    assert [read_notes(run.path).favorite for run in runs] == [True, True]


def test_runs_page_adds_and_removes_tags(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    runs = [write_run(8) for _ in range(2)]
    change_notes(runs[0].path, tags=("old",))
    refresh()
    select_runs(page, *runs)
    with qtbot.waitSignals([page.notes_writer.written, page.notes_writer.written]):
        page.acts.tag_changed.emit("paper, r&d", True)
    assert read_notes(runs[0].path).tags == ("old", "paper", "r&d")
    assert read_notes(runs[1].path).tags == ("paper", "r&d")
    menu = page.acts.create_menu(page.selected(), ["old", "paper", "r&d"])
    tags = next(each for each in menu.findChildren(QMenu) if each.title() == "&Tags")
    offered = {action.text(): action for action in tags.actions()}
    assert [offered[tag].isChecked() for tag in ("old", "paper", "r&&d")] == [False, True, True]
    with qtbot.waitSignals([page.notes_writer.written, page.notes_writer.written]):
        offered["paper"].trigger()
    offered["&New tag…"].trigger()
    menu.close()
    assert read_notes(runs[1].path).tags == ("r&d",)
    dialog = page.table.findChild(QInputDialog)
    dialog.setTextValue("new")
    with qtbot.waitSignal(page.acts.tag_changed) as added:
        dialog.accept()
    assert added.args == ["new", True]


def test_runs_page_reports_unwritable_notes(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(8)
    refresh()
    select_runs(page, run)
    shutil.rmtree(run.path)
    with qtbot.waitSignal(page.message) as message:
        page.acts.favorite.trigger()
    assert run.run_id in message.args[0]


def test_runs_page_skips_folder_without_job(page: RunsPage, refresh: Refresh) -> None:
    write_run(8, name="good")
    (paths.runs_folder() / "20990101-000000-empty-0000").mkdir()
    refresh()
    assert read_column(page, "Name") == ["good"]


def test_runs_page_reports_unreadable_run(page: RunsPage, refresh: Refresh) -> None:
    write_run(8, name="good")
    damaged = make_interrupted_run(name="damaged")
    valid = damaged.job_file.read_text()
    damaged.job_file.write_text(NESTED_TOO_DEEP)
    refresh()
    assert read_column(page, "Name") == ["good"]
    assert page.unread.isVisible()
    assert str(damaged.job_file) in page.unread.text()
    write_run(8, name="new")
    damaged.job_file.write_text(valid)
    refresh()
    assert sorted(read_column(page, "Name")) == ["damaged", "good", "new"]
    assert not page.unread.isVisible()


def test_runs_page_reports_unreadable_folder(page: RunsPage, refresh: Refresh) -> None:
    page.run_list.failed.emit("Permission denied")
    assert "Permission denied" in page.unread.text()
    assert "Permission denied" in texts(page)
    assert not page.table.isVisible()
    assert not page.details.isVisible()
    write_run(8, name="good")
    refresh()
    page.run_list.failed.emit("Permission denied")
    assert read_column(page, "Name") == ["good"]
    assert page.table.isVisible()


def test_list_unread_runs_names_the_first() -> None:
    assert len(list_unread_runs(dict.fromkeys("abc", "gone")).splitlines()) == 3
    lines = list_unread_runs({f"run-{number}": "a fault" for number in range(5)}).splitlines()
    assert [line.split()[0] for line in lines] == ["run-0", "run-1", "run-2", "2"]


def test_runs_page_lists_thousands_in_batches(page: RunsPage, qtbot: QtBot) -> None:
    pattern = write_run(8)
    lines = pattern.events_file.read_bytes().splitlines(keepends=True)
    text = job_to_toml(job(name="run 0"))
    for n in range(1500):
        folder = paths.runs_folder() / f"20250101-{n:06}-resnet18-{n:04x}"
        folder.mkdir()
        (folder / "job.toml").write_text(text.replace("run 0", f"run {n}"))
        (folder / "events.jsonl").write_bytes(lines[0] + lines[-1])
    page.refresh()
    assert page.model.rowCount() < 1501  # because a worker thread reads them
    qtbot.waitUntil(lambda: page.model.rowCount() > 0)
    qtbot.waitUntil(lambda: page.model.rowCount() == 1501)
    qtbot.waitUntil(lambda: not page.run_list.reading)
    assert "1,501" in texts(page)


@pytest.mark.parametrize("is_read", [True, False])
def test_runs_page_focuses_its_list(open_window: OpenWindow, qtbot: QtBot, is_read: bool) -> None:
    for _ in range(2):
        write_run(8)
    window = open_window()
    with qtbot.waitActive(window):
        window.activateWindow()
    runs = window.workspace.runs
    if is_read:
        qtbot.waitUntil(lambda: runs.model.rowCount() == 2)
    else:
        runs.run_list.close()
        runs.model.keep_only([])
        runs._update()
    window.show_form()
    window.form.focus_field("epochs")
    qtbot.keyClick(window, Qt.Key.Key_3, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: window.focusWidget() is runs.table and runs.table.isVisible())
    runs.filters.text.setFocus()
    qtbot.keyClick(window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: window.train.isAncestorOf(window.focusWidget()))
    qtbot.keyClick(window, Qt.Key.Key_3, Qt.KeyboardModifier.ControlModifier)
    assert window.focusWidget() is runs.filters.text


def test_runs_in_dragged_folders_are_found_without_disk(tmp_path: Path) -> None:
    known, other = tmp_path / "gone" / "20260101-abcd", write_run(8).path
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(folder)) for folder in (known, other)])
    assert run_ids_in(data, {known.name}) == [known.name]
    assert run_ids_in(data, ()) == []


def drop(widget: QWidget, data: QMimeData) -> None:
    copy, left, keys = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    # Qt 6.12 takes the position of a drag as floats, and deprecates integers.
    position = QPointF(3, 3) if PySide6.__version_info__ >= (6, 12) else QPoint(3, 3)
    drag_event = QDragEnterEvent(position, copy, data, left, keys)  # type: ignore[call-overload]
    QApplication.sendEvent(widget, drag_event)
    if drag_event.isAccepted():
        QApplication.sendEvent(widget, QDropEvent(QPointF(3, 3), copy, data, left, keys))


def test_dragged_runs_are_compared(open_window: OpenWindow, qtbot: QtBot) -> None:
    runs = [write_run(8, name=name) for name in ("one", "two", "three")]
    window = open_window()
    page = window.workspace.runs
    qtbot.waitUntil(lambda: page.model.rowCount() == 3)

    def make_drag_data(run: RunFolder) -> QMimeData:
        row = page.model.position(run.run_id)
        assert row is not None
        index = page.model.index(row, 0)
        assert page.model.flags(index) & Qt.ItemFlag.ItemIsDragEnabled
        return page.model.mimeData([index, page.model.index(row, 1)])

    assert page.table.dragEnabled()
    assert len(page.model.mimeData([page.model.index(row, 0) for row in range(3)]).urls()) == 3
    assert [url.toLocalFile() for url in make_drag_data(runs[0]).urls()] == [str(runs[0].path)]
    dataset = window.form.field_value("dataset")
    drop(window, make_drag_data(runs[0]))
    (zone,) = page.findChildren(RunDrop)
    drop(zone, make_drag_data(runs[0]))
    drop(zone, make_drag_data(runs[1]))
    comparison = window.workspace.get_page("compare")
    assert window.pages.currentWidget() is comparison
    by_file_manager = QMimeData()
    by_file_manager.setUrls([QUrl.fromLocalFile(str(runs[2].path))])
    drop(comparison, by_file_manager)
    assert comparison.run_ids == [run.run_id for run in runs]
    qtbot.waitUntil(lambda: len(comparison.runs) == 3)
    assert window.form.field_value("dataset") == dataset, "a run is not a dataset"
