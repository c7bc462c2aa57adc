"""Garbage collection and process signals in the event loop of the GUI thread, which alone may destroy Qt objects."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui import event_loop
from gui.event_loop import GarbageCollector, Interruptions


@pytest.fixture
def collector(styled: QApplication, monkeypatch: pytest.MonkeyPatch) -> Iterator[GarbageCollector]:
    monkeypatch.setattr(event_loop, "_INTERVAL_MS", 10)
    created = GarbageCollector()
    yield created
    created.close()


def leave_a_cycle(destroyed: threading.Event) -> None:
    timer = QTimer()
    timer.destroyed.connect(destroyed.set)
    timer.me = timer  # type: ignore[attr-defined]


def allocate() -> None:
    """Allocate enough objects for collections of all generations, if automatic collection is enabled."""
    retained: list[list[int]] = [[number] for number in range(200_000)]
    assert retained


@pytest.mark.usefixtures("collector")
def test_threads_destroy_no_widgets(qtbot: QtBot) -> None:
    destroyed = threading.Event()
    leave_a_cycle(destroyed)
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert not destroyed.is_set()
    qtbot.waitUntil(destroyed.is_set)


def test_garbage_is_collected_regularly(collector: GarbageCollector) -> None:
    destroyed = threading.Event()
    leave_a_cycle(destroyed)
    gc.collect(0)
    gc.collect(1)  # surviving objects are now in the oldest generation
    retained = QObject()
    retained.me = retained  # type: ignore[attr-defined]
    for _ in range(60):
        collector.collect()
    assert destroyed.is_set()


def test_automatic_collection_is_restored(styled: QApplication) -> None:
    GarbageCollector().close()
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the sockets stay open until the process exits
def test_signals_interrupt_the_event_loop(styled: QApplication, qtbot: QtBot) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers, wakeup_fd = [signal.getsignal(number) for number in numbers], signal.set_wakeup_fd(-1)
    parent = QObject()
    interruptions, received = Interruptions(parent), []
    interruptions.interrupted.connect(lambda: received.append(None))
    try:
        for number in numbers:
            with qtbot.waitSignal(interruptions.interrupted):
                os.kill(os.getpid(), number)
        QApplication.processEvents()
        assert len(received) == 2
    finally:
        signal.set_wakeup_fd(wakeup_fd)
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
