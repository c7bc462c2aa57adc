"""Banners for workers without a supervisor."""

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
    created: list[Orphan] = []

    def make(run: RunFolder, *ranks: int) -> Orphan:
        created.extend(leave_all(run, ranks or (0,)))
        return created[-1]

    yield make
    for orphan in created:
        put_away(orphan)


def text(page: RunsPage) -> str:
    return "\n".join(label.text() for label in page.orphans.findChildren(QLabel) if label.isVisible() and label.text())


def button(page: RunsPage, name: str) -> QAbstractButton:
    buttons = page.orphans.findChildren(QPushButton)
    return next(each for each in buttons if each.accessibleName().startswith(name) and each.isVisible())


def test_orphan_banner_ends_worker(page: RunsPage, refresh: Refresh, left: Callable[..., Orphan], qtbot: QtBot) -> None:
    run = a_run(60, None, name="night shift")
    refresh()
    assert not page.orphans.isVisible()
    orphan = left(run)
    page.orphans.refresh(force=True)
    qtbot.waitUntil(page.orphans.isVisible)
    assert f"night shift (rank 0, pid {orphan.pid})" in text(page)
    button(page, f"End the worker of night shift, rank 0, pid {orphan.pid}").click()
    assert not button(page, "End the worker").isEnabled()
    qtbot.waitUntil(lambda: not page.orphans.isVisible())
    assert not process_alive(orphan.pid, orphan.start_time)


def test_orphan_banner_shows_gpu_memory(page: RunsPage, left: Callable[..., Orphan], qtbot: QtBot) -> None:
    orphan = left(a_run(8, None, name="night shift"))
    page.orphans.refresh(force=True)
    qtbot.waitUntil(page.orphans.isVisible)
    held = (GpuProcess(1, memory_used_bytes=1 << 30), GpuProcess(orphan.pid, memory_used_bytes=4 << 30))
    page.orphans.set_machine(snapshot(gpu(0, cuda_index=0, processes=held), gpu(1, cuda_index=1, processes=None)))
    qtbot.waitUntil(lambda: "4.0 GiB of GPU 0" in text(page))


def test_orphans_end_all_at_once(page: RunsPage, left: Callable[..., Orphan], qtbot: QtBot) -> None:
    run = a_run(8, None)
    last = left(run, 0, 1, 2, 3)
    page.orphans.refresh(force=True)
    qtbot.waitUntil(page.orphans.isVisible)
    assert page.orphans.count == 4
    assert "1 more." in text(page)
    page.orphans.all.click()
    qtbot.waitUntil(lambda: not page.orphans.isVisible())
    assert not process_alive(last.pid, last.start_time)
    assert find_orphans() == []


def test_orphans_send_message_while_hidden(page: RunsPage, left: Callable[..., Orphan], qtbot: QtBot) -> None:
    page.hide()
    orphan = left(a_run(8, None, name="night shift"))
    with qtbot.waitSignal(page.message) as message:
        page.orphans.refresh(force=True)
    assert f"night shift (rank 0, pid {orphan.pid})" in message.args[0]
    assert "Runs (Ctrl+3)" in message.args[0]


def test_orphans_are_not_scanned_too_often(
    page: RunsPage, refresh: Refresh, left: Callable[..., Orphan], qtbot: QtBot
) -> None:
    page.orphans.refresh(force=True)
    qtbot.waitUntil(lambda: not page.orphans.reading.running)
    left(a_run(8, None))
    refresh()
    assert not page.orphans.reading.running
    assert page.orphans.count == 0
