"""The page that lists the runs."""

from __future__ import annotations

import os
import shutil

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QMenu, QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.job import job_to_toml
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes, read_notes
from engine.system import paths
from gui.runs.model import COLUMNS, NAME
from gui.runs.page import RunsPage
from gui.titles import unread_words
from tests.gui.runs.conftest import Refresh, column, interrupted, select
from tests.gui.sources.written_runs import NESTED_TOO_DEEP, a_run, job


def texts(page: RunsPage) -> str:
    return "\n".join(label.text() for label in page.findChildren(QLabel) if label.isVisible())


def test_that_a_summary_tells_how_the_run_ended_and_how_good_it_was() -> None:
    for outcome in ("completed", "stopped", "failed"):
        cause = "a fault" if outcome == "failed" else ""
        summary = a_run(60, outcome, cause=cause).summary()  # type: ignore[arg-type]
        assert summary is not None
        assert (summary.state, summary.cause) == (outcome, cause)
        assert summary.best["top1"] == 0.8


def test_that_a_run_that_goes_on_is_read_without_its_middle() -> None:
    run = a_run(60, None)
    before = run.events_file.read_bytes().splitlines(keepends=True)
    summary = run.summary()
    assert summary is not None
    assert summary.state == "starting"
    assert summary.best == {"loss": 0.5, "top1": 0.8, "top5": 0.99}
    run.events_file.write_bytes(before[0] + b"not even an event\n" + b"".join(before[-3:]))
    again = run.summary()
    assert again is not None
    assert again.started == summary.started


def test_that_without_runs_the_page_says_what_to_do(page: RunsPage, refresh: Refresh) -> None:
    refresh()
    assert "No runs yet" in texts(page)
    assert not page.filters.isVisible()
    assert not page.details.isVisible()


def test_that_the_table_tells_of_each_run_what_it_was_and_what_came_of_it(page: RunsPage, refresh: Refresh) -> None:
    named = a_run(60, name="warm up")
    a_run(60, "failed", cause="a fault", strategy="ddp", devices=("cpu", "cpu"))
    change_notes(named.path, tags=("paper", "v2"))
    refresh()
    assert page.table.isVisible()
    rows = set(zip(*(column(page, c.title) for c in COLUMNS if c.title != "Started"), strict=True))
    (unnamed,) = {row[0] for row in rows} - {"warm up"}
    assert unnamed.startswith("flowers · ")
    assert rows == {
        ("warm up", "Completed", "Top-1 80.0 %", "ResNet-18", "Single device", "CPU", "7 s", "paper, v2"),
        (unnamed, "Failed", "Top-1 80.0 %", "ResNet-18", "DistributedDataParallel", "2 CPU workers", "7 s", ""),
    }


