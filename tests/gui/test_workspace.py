"""Services and pages that are created after the first paint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from gui.sources.settings import Settings
from gui.workspace import Workspace
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot


@pytest.fixture
def workspace(styled: QApplication, qtbot: QtBot, tmp_path: Path) -> Iterator[Workspace]:
    """Workspace that is not started."""
    window = QObject()
    made = Workspace(Settings(tmp_path / "settings"), window)
    for widget in (*made.pages, made.devices):
        qtbot.addWidget(widget)
    yield made
    made.close()


def test_removed_host_leaves_no_history_and_no_alerts(workspace: Workspace) -> None:
    workspace.hosts.add("box")
    workspace.hosts.take_snapshot("", snapshot(gpu(0)))
    workspace.hosts.take_snapshot("box", snapshot(gpu(1)))
    own, others = UUIDS[0], f"box:{UUIDS[1]}"
    assert {own, others} <= set(workspace.alerts.devices)
    assert {own, others} <= set(workspace.history.devices)
    workspace.hosts.remove("box")
    assert others not in workspace.alerts.devices
    assert others not in workspace.history.devices
    assert own in workspace.alerts.devices
    assert own in workspace.history.devices


def test_listed_host_is_offered_for_training(workspace: Workspace) -> None:
    workspace.hosts.add("box")
    workspace.hosts.take_snapshot("box", snapshot(gpu(1)))
    workspace.devices.set_selection((f"box:{UUIDS[1]}",))
    workspace.hosts.error_changed.emit("box", "The connection was refused.")
    assert workspace.devices.selection() == (f"box:{UUIDS[1]}",)
    assert any("refused" in label.text() for label in workspace.devices.findChildren(QLabel))
    workspace.hosts.remove("box")
    assert workspace.devices.selection() == ()
