"""Tests of the search field and the filters."""

from __future__ import annotations

import time

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.runs.filter_bar import FilterBar
from gui.runs.table import RunFilter
from tests.gui.runs.test_run_actions import runs


@pytest.fixture
def filters(styled: QApplication, qtbot: QtBot) -> FilterBar:
    made = FilterBar()
    qtbot.addWidget(made)
    made.set_runs(runs("failed", "completed"))
    return made


@pytest.mark.parametrize(
    ("period", "days"), [("Last 24 hours", 1), ("Last 7 days", 7), ("Last 30 days", 30), ("Last year", 365)]
)
def test_filter_bar_counts_period_from_now(filters: FilterBar, period: str, days: int) -> None:
    filters.period.setCurrentText(period)
    assert filters.run_filter().since == pytest.approx(time.time() - days * 24 * 3600, abs=60)
    filters.period.setCurrentText("Any")
    assert filters.run_filter().since is None


def test_filter_bar_clears_all_filters(filters: FilterBar, qtbot: QtBot) -> None:
    filters.text.setText("flowers")
    filters.state.setCurrentText("Failed (1)")
    filters.model.setCurrentIndex(1)
    filters.strategy.setCurrentIndex(1)
    filters.period.setCurrentText("Last 7 days")
    filters.favourites.click()
    current = filters.run_filter()
    assert (current.text, current.state, current.model, current.strategy) == ("flowers", "failed", "resnet18", "single")
    assert current.favourites
    with qtbot.waitSignal(filters.changed):
        filters.clear.click()
    assert filters.run_filter() == RunFilter()


def test_filter_bar_shows_interrupted_only(filters: FilterBar) -> None:
    filters.set_runs(runs("interrupted", "failed"))
    filters.text.setText("flowers")
    filters.favourites.click()
    filters.show_interrupted()
    assert filters.run_filter() == RunFilter(state="interrupted")


def test_filter_bar_drops_vanished_choice(filters: FilterBar, qtbot: QtBot) -> None:
    filters.state.setCurrentText("Failed (1)")
    filters.set_runs(runs("failed", "failed", "completed"))
    assert filters.state.currentText() == "Failed (2)"
    with qtbot.waitSignal(filters.changed) as changed:
        filters.set_runs(runs("completed"))
    assert changed.args == [RunFilter()]
