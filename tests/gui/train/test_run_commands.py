"""Menu commands for the model of the visible run."""

from __future__ import annotations

import pytest

from gui.pages import RUNS, TRAIN
from gui.run.header import EVALUATE, PREDICT
from gui.run.use import view as use_view
from tests.gui.sources.written_runs import a_run
from tests.support.widgets import OpenWindow


@pytest.mark.parametrize(
    ("command", "view", "use"),
    [
        ("evaluate_run", EVALUATE, None),
        ("predict_with_run", PREDICT, use_view.PREDICT),
        ("convert_run", PREDICT, use_view.CONVERT),
    ],
)
def test_menu_shows_the_view_of_the_run(open_window: OpenWindow, command: str, view: int, use: int | None) -> None:
    window = open_window()
    action = window.acts.by_name[command]
    assert not action.ready
    window.show_run(a_run(8))
    assert action.ready
    assert action in [each for group in window.acts.menu_groups("run") for each in group]
    window.header.show_page(RUNS)
    action.trigger()
    page = window.workspace.run
    assert window.acts.page == TRAIN
    assert page.header.tabs.currentIndex() == view
    if use is not None:
        assert page.views.currentWidget().tabs.currentIndex() == use
