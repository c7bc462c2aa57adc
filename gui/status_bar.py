"""What is happening now, always at the bottom: state, progress, time left, speed, Pause or Resume, and Stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QSizePolicy, QWidget

from gui.actions import Actions, bind

if TYPE_CHECKING:
    from gui.sources.run_status import RunStatus

_PAUSE = "Saves the run and frees its devices after the current step"
_RESUME = "Resumes the run from its last checkpoint"
_STOP = "Ends the run after the current step and saves its state"
_LEAVE = "Removes the run from the queue"


class StatusBar(QWidget):
    """Shows a run's status, and has the actions that pause, resume and stop it offer what can be done now."""

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._actions = actions
        self._text = self._besides = ""
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
        self.pause = bind(QPushButton(), actions.pause)
        self.stop = bind(QPushButton(), actions.stop)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 6, 14, 6)
        layout.setSpacing(14)
        layout.addWidget(self.status, 1)
        for widget in (self.progress, self.share, self.speed, self.left, self.pause, self.stop):
            layout.addWidget(widget)
        self.show_idle("Idle · nothing is running")

    def show_idle(self, text: str) -> None:
        """Shows `text`, which begins with a state, and nothing to pause or to stop."""
        self._say(text)
        self.progress.hide()
        self.share.clear()
        self.speed.clear()
        self.left.clear()
        self._actions.pause.become("Pause", _PAUSE, "pause")
        for action in (self._actions.pause, self._actions.stop):
            action.allow("Nothing is running")

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
        if run.resumable:
            self._actions.pause.become("Resume", _RESUME, "resume", "accent")
        else:
            self._actions.pause.become("Pause", _PAUSE, "pause")
        self._actions.pause.allow("" if run.resumable else run.why_no_pause)
        self._actions.stop.become("Stop", _LEAVE if run.word == "Waiting" else _STOP)
        self._actions.stop.allow(run.why_no_stop)

    def say_besides(self, text: str) -> None:
        """Adds `text` to whatever is shown, until told otherwise."""
        self._besides = text
        self._say(self._text)

    def _say(self, text: str) -> None:
        self._text = text
        text = " · ".join(filter(None, (text, self._besides)))
        if text != self.status.text():
            self.status.setText(text)
            self.status.setAccessibleDescription(text)  # a label with a name of its own tells its text to nobody else
            self.status.setToolTip(text)


def clock(seconds: float) -> str:
    """A duration as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"
