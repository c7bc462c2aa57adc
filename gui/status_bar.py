"""Status bar for the open run: name, state, progress, speed, remaining time, and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QSizePolicy, QToolButton, QWidget

from engine.system.format import duration
from gui.actions import Actions, append_key, bind
from gui.format import speed
from gui.pages import RUNS, TRAIN
from gui.titles import make_resume_texts, run_title
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.layouts import hbox

if TYPE_CHECKING:
    from engine.runs.folder import RunSummary
    from gui.sources.run_status import RunStatus

_PAUSE = tr("Save the run and free its devices after the current step")
_STOP = tr("End the run after the current step and save its state")
_LEAVE = tr("Remove the run from the queue")
_NAME_WIDTH = 220
"""Maximum width of a run's name in pixels. The tool tip contains the full name."""


class StatusBar(QWidget):
    """Status bar with the state of the open run. It also updates the actions that control the run.

    A click on the bar, or Enter on the run's name, opens the run's page.

    Signals:
        page_requested(int): the user wants to see this page of `gui.pages.TABS`.
        run_requested(RunSummary): the user wants to open another active run.
    """

    page_requested = Signal(int)
    run_requested = Signal(object)

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._actions = actions
        self._status_text = self._suffix = ""  # status, and a text that follows every status
        self._other_runs: tuple[RunSummary, ...] = ()  # active runs except the one on screen
        styled(self, "panel")
        self.run = _Link(tr("Run on screen"))
        self.run.clicked.connect(lambda: self.page_requested.emit(TRAIN))
        self.others = _Link(tr("Other active runs"))
        self.others.clicked.connect(self._open_others)
        self.status = styled(QLabel(), name=tr("Run status"))
        self.status.setMinimumWidth(120)
        self.status.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.progress = styled(QProgressBar(), name=tr("Progress of the run"))
        self.progress.setRange(0, 1000)
        self.progress.setFixedWidth(180)
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(10)
        self.percentage = QLabel()  # of the run that is done
        self.speed = QLabel()
        self.remaining = QLabel()  # time
        self.pause = bind(QPushButton(self), actions.pause, hide_disabled=True)
        self.stop = bind(QPushButton(self), actions.stop, hide_disabled=True)
        self.setLayout(
            hbox(
                self.run,
                (self.status, 1),
                self.progress,
                self.percentage,
                self.speed,
                self.remaining,
                self.others,
                self.pause,
                self.stop,
                spacing=12,
                margins=(10, 3, 10, 3),
            )
        )
        self.show_others(())
        self.show_idle(tr("Starting…"))

    def show_idle(self, text: str) -> None:
        """Show `text`, such as "Idle · ready to train", while no run is open."""
        self._set_status(text)
        self._set_name("")
        self.progress.hide()
        self.percentage.clear()
        self.speed.clear()
        self.remaining.clear()
        self._actions.pause.set_appearance(tr("Pause"), _PAUSE, "pause")
        for action in (self._actions.pause, self._actions.stop):
            action.set_disabled_reason(tr("Nothing is running"))

    def show_run(self, run: RunStatus, title: str = "") -> None:
        """Show the state of the open run, and adapt the actions that pause, resume or stop it.

        Values that are None stay empty. `title` is the run's name, which links to its page.
        """
        self._set_status(run.text)
        self._set_name(title)
        is_working = run.active and run.label != "Waiting"
        fraction = run.fraction if is_working else None
        rate, left_s = run.images_per_second, run.seconds_left
        self.progress.setVisible(is_working)
        if is_working:
            # A range of 0 animates the bar while the length is unknown.
            self.progress.setRange(0, 1000 if fraction is not None else 0)
            self.progress.setValue(round(1000 * (fraction or 0)))
        self.percentage.setText(f"{100 * fraction:.0f}%" if fraction is not None else "")
        self.speed.setText(speed(rate) if is_working and rate is not None else "")
        self.remaining.setText(
            tr("{time} left").format(time=duration(left_s)) if is_working and left_s is not None else ""
        )
        if run.can_resume:
            text, tip = make_resume_texts(has_checkpoint=run.has_checkpoint)
            self._actions.pause.set_appearance(text.replace("&", ""), tip, "resume", "accent")
        else:
            self._actions.pause.set_appearance(tr("Pause"), _PAUSE, "pause")
        self._actions.pause.set_disabled_reason("" if run.can_resume else run.why_no_pause)
        self._actions.stop.set_appearance(tr("Stop"), _LEAVE if run.label == "Waiting" else _STOP)
        self._actions.stop.set_disabled_reason(run.why_no_stop)

    def show_others(self, runs: Sequence[RunSummary]) -> None:
        """Show the other active run, or the number of other active runs."""
        self._other_runs = tuple(runs)
        if len(runs) == 1:
            self.others.show_text(f"{run_title(runs[0])} · {runs[0].state}", tr("Show this run"))
        else:
            tip = append_key(tr("Show the list of runs"), "runs_page")
            self.others.show_text(tr("{count} other active runs").format(count=len(runs)) if runs else "", tip)

    def set_suffix(self, text: str) -> None:
        """Append `text` to the current status and to all later ones. "" removes it."""
        self._suffix = text
        self._set_status(self._status_text)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.run.isVisible():
            self.run.click()
        super().mouseReleaseEvent(event)

    def _open_others(self) -> None:
        """Open the other active run, or the list of runs if there are several."""
        if len(self._other_runs) == 1:
            self.run_requested.emit(self._other_runs[0])
        else:
            self.page_requested.emit(RUNS)

    def _set_name(self, title: str) -> None:
        """Show the name of the open run as a link, and let the pointer show that a click on the bar opens the run."""
        self.run.show_text(title, tr("Show the run"))
        self.setCursor(Qt.CursorShape.PointingHandCursor if title else Qt.CursorShape.ArrowCursor)

    def _set_status(self, text: str) -> None:
        """Show the text of the status, followed by the suffix."""
        self._status_text = text
        full_text = " · ".join(filter(None, (text, self._suffix)))
        if full_text != self.status.text():
            self.status.setText(full_text)
            self.status.setAccessibleDescription(full_text)  # its accessible name replaces its text
            self.status.setToolTip(full_text)


class _Link(QToolButton):
    """Button that looks like text. It is hidden while its text is empty, and Enter also presses it."""

    def __init__(self, name: str) -> None:
        """Create a link. `name` is its accessible name while it has no text."""
        super().__init__()
        self._empty_name = name
        self.setObjectName("flat")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def show_text(self, text: str, tip: str) -> None:
        """Show a text, shortened to fit, with a tool tip that contains it in full. Without a text, hide the button."""
        elided = self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, _NAME_WIDTH)
        if elided != self.text():
            self.setText(elided)
        self.setToolTip(f"{text}\n{tip}")
        self.setAccessibleName(text or self._empty_name)
        self.setAccessibleDescription(tip)
        self.setVisible(bool(text))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)
