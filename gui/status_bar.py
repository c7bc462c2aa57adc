"""What is happening now, always at the bottom: state, progress, time left, speed, and Stop."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QSizePolicy, QWidget

from gui import icons, theme


class StatusBar(QWidget):
    """Signals: stop_requested() - end the run shown."""

    stop_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.status = QLabel("Idle")
        self.status.setAccessibleName("Run status")
        self.status.setMinimumWidth(120)
        self.status.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.progress = QProgressBar()
        self.progress.setAccessibleName("Progress of the run")
        self.progress.setRange(0, 1000)
        self.progress.setFixedWidth(220)
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(10)
        self.share = QLabel()
        self.share.setAccessibleName("Share done")
        self.speed = QLabel()
        self.speed.setAccessibleName("Speed")
        self.left = QLabel()
        self.left.setAccessibleName("Time left")
        self.stop = QPushButton("Stop")
        self.stop.setAccessibleName("Stop")
        self.stop.setToolTip("Ends the run after the step in hand and keeps its last state (Ctrl+.)")
        self.stop.clicked.connect(self.stop_requested)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 6, 14, 6)
        layout.setSpacing(14)
        layout.addWidget(self.status, 1)
        for widget in (self.progress, self.share, self.speed, self.left, self.stop):
            layout.addWidget(widget)
        theme.notifier.changed.connect(self._paint)
        self._paint()
        self.show_idle("Idle · nothing is running")

    def show_idle(self, text: str) -> None:
        """Shows `text`, which begins with a state, and nothing to stop."""
        self._say(text)
        self.progress.hide()
        self.share.clear()
        self.speed.clear()
        self.left.clear()
        self.stop.setEnabled(False)

    def show_run(
        self, text: str, active: bool, fraction: float | None, images_per_second: float | None, left_s: float | None
    ) -> None:
        """Shows a run; what is None is not known yet and stays empty."""
        self._say(text)
        self.progress.setVisible(active)
        if active:
            # Without a length known yet the bar moves to and fro.
            self.progress.setRange(0, 1000 if fraction is not None else 0)
            self.progress.setValue(round(1000 * (fraction or 0)))
        self.share.setText(f"{100 * fraction:.0f} %" if active and fraction is not None else "")
        self.speed.setText(f"{images_per_second:,.0f} images/s" if active and images_per_second is not None else "")
        self.left.setText(f"{clock(left_s)} left" if active and left_s is not None else "")
        self.stop.setEnabled(active and not text.startswith("Stopping"))

    def _say(self, text: str) -> None:
        if text != self.status.text():
            self.status.setText(text)
            self.status.setAccessibleDescription(text)  # a label with a name of its own tells its text to nobody else
            self.status.setToolTip(text)

    def _paint(self) -> None:
        self.stop.setIcon(icons.icon("stop", theme.colors().error))


def clock(seconds: float) -> str:
    """A duration as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"
