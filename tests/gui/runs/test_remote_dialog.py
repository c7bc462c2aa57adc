"""Dialog that lists the runs on another machine."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.hosts import Host, put_host
from engine.runs.folder import RunSummary
from gui.runs import remote_dialog
from gui.runs.remote_dialog import RemoteRunsDialog
from gui.sources.background import Background
from gui.sources.devices.hosts import Hosts
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import ShowWidget


def test_hidden_dialog_queries_no_host(show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    queried: list[str] = []

    def list_remote_runs(name: str) -> list[RunSummary]:
        queried.append(name)
        return []

    monkeypatch.setattr(remote_dialog, "list_remote_runs", list_remote_runs)
    put_host(Host(name="tower"))
    hosts = Hosts()
    dialog = show_widget(RemoteRunsDialog(hosts))
    qtbot.waitUntil(lambda: queried == ["tower"])
    qtbot.waitUntil(lambda: not dialog.findChildren(Background))
    dialog.hide()
    hosts.changed.emit()
    assert not dialog.findChildren(Background)
    dialog.show()
    qtbot.waitUntil(lambda: queried == ["tower", "tower"])
    qtbot.waitUntil(lambda: not dialog.findChildren(Background))


def test_repeated_requests_list_each_run_once(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [write_run(8, name=name).summary() for name in ("one", "two")]
    monkeypatch.setattr(remote_dialog, "list_remote_runs", lambda name: runs if name == "tower" else [])
    for name in ("rack", "tower"):
        put_host(Host(name=name))
    hosts = Hosts()
    dialog = show_widget(RemoteRunsDialog(hosts))
    qtbot.waitUntil(lambda: not dialog.findChildren(Background))
    assert ("rack" in dialog.state.text(), dialog.open_button.isEnabled()) == (True, False)
    dialog.host.setCurrentText("tower")
    dialog.refresh()
    hosts.changed.emit()
    qtbot.waitUntil(lambda: not dialog.findChildren(Background))
    assert (dialog.state.text(), dialog.list.topLevelItemCount()) == ("", 2)
    with qtbot.waitSignal(dialog.chosen) as chosen:
        dialog.open_button.click()
    assert chosen.args == ["tower", runs[0].run_id]
