"""On which thread Qt's objects are destroyed that are left in cycles of references."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication

from gui.garbage_collector import GarbageCollector


@pytest.fixture
def collector(styled: QApplication) -> Iterator[GarbageCollector]:
    made = GarbageCollector()
    yield made
    made.close()


def leave_a_cycle(gone: threading.Event) -> None:
    timer = QTimer()
    timer.destroyed.connect(gone.set)
    timer.me = timer  # type: ignore[attr-defined]


def allocate() -> None:
    """Allocate enough to trigger several collections of all generations, if automatic."""
    kept: list[list[int]] = [[number] for number in range(200_000)]
    assert kept


def test_that_a_thread_destroys_no_object_of_the_window(collector: GarbageCollector) -> None:
    gone = threading.Event()
    leave_a_cycle(gone)
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert not gone.is_set()
    collector.collect()
    assert gone.is_set()


def test_that_all_is_collected_now_and_then(collector: GarbageCollector) -> None:
    gone = threading.Event()
    leave_a_cycle(gone)
    gc.collect(0)
    gc.collect(1)  # what has lived on is old by now
    kept = QObject()
    kept.me = kept  # type: ignore[attr-defined]
    for _ in range(60):
        collector.collect()
    assert gone.is_set()


def test_that_python_collects_by_itself_again_afterwards(styled: QApplication) -> None:
    GarbageCollector().close()
    assert gc.isenabled()
