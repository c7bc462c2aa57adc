"""Check of every page of the window with content: names, tab order, number formats, clipped texts, and the content.

Clipping is checked on a small screen with large texts and both side panels. The content is compared with a golden file:
`FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/gui/test_every_page.py` writes it again. Review its diff.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QComboBox,
    QDialog,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QTextEdit,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from engine.system import paths
from gui.pages import RUNS, SEARCHES, TRAIN
from gui.preferences.store import Preferences
from gui.run.header import CURVES
from gui.search.page import FORM
from gui.sources.background import Background
from gui.sources.settings import Settings
from gui.style import theme
from gui.welcome.page import FindingRow
from gui.widgets.labels import ProblemLabel
from tests.gui.cut_off import wait_for_layout
from tests.gui.sources.written_runs import supervise_here, write_run
from tests.gui.test_app_names import get_spoken_name, list_focusable_widgets
from tests.support.golden import check_file
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import NvmlStub
from tests.support.page_contents import list_contents
from tests.support.painted import list_paintings
from tests.support.stage import SECOND, Stage, process_events_until
from tests.support.widgets import OpenWindow

GOLDEN = Path(__file__).with_name("golden_pages.txt")
WIDTH, HEIGHT = 1280, 800
PERCENT = 150
ENGLISH = re.compile(r"(?<![\d.])[1-9]\d{0,2},\d{3}(?!\d)|\d\.(?!\d{3}\b)\d+ ?(%|ms|[kMGT]i?B|GB/s|images/s|Wh|kJ|M\b)")
"""Regular expression for numbers in English notation. It ignores names and versions."""
VARIES = re.compile(
    r"/[\w./-]*/(?=home|trees|resources)|\d{8}-\d{6}(?=-)|\b\d\d[./]\d\d[./]\d{2,4}|(?<![\d:])\d\d:\d\d(:\d\d)?"
    r"|[\d.,]+ GiB (of [\d.,]+ GiB )?free|(?<=CPU: ).*|(?<=“Loader workers” ).*|(?<=“Limit of the image cache” ).*"
)
"""Regular expression for folders, dates, times and sizes of the machine, which differ between two runs of a test."""


def controls(page: QWidget) -> list[QWidget]:
    return [
        each
        for each in list_focusable_widgets(page)
        if each.isVisible() and each.isEnabled() and not each.size().isEmpty()
    ]


def list_tab_stops(page: QWidget) -> list[QWidget]:
    """Return the widgets that get the focus when Tab is pressed repeatedly.

    They begin with the first control of the page and end with the first widget that gets the focus a second time.
    """
    present = controls(page)
    widget = page.nextInFocusChain()
    while widget not in present:
        widget = widget.nextInFocusChain()
    widget.setFocus()
    found: list[QWidget] = []
    while widget is not None and widget not in found:
        found.append(widget)
        page.focusNextChild()
        widget = page.focusWidget()
    return [*found, widget]


def is_against_reading_order(before: QWidget, after: QWidget, window: QWidget) -> bool:
    """Return True if Tab moves up or left from `before` to `after`, against the reading order.

    Widgets in different containers are compared by the positions of these containers.
    """
    holders = [before]
    while holders[-1] is not window:
        holders.append(holders[-1].parentWidget())
    other = after
    while (parent := other.parentWidget()) not in holders:
        if parent is None:
            return False
        other = parent
    index = holders.index(parent)
    if index == 0:
        return False
    one = holders[index - 1]
    a, b = (QRect(each.mapTo(window, QPoint(0, 0)), each.size()) for each in (one, other))
    if b.right() <= a.left():
        return b.top() < a.bottom()
    return b.bottom() <= a.top() and b.left() < a.right()


def list_texts(page: QWidget) -> Iterator[str]:
    """Yield all texts of visible labels, buttons, combo boxes and tables, and accessible descriptions.

    Texts that come from the engine are left out.
    """
    for widget in page.findChildren(QWidget):
        if not widget.isVisible() or isinstance(widget.parent(), ProblemLabel | FindingRow):
            continue
        if isinstance(widget, QLabel | QAbstractButton):
            yield widget.text()
        elif isinstance(widget, QComboBox):
            yield from (widget.itemText(index) for index in range(widget.count()))
        elif isinstance(widget, QAbstractItemView) and widget.model() is not None:
            model, root = widget.model(), widget.rootIndex()
            cells = (model.index(row, column, root) for row, column in product(range(20), range(20)))
            yield from (str(cell.data() or "") for cell in cells if cell.isValid())
        yield widget.accessibleDescription()


def find_tab_traps(page: QWidget) -> list[str]:
    """Return the names of the widgets that the user can't leave with Tab."""
    return [
        get_spoken_name(each)
        for each in controls(page)
        if (isinstance(each, QAbstractItemView) and each.tabKeyNavigation())
        or (isinstance(each, QPlainTextEdit | QTextEdit) and not each.isReadOnly() and not each.tabChangesFocus())
    ]


def find_faults(page: QWidget) -> Iterator[str]:
    """Yield a message for each defect of the visible page in names, tab order and number formats."""
    present = controls(page)
    yield from (
        f"no name: {type(each).__name__} in {type(each.parent()).__name__}"
        for each in present
        if not get_spoken_name(each).strip()
    )
    yield from (
        f"nothing on the button {get_spoken_name(each)}"
        for each in present
        if isinstance(each, QPushButton | QToolButton) and not each.text() and each.icon().isNull()
    )
    *walked, last = list_tab_stops(page)
    if last is not walked[0]:
        yield f"Tab comes from {get_spoken_name(walked[-1])} to {get_spoken_name(last)}, never to the first control again"
    yield from (f"Tab misses {get_spoken_name(each)}" for each in present if each not in walked)
    yield from (
        f"Tab goes from {get_spoken_name(before)} to {get_spoken_name(after)}"
        for before, after in pairwise(each for each in walked if each in present)
        if is_against_reading_order(before, after, page)
    )
    yield from (f"Tab stays in {name}" for name in find_tab_traps(page))
    if isinstance(page, QDialog):
        names = Counter(get_spoken_name(each) for each in present)
        yield from (f"{count} controls with the name {name}" for name, count in names.items() if count > 1)
    yield from (f"English number: {text[:80]}" for text in list_texts(page) if ENGLISH.search(text))


