"""What is offered for the runs that are chosen."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunSummary, State
from gui.runs.actions import RunActions

ONE = {"show", "rename", "fork"}
AGAIN = ONE | {"resume", "change", "delete"}


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
        (("paused",), AGAIN),
        (("stopped",), AGAIN),
        (("failed",), AGAIN),
        (("unsaved",), AGAIN),
        (("interrupted",), AGAIN),
        (("completed",), AGAIN - {"resume"}),
        (("paused", "running"), {"compare", "delete"}),
        (("running", "waiting"), {"compare"}),
    ],
)
def test_that_what_can_be_done_is_offered_and_all_else_says_why_not(
    acts: RunActions, states: tuple[State, ...], offered: set[str]
) -> None:
    acts.choose(runs(*states))
    names = ("show", "rename", "resume", "change", "pause", "fork", "compare", "delete")
    assert {name for name in names if getattr(acts, name).isEnabled()} == offered
    for name in {"resume", "change", "pause", "fork", "compare", "delete"} - offered:
        action = getattr(acts, name)
        assert action.toolTip() not in ("", action.property("tip"))


def test_that_a_completed_run_is_trained_further_and_any_other_resumed(acts: RunActions) -> None:
    said = []
    for state in ("completed", "paused"):
        acts.choose(runs(state))  # type: ignore[arg-type]
        said.append(acts.change.text().replace("&", ""))
    assert said == ["Train further …", "Resume with changes …"]
