"""Tests of the actions on the selected runs."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunSummary, State
from gui.runs.actions import RunActions

ONE = {"show", "rename", "fork"}
RESUMABLE = ONE | {"resume", "change", "delete"}


@pytest.fixture
def acts(styled: QApplication, qtbot: QtBot) -> RunActions:
    place = QWidget()
    qtbot.addWidget(place)
    return RunActions(place, place)


def runs(*states: State) -> list[RunSummary]:
    return [
        RunSummary(
            run_id=f"run-{number}", folder="", name="", model="resnet18", strategy="single", devices=("cpu",), dataset="",
            state=state, started=0.0, seconds=None, best={},
        )
        for number, state in enumerate(states)
    ]  # fmt: skip


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
    names = ("show", "rename", "resume", "change", "pause", "fork", "compare", "delete")
    assert {name for name in names if getattr(acts, name).isEnabled()} == offered
    for name in {"resume", "change", "pause", "fork", "compare", "delete"} - offered:
        action = getattr(acts, name)
        assert action.disabled_reason
