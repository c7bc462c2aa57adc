"""An icon in the desktop's tray, if the user wants one: what runs, how far it is, alerts, and the window when it is
closed.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtWidgets import QApplication, QMenu, QSystemTrayIcon

from gui.actions import Actions
from gui.format import counted
from gui.sources.run_list import RunsRead
from gui.sources.settings import Settings
from gui.style import icons, theme
from gui.workspace import Workspace

NO_TRAY = "This desktop has no tray for icons; GNOME shows one with the extension AppIndicator"
_SETTING, _EXPLAINED = "close_to_tray", "tray_explained"
_STILL_HERE = "Footplate is still here"
_WAY_BACK = "A click on this icon opens the window again, Quit in its menu ends Footplate. Runs go on either way."
_SIDE = 64


class Tray(QObject):
    """The action `close_to_tray` turns it on, which is kept; off by default.

    Signals: show_wanted() - the window is to come forward; alerts_wanted() - with the alerts.
    """

    show_wanted = Signal()
    alerts_wanted = Signal()

    def __init__(self, settings: Settings, acts: Actions, workspace: Workspace, parent: QObject) -> None:
        super().__init__(parent)
        self._settings, self._workspace = settings, workspace
        self._running = self._waiting = 0
        self._shown = ("", 0)
        self.icon = QSystemTrayIcon(self)
        self._menu = QMenu()
        self._menu.addAction("Show Footplate").triggered.connect(self.show_wanted)
        self.state = self._menu.addAction("")
        self.state.setEnabled(False)
        self.alerts = self._menu.addAction("")
        self.alerts.triggered.connect(self.alerts_wanted)
        self._menu.addSeparator()
        self._menu.addAction(acts.quit)
        self.icon.setContextMenu(self._menu)
        self.icon.activated.connect(self._activated)
        self.icon.messageClicked.connect(self.show_wanted)
        workspace.run_list.complete.connect(self._show_runs)
        workspace.store.changed.connect(self._follow)
        workspace.alerts.changed.connect(self._follow)
        self._acts = acts
        acts.close_to_tray.allow("" if QSystemTrayIcon.isSystemTrayAvailable() else NO_TRAY)
        acts.close_to_tray.setChecked(acts.close_to_tray.ready and settings.flag(_SETTING, False))
        acts.close_to_tray.toggled.connect(self._turn)
        self._show(acts.close_to_tray.isChecked())

    @property
    def keeps_window(self) -> bool:
        """Whether closing the window leaves Footplate in the tray; not at the end of the user's session."""
        app = QApplication.instance()
        leaving = isinstance(app, QApplication) and app.isSavingSession()
        return self.icon.isVisible() and not leaving

    def explain(self) -> None:
        """Says how to come back, the first time that the window has gone."""
        if not self._settings.flag(_EXPLAINED, False):
            self._settings.set(_EXPLAINED, True)
            self.icon.showMessage(_STILL_HERE, _WAY_BACK, self.icon.icon())

    def close(self) -> None:
        self._show(False)

    def _turn(self, on: bool) -> None:
        self._settings.set(_SETTING, on)
        self._show(on)

    def _show(self, on: bool) -> None:
        # Else the end of another window, such as the guide's, would end Footplate while its window is hidden.
        QApplication.setQuitOnLastWindowClosed(not on)
        if on:
            self._follow(force=True)
        self.icon.setVisible(on)

    def _activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason != QSystemTrayIcon.ActivationReason.Context:
            self.show_wanted.emit()

    def _show_runs(self, read: RunsRead) -> None:
        self._running, self._waiting = read.count()
        self._follow()

    def _follow(self, *, force: bool = False) -> None:
        if not force and not self.icon.isVisible():
            return
        status, alerts = self._workspace.store.status, len(self._workspace.alerts.unseen)
        counts = ((self._running, "running"), (self._waiting, "waiting"))
        said = ", ".join(f"{count} {what}" for count, what in counts if count) or "Nothing is running"
        fraction = status.fraction if status.active else None
        if fraction is not None:
            said += f" · {status.text}, {100 * fraction:.0f} %"
        shown = (said, alerts)
        if shown == self._shown and not force:
            return
        self._shown = shown
        self.state.setText(said)
        self.alerts.setText(counted(alerts, "alert"))
        self.alerts.setVisible(bool(alerts))
        self.icon.setToolTip("\n".join(filter(None, ("Footplate", said, counted(alerts, "alert") if alerts else ""))))
        self.icon.setIcon(tray_icon(fraction, running=bool(self._running), alarmed=bool(alerts)))


def tray_icon(fraction: float | None, *, running: bool, alarmed: bool) -> QIcon:
    """Footplate's icon: with a bar at its foot while something runs, filled as far as that is known, and a red dot for
    alerts, which has a rim, so that it is not told by its colour alone.
    """
    image = QPixmap(icons.pixmap("footplate", "#000000", _SIDE))
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    if running:
        painter.fillRect(QRectF(0, 50, _SIDE, 14), QColor(theme.DARK.border))
        painter.fillRect(QRectF(0, 50, _SIDE * (fraction or 0.0), 14), QColor(theme.DARK.ok))
    if alarmed:
        for color, edge in ((theme.DARK.text, 28), (theme.LIGHT.error, 22)):
            painter.setBrush(QColor(color))
            painter.drawEllipse(QRectF(_SIDE - 14 - edge / 2, 14 - edge / 2, edge, edge))
    painter.end()
    return QIcon(image)
