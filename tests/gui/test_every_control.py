"""Effects of every button, input, action and menu entry in the window, compared with a golden file.

`FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/gui/test_every_control.py` writes the file again. Review its diff.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QMenu, QWidget

from engine.system import paths
from gui.run.header import CURVES
from gui.sources.background import Background
from tests.gui.test_every_page import replace_changing_parts
from tests.support.golden import check_file
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import NvmlStub
from tests.support.stage import SECOND, Stage, process_events_until
from tests.support.walker import Walker, list_menu_lines, list_timers
from tests.support.widgets import OpenWindow

SLOW = ("shortcuts", "about", "help")
"""Pages with many widgets that only affect the page itself. They are left out, because they would take long."""
UNTRIED = ("quit", "system_theme", "light_theme", "dark_theme", "larger_text", "smaller_text", "usual_text")
"""Actions that end the program, or that restyle the window, which takes seconds."""
UNTRIED_CONTROLS = (
    "ComboBox “Theme” in ChoiceEditor",
    "QLineEdit “Find anything” in Palette",
    "QLineEdit “Name of the host” in HostDialog",
    "QLineEdit “Search runs” in FilterBar",
)
"""Controls that restyle the window, find runs by their date, or connect to a host."""
DIALOGS = ("submit", "hosts", "open_remote")
"""Actions whose dialogs contain controls, in addition to the dialogs of the stage."""
GOLDEN = Path(__file__).with_name("golden_effects.txt")


def has_answers(page: QWidget) -> bool:
    """Return True if the page waits for no background call."""
    return not page.findChildren(Background)


def is_at_rest(page: QWidget) -> bool:
    """Return True if the page waits for neither a background call nor a timer."""
    return has_answers(page) and not any(timer.isActive() for timer in page.findChildren(QTimer))


@pytest.mark.no_qt_log  # actions that edit a cell warn after their page was left
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("sampler_is_never_silent")
def test_every_control_has_its_effect(
    nvml_stub: NvmlStub, open_window: OpenWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MACHINES["everything"].write(nvml_stub)
    window = open_window()
    stage, walker = Stage(window), Walker(window, monkeypatch)
    lines: list[str] = []
    dialogs = {name: partial(stage.show_dialog, window.acts.by_name[name].trigger) for name in DIALOGS}
    for name, show in (stage.pages() | dialogs | stage.expanded_pages()).items():
        if name in SLOW:
            continue
        if name == SECOND:
            stage.create_contents(tmp_path)
        if name == "form-unfolded":
            window.job_panel.end_prefill()  # the form of a run locks most fields
        process_events_until(partial(is_at_rest, window.job_panel))
        page = show()
        if name == "form-unfolded":
            page = window.job_panel
        elif page is window and name != "first-start":
            page = window.pages.currentWidget()
        process_events_until(partial(has_answers, page))
        run_ids = [run.name for run in paths.runs_folder().glob("*")]
        lines.append(f"[{name}]")
        lines += [replace_changing_parts(line, name, run_ids) for line in walker.walk(page, show, UNTRIED_CONTROLS)]
    stage.show_run(CURVES)
    lines.append("[actions]")
    for name, action in window.acts.by_name.items():
        if action.isEnabled() and name not in UNTRIED:
            line = f"{name}: {'; '.join(walker.press(action.trigger))}"
            lines.append(replace_changing_parts(line, name, run_ids))
    menus = [action.menu() for action in window.menuBar().actions()]
    lines += ["[menus]", *(line for menu in menus if isinstance(menu, QMenu) for line in list_menu_lines(menu))]
    lines += [
        "[timers]",
        *list_timers(window),
        "[signals that nothing is connected to]",
        *walker.list_unconnected_signals(),
    ]
    check_file(GOLDEN, "\n".join(lines) + "\n")
