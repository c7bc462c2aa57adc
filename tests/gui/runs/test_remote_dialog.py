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
from gui.sources.remote_runs import QueryFailed
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import HoldCalls, ShowWidget


def test_visible_dialog_follows_the_hosts(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    hosts.add("rack")
    assert [dialog.host.itemText(index) for index in range(dialog.host.count())] == ["tower", "rack"]
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
    item = dialog.list.topLevelItem(0)
    assert item is not None
    assert [item.text(column) for column in range(3)] == ["one", "ResNet-18", "completed"]
    with qtbot.waitSignal(dialog.chosen) as chosen:
        dialog.open_button.click()
    assert chosen.args == ["tower", runs[0].run_id]
    assert not dialog.isVisible()


def test_dialog_ignores_answers_of_other_hosts(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, hold_calls: HoldCalls
) -> None:
    run = write_run(8).summary()

    def list_remote_runs(name: str) -> list[RunSummary]:
        if name == "broken":
            raise QueryFailed(f"{name} does not respond.")
        return [run] if name == "tower" else []

    monkeypatch.setattr(remote_dialog, "list_remote_runs", list_remote_runs)
    gate = hold_calls(remote_dialog, "list_remote_runs", lambda name: name == "broken")
    dialog = show_widget(RemoteRunsDialog(Hosts()))
    assert dialog.state.text().startswith("Add a machine")
    assert not dialog.findChildren(Background)
    for name in ("broken", "rack", "tower"):
        put_host(Host(name=name))
    dialog = show_widget(RemoteRunsDialog(Hosts()))
    for name, state in (
        ("tower", ""),
        ("rack", "There are no runs on rack."),
        ("broken", "⚠ broken does not respond."),
        ("rack", "There are no runs on rack."),
    ):
        dialog.host.setCurrentText(name)
        assert (dialog.list.topLevelItemCount(), dialog.open_button.isEnabled()) == (0, False)
        assert dialog.state.text() == f"Asking {name}…"
        for other in ("tower", "broken", name):
            dialog.host.setCurrentText(other)
        if name != "broken":  # the answer of broken arrives after the others
            qtbot.waitUntil(lambda state=state: dialog.state.text() == state)
        gate.set()
        qtbot.waitUntil(lambda: not dialog.findChildren(Background))
        gate.clear()
        assert dialog.state.text() == state
        assert dialog.state.objectName() == ("warning" if name == "broken" else "muted")
        assert dialog.list.topLevelItemCount() == dialog.open_button.isEnabled() == (name == "tower")
