"""What is running, at the bottom of every page: its name, state, progress, time left, speed, Pause or Resume, and
Stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QSizePolicy, QToolButton, QWidget

from gui.actions import RUNS, TRAIN, Actions, bind
from gui.format import localised
from gui.titles import run_title

if TYPE_CHECKING:
    from engine.runs.folder import RunSummary
    from gui.sources.run_status import RunStatus

_PAUSE = "Saves the run and frees its devices after the current step"
_RESUME = "Resumes the run from its last checkpoint"
_STOP = "Ends the run after the current step and saves its state"
_LEAVE = "Removes the run from the queue"
_NAME_WIDTH = 220
"""Pixels that a run's name takes at most; what is cut off stands in the tool tip."""


class StatusBar(QWidget):
    """Shows a run's status, and has the actions that pause, resume and stop it offer what can be done now. A click on
    it, or Enter on the run's name, leads to the run.

    Signals: page_wanted(int) - a page of `gui.actions.PAGES` is to be shown; other_wanted(RunSummary) - a run that
    goes on and is not on screen is to be shown.
    """

    page_wanted = Signal(int)
    other_wanted = Signal(object)

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._actions = actions
        self._text = self._besides = ""
        self._others: tuple[RunSummary, ...] = ()
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.run = _Link("Run on screen")
        self.run.clicked.connect(lambda: self.page_wanted.emit(TRAIN))
        self.others = _Link("Other runs going on")
        self.others.clicked.connect(self._show_other)
        self.status = QLabel("Idle")
        self.status.setAccessibleName("Run status")
        self.status.setMinimumWidth(120)
        self.status.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.progress = QProgressBar()
        self.progress.setAccessibleName("Progress of the run")
        self.progress.setRange(0, 1000)
        self.progress.setFixedWidth(180)
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(10)
        self.share = QLabel()
        self.speed = QLabel()
        self.left = QLabel()
        self.pause = bind(QPushButton(), actions.pause)
        self.stop = bind(QPushButton(), actions.stop)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(10, 3, 10, 3)
        layout.setSpacing(12)
        layout.addWidget(self.run)
        layout.addWidget(self.status, 1)
        for widget in (self.progress, self.share, self.speed, self.left, self.others, self.pause, self.stop):
            layout.addWidget(widget)
        self.show_others(())
        self.show_idle("Idle · nothing is running")

    def show_idle(self, text: str) -> None:
        """Shows `text`, which begins with a state, and nothing to pause or to stop."""
        self._say(text)
        self._name("")
        self.progress.hide()
        self.share.clear()
        self.speed.clear()
        self.left.clear()
        self._actions.pause.set_appearance("Pause", _PAUSE, "pause")
        for action in (self._actions.pause, self._actions.stop):
            action.allow("Nothing is running")

    def show_run(self, run: RunStatus, title: str = "") -> None:
        """Shows a run called `title`; what is None is not known yet and stays empty."""
        self._say(run.text)
        self._name(title)
        at_work = run.active and run.word != "Waiting"
        fraction, left_s = (run.fraction if at_work else None), run.seconds_left
        self.progress.setVisible(at_work)
        if at_work:
            # Without a length known yet the bar moves to and fro.
            self.progress.setRange(0, 1000 if fraction is not None else 0)
            self.progress.setValue(round(1000 * (fraction or 0)))
        self.share.setText(f"{100 * fraction:.0f} %" if fraction is not None else "")
        speed = run.images_per_second
        self.speed.setText(f"{localised(speed)} images/s" if at_work and speed is not None else "")
        self.left.setText(f"{clock(left_s)} left" if at_work and left_s is not None else "")
        if run.resumable:
            self._actions.pause.set_appearance("Resume", _RESUME, "resume", "accent")
        else:
            self._actions.pause.set_appearance("Pause", _PAUSE, "pause")
        self._actions.pause.allow("" if run.resumable else run.why_no_pause)
        self._actions.stop.set_appearance("Stop", _LEAVE if run.word == "Waiting" else _STOP)
        self._actions.stop.allow(run.why_no_stop)

    def show_others(self, runs: Sequence[RunSummary]) -> None:
        """Names the run that goes on besides the one on screen, or says how many do."""
        self._others = tuple(runs)
        if len(runs) == 1:
            self.others.show_text(f"{run_title(runs[0])} · {runs[0].state}", "Shows that run")
        else:
            self.others.show_text(f"{len(runs)} more going on" if runs else "", "Shows the list of runs (Ctrl+3)")

    def say_besides(self, text: str) -> None:
        """Adds `text` to whatever is shown, until told otherwise."""
        self._besides = text
        self._say(self._text)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.run.isVisible():
            self.run.click()
        super().mouseReleaseEvent(event)

    def _show_other(self) -> None:
        if len(self._others) == 1:
            self.other_wanted.emit(self._others[0])
        else:
            self.page_wanted.emit(RUNS)

    def _name(self, title: str) -> None:
        self.run.show_text(title, "Shows the run")
        self.setCursor(Qt.CursorShape.PointingHandCursor if title else Qt.CursorShape.ArrowCursor)

    def _say(self, text: str) -> None:
        self._text = text
        text = " · ".join(filter(None, (text, self._besides)))
        if text != self.status.text():
            self.status.setText(text)
            self.status.setAccessibleDescription(text)  # a label with a name of its own tells its text to nobody else
            self.status.setToolTip(text)


class _Link(QToolButton):
    """A button that looks like its text; hidden without any. Enter presses it, too."""

    def __init__(self, name: str) -> None:
        """`name` is what screen readers call it while it is empty."""
        super().__init__()
        self._called = name
        self.setObjectName("flat")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def show_text(self, text: str, tip: str) -> None:
        elided = self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, _NAME_WIDTH)
        if elided != self.text():
            self.setText(elided)
        self.setToolTip(f"{text}\n{tip}")
        self.setAccessibleName(text or self._called)
        self.setAccessibleDescription(tip)
        self.setVisible(bool(text))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)


def clock(seconds: float) -> str:
    """A duration as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"
