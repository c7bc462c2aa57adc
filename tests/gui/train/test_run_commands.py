"""Menu commands for the model of the visible run. The test of every control checks the resulting pages."""

from __future__ import annotations

from gui.pages import RUNS, TRAIN
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import OpenWindow


def test_commands_for_the_model_need_a_run(open_window: OpenWindow) -> None:
    window = open_window()
    actions = [window.acts.by_name[name] for name in ("evaluate_run", "predict_with_run", "convert_run")]
    assert not any(action.ready for action in actions)
    window.show_run(write_run(8))
    for action in actions:
        window.header.show_page(RUNS)
        action.trigger()
        assert window.acts.page == TRAIN
