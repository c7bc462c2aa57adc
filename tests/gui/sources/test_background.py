"""What becomes of work on a thread that fails."""

from __future__ import annotations

import gc
import weakref
from functools import partial

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.sources.background import expected_of_a_disk, in_background, why


def fault() -> None:
    raise ValueError("nobody thought of it")


def gone() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/gone")


def test_that_a_fault_is_told_where_only_a_disks_failures_are_expected(styled: QApplication, qtbot: QtBot) -> None:
    owner = QObject()
    with qtbot.captureExceptions() as told:
        for function in (gone, fault):
            work = in_background(function, owner, lambda _result: None, expected_of_a_disk)
            with qtbot.waitSignal(work.destroyed):
                pass
    assert [kind for kind, _, _ in told] == [ValueError]


def test_that_a_failure_is_put_into_words() -> None:
    assert why(FileNotFoundError(2, "No such file or directory", "/gone")) == "No such file or directory (/gone)"
    assert why(OSError("no more")) == "OSError: no more"
    assert why(KeyError("a")) == "KeyError: 'a'"


class Parent(QObject):
    def hear(self, _how: str, _answer: object) -> None:
        pass


def test_that_what_hears_the_answer_may_be_the_last_to_hold_the_parent(qtbot: QtBot) -> None:
    parent = Parent()
    left = weakref.ref(parent)
    work = in_background(lambda: 1, parent, partial(parent.hear, "done"), partial(parent.hear, "failed"))
    work.finish()
    del parent
    del work
    gc.collect(1)
    qtbot.waitUntil(lambda: left() is None)
