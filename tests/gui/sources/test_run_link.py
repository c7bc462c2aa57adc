"""Link between a session and a supervisor, and the reader of a run folder."""

from __future__ import annotations

import socket
import time
from unittest.mock import Mock

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.contract.events import RunFinished
from engine.runs.connection import NotRunning
from engine.runs.folder import create_run
from gui.sources.run_link import EndRequest, LiveConnection, RunCommands
from gui.sources.run_reader import RunReader
from tests.gui.sources.written_runs import append_events, job, supervise_here, write_run


def test_live_connection_reports_messages_until_closed(qtbot: QtBot) -> None:
    parent = QObject()
    live = LiveConnection(parent)
    ours, theirs = socket.socketpair()
    with theirs:
        live.open(ours)  # type: ignore[arg-type]
        assert live.is_open
        with qtbot.waitSignal(live.readable):
            theirs.send(b"x")
        live.close()
        assert not live.is_open
        assert ours.fileno() == -1


def test_stop_replaces_a_requested_pause_only() -> None:
    commands = RunCommands(QObject())
    requests: tuple[EndRequest, ...] = ("pause", "pause", "stop", "pause", "stop")
    assert [commands.request(each) for each in requests] == [True, False, True, False, False]
    assert commands.requested == "stop"
    commands.open(None)
    assert commands.request("pause")


@pytest.mark.parametrize(("error", "messages"), [(NotRunning("It ended."), []), (OSError("A fault."), ["A fault."])])
def test_failed_command_is_reported_while_the_run_is_active(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, error: OSError, messages: list[str]
) -> None:
    monkeypatch.setattr("gui.sources.run_link.send", Mock(side_effect=error))
    parent, run = QObject(), create_run(job())
    commands, received = RunCommands(parent), list[str]()
    commands.message.connect(lambda text, severity: received.append(text))
    commands.open(run)
    with qtbot.waitSignal(commands.failed) as failed:
        commands.request("stop")
    assert failed.args == [run]
    assert received == messages


def test_run_reader_retries_once_if_last_event_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.sources.run_reader.MAX_DAMAGED_BYTES", 16)  # a line that is longer ends the log
    run = write_run(8)
    run.events_file.write_bytes(b"x" * 200_000 + b"\n" + run.events_file.read_bytes())
    reader = RunReader(run)
    polls = [reader.read(60.0, 0) for _ in range(3)]
    assert [(poll.is_partial, poll.state) for poll in polls] == [(True, None), *[(False, "completed")] * 2]
    reader.close()


def test_run_reader_notices_end_of_run_in_the_queue() -> None:
    waiting, other = create_run(job()), supervise_here(write_run(8, None, name="one"))
    reader = RunReader(waiting)
    assert reader.read_device_users([other.run_id]).users == {other.run_id: "“one”"}
    append_events(other, RunFinished(time=time.time(), outcome="completed"))
    assert reader.read_device_users([other.run_id]).users == {other.run_id: "the use of “one”’s model"}