def show_active_run(stage: Stage) -> QWidget:
    """Show a run that appears to be active, and return its page."""
    stage.window.show_run(supervise_here(write_run(400, None)))
    process_events_until(lambda: not stage.workspace.session.loading)
    return stage.show_run(CURVES)


def wait_for_contents(page: QWidget, name: str) -> list[str]:
    """Wait until the contents of a page no longer change and no background work is left, and return them as lines.

    Parts that vary between runs of the test are replaced as in `replace_changing_parts` for the page `name`.
    """
    run_ids = [run.name for run in paths.runs_folder().glob("*")]
    found: list[list[str]] = []

    def is_settled() -> bool:
        found.append([replace_changing_parts(line, name, run_ids) for line in list_contents(page)])
        return len(found) > 2 and found[-1] == found[-2] == found[-3] and not page.findChildren(Background)

    process_events_until(is_settled, seconds=120.0)
    return found[-1]


def replace_changing_parts(line: str, name: str, run_ids: list[str]) -> str:
    """Replace the parts of a line that differ between two runs of a test, such as run ids and the host name.

    On the Monitor pages, whose `name` begins with "monitor", all numbers are replaced.
    """
    for run_id in run_ids:
        line = re.sub(rf"{run_id}|\b{run_id[-4:]}\b", "RUN", line)
    line = VARIES.sub("…", line.replace(f"| {platform.node()} |", "| HOST |"))
    return re.sub(r"\d+([.,]\d+)*", "#", line) if name.startswith("monitor") else line


def compare_with_golden(pages: dict[str, list[str]]) -> None:
    """Compare the lines of all pages with the golden file, or write them to it if FOOTPLATE_WRITE_TEXTS is set.

    To keep the file short, it contains the number of lines of each page, but each line only at its first occurrence.
    """
    known: set[str] = set()
    lines = []
    for name, page in pages.items():
        lines += [f"[{name}], {len(page)} lines:", *(line for line in dict.fromkeys(page) if line not in known)]
        known.update(page)
    check_file(GOLDEN, "\n".join(lines) + "\n")


@pytest.fixture
def large_texts() -> Iterator[None]:
    """Use a large font size in all windows during a test."""
    Preferences(Settings()).set("text_percent", PERCENT)
    yield
    theme.choose("system", 100)


@pytest.mark.usefixtures("german", "large_texts", "sampler_is_never_silent")
def test_every_page_is_accessible_and_unclipped(
    nvml_stub: NvmlStub, open_window: OpenWindow, tmp_path: Path, qtbot: QtBot
) -> None:
    MACHINES["everything"].write(nvml_stub)
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    stage = Stage(window)
    assert theme.scale_pixels(100) == PERCENT
    found: dict[str, str] = {}
    described: dict[str, list[str]] = {}
    for name, show in (
        stage.pages() | stage.expanded_pages() | {"run-going-on": partial(show_active_run, stage)}
    ).items():
        if name == SECOND:
            stage.create_contents(tmp_path)
        page = show()
        if page is window:
            window.acts.devices_panel.setChecked(True)
            window.resize(WIDTH, HEIGHT)
        for fault in (*wait_for_layout(page), *find_faults(page)):
            found.setdefault(fault, name)
        page = window.pages.currentWidget() if page is window else page
        if name not in ("about", "help"):  # packages, and the guide
            lines = wait_for_contents(page, name)
            described[name] = sorted(lines) if name.startswith("monitor") else lines  # created as readings arrive
            if not name.startswith("monitor") and name not in ("first-start", "run-going-on"):  # measure live
                run_ids = [run.name for run in paths.runs_folder().glob("*")]
                described[name] += [replace_changing_parts(line, name, run_ids) for line in list_paintings(page)]
        assert window.size() == QSize(WIDTH, HEIGHT), name
    compare_with_golden(described)
    assert "\n".join(f"{name}: {fault}" for fault, name in found.items()) == ""


def test_untabbed_page_has_a_way_back(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(window.form.train.isEnabled)
    work, tabs = window.workspace, window.header.tabs
    page = work.get_page("dataset")
    window.header.show_page(SEARCHES)
    work.get_page("search").new.trigger()
    work.get_page("search").compare_requested.emit([])
    assert tabs.currentIndex() == RUNS
    assert window.pages.currentWidget() is work.get_page("compare")
    work.get_page("compare").closed.emit()
    assert tabs.currentIndex() == window.pages.currentIndex() == SEARCHES
    assert window.pages.currentWidget() is work.get_page("search")
    assert work.get_page("search").stack.currentIndex() == FORM, "the page is as it was left"
    window.header.show_page(RUNS)
    for augmentation, epoch_index in (("light", 1), ("none", 0)):
        window.form.set_field("augmentation", augmentation)
        window.form.validate()
        window.form.card.gallery_requested.emit(2)
        assert (page.examples.currentRow(), page.epoch_choice.currentIndex()) == (2, epoch_index)
    assert tabs.currentIndex() == TRAIN
    assert window.pages.currentWidget() is page
    page.closed.emit()
    assert tabs.currentIndex() == window.pages.currentIndex() == RUNS
