"""Link between a session and a supervisor, and the reader of a run folder."""

from __future__ import annotations

import socket

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.runs.folder import create_run
from gui.sources.run_link import LiveConnection
from gui.sources.run_reader import RunReader
from tests.gui.sources.written_runs import job


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


def test_run_reader_keeps_names_of_queued_runs() -> None:
    first, second, third = (create_run(job(name=name)) for name in ("one", "two", "three"))
    reader = RunReader(first)
    reader.read_names([first.run_id, second.run_id])
    names = reader.read_names([second.run_id, third.run_id]).names
    assert names == {first.run_id: "one", second.run_id: "two", third.run_id: "three"}
