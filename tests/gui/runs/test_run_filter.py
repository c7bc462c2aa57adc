"""What the line above the list of runs asks for."""

from __future__ import annotations

import time

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.runs.filter_bar import FilterBar
from gui.runs.run_filter import RunFilter
from tests.gui.runs.test_run_actions import runs


@pytest.fixture
def filters(styled: QApplication, qtbot: QtBot) -> FilterBar:
    made = FilterBar()
    qtbot.addWidget(made)
    made.offer(runs("failed", "completed"))
    return made


@pytest.mark.parametrize(
    ("period", "days"), [("Last 24 hours", 1), ("Last 7 days", 7), ("Last 30 days", 30), ("Last year", 365)]
)
def test_that_a_period_is_counted_back_from_now(filters: FilterBar, period: str, days: int) -> None:
    filters.period.setCurrentText(period)
    assert filters.wanted().since == pytest.approx(time.time() - days * 24 * 3600, abs=60)
    filters.period.setCurrentText("Any")
    assert filters.wanted().since is None


def test_that_all_that_is_asked_for_is_taken_back_at_once(filters: FilterBar, qtbot: QtBot) -> None:
    filters.text.setText("flowers")
    filters.state.setCurrentText("Failed (1)")
    filters.model.setCurrentIndex(1)
    filters.strategy.setCurrentIndex(1)
    filters.period.setCurrentText("Last 7 days")
    filters.favourites.click()
    wanted = filters.wanted()
    assert (wanted.text, wanted.state, wanted.model, wanted.strategy) == ("flowers", "failed", "resnet18", "single")
    assert wanted.favourites
    with qtbot.waitSignal(filters.changed):
        filters.clear.click()
    assert filters.wanted() == RunFilter()


def test_that_the_interrupted_runs_are_asked_for_alone(filters: FilterBar) -> None:
    filters.offer(runs("interrupted", "failed"))
    filters.text.setText("flowers")
    filters.favourites.click()
    filters.show_interrupted()
    assert filters.wanted() == RunFilter(state="interrupted")


def test_that_a_choice_of_which_nothing_is_left_is_taken_back(filters: FilterBar, qtbot: QtBot) -> None:
    filters.state.setCurrentText("Failed (1)")
    filters.offer(runs("failed", "failed", "completed"))
    assert filters.state.currentText() == "Failed (2)"
    with qtbot.waitSignal(filters.changed) as told:
        filters.offer(runs("completed"))
    assert told.args == [RunFilter()]
