"""Icon in the system tray, which shows progress and alerts, and reopens the closed window."""

from __future__ import annotations

from PySide6.QtCore import QObject, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtWidgets import QApplication, QMenu, QSystemTrayIcon

from gui.actions import Actions
from gui.format import counted
from gui.sources.run_list import RunListing
from gui.sources.settings import Settings
from gui.style import icons, theme
from gui.translation import tr
from gui.workspace import Workspace

NO_TRAY = tr("This desktop has no tray for icons; GNOME shows one with the extension AppIndicator")
_SETTING, _EXPLAINED = "close_to_tray", "tray_explained"
_STILL_HERE = tr("Footplate is still running")
_EXPLANATION = tr("Click to reopen the window; Quit in its menu exits. Runs continue either way.")
_SIDE = 64
"""Side length of the icon in pixels."""


class Tray(QObject):
    """Tray icon, which is off by default. The action `close_to_tray` switches it on.

    Signals:
        window_requested(): the user wants to open the window.
        alerts_requested(): the user wants to see the alerts.
    """

    window_requested = Signal()
    alerts_requested = Signal()

    def __init__(self, settings: Settings, actions: Actions, workspace: Workspace, parent: QObject) -> None:
        super().__init__(parent)
        self._settings, self._workspace = settings, workspace
        self._running = self._queued = 0  # numbers of runs
        self._displayed_state = ("", 0)  # text and number of alerts
        self.icon = QSystemTrayIcon(self)
        self._menu = QMenu()
        self._menu.addAction(tr("Show Footplate")).triggered.connect(self.window_requested)
        self.state = self._menu.addAction("")
        self.state.setEnabled(False)
        self.alerts = self._menu.addAction("")
        self.alerts.triggered.connect(self.alerts_requested)
        self._menu.addSeparator()
        self._menu.addAction(actions.quit)
        self.icon.setContextMenu(self._menu)
        self.icon.activated.connect(self._on_activated)
        self.icon.messageClicked.connect(self.window_requested)
        workspace.run_list.complete.connect(self._on_runs_read)
        workspace.session.changed.connect(self._refresh)
        workspace.alerts.changed.connect(self._refresh)
        switch = actions.close_to_tray
        switch.set_disabled_reason("" if QSystemTrayIcon.isSystemTrayAvailable() else NO_TRAY)
        switch.setChecked(switch.ready and self._settings.flag(_SETTING, False))
        switch.toggled.connect(self._on_switched)
        self._set_visible(switch.isChecked())

    @property
    def keeps_window(self) -> bool:
        """True if Footplate stays in the tray when the window is closed, except at the end of the desktop session."""
        app = QApplication.instance()
        is_session_ending = isinstance(app, QApplication) and app.isSavingSession()
        return self.icon.isVisible() and not is_session_ending

    def explain(self) -> None:
        """Explain how to reopen the window, the first time that it is closed to the tray."""
        if not self._settings.flag(_EXPLAINED, False):
            self._settings.set(_EXPLAINED, True)
            self.icon.showMessage(_STILL_HERE, _EXPLANATION, self.icon.icon())

    def close(self) -> None:
        self._set_visible(False)

    def _on_switched(self, on: bool) -> None:
        self._settings.set(_SETTING, on)
        self._set_visible(on)

    def _set_visible(self, visible: bool) -> None:
        """Show or hide the icon. While it is visible, closing the last window doesn't quit."""
        # Otherwise, closing another window, such as the guide's, would quit Footplate while its window is hidden.
        QApplication.setQuitOnLastWindowClosed(not visible)
        if visible:
            self._refresh(force=True)
        self.icon.setVisible(visible)

    def _on_activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason != QSystemTrayIcon.ActivationReason.Context:
            self.window_requested.emit()

    def _on_runs_read(self, listing: RunListing) -> None:
        self._running, self._queued = listing.count()
        self._refresh()

    def _refresh(self, *, force: bool = False) -> None:
        """Show the runs, progress and alerts if they have changed and the icon is visible, or if `force`."""
        if not force and not self.icon.isVisible():
            return
        status, alerts = self._workspace.session.status, len(self._workspace.alerts.unacknowledged)
        counts = ((self._running, "running"), (self._queued, "queued"))
        text = ", ".join(f"{count} {state}" for count, state in counts if count) or tr("Nothing is running")
        fraction = status.fraction if status.active else None
        if fraction is not None:
            text += f" · {status.text}, {100 * fraction:.0f}%"
        if (text, alerts) == self._displayed_state and not force:
            return
        self._displayed_state = (text, alerts)
        self.state.setText(text)
        self.alerts.setText(counted(alerts, "alert"))
        self.alerts.setVisible(bool(alerts))
        self.icon.setToolTip("\n".join(filter(None, ("Footplate", text, counted(alerts, "alert") if alerts else ""))))
        self.icon.setIcon(draw_tray_icon(fraction, running=bool(self._running), has_alerts=bool(alerts)))


def draw_tray_icon(fraction: float | None, *, running: bool, has_alerts: bool) -> QIcon:
    """Draw Footplate's icon, with a progress bar at the bottom if `running` is True, and with a red dot for alerts.

    `fraction` is the progress of the open run, or None if unknown. The dot's rim makes it visible without color.
    """
    image = QPixmap(icons.pixmap("footplate", "#000000", _SIDE))
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    if running:
        painter.fillRect(QRectF(0, 50, _SIDE, 14), QColor(theme.DARK.border))
        painter.fillRect(QRectF(0, 50, _SIDE * (fraction or 0.0), 14), QColor(theme.DARK.ok))
    if has_alerts:
        for color, diameter in ((theme.DARK.text, 28), (theme.LIGHT.error, 22)):
            painter.setBrush(QColor(color))
            painter.drawEllipse(QRectF(_SIDE - 14 - diameter / 2, 14 - diameter / 2, diameter, diameter))
    painter.end()
    return QIcon(image)
