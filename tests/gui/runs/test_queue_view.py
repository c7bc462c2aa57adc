"""The runs that wait for their devices, in their order, and how it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from engine.contract.events import ENCODE, Waiting
from engine.runs.folder import RunFolder, create_run
from engine.runs.queue import QueueSlot, hold, holders, waiting
from engine.system import paths
from gui.runs.page import RunsPage
from gui.runs.queue_view import COLUMNS
from gui.sources.run_queue import take_out
from tests.engine.supervisor.conftest import start as start  # noqa: PLC0414  (a fixture)
from tests.engine.supervisor.supervised import Start, wait_until
from tests.gui.runs.conftest import Refresh
from tests.gui.sources.written_runs import job

Stand = Callable[..., RunFolder]


@pytest.fixture
def stand() -> Iterator[Stand]:
    """Has a run stand in line, as its supervisor would."""
    slots: list[QueueSlot] = []

    def make(name: str, *devices: str, **changes: object) -> RunFolder:
        wanted = job(name=name, devices=devices or ("cpu",), **changes)
        run = create_run(wanted)
        slot = QueueSlot(run, wanted)
        slots.append(slot)
        event = slot.poll()
        if event is not None:
            run.events_file.write_bytes(ENCODE.encode(event) + b"\n")
        return run

    yield make
    for slot in slots:
        slot.close()


@pytest.fixture
def three(stand: Stand) -> list[RunFolder]:
    """Three that wait, behind one that has the processor."""
    stand("at work")
    return [stand(name) for name in ("one", "two", "three")]


@pytest.fixture
def seen(page: RunsPage, three: list[RunFolder], qtbot: QtBot) -> RunsPage:
    """The page, once it shows them."""
    page.queue.look()
    qtbot.waitUntil(lambda: names(page) == ["one", "two", "three"])
    page.queue.table.setFocus()
    return page


def names(page: RunsPage) -> list[str]:
    return column(page, "Run")


def column(page: RunsPage, title: str) -> list[str]:
    model = page.queue.model
    column = [column.title for column in COLUMNS].index(title)
    return [model.index(row, column).data() for row in range(model.rowCount())]


def order() -> list[str]:
    """The runs in line, by their names."""
    return [RunFolder(ticket.folder).job().name for ticket in waiting()]  # type: ignore[union-attr]


def choose(page: RunsPage, row: int) -> None:
    page.queue.table.setCurrentIndex(page.queue.model.index(row, 0))


def test_that_it_is_there_only_while_a_run_waits(page: RunsPage, refresh: Refresh, stand: Stand, qtbot: QtBot) -> None:
    stand("at work")
    refresh()
    qtbot.waitUntil(lambda: not page.queue.reading.running)
    assert not page.queue.isVisible()
    stand("one")
    refresh()
    qtbot.waitUntil(page.queue.isVisible)
    assert names(page) == ["one"]
    assert page.queue._count.text() == "1 run waits"


def test_that_what_each_waits_for_is_told(page: RunsPage, stand: Stand, qtbot: QtBot) -> None:
    stand("at work", "GPU-a")
    both = stand("both", "GPU-a", "GPU-b")
    stand("after", "GPU-b")
    others = Waiting(position=1, others=("Ada uses GPU 1 (12 GiB)",))
    both.events_file.write_bytes(ENCODE.encode(others) + b"\n")
    page.queue.look()
    qtbot.waitUntil(lambda: names(page) == ["both", "after"])
    assert column(page, "Waits for") == ["“at work”, Ada uses GPU 1 (12 GiB)", "“both”"]
    assert column(page, "Devices") == ["2 GPUs", "GPU"]
    assert column(page, "Place") == ["1", "2"]
    hold(both.run_id)
    page.queue.look()
    qtbot.waitUntil(lambda: column(page, "Waits for")[0].startswith("your release, “at work”"))


def test_that_the_model_is_sound(seen: RunsPage, qtbot: QtBot) -> None:
    tester = QAbstractItemModelTester(seen.queue.model, QAbstractItemModelTester.FailureReportingMode.Warning)
    choose(seen, 2)
    seen.queue.buttons["first"].click()
    qtbot.waitUntil(lambda: names(seen) == ["three", "one", "two"])
    assert tester.model() is seen.queue.model


MOVES = (
    (1, "up", Qt.Key.Key_Up, ["two", "one", "three"]),
    (1, "down", Qt.Key.Key_Down, ["two", "three", "one"]),
    (2, "first", Qt.Key.Key_Home, ["one", "two", "three"]),
)


@pytest.mark.parametrize("by_key", [False, True])
def test_that_a_run_is_moved_by_button_and_by_key_and_stays_chosen(seen: RunsPage, qtbot: QtBot, by_key: bool) -> None:
    for row, wanted, key, after in MOVES:
        name = names(seen)[row]
        choose(seen, row)
        if by_key:
            qtbot.keyClick(seen.queue.table, key, Qt.KeyboardModifier.AltModifier)
        else:
            seen.queue.buttons[wanted].click()
        qtbot.waitUntil(lambda after=after: names(seen) == after)
        assert order() == after
        chosen = seen.queue.table.chosen()
        assert chosen is not None
        assert chosen.name == name


def test_that_what_cannot_be_done_is_not_offered(seen: RunsPage) -> None:
    def offered() -> list[str]:
        return [wanted for wanted, button in seen.queue.buttons.items() if button.isEnabled()]

    choose(seen, 0)
    assert offered() == ["down", "hold", "start", "remove"]
    choose(seen, 1)
    assert offered() == ["up", "down", "first", "hold", "start", "remove"]
    choose(seen, 2)
    assert offered() == ["up", "first", "hold", "start", "remove"]


def test_that_the_keyboard_stays_in_the_line(seen: RunsPage, qtbot: QtBot) -> None:
    qtbot.waitActive(seen)
    choose(seen, 1)
    seen.queue.buttons["up"].setFocus()
    qtbot.keyClick(seen.queue.buttons["up"], Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: names(seen)[0] == "two")
    qtbot.waitUntil(seen.queue.table.hasFocus)  # the button has nothing more to do
    seen.queue.buttons["remove"].setFocus()
    seen.focusNextChild()
    assert seen.queue.table.hasFocus()


def test_that_a_run_is_held_and_released(seen: RunsPage, qtbot: QtBot) -> None:
    choose(seen, 0)
    button = seen.queue.buttons["hold"]
    assert (button.text(), button.accessibleName()) == ("Hold", "Hold: one")
    qtbot.keyClick(seen.queue.table, Qt.Key.Key_H)
    qtbot.waitUntil(lambda: button.text() == "Release")
    assert [ticket.held for ticket in waiting()] == [True, False, False]
    assert column(seen, "Waits for")[:2] == ["your release, “at work”", "“at work”"]
    button.click()
    qtbot.waitUntil(lambda: button.text() == "Hold")
    assert not any(ticket.held for ticket in waiting())


def test_that_enter_shows_the_run(seen: RunsPage, three: list[RunFolder], qtbot: QtBot) -> None:
    choose(seen, 1)
    with qtbot.waitSignal(seen.run_chosen) as chosen:
        qtbot.keyClick(seen.queue.table, Qt.Key.Key_Return)
    assert chosen.args[0].path == three[1].path


def test_that_it_takes_a_few_rows_of_room_at_most(page: RunsPage, refresh: Refresh, stand: Stand, qtbot: QtBot) -> None:
    for number in range(9):
        stand(f"run {number}")
    refresh()
    qtbot.waitUntil(lambda: len(names(page)) == 8)
    assert page.queue.height() < 200


def test_that_a_line_that_cannot_be_looked_at_is_told_once(page: RunsPage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not page.queue.reading.running)
    (paths.runtime_folder() / "queue").write_text("not a folder")
    said: list[str] = []
    page.message.connect(said.append)
    for _ in range(2):
        page.queue.look()
        qtbot.waitUntil(lambda: not page.queue.reading.running)
    assert len(said) == 1
    assert "Can't read the queue" in said[0]


def test_that_a_run_taken_out_ends_and_can_be_put_back_where_it_was(
    page: RunsPage, refresh: Refresh, start: Start, stand: Stand, qtbot: QtBot
) -> None:
    stand("at work")
    first = start("forever", start="when_free")
    wait_until(lambda: len(waiting()) == 1, "the run to stand in line")
    stand("later")
    refresh()
    qtbot.waitUntil(lambda: names(page) == ["forever", "later"])
    with qtbot.waitActive(page):
        page.activateWindow()
    choose(page, 0)
    page.queue.table.setFocus()
    qtbot.keyClick(page.queue.table, Qt.Key.Key_Delete)
    qtbot.waitUntil(page.queue.removed.yes.isVisible)
    assert "“forever” was removed from the queue" in page.queue.removed.text()
    assert first.run.state() == "stopped"
    assert order() == ["later"]
    page.queue.removed.yes.click()
    try:
        qtbot.waitUntil(lambda: order() == ["forever", "later"])
        qtbot.waitUntil(lambda: names(page) == ["forever", "later"])
        assert not page.queue.removed.isVisible()
        qtbot.waitUntil(lambda: first.run.state() == "waiting")
    finally:
        take_out(str(first.run.path))


def test_that_escape_leaves_a_run_out_of_the_line(page: RunsPage, start: Start, stand: Stand, qtbot: QtBot) -> None:
    stand("at work")
    run = start("forever", start="when_free").run
    wait_until(lambda: len(waiting()) == 1, "the run to stand in line")
    page.queue.look()
    qtbot.waitUntil(lambda: names(page) == ["forever"])
    page.queue.buttons["remove"].click()
    qtbot.waitUntil(page.queue.removed.yes.isVisible)
    qtbot.waitUntil(lambda: names(page) == [])
    assert page.queue.isVisible()
    qtbot.keyClick(page.queue.removed.no, Qt.Key.Key_Escape)
    assert not page.queue.isVisible()
    assert run.state() == "stopped"


def test_that_a_run_in_line_can_be_started_beside_the_others(
    page: RunsPage, start: Start, stand: Stand, qtbot: QtBot
) -> None:
    at_work = stand("at work")
    run = start("forever", start="when_free").run
    wait_until(lambda: len(waiting()) == 1, "the run to stand in line")
    page.queue.look()
    qtbot.waitUntil(lambda: names(page) == ["forever"])
    page.queue.buttons["start"].click()
    try:
        qtbot.waitUntil(lambda: holders() == {"cpu": (at_work.run_id, run.run_id)})
        qtbot.waitUntil(lambda: not page.queue.isVisible())
    finally:
        take_out(str(run.path))
