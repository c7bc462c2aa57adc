"""What the parts that are made after the first paint tell each other."""

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
    """The parts, of which none is at work yet."""
    window = QObject()
    made = Workspace(Settings(tmp_path / "settings"), window)
    for widget in (*made.pages, made.devices):
        qtbot.addWidget(widget)
    yield made
    made.close()


def test_that_a_host_that_is_removed_leaves_neither_curves_nor_alerts(workspace: Workspace) -> None:
    workspace.hosts.snapshot.emit("", snapshot(gpu(0)))
    workspace.hosts.snapshot.emit("box", snapshot(gpu(1)))
    own, others = UUIDS[0], f"box:{UUIDS[1]}"
    assert {own, others} <= set(workspace.alerts.devices)
    assert {own, others} <= set(workspace.history.devices)
    workspace.hosts.removed.emit("box")
    assert others not in workspace.alerts.devices
    assert others not in workspace.history.devices
    assert own in workspace.alerts.devices
    assert own in workspace.history.devices


def test_that_a_host_is_offered_for_training_while_it_is_listed(workspace: Workspace) -> None:
    workspace.hosts.add("box")
    workspace.hosts.snapshot.emit("box", snapshot(gpu(1)))
    workspace.devices.set_selection((f"box:{UUIDS[1]}",))
    workspace.hosts.trouble.emit("box", "The connection was refused.")
    assert workspace.devices.selection() == (f"box:{UUIDS[1]}",)
    assert any("refused" in label.text() for label in workspace.devices.findChildren(QLabel))
    workspace.hosts.remove("box")
    assert workspace.devices.selection() == ()
