"""Workers that are left without their supervisor stand above all runs, with what they hold, and can be ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtWidgets import QAbstractButton, QLabel, QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.devices import GpuProcess
from engine.runs.folder import RunFolder, process_alive
from engine.runs.orphans import Orphan, find_orphans
from gui.runs.page import RunsPage
from tests.gui.runs.conftest import Refresh
from tests.gui.sources.devices.snapshots import gpu, snapshot
from tests.gui.sources.written_runs import a_run
from tests.support.left_alone import leave_all, put_away

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the workers are new interpreters")


@pytest.fixture
def left() -> Iterator[Callable[..., Orphan]]:
    made: list[Orphan] = []

    def make(run: RunFolder, *ranks: int) -> Orphan:
        made.extend(leave_all(run, ranks or (0,)))
        return made[-1]

    yield make
    for orphan in made:
        put_away(orphan)


def said(page: RunsPage) -> str:
    return "\n".join(label.text() for label in page.orphans.findChildren(QLabel) if label.isVisible() and label.text())


def button(page: RunsPage, name: str) -> QAbstractButton:
    buttons = page.orphans.findChildren(QPushButton)
    return next(each for each in buttons if each.accessibleName().startswith(name) and each.isVisible())


def test_that_one_left_alone_is_told_and_ended_with_a_button(
    page: RunsPage, refresh: Refresh, left: Callable[..., Orphan], qtbot: QtBot
) -> None:
    run = a_run(60, None, name="night shift")
    refresh()
    assert not page.orphans.isVisible()
    orphan = left(run)
    page.orphans.look(at_once=True)
    qtbot.waitUntil(page.orphans.isVisible)
    assert said(page) == (f"A worker of night shift (rank 0, pid {orphan.pid}) has lost its supervisor.")
    button(page, f"End the worker of night shift, rank 0, pid {orphan.pid}").click()
    assert not button(page, "End the worker").isEnabled()
    qtbot.waitUntil(lambda: not page.orphans.isVisible())
    assert not process_alive(orphan.pid, orphan.start_time)


def test_that_what_it_holds_of_the_gpus_is_told(page: RunsPage, left: Callable[..., Orphan], qtbot: QtBot) -> None:
    orphan = left(a_run(8, None, name="night shift"))
    page.orphans.look(at_once=True)
    qtbot.waitUntil(page.orphans.isVisible)
    held = (GpuProcess(1, memory_used_bytes=1 << 30), GpuProcess(orphan.pid, memory_used_bytes=4 << 30))
    page.orphans.set_machine(snapshot(gpu(0, cuda_index=0, processes=held), gpu(1, cuda_index=1, processes=None)))
    words = f"A worker of night shift (rank 0, pid {orphan.pid}) has lost its supervisor. It holds 4.0 GiB of GPU 0."
    qtbot.waitUntil(lambda: said(page) == words)


def test_that_all_can_be_ended_at_once(page: RunsPage, left: Callable[..., Orphan], qtbot: QtBot) -> None:
    run = a_run(8, None)
    last = left(run, 0, 1, 2, 3)
    page.orphans.look(at_once=True)
    qtbot.waitUntil(page.orphans.isVisible)
    assert page.orphans.count == 4
    assert "1 more." in said(page)
    page.orphans.all.click()
    qtbot.waitUntil(lambda: not page.orphans.isVisible())
    assert not process_alive(last.pid, last.start_time)
    assert find_orphans() == []


def test_that_those_found_out_of_sight_are_told_of(page: RunsPage, left: Callable[..., Orphan], qtbot: QtBot) -> None:
    page.hide()
    orphan = left(a_run(8, None, name="night shift"))
    with qtbot.waitSignal(page.message) as told:
        page.orphans.look(at_once=True)
    assert told.args == [
        f"A worker of night shift (rank 0, pid {orphan.pid}) has lost its supervisor. Use Runs (Ctrl+3) to end it."
    ]


def test_that_it_does_not_look_too_often(
    page: RunsPage, refresh: Refresh, left: Callable[..., Orphan], qtbot: QtBot
) -> None:
    page.orphans.look(at_once=True)
    qtbot.waitUntil(lambda: not page.orphans.reading.running)
    left(a_run(8, None))
    refresh()
    assert not page.orphans.reading.running
    assert page.orphans.count == 0
