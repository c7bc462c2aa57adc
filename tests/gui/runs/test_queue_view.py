"""Queue view above the list of runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from engine.contract.events import ENCODE, Waiting
from engine.runs.folder import RunFolder, create_run
from engine.runs.queue import QueueSlot, hold, list_holders, list_waiting
from engine.system import paths
from gui.format import format_time_or_date
from gui.runs import queue_view
from gui.runs.page import RunsPage
from gui.runs.queue_view import COLUMNS
from gui.sources.run_queue import take_out
from gui.style import theme
from gui.style.icons import icon
from tests.engine.supervisor.conftest import start as start  # noqa: PLC0414  (a fixture)
from tests.engine.supervisor.supervised import Start
from tests.gui.runs.conftest import Refresh
from tests.gui.sources.written_runs import job
from tests.support.painted import draw_icon
from tests.support.waiting import wait_until
from tests.support.widgets import HoldCalls

Enqueue = Callable[..., RunFolder]


@pytest.fixture
def enqueue() -> Iterator[Enqueue]:
    """Return a function that puts a run into the queue, as a supervisor does."""
    slots: list[QueueSlot] = []

    def make(name: str, *devices: str) -> RunFolder:
        new_job = job(name=name, devices=devices or ("cpu",))
        run = create_run(new_job)
        slot = QueueSlot(run, new_job)
        slots.append(slot)
        event = slot.poll()
        if event is not None:
            run.events_file.write_bytes(ENCODE.encode(event) + b"\n")
        return run

    yield make
    for slot in slots:
        slot.close()


@pytest.fixture
def queued_runs(enqueue: Enqueue) -> list[RunFolder]:
    """Put three runs into the queue behind a run that uses the CPU."""
    enqueue("active")
    return [enqueue(name) for name in ("one", "two", "three")]


@pytest.fixture
def queue_page(page: RunsPage, queued_runs: list[RunFolder], qtbot: QtBot) -> RunsPage:
    """Return the page after it has listed the three queued runs."""
    show(page, qtbot, "one", "two", "three")
    page.queue.table.setFocus()
    return page


@pytest.fixture
def supervised(page: RunsPage, enqueue: Enqueue, start: Start, qtbot: QtBot) -> Iterator[RunFolder]:
    """Yield a queued run with a real supervisor, after the page has listed it."""
    enqueue("active")
    run = start("forever", start="when_free").run
    wait_until(lambda: len(list_waiting()) == 1, "the queued run")
    show(page, qtbot, "forever")
    yield run
    take_out(str(run.path))


def show(page: RunsPage, qtbot: QtBot, *expected: str) -> None:
    page.queue.refresh()
    qtbot.waitUntil(lambda: names(page) == list(expected))


def names(page: RunsPage) -> list[str]:
    return column(page, "Run")


def column(page: RunsPage, title: str) -> list[str]:
    model = page.queue.model
    column = [column.title for column in COLUMNS].index(title)
    return [model.index(row, column).data() for row in range(model.rowCount())]


def read_queue_order() -> list[str]:
    """Return the names of the queued runs in the order of the queue on disk."""
    return [RunFolder(ticket.folder).job().name for ticket in list_waiting()]


def choose(page: RunsPage, row: int) -> None:
    page.queue.table.setCurrentIndex(page.queue.model.index(row, 0))


def test_queue_is_hidden_while_empty(page: RunsPage, refresh: Refresh, enqueue: Enqueue, qtbot: QtBot) -> None:
    enqueue("active")
    refresh()
    qtbot.waitUntil(lambda: not page.queue.reading.running)
    assert not page.queue.isVisible()
    enqueue("one")
    refresh()
    qtbot.waitUntil(page.queue.isVisible)
    assert names(page) == ["one"]
    assert page.queue.count.text() == "1 run waits"
    page.hide()
    enqueue("two")
    page.run_list.refresh()
    qtbot.waitUntil(lambda: names(page) == ["one", "two"])


def test_queue_shows_what_runs_wait_for(page: RunsPage, enqueue: Enqueue, qtbot: QtBot) -> None:
    enqueue("active", "GPU-a")
    both = enqueue("both", "GPU-a", "GPU-b")
    enqueue("after", "GPU-b")
    others = Waiting(position=1, others=("Ada uses GPU 1 (12 GiB)",))
    both.events_file.write_bytes(ENCODE.encode(others) + b"\n")
    show(page, qtbot, "both", "after")
    assert column(page, "Waits for") == ["“active”, Ada uses GPU 1 (12 GiB)", "“both”"]
    assert column(page, "Devices") == ["2 GPUs", "GPU"]
    assert column(page, "Position") == ["1", "2"]
    assert column(page, "Since") == [format_time_or_date(ticket.since) for ticket in list_waiting()]
    hold(both.run_id)
    page.queue.refresh()
    qtbot.waitUntil(lambda: column(page, "Waits for")[0].startswith("your release, “active”"))


def test_queue_model_follows_qt_rules(queue_page: RunsPage, qtbot: QtBot) -> None:
    tester = QAbstractItemModelTester(queue_page.queue.model, QAbstractItemModelTester.FailureReportingMode.Warning)
    choose(queue_page, 2)
    queue_page.queue.buttons["first"].click()
    qtbot.waitUntil(lambda: names(queue_page) == ["three", "one", "two"])
    assert tester.model() is queue_page.queue.model


MOVES = (
    (1, "up", Qt.Key.Key_Up, ["two", "one", "three"]),
    (1, "down", Qt.Key.Key_Down, ["two", "three", "one"]),
    (2, "first", Qt.Key.Key_Home, ["one", "two", "three"]),
)


@pytest.mark.parametrize("by_key", [False, True])
def test_queue_moves_run_and_keeps_selection(queue_page: RunsPage, qtbot: QtBot, by_key: bool) -> None:
    for row, action, key, expected in MOVES:
        name = names(queue_page)[row]
        choose(queue_page, row)
        if by_key:
            qtbot.keyClick(queue_page.queue.table, key, Qt.KeyboardModifier.AltModifier)
        else:
            queue_page.queue.buttons[action].click()
        qtbot.waitUntil(lambda expected=expected: names(queue_page) == expected)
        assert read_queue_order() == expected
        current = queue_page.queue.current()
        assert current.name == name


@pytest.mark.parametrize(
    ("row", "disabled"),
    [(0, dict.fromkeys(("up", "first"), "The run is the first")), (1, {}), (2, {"down": "The run is the last"})],
)
def test_queue_disables_buttons_at_its_ends(queue_page: RunsPage, row: int, disabled: dict[str, str]) -> None:
    choose(queue_page, row)
    buttons = queue_page.queue.buttons.items()
    assert {name: button.toolTip() for name, button in buttons if not button.isEnabled()} == disabled


def test_queue_shows_up_to_four_rows_without_scrolling(queue_page: RunsPage, enqueue: Enqueue, qtbot: QtBot) -> None:
    table, model = queue_page.queue.table, queue_page.queue.model
    assert queue_page.queue.count.text() == "3 runs wait"
    assert table.viewport().height() == table.visualRect(model.index(2, 0)).bottom() + 1
    for name in ("four", "five"):
        enqueue(name)
    qtbot.waitUntil(lambda: names(queue_page) == ["one", "two", "three", "four", "five"])
    assert table.viewport().height() == table.visualRect(model.index(3, 0)).bottom() + 1
    assert table.selectionMode() == table.SelectionMode.SingleSelection


def test_queue_keeps_focus(queue_page: RunsPage, qtbot: QtBot) -> None:
    qtbot.waitUntil(queue_page.isActiveWindow)
    choose(queue_page, 1)
    queue_page.queue.buttons["up"].setFocus()
    qtbot.keyClick(queue_page.queue.buttons["up"], Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: names(queue_page)[0] == "two")
    qtbot.waitUntil(queue_page.queue.table.hasFocus)  # because the button is disabled at the top
    queue_page.queue.buttons["remove"].setFocus()
    queue_page.focusNextChild()
    assert queue_page.queue.table.hasFocus()


def test_queue_holds_and_releases_run(queue_page: RunsPage, qtbot: QtBot) -> None:
    choose(queue_page, 0)
    button = queue_page.queue.buttons["hold"]
    assert (button.text(), button.accessibleName()) == ("Hold", "Hold: one")
    assert button.toolTip().startswith("Let other runs start first")
    qtbot.keyClick(queue_page.queue.table, Qt.Key.Key_H)
    qtbot.waitUntil(lambda: button.text() == "Release")
    assert button.toolTip().startswith("Let the run start when")
    cells = [queue_page.queue.model.index(row, 0) for row in (0, 1)]
    icons = [draw_icon(cell.data(Qt.ItemDataRole.DecorationRole)) for cell in cells]
    assert icons == [draw_icon(icon("pause", "text")), draw_icon(icon("clock", "accent"))]
    assert cells[0].siblingAtColumn(1).data(Qt.ItemDataRole.ToolTipRole) == "one"
    assert [ticket.held for ticket in list_waiting()] == [True, False, False]
    button.click()
    qtbot.waitUntil(lambda: button.text() == "Hold")
    assert not any(ticket.held for ticket in list_waiting())


def test_queue_return_key_opens_run(queue_page: RunsPage, queued_runs: list[RunFolder], qtbot: QtBot) -> None:
    choose(queue_page, 1)
    with qtbot.waitSignal(queue_page.run_chosen) as chosen:
        qtbot.keyClick(queue_page.queue.table, Qt.Key.Key_Return)
    assert chosen.args[0].path == queued_runs[1].path


def test_queue_reports_read_error_once(page: RunsPage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not page.queue.reading.running)
    folder = paths.runtime_folder() / "queue"
    shutil.rmtree(folder)
    folder.write_text("not a folder")
    messages: list[str] = []
    page.message.connect(messages.append)

    def count_messages_after_refresh() -> int:
        page.queue.refresh()
        qtbot.waitUntil(lambda: not page.queue.reading.running)
        return len(messages)

    assert [count_messages_after_refresh() for _ in range(2)] == [1, 1]
    folder.unlink()
    assert count_messages_after_refresh() == 1
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("not a folder")
    assert count_messages_after_refresh() == 2
    assert messages[-1].startswith("Can't read the queue: ")


def test_queue_removes_run_and_puts_it_back(
    page: RunsPage, supervised: RunFolder, enqueue: Enqueue, qtbot: QtBot
) -> None:
    enqueue("later")
    show(page, qtbot, "forever", "later")
    with qtbot.waitActive(page):
        page.activateWindow()
    choose(page, 0)
    page.queue.table.setFocus()
    qtbot.keyClick(page.queue.table, Qt.Key.Key_Delete)
    assert page.queue.removal.no.hasFocus()
    qtbot.waitUntil(page.queue.removal.yes.isVisible)
    assert supervised.state() == "stopped"
    assert read_queue_order() == ["later"]
    page.queue.removal.yes.click()
    qtbot.waitUntil(lambda: names(page) == ["later", "forever"])
    assert not page.queue.removal.isVisible()
    qtbot.waitUntil(lambda: supervised.state() == "waiting")


def test_queue_failed_removal_keeps_bar_of_another_run(
    queue_page: RunsPage,
    queued_runs: list[RunFolder],
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
    hold_calls: HoldCalls,
) -> None:
    monkeypatch.setattr(queue_view, "take_out", lambda _folder: None)
    first, error = str(queued_runs[0].path), TimeoutError("one has not ended")
    release = hold_calls(queue_view, "take_out", lambda folder: folder == first, error)
    for row in (0, 1):
        choose(queue_page, row)
        queue_page.queue.buttons["remove"].click()
        assert "Removing" in queue_page.queue.removal.text()
    qtbot.waitUntil(queue_page.queue.removal.yes.isVisible)
    with qtbot.waitSignal(queue_page.queue.message):
        release.set()
    assert queue_page.queue.removal.yes.isVisible()
    choose(queue_page, 0)
    with qtbot.waitSignal(queue_page.queue.message) as message:
        queue_page.queue.buttons["remove"].click()
    assert message.args == ["Couldn't change the queue: one has not ended"]
    assert not queue_page.queue.removal.isVisible()
    removed = hold_calls(queue_view, "take_out", lambda folder: folder != first)
    choose(queue_page, 1)
    queue_page.queue.buttons["remove"].click()
    queue_page.queue.removal.no.click()
    with qtbot.waitSignal(queue_page.queue.changed):
        removed.set()
    assert not queue_page.queue.removal.isVisible()


def test_queue_removal_closes_on_escape(page: RunsPage, supervised: RunFolder, qtbot: QtBot) -> None:
    page.queue.buttons["remove"].click()
    qtbot.waitUntil(page.queue.removal.yes.isVisible)
    qtbot.waitUntil(lambda: names(page) == [])
    assert page.queue.removal.yes.isVisible()
    with qtbot.waitActive(page):
        page.activateWindow()
    qtbot.keyClick(page.queue.removal.no, Qt.Key.Key_Escape)
    assert not page.queue.isVisible()
    assert page.focusWidget().isVisible()
    assert supervised.state() == "stopped"


def test_queue_starts_run_now(page: RunsPage, supervised: RunFolder, qtbot: QtBot) -> None:
    (active,) = list_holders()["cpu"]
    page.queue.buttons["start"].click()
    qtbot.waitUntil(lambda: list_holders() == {"cpu": (active, supervised.run_id)})
    qtbot.waitUntil(lambda: not page.queue.isVisible())


@pytest.mark.usefixtures("normal_text")
def test_queue_name_column_follows_text_size(page: RunsPage, enqueue: Enqueue, qtbot: QtBot) -> None:
    enqueue("active")
    name = "a long name of a run that needs much space"
    enqueue(name)
    show(page, qtbot, name)
    width = page.queue.table.columnWidth(1)
    theme.choose("system", 200)
    assert page.queue.table.columnWidth(1) == 2 * width