def test_that_searching_and_filtering_are_done_in_the_line_above(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    a_run(8, name="warm up")
    tagged = a_run(8, "stopped", name="second", model="resnet50")
    change_notes(tagged.path, tags=("paper",), favourite=True)
    refresh()
    assert not page.filters.clear.isVisible()
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert page.filters.text.hasFocus()
    qtbot.keyClicks(page.filters.text, "warm")
    qtbot.waitUntil(lambda: column(page, "Name") == ["warm up"])
    page.filters.clear.click()
    assert len(column(page, "Name")) == 2
    for combo, choice in (
        (page.filters.state, "Stopped (1)"),
        (page.filters.model, "ResNet-50 (1)"),
        (page.filters.tag, "paper (1)"),
    ):
        combo.setCurrentText(choice)
        assert combo.currentText() == choice
        assert column(page, "Name") == ["second"]
        refresh()
        assert combo.currentText() == choice
        page.filters.take_back()
    page.filters.favourites.click()
    assert column(page, "Name") == ["second"]
    page.filters.text.setText("nothing of the kind")
    qtbot.waitUntil(lambda: "No runs match" in texts(page))
    assert "0 of 2" in texts(page)


def test_that_the_search_is_for_the_runs_that_are_found_later_too(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    a_run(8, name="one")
    refresh()
    page.filters.text.setText("two")
    qtbot.waitUntil(lambda: page.model.rowCount() == 0)
    a_run(8, name="two")
    refresh()
    assert column(page, "Name") == ["two"]


@pytest.mark.parametrize("how", ["enter", "double click", "button", "menu"])
def test_that_a_run_opens_by_keyboard_by_mouse_and_by_button(
    page: RunsPage, refresh: Refresh, qtbot: QtBot, how: str
) -> None:
    run = a_run(8)
    refresh()
    page.table.selectRow(0)
    with qtbot.waitSignal(page.run_chosen) as chosen:
        if how == "enter":
            qtbot.keyClick(page.table, Qt.Key.Key_Return)
        elif how == "double click":
            place = page.table.visualRect(page.model.index(0, 0)).center()
            qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
            qtbot.mouseDClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
        elif how == "button":
            next(b for b in page.findChildren(QPushButton) if b.text() == "&Show run").click()
        else:
            menu = page.acts.menu(page.selected(), [])
            next(action for action in menu.actions() if action.text() == "&Show run").trigger()
            menu.close()
    assert isinstance(chosen.args[0], RunFolder)
    assert chosen.args[0].path == run.path


def test_that_several_runs_are_handed_to_be_compared(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    runs = [a_run(8) for _ in range(3)]
    refresh()
    select(page, runs[0])
    assert not page.acts.compare.isEnabled()
    select(page, runs[0], runs[2])
    with qtbot.waitSignal(page.compare_wanted) as wanted:
        qtbot.keyClick(
            page.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        )
    assert sorted(wanted.args[0]) == sorted([runs[0].run_id, runs[2].run_id])


def test_that_the_list_follows_what_becomes_of_runs(page: RunsPage, refresh: Refresh) -> None:
    going = create_run(job(name="going"))
    gone = a_run(8, name="gone")
    refresh()
    assert sorted(zip(column(page, "Name"), column(page, "State"), strict=True)) == [
        ("going", "Starting"),
        ("gone", "Completed"),
    ]
    shutil.rmtree(gone.path)
    os.utime(going.job_file, (0, 0))
    refresh()
    assert list(zip(column(page, "Name"), column(page, "State"), strict=True)) == [("going", "Interrupted")]


def test_that_columns_widen_with_what_is_written_in_them_until_the_user_sets_a_width(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    a_run(8, name="short")
    refresh()
    narrow = page.table.columnWidth(NAME)
    a_run(8, name="a name that takes far more room than the first")
    refresh()
    page.resize(2400, 800)
    qtbot.waitUntil(lambda: page.table.columnWidth(NAME) >= page.table.sizeHintForColumn(NAME) > narrow)
    page.resize(1440, 800)
    qtbot.waitUntil(lambda: page.table.horizontalScrollBar().maximum() == 0)
    assert page.table.columnWidth(NAME) < page.table.sizeHintForColumn(NAME)
    page.table.setColumnWidth(NAME, narrow)
    refresh()
    assert page.table.columnWidth(NAME) == narrow


def test_that_the_list_renews_itself(page: RunsPage, qtbot: QtBot) -> None:
    page._summaries._timer.setInterval(50)
    page._summaries.start()
    a_run(8, name="from a terminal")
    qtbot.waitUntil(lambda: column(page, "Name") == ["from a terminal"])


def test_that_selection_and_place_survive_a_refresh(page: RunsPage, refresh: Refresh) -> None:
    runs = [a_run(8, name=f"run {n}") for n in range(60)]
    for n, run in enumerate(runs):
        change_started(run, 1_000_000 + n)
    refresh()
    select(page, runs[10], runs[12])
    page.table.scrollTo(page.model.index(40, 0), page.table.ScrollHint.PositionAtTop)
    top = page.model.run(page.table.rowAt(0)).name
    assert page.table.rowAt(0) > 20
    for n in range(3):
        a_run(8, name=f"new {n}")  # above all others
    refresh()
    assert [run.name for run in page.selected()] == ["run 12", "run 10"]
    assert page.model.run(page.table.rowAt(0)).name == top
    page.table.scrollToTop()
    a_run(8, name="newest")
    refresh()
    assert page.table.rowAt(0) == 0


def change_started(run: RunFolder, started: float) -> None:
    """Rewrites the first line of the log, which says when the run began."""
    first, rest = run.events_file.read_bytes().split(b"\n", 1)
    begin = first.index(b'"time":') + 7
    end = first.index(b",", begin)
    run.events_file.write_bytes(first[:begin] + str(started).encode() + first[end:] + b"\n" + rest)


def test_that_a_run_is_renamed_in_its_row(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = a_run(8, name="before")
    refresh()
    select(page, run)
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_F2)
    editor = next(e for e in page.table.viewport().findChildren(QLineEdit))
    assert editor.text() == "before"
    editor.selectAll()
    qtbot.keyClicks(editor, "after")
    with qtbot.assertNotEmitted(page.run_chosen), qtbot.waitSignal(page.notes_writer.written):
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert column(page, "Name") == ["after"]
    assert read_notes(run.path).name == "after"
    refresh()
    assert column(page, "Name") == ["after"]
    assert run.job().name == "before"  # type: ignore[union-attr]


def test_that_favourites_bear_a_star_which_a_key_gives_and_takes(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    runs = [a_run(8) for _ in range(2)]
    refresh()
    select(page, *runs)
    assert page.model.index(0, NAME).data(Qt.ItemDataRole.DecorationRole) is None
    for favourite in (True, False):
        with qtbot.waitSignals([page.notes_writer.written, page.notes_writer.written]):
            qtbot.keyClick(page.table, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
        assert [read_notes(run.path).favourite for run in runs] == [favourite, favourite]
        star = page.model.index(0, NAME).data(Qt.ItemDataRole.DecorationRole)
        assert (star is not None) == favourite
        assert page.acts.favourite.isChecked() == favourite


def test_that_a_star_is_given_to_all_chosen_runs_where_one_lacks_it(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    runs = [a_run(8) for _ in range(2)]
    change_notes(runs[0].path, favourite=True)
    refresh()
    select(page, *runs)
    assert not page.acts.favourite.isChecked()
    with qtbot.waitSignal(page.notes_writer.written):
        page.acts.favourite.trigger()
    assert [read_notes(run.path).favourite for run in runs] == [True, True]


def test_that_tags_are_put_on_all_chosen_runs_and_taken_off(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    runs = [a_run(8) for _ in range(2)]
    change_notes(runs[0].path, tags=("old",))
    refresh()
    select(page, *runs)
    with qtbot.waitSignals([page.notes_writer.written, page.notes_writer.written]):
        page.acts.tag_wanted.emit("paper, v2", True)
    assert read_notes(runs[0].path).tags == ("old", "paper", "v2")
    assert read_notes(runs[1].path).tags == ("paper", "v2")
    menu = page.acts.menu(page.selected(), ["old", "paper", "v2"])
    tags = next(each for each in menu.findChildren(QMenu) if each.title() == "&Tags")
    offered = {action.text(): action for action in tags.actions()}
    assert (offered["old"].isChecked(), offered["paper"].isChecked()) == (False, True)
    with qtbot.waitSignals([page.notes_writer.written, page.notes_writer.written]):
        offered["paper"].trigger()
    menu.close()
    assert read_notes(runs[1].path).tags == ("v2",)


def test_that_notes_that_cannot_be_written_are_told(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = a_run(8)
    refresh()
    select(page, run)
    shutil.rmtree(run.path)
    with qtbot.waitSignal(page.message) as told:
        page.acts.favourite.trigger()
    assert "Could not save" in told.args[0]
    assert run.run_id in told.args[0]


def test_that_a_folder_that_is_no_run_is_passed_over(page: RunsPage, refresh: Refresh) -> None:
    a_run(8, name="good")
    (paths.runs_folder() / "20990101-000000-empty-0000").mkdir()
    refresh()
    assert column(page, "Name") == ["good"]


def test_that_a_list_that_cannot_be_read_says_why(page: RunsPage, qtbot: QtBot) -> None:
    paths.home().mkdir(parents=True)
    paths.runs_folder().write_text("no folder")
    with qtbot.waitSignal(page._summaries.failed):
        page.refresh()
    assert "can't be read" in texts(page)
    paths.runs_folder().unlink()
    a_run(8, name="back")
    with qtbot.waitSignal(page._summaries.complete):
        page.refresh()
    assert column(page, "Name") == ["back"]


def test_that_a_run_whose_files_lead_astray_is_named_and_the_others_are_read_on(
    page: RunsPage, refresh: Refresh
) -> None:
    a_run(8, name="good")
    damaged = interrupted(name="damaged")
    whole = damaged.job_file.read_text()
    damaged.job_file.write_text(NESTED_TOO_DEEP)
    refresh()
    assert column(page, "Name") == ["good"]
    assert page.unread.text().startswith(f"{damaged.run_id} can't be read: {damaged.job_file} is not valid TOML")
    assert page.unread.isVisible()
    a_run(8, name="new")
    damaged.job_file.write_text(whole)
    refresh()
    assert sorted(column(page, "Name")) == ["damaged", "good", "new"]
    assert not page.unread.isVisible()


def test_that_of_many_runs_that_cannot_be_read_the_first_are_named() -> None:
    words = unread_words({f"run-{number}": "a fault" for number in range(5)})
    assert words.splitlines() == [
        *(f"run-{n} can't be read: a fault." for n in range(3)),
        "2 runs more can't be read.",
    ]


def test_that_thousands_of_runs_are_listed_without_holding_up_the_window(page: RunsPage, qtbot: QtBot) -> None:
    pattern = a_run(8)
    lines = pattern.events_file.read_bytes().splitlines(keepends=True)
    text = job_to_toml(job(name="run 0"))
    for n in range(1500):
        folder = paths.runs_folder() / f"20250101-{n:06}-resnet18-{n:04x}"
        folder.mkdir()
        (folder / "job.toml").write_text(text.replace("run 0", f"run {n}"))
        (folder / "events.jsonl").write_bytes(lines[0] + lines[-1])
    page.refresh()
    assert page.model.rowCount() < 1501  # they are read elsewhere
    qtbot.waitUntil(lambda: page.model.rowCount() > 0)
    qtbot.waitUntil(lambda: page.model.rowCount() == 1501)
    qtbot.waitUntil(lambda: not page._summaries.reading)
    assert "1,501" in texts(page)


def test_that_a_page_that_goes_away_while_it_reads_leaves_no_thread(styled: QApplication) -> None:
    for _ in range(50):
        a_run(8)
    page = RunsPage()
    page.refresh()
    page.close_work()
    assert not page._summaries.reading
    page.deleteLater()


def test_that_every_control_has_a_name_and_is_reached_by_tab(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    a_run(8)
    refresh()
    page.table.selectRow(0)
    page.filters.text.setFocus()
    reached = set()
    for _ in range(30):
        qtbot.keyClick(page.focusWidget(), Qt.Key.Key_Tab)
        reached.add(page.focusWidget())
    assert {page.table, page.filters.state, page.details.tags, page.details.notes, page.details.facts} <= reached
    for widget in reached:
        assert widget.accessibleName() or getattr(widget, "text", str)(), widget
