"""Calls in background threads: their results and errors, and calls that must not overlap."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from functools import partial

import pytest
import shiboken6
from PySide6.QtCore import QObject, QProcess, Signal
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.runs.folder import UnreadableJob
from gui.sources.background import (
    Background,
    SingleFlight,
    allowed_wait_s,
    await_exit,
    closing,
    describe_error,
    emit_safely,
    ignore_os_error,
    in_background,
    reraise,
)


def raise_value_error() -> None:
    raise ValueError("unexpected")


def raise_os_error() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/gone")


def test_ignore_os_error_raises_other_errors(styled: QApplication, qtbot: QtBot) -> None:
    owner = QObject()
    with qtbot.captureExceptions() as logged:
        for function in (raise_os_error, raise_value_error):
            work = in_background(function, owner, lambda _result: None, ignore_os_error)
            with qtbot.waitSignal(work.destroyed):
                pass
    assert [kind for kind, _, _ in logged] == [ValueError]


def test_describe_error() -> None:
    assert (
        describe_error(FileNotFoundError(2, "No such file or directory", "/gone"))
        == "No such file or directory (/gone)"
    )
    assert describe_error(OSError(28, "No space left on device")) == "No space left on device"
    assert describe_error(OSError("no more")) == "OSError: no more"
    assert describe_error(UnreadableJob("The job is damaged.")) == "The job is damaged."
    assert describe_error(KeyError("a")) == "KeyError: 'a'"


class Parent(QObject):
    moved = Signal(int)

    def receive(self, _how: str, _outcome: object) -> None:
        pass


def test_receiver_may_hold_the_last_reference_to_the_parent(qtbot: QtBot) -> None:
    parent = Parent()
    reference = weakref.ref(parent)
    work = in_background(lambda: 1, parent, partial(parent.receive, "done"), partial(parent.receive, "failed"))
    work.finish()
    del parent
    del work
    gc.collect(1)
    qtbot.waitUntil(lambda: reference() is None)


def test_result_is_delivered_once_to_a_receiver_that_processes_events(qapp: QApplication) -> None:
    owner, results = QObject(), list[int]()

    def receive(result: int) -> None:
        results.append(result)
        QApplication.processEvents()

    in_background(lambda: 1, owner, receive, reraise).finish()
    assert results == [1]


def test_signal_of_a_deleted_sender_is_not_emitted() -> None:
    parent, values = Parent(), list[int]()
    parent.moved.connect(values.append)
    assert emit_safely(parent.moved, 3)
    moved = parent.moved
    shiboken6.delete(parent)
    assert not emit_safely(moved, 4)
    assert values == [3]


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize(("on_end", "limit_s", "exit_code"), [("sleep 0.1; exit 7", 60.0, 7), ("", 0.01, 9)])
def test_process_is_killed_unless_it_exits_in_time(
    qapp: QApplication, on_end: str, limit_s: float, exit_code: int
) -> None:
    process = QProcess()
    process.start("sh", ["-c", f"trap '{on_end}' TERM; echo; while true; do sleep 0.02; done"])
    assert process.waitForReadyRead()
    process.terminate()
    await_exit(process, limit_s)
    assert (process.state(), process.exitCode()) == (QProcess.ProcessState.NotRunning, exit_code)


def test_single_flight_repeats_once_for_requests_during_a_call(qtbot: QtBot) -> None:
    gate, results, state = threading.Event(), list[int](), [1]
    owner = QObject()

    def next_call() -> partial[int]:
        return partial(lambda value: gate.wait() and value, state[0])

    def done(value: int) -> None:
        results.append(value)
        if value == 1:
            raise_value_error()

    flight = SingleFlight(owner, next_call, done)
    with qtbot.captureExceptions() as logged:
        flight.request()
        state[0] = 2
        flight.request()
        flight.request()
        gate.set()
        qtbot.waitUntil(lambda: not flight.running)
    assert (results, [kind for kind, _, _ in logged], flight.abandoned) == ([1, 2], [ValueError], False)


def test_single_flight_ignores_abandoned_calls(qtbot: QtBot) -> None:
    gate, results, discarded = threading.Event(), list[bool](), list[bool]()
    flight = SingleFlight(owner := QObject(), lambda: gate.wait, results.append, discard=discarded.append)
    flight.request()
    flight.finish(within_s=0.01)
    assert (flight.running, flight.abandoned) == (False, True)
    gate.set()
    qtbot.waitUntil(lambda: not owner.children())
    assert (results, discarded) == ([], [True])
    flight.request()
    flight.request()
    flight.finish(within_s=60.0)
    assert (flight.running, results, discarded) == (False, [True], [True])


def test_errors_of_abandoned_calls_are_ignored(qtbot: QtBot) -> None:
    discarded, owner = list[object](), QObject()
    flight = SingleFlight(owner, lambda: raise_value_error, lambda _result: None, discard=discarded.append)
    flight.request()
    flight.abandon()
    qtbot.waitUntil(lambda: not owner.children())
    assert discarded == []


def test_calls_share_the_time_of_closing(qtbot: QtBot) -> None:
    answer = threading.Event()
    parent = QObject()
    calls = [in_background(answer.wait, parent, lambda _result: None, reraise) for _ in range(3)]
    started = time.monotonic()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "background")
    with closing(0.3):
        for call in calls:
            call.finish(60.0)
        with closing(99.0):
            assert allowed_wait_s(60.0) == 0.0
    assert 0.3 <= time.monotonic() - started < 30
    assert allowed_wait_s(60.0) == 60.0
    answer.set()
    qtbot.waitUntil(lambda: not parent.findChildren(Background))
