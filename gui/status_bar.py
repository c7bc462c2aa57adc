"""What is happening now, always at the bottom: state, progress, time left, speed, Pause or Resume, and Stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal, SignalInstance
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QSizePolicy, QWidget

from gui.style import icons

if TYPE_CHECKING:
    from gui.sources.run_status import RunStatus

PAUSE_KEY = "Ctrl+P"
"""Pauses the run on screen, or goes on with it."""

_PAUSE = "Saves the run and gives its devices back after the step in hand"
_STOP = "Ends the run after the step in hand and keeps its last state"


class StatusBar(QWidget):
    """Signals: stop_requested(), pause_requested() - of the run shown; resume_requested() - it is to be gone on with."""

    stop_requested = Signal()
    pause_requested = Signal()
    resume_requested = Signal()

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
        self.pause = _button("Pause", "pause", "text", self.pause_requested)
        self.resume = _button("Resume", "resume", "accent", self.resume_requested)
        _explain(self.resume, f"Goes on with the run from its last checkpoint ({PAUSE_KEY})")
        self.resume.hide()
        self.stop = _button("Stop", "stop", "error", self.stop_requested)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 6, 14, 6)
        layout.setSpacing(14)
        layout.addWidget(self.status, 1)
        for widget in (self.progress, self.share, self.speed, self.left, self.pause, self.resume, self.stop):
            layout.addWidget(widget)
        self.show_idle("Idle · nothing is running")

    def show_idle(self, text: str) -> None:
        """Shows `text`, which begins with a state, and nothing to pause or to stop."""
        self._say(text)
        self.progress.hide()
        self.share.clear()
        self.speed.clear()
        self.left.clear()
        self._offer("Nothing is running", "Nothing is running", resumable=False)

    def show_run(self, run: RunStatus) -> None:
        """Shows a run; what is None is not known yet and stays empty."""
        self._say(run.text)
        at_work = run.active and run.word != "Waiting"
        fraction, left_s = (run.fraction if at_work else None), run.seconds_left
        self.progress.setVisible(at_work)
        if at_work:
            # Without a length known yet the bar moves to and fro.
            self.progress.setRange(0, 1000 if fraction is not None else 0)
            self.progress.setValue(round(1000 * (fraction or 0)))
        self.share.setText(f"{100 * fraction:.0f} %" if fraction is not None else "")
        speed = run.images_per_second
        self.speed.setText(f"{speed:,.0f} images/s" if at_work and speed is not None else "")
        self.left.setText(f"{clock(left_s)} left" if at_work and left_s is not None else "")
        self._offer(run.why_no_pause, run.why_no_stop, resumable=run.resumable)
        if run.word == "Waiting":
            _explain(self.stop, "Takes the run out of the line (Ctrl+.)")

    def _offer(self, why_no_pause: str, why_no_stop: str, *, resumable: bool) -> None:
        """Enables what can be done now; what cannot says why."""
        _allow(self.pause, f"{_PAUSE} ({PAUSE_KEY})", why_no_pause)
        _allow(self.stop, f"{_STOP} (Ctrl+.)", why_no_stop)
        self.pause.setVisible(not resumable)
        self.resume.setVisible(resumable)

    def _say(self, text: str) -> None:
        if text != self.status.text():
            self.status.setText(text)
            self.status.setAccessibleDescription(text)  # a label with a name of its own tells its text to nobody else
            self.status.setToolTip(text)


def _button(text: str, icon: str, color: str, clicked: SignalInstance) -> QPushButton:
    button = QPushButton(icons.icon(icon, color), text)
    button.setAccessibleName(text)
    button.clicked.connect(clicked)
    return button


def _allow(button: QPushButton, what: str, why_not: str) -> None:
    button.setEnabled(not why_not)
    _explain(button, why_not or what)


def _explain(button: QPushButton, text: str) -> None:
    button.setToolTip(text)
    button.setAccessibleDescription(text)


def clock(seconds: float) -> str:
    """A duration as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"
