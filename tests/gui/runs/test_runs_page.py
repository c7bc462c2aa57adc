"""The list of runs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QTableView
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.contract import paths
from engine.contract.job import save_job
from engine.contract.runs import RunFolder, create_run
from gui.runs.model import COLUMNS, SORT_ROLE, RunsModel
from gui.runs.page import RunsPage
from tests.gui.run.written import a_run, job

Refresh = Callable[[], None]


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> RunsPage:
    made = RunsPage()
    qtbot.addWidget(made)
    made.resize(1000, 600)
    made.show()
    return made


@pytest.fixture
def refresh(page: RunsPage, qtbot: QtBot) -> Refresh:
    def read() -> None:
        with qtbot.waitSignal(page._summaries.complete, timeout=20_000):
            page.refresh()

    return read


def column(page: RunsPage, title: str) -> list[str]:
    number = [c.title for c in COLUMNS].index(title)
    return [page.rows.index(row, number).data() for row in range(page.rows.rowCount())]


def test_that_a_summary_tells_how_the_run_ended_and_how_good_it_was() -> None:
    for outcome in ("completed", "stopped", "failed"):
        cause = "a fault" if outcome == "failed" else ""
        summary = a_run(60, outcome, cause=cause).summary()  # type: ignore[arg-type]
        assert summary is not None
        assert (summary.state, summary.cause) == (outcome, cause)
        assert summary.best["top1"] == 0.8


def test_that_an_interrupted_run_is_read_whole() -> None:
    run = a_run(60, None)
    os.utime(run.job_file, (0, 0))
    summary = run.summary()
    assert summary is not None
    assert summary.state == "interrupted"
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
    assert any("No runs yet" in label.text() for label in page.findChildren(QLabel) if label.isVisible())


def test_that_the_table_tells_of_each_run_what_it_was_and_what_came_of_it(page: RunsPage, refresh: Refresh) -> None:
    a_run(60, name="warm up")
    a_run(60, "failed", cause="a fault", strategy="ddp", devices=("cpu", "cpu"))
    refresh()
    table = next(table for table in page.findChildren(QTableView) if table.accessibleName() == "Runs")
    assert table.isVisible()
    rows = set(zip(*(column(page, c.title) for c in COLUMNS if c.title != "Started"), strict=True))
    (unnamed,) = {row[0] for row in rows} - {"warm up"}
    assert unnamed.startswith("flowers · ")
    assert rows == {
        ("warm up", "Completed", "Top-1 80.0 %", "ResNet-18", "Single device", "CPU", "7 s"),
        (unnamed, "Failed", "Top-1 80.0 %", "ResNet-18", "DistributedDataParallel", "2 CPU workers", "7 s"),
    }


def test_that_the_model_keeps_qts_rules(qtmodeltester: ModelTester) -> None:
    model = RunsModel()
    qtmodeltester.check(model)
    summaries = [summary for n in range(4) if (summary := a_run(8, name=f"run {n}").summary()) is not None]
    model.merge(summaries[:3])
    model.merge(summaries)
    model.keep_only([summaries[1].run_id, summaries[3].run_id])
    qtmodeltester.check(model)
    assert [model.index(row, 0).data() for row in range(model.rowCount())] == ["run 1", "run 3"]


def test_that_columns_sort_by_what_they_mean(page: RunsPage, refresh: Refresh) -> None:
    for steps in (600, 8, 90):
        a_run(steps, name=f"{steps}")
    refresh()
    duration = [c.title for c in COLUMNS].index("Duration")
    page.table.sortByColumn(duration, Qt.SortOrder.AscendingOrder)
    assert column(page, "Name") == ["8", "90", "600"]
    keys = [page.rows.index(row, duration).data(SORT_ROLE) for row in range(3)]
    assert keys == sorted(keys)


def test_that_the_filter_looks_at_every_column(page: RunsPage, refresh: Refresh) -> None:
    a_run(8, name="warm up")
    a_run(8, "stopped", name="second")
    refresh()
    for text, names in (("STOPPED", ["second"]), ("warm", ["warm up"]), ("nothing of the kind", [])):
        page.filter.setText(text)
        assert column(page, "Name") == names
    page.filter.clear()
    assert len(column(page, "Name")) == 2


@pytest.mark.parametrize("how", ["enter", "double click", "button"])
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
            place = page.table.visualRect(page.rows.index(0, 0)).center()
            qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
            qtbot.mouseDClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
        else:
            next(b for b in page.findChildren(QPushButton) if b.text() == "Show run").click()
    assert isinstance(chosen.args[0], RunFolder)
    assert chosen.args[0].path == run.path


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


def test_that_the_list_renews_itself_while_it_is_in_sight(page: RunsPage, qtbot: QtBot) -> None:
    page._timer.setInterval(50)
    a_run(8, name="from a terminal")
    qtbot.waitUntil(lambda: column(page, "Name") == ["from a terminal"], timeout=5000)
    page.hide()
    assert not page._timer.isActive()


def test_that_the_selection_survives_a_refresh(page: RunsPage, refresh: Refresh) -> None:
    a_run(8, name="one")
    refresh()
    page.table.selectRow(0)
    for n in range(3):
        a_run(8, name=f"more {n}")
    refresh()
    selected = page.selected()
    assert selected is not None
    assert selected.job().name == "one"  # type: ignore[union-attr]


def test_that_a_folder_that_is_no_run_is_passed_over(page: RunsPage, refresh: Refresh) -> None:
    a_run(8, name="good")
    broken = paths.runs_folder() / "20990101-000000-broken-0000"
    broken.mkdir()
    (broken / "job.toml").write_text("this is = not [ toml")
    (paths.runs_folder() / "20990101-000000-empty-0000").mkdir()
    refresh()
    assert column(page, "Name") == ["good"]


def test_that_thousands_of_runs_are_listed_without_holding_up_the_window(page: RunsPage, qtbot: QtBot) -> None:
    pattern = a_run(8)
    lines = pattern.events_file.read_bytes().splitlines(keepends=True)
    for n in range(1500):
        folder = paths.runs_folder() / f"20250101-{n:06}-resnet18-{n:04x}"
        folder.mkdir()
        save_job(job(name=f"run {n}"), folder / "job.toml")
        (folder / "events.jsonl").write_bytes(lines[0] + lines[-1])
    begun = time.perf_counter()
    page.refresh()
    assert time.perf_counter() - begun < 0.05
    qtbot.waitUntil(lambda: page.model.rowCount() > 0, timeout=10_000)
    qtbot.waitUntil(lambda: page.model.rowCount() == 1501, timeout=20_000)
    # What has ended cannot change, so that a second look costs little.
    begun = time.perf_counter()
    with qtbot.waitSignal(page._summaries.complete, timeout=20_000):
        page.refresh()
    again = time.perf_counter() - begun
    assert again < 3


def test_that_a_page_that_goes_away_while_it_reads_leaves_no_thread(styled: QApplication, qtbot: QtBot) -> None:
    for _ in range(50):
        a_run(8)
    page = RunsPage()
    page.refresh()
    page.close_reading()
    assert page._summaries._thread is None
    page.deleteLater()
