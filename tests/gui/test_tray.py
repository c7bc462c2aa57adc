"""Services of the workspace, and closing the window to the tray icon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication, QLabel, QSystemTrayIcon, QWidget
from pytestqt.qtbot import QtBot

from gui.actions import Actions
from gui.sources.run_intervals import RunInterval
from gui.sources.run_list import RunListing
from gui.sources.run_session import RunSession
from gui.sources.run_status import RunStatus
from gui.sources.settings import Settings
from gui.tray import NO_TRAY, Tray, draw_tray_icon
from gui.workspace import Workspace
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.support.widgets import OpenWindow


@pytest.fixture
def workspace(styled: QApplication, qtbot: QtBot, tmp_path: Path) -> Iterator[Workspace]:
    """Yield a workspace that hasn't been started."""
    window = QWidget()
    created = Workspace(Settings(tmp_path / "settings"), Actions(window), window)
    for widget in (window, *created.pages, created.run, created.devices):
        qtbot.addWidget(widget)
    yield created
    created.close()


@pytest.fixture
def desktop_with_tray(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Simulate a desktop with a tray. Yield a list that collects the messages at the tray icon."""
    messages: list[str] = []
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", staticmethod(lambda: True))
    monkeypatch.setattr(QSystemTrayIcon, "showMessage", lambda _icon, _title, text, *_more: messages.append(text))
    yield messages
    QApplication.setQuitOnLastWindowClosed(True)


def test_action_is_disabled_without_a_tray(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    acts, settings = Actions(QWidget()), Settings()
    settings.set("close_to_tray", True)  # chosen on another desktop
    Tray(settings, acts, workspace, workspace)
    assert acts.close_to_tray.disabled_reason == NO_TRAY
    assert not acts.close_to_tray.isChecked()


def test_window_closes_to_the_tray_and_quits_for_good(
    open_window: OpenWindow, desktop_with_tray: list[str], qtbot: QtBot
) -> None:
    window = open_window()
    assert not window.tray.icon.isVisible()  # off by default
    window.acts.close_to_tray.trigger()
    for _ in range(2):
        window.close()
        assert not window.isVisible()
        window.tray.icon.activated.emit(QSystemTrayIcon.ActivationReason.Trigger)
        assert window.isVisible()
    assert len(desktop_with_tray) == 1
    with qtbot.waitSignal(window.closed):
        window.acts.quit.trigger()
    assert not window.tray.icon.isVisible()
    again = open_window()
    assert again.tray is not None
    assert again.acts.close_to_tray.isChecked()  # remembered
    again.close()
    assert len(desktop_with_tray) == 1
    again.quit()


def test_icon_shows_runs_and_alerts(
    workspace: Workspace, desktop_with_tray: list[str], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = Actions(QWidget())
    tray = Tray(Settings(), acts, workspace, workspace)
    acts.close_to_tray.trigger()
    assert tray.state.text() == "Nothing is running"
    assert not tray.alerts.isVisible()
    monkeypatch.setattr(RunListing, "count", lambda _read: (2, 1))
    workspace.run_list.complete.emit(RunListing((), (), {}, {}, {}))
    assert tray.state.text() == "2 running, 1 queued"
    image = tray.icon.icon().pixmap(64).toImage()
    monkeypatch.setattr(RunSession, "status", RunStatus(label="Running", text="Running", fraction=0.5))
    workspace.session.changed.emit()
    assert tray.icon.icon().pixmap(64).toImage() != image
    assert tray.state.text() == "2 running, 1 queued · Running, 50%"
    assert not QApplication.quitOnLastWindowClosed()
    workspace.alerts.evaluate("", snapshot(gpu(0)), {})
    workspace.alerts.evaluate("", snapshot(gpu(0, lost=True)), {})
    assert (tray.alerts.text(), tray.alerts.isVisible()) == ("1 alert", True)
    assert tray.icon.toolTip() == "Footplate\n2 running, 1 queued · Running, 50%\n1 alert"
    monkeypatch.setattr(RunSession, "status", RunStatus(label="Completed", text="Completed", fraction=1.0))
    workspace.session.changed.emit()
    assert tray.state.text() == "2 running, 1 queued"
    assert tray.keeps_window
    with monkeypatch.context() as patch:
        patch.setattr(QApplication, "isSavingSession", lambda _app: True)
        assert not tray.keeps_window
    with qtbot.waitSignal(tray.alerts_requested):
        tray.alerts.trigger()
    with qtbot.waitSignal(tray.window_requested):
        tray.icon.messageClicked.emit()
    show, *_ = tray.icon.contextMenu().actions()
    with qtbot.waitSignal(tray.window_requested):
        show.trigger()
    tray.close()
    assert not tray.keeps_window
    assert QApplication.quitOnLastWindowClosed()


def test_icon_differs_by_progress_and_alerts(styled: QApplication) -> None:
    def image(icon: QIcon) -> object:
        return icon.pixmap(64).toImage()

    idle = draw_tray_icon(None, running=False, has_alerts=False)
    half, full = (draw_tray_icon(fraction, running=True, has_alerts=False) for fraction in (0.5, 1.0))
    alarmed = draw_tray_icon(None, running=False, has_alerts=True)
    different = [image(icon) for icon in (idle, half, full, alarmed)]
    assert all(one != other for n, one in enumerate(different) for other in different[n + 1 :])


def test_removed_host_leaves_no_history_and_no_alerts(workspace: Workspace) -> None:
    workspace.hosts.add("box")
    workspace.hosts.add_snapshot("", snapshot(gpu(0)))
    workspace.hosts.add_snapshot("box", snapshot(gpu(1)))
    local, others = UUIDS[0], f"box:{UUIDS[1]}"
    assert {local, others} <= set(workspace.alerts.devices)
    assert {local, others} <= set(workspace.history.devices)
    workspace.hosts.remove("box")
    assert others not in workspace.alerts.devices
    assert others not in workspace.history.devices
    assert local in workspace.alerts.devices
    assert local in workspace.history.devices


def test_listed_host_is_offered_for_training(workspace: Workspace) -> None:
    workspace.hosts.add("box")
    workspace.hosts.add_snapshot("box", snapshot(gpu(1)))
    workspace.devices.set_selection((f"box:{UUIDS[1]}",))
    workspace.hosts.error_changed.emit("box", "The connection was refused.")
    assert workspace.devices.selection() == (f"box:{UUIDS[1]}",)
    assert any("refused" in label.text() for label in workspace.devices.findChildren(QLabel))
    workspace.hosts.remove("box")
    assert workspace.devices.selection() == ()


def test_intervals_and_errors_follow_the_list_of_runs(workspace: Workspace) -> None:
    interval = RunInterval("a", "ants", ("cpu",), "completed", 1.0, 2.0)
    workspace.run_list.complete.emit(RunListing((), (interval,), {"b": "It is damaged."}, {}, {}))
    assert (workspace.intervals.intervals, workspace.intervals.unread) == ((interval,), {"b": "It is damaged."})


@pytest.mark.parametrize("cause", ["session opened", "session finished", "slurm changed"])
def test_runs_are_listed_again_after_changes(workspace: Workspace, qtbot: QtBot, cause: str) -> None:
    with qtbot.waitSignal(workspace.run_list.complete):
        if cause == "session opened":
            workspace.session.opened.emit()
        elif cause == "session finished":
            workspace.session.finished.emit("completed")
        else:
            workspace.slurm.changed.emit()
