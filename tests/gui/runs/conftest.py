"""Fixtures for the Runs page."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTreeWidgetItem
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunFolder
from gui.runs.page import RunsPage
from gui.runs.table import COLUMNS
from gui.sources.run_list import RunList
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import ShowWidget

Refresh = Callable[[], None]


@pytest.fixture(autouse=True)
def private_trash(trash: Path) -> None:
    """Use the temporary trash of the fixture `trash` for deleted runs in every test."""


@pytest.fixture
def page(show_widget: ShowWidget, qtbot: QtBot) -> RunsPage:
    page = show_widget(RunsPage(RunList()), 1000, 700)
    qtbot.waitUntil(lambda: not page.run_list.reading)
    return page


@pytest.fixture
def refresh(page: RunsPage, qtbot: QtBot) -> Refresh:
    def read() -> None:
        with qtbot.waitSignal(page.run_list.complete):
            page.refresh()

    return read


def read_column(page: RunsPage, title: str) -> list[str]:
    """Return the texts of a column from top to bottom."""
    number = [c.title for c in COLUMNS].index(title)
    return [page.model.index(row, number).data() for row in range(page.model.rowCount())]


def facts(page: RunsPage) -> dict[str, dict[str, str]]:
    """Return the details of the selected run: the texts of each section, by its title and the names in it."""
    tree = page.details.facts
    tops = [tree.topLevelItem(n) for n in range(tree.topLevelItemCount())]
    return {top.text(0): {top.child(n).text(0): top.child(n).text(1) for n in range(top.childCount())} for top in tops}


def find_fact(page: RunsPage, name: str) -> QTreeWidgetItem:
    """Return the only line of the details with `name`."""
    (item,) = page.details.facts.findItems(name, Qt.MatchFlag.MatchExactly | Qt.MatchFlag.MatchRecursive)
    return item


def select_runs(page: RunsPage, *runs: RunFolder) -> None:
    """Select only these runs in the table, and focus the table."""
    page.table.setFocus()
    model = page.table.selectionModel()
    model.clear()
    for run in runs:
        row = page.model.position(run.run_id)
        assert row is not None
        index = page.model.index(row, 0)
        model.setCurrentIndex(index, model.SelectionFlag.Select | model.SelectionFlag.Rows)


def make_interrupted_run(steps: int = 60, *, checkpoint: bool = True, **changes: object) -> RunFolder:
    """Create a run of `steps` steps without a final event in its log, as after a power failure.

    If `checkpoint`, it has a checkpoint to resume from. `changes` are fields of the job.
    """
    run = write_run(steps, None, **changes)  # type: ignore[arg-type]
    os.utime(run.job_file, (0, 0))  # a run without a supervisor and with a recent job counts as starting
    if checkpoint:
        (run.checkpoints / "last.pt").write_bytes(b"weights")
    return run
