"""Link between a session and a supervisor, and the reader of a run folder."""

from __future__ import annotations

import socket
import time

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.contract.events import RunFinished
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


def test_run_reader_notices_end_of_run_in_the_queue() -> None:
    waiting, other = create_run(job()), supervise_here(write_run(8, None, name="one"))
    reader = RunReader(waiting)
    assert reader.read_device_users([other.run_id]).users == {other.run_id: "“one”"}
    append_events(other, RunFinished(time=time.time(), outcome="completed"))
    assert reader.read_device_users([other.run_id]).users == {other.run_id: "the use of “one”’s model"}
