"""Filters of the run list, and actions for several selected runs."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QMenu, QWidget
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunSummary, State
from gui.runs.actions import RunActions
from gui.runs.filter_bar import FilterBar
from gui.runs.table import RunFilter


@pytest.fixture
def filters(styled: QApplication, qtbot: QtBot) -> FilterBar:
    created = FilterBar()
    qtbot.addWidget(created)
    created.set_runs(runs("failed", "completed"))
    return created


@pytest.mark.parametrize(
    ("period", "days"), [("Last 24 hours", 1), ("Last 7 days", 7), ("Last 30 days", 30), ("Last year", 365)]
)
def test_filter_bar_counts_period_from_now(filters: FilterBar, period: str, days: int) -> None:
    filters.period.setCurrentText(period)
    assert filters.run_filter().since == pytest.approx(time.time() - days * 24 * 3600, abs=60)
    filters.period.setCurrentText("Any")
    assert filters.run_filter().since is None


def test_filter_bar_offers_values_of_the_runs(filters: FilterBar) -> None:
    listed = runs("failed", "completed", "completed", model="vit_b_16", tags=("b", "a"))
    filters.set_runs([*listed, *runs("completed", strategy="ddp", tags=("b",))])
    combos = (filters.state, filters.model, filters.strategy, filters.tag)
    assert [[combo.itemText(n) for n in range(1, combo.count())] for combo in combos] == [
        ["Completed (3)", "Failed (1)"],
        ["ResNet-18 (1)", "ViT-B/16 (3)"],
        ["DistributedDataParallel (1)", "Single device (3)"],
        ["a (3)", "b (4)"],
    ]
    for number in (1, 0):
        filters.set_runs(runs("failed", tags=("b",) * number))
        assert filters.tag.isVisibleTo(filters) == bool(number)


def test_filter_bar_clears_all_filters(filters: FilterBar, qtbot: QtBot) -> None:
    changes: list[RunFilter] = []
    filters.changed.connect(changes.append)
    filters.text.setText(" flowers ")
    qtbot.keyClick(filters.text, Qt.Key.Key_Return)
    assert changes == [RunFilter(text="flowers")]
    assert not filters.clear.isHidden()
    filters.reset()
    assert (changes.pop(), filters.clear.isHidden()) == (RunFilter(), True)
    filters.text.setText("flowers")
    filters.state.setCurrentText("Failed (1)")
    filters.model.setCurrentIndex(1)
    filters.strategy.setCurrentIndex(1)
    filters.period.setCurrentText("Last 7 days")
    filters.favorites.click()
    current = filters.run_filter()
    assert (current.text, current.state, current.model, current.strategy) == ("flowers", "failed", "resnet18", "single")
    assert current.favorites
    with qtbot.waitSignal(filters.changed):
        filters.clear.click()
    assert filters.run_filter() == changes[-1] == RunFilter()
    count = len(changes)
    filters.reset()
    assert len(changes) == count


def test_filter_bar_shows_interrupted_only(filters: FilterBar) -> None:
    filters.set_runs(runs("interrupted", "failed"))
    filters.text.setText("flowers")
    filters.favorites.click()
    filters.show_interrupted()
    assert filters.run_filter() == RunFilter(state="interrupted")


def test_filter_bar_drops_vanished_choice(filters: FilterBar, qtbot: QtBot) -> None:
    filters.state.setCurrentText("Failed (1)")
    filters.set_runs(runs("failed", "failed", "completed"))
    assert filters.state.currentText() == "Failed (2)"
    with qtbot.waitSignal(filters.changed) as changed:
        filters.set_runs(runs("completed"))
    assert changed.args == [RunFilter()]
    assert filters.state.currentText() == "Any"


ONE = {"show", "rename", "fork"}
RESUMABLE = ONE | {"resume", "change", "delete"}


@pytest.fixture
def acts(styled: QApplication, qtbot: QtBot) -> RunActions:
    place = QWidget()
    qtbot.addWidget(place)
    return RunActions(place, place)


def runs(*states: State, **changes: object) -> list[RunSummary]:
    fields = {
        "folder": "", "name": "", "model": "resnet18", "strategy": "single", "devices": ("cpu",), "dataset": "",
        "started": 0.0, "seconds": None, "best": {},
    }  # fmt: skip
    return [
        RunSummary(run_id=f"run-{number}", state=state, **(fields | changes))  # type: ignore[arg-type]
        for number, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("states", "offered"),
    [
        ((), set()),
        (("starting",), ONE),
        (("waiting",), ONE),
        (("running",), ONE | {"pause"}),
        (("paused",), RESUMABLE),
        (("stopped",), RESUMABLE),
        (("failed",), RESUMABLE),
        (("unsaved",), RESUMABLE),
        (("interrupted",), RESUMABLE),
        (("completed",), RESUMABLE - {"resume"}),
        (("paused", "running"), {"compare", "delete"}),
        (("running", "waiting"), {"compare"}),
    ],
)
def test_run_actions_are_enabled_by_state(acts: RunActions, states: tuple[State, ...], offered: set[str]) -> None:
    acts.set_runs(runs(*states))
    assert acts.favorite.isEnabled() is bool(states)
    names = ("show", "rename", "resume", "change", "pause", "fork", "compare", "delete")
    assert {name for name in names if getattr(acts, name).isEnabled()} == offered
    for name in {"resume", "change", "pause", "fork", "compare", "delete"} - offered:
        action = getattr(acts, name)
        assert action.disabled_reason


def test_menu_of_runs_groups_their_actions(acts: RunActions) -> None:
    groups = [
        ["show_run", "open_folder"],
        ["resume_run", "change_run", "pause_run", "fork_run"],
        ["compare_runs"],
        ["favorite_runs", "rename_run", "&Tags"],
        ["delete_runs", "undo_delete"],
    ]
    for selected in (runs("paused"), []):
        acts.set_runs(selected)
        menu = acts.create_menu(selected, [])
        texts = "|".join(action.objectName() or action.text() for action in menu.actions()).split("||")
        assert [group.split("|") for group in texts] == groups
        (tags,) = (action.menu() for action in menu.actions() if action.text() == "&Tags")
        assert isinstance(tags, QMenu)
        assert [action.text() for action in tags.actions()] == ["&New tag…"]
        assert tags.isEnabled() is bool(selected)
