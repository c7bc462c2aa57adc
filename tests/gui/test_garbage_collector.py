"""Garbage collector of the window. Only the GUI thread may destroy Qt objects in reference cycles."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication

from gui.event_loop import GarbageCollector


@pytest.fixture
def collector(styled: QApplication) -> Iterator[GarbageCollector]:
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


def test_threads_destroy_no_widgets(collector: GarbageCollector) -> None:
    destroyed = threading.Event()
    leave_a_cycle(destroyed)
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert not destroyed.is_set()
    collector.collect()
    assert destroyed.is_set()


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
