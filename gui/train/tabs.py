"""Tabs of the Train page: the new job, and runs that are open or active."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QTabBar

from engine.runs.folder import ENDED, RunFolder, RunSummary
from engine.runs.index import machine_of
from gui.sources.run_status import STATE_LABELS, STATE_MARKS, RunStatus, StatusLabel
from gui.style import icons, theme
from gui.titles import run_title
from gui.translation import tr
from gui.widgets.buttons import styled

if TYPE_CHECKING:
    from gui.sources.run_list import RunListing

_NEW_JOB = tr("New job")
_TITLE_WIDTH = 160
"""Maximum width of a run's title in pixels. The tool tip contains the full title."""
_RIGHT = QTabBar.ButtonPosition.RightSide
_CLOSE_SIDE, _CLOSE_MARGIN = 18, 8
"""Side length of a tab's close button and the space to its right, in pixels at a text size of 100%."""


@dataclass
class RunTab:
    """Content of a run's tab.

    Attributes:
        is_opened: True if the user has opened the run. Other tabs are removed when their runs end.
    """

    run: RunFolder
    title: str
    state: StatusLabel = "Starting"
    fraction: float | None = None
    is_active: bool = True
    is_opened: bool = False

    @property
    def is_closable(self) -> bool:
        """True if the run has ended or is on another machine."""
        return not self.is_active or bool(machine_of(self.run))


class RunTabs(QTabBar):
    """Tab bar with a tab for the new job, then a tab for each run that is active locally or that the user has opened.

    Signals:
        job_chosen(): the user has selected the tab of the new job.
        run_chosen(RunFolder): the user has selected the tab of a run.
        run_closed(RunFolder): the user has closed the tab of a run.
    """

    job_chosen = Signal()
    run_chosen = Signal(object)
    run_closed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        styled(self, "runs", name=tr("New job and runs"))
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setElideMode(Qt.TextElideMode.ElideNone)
        self.runs: list[RunTab] = []  # tabs after that of the new job
        self._listed_runs: Mapping[str, RunSummary] = {}  # runs in the last list, by id
        self.addTab(_NEW_JOB)
        self.setTabToolTip(0, tr("Show the form of a new job"))
        self.currentChanged.connect(self._on_current_changed)

    @property
    def current_run(self) -> RunTab | None:
        """Run in the selected tab, or None for the tab of the new job."""
        return self.runs[self.currentIndex() - 1] if self.currentIndex() > 0 else None

    def title_of(self, run_id: str) -> str:
        """Return the title of a run, or its id until the run list contains it."""
        summary = self._listed_runs.get(run_id)
        return run_title(summary) if summary is not None else run_id

    def select_job(self) -> None:
        """Select the tab of the new job, without emitting `job_chosen`."""
        with QSignalBlocker(self):
            self.setCurrentIndex(0)

    def select_run(self, run: RunFolder) -> None:
        """Select the tab of a run that the user has opened, or add a tab for it first. Emits no signals."""
        number = self._index_of(run)
        if number is None:
            self._add_tab(RunTab(run, self.title_of(run.run_id)))
            number = len(self.runs) - 1
        tab = self.runs[number]
        tab.run, tab.is_opened = run, True
        self._update_tab(number)
        with QSignalBlocker(self):
            self.setCurrentIndex(number + 1)

    def show_status(self, run: RunFolder, status: RunStatus) -> None:
        """Show the state and the progress of the open run in its tab."""
        number = self._index_of(run)
        if number is not None:
            tab = self.runs[number]
            tab.state, tab.is_active = status.label, status.active
            tab.fraction = status.fraction if status.active and status.label != "Waiting" else None
            self._update_tab(number)

    def show_runs(self, listing: RunListing, followed: RunFolder | None) -> None:
        """Add tabs for active runs, update the tabs, and remove those whose runs have ended or were deleted.

        Tabs of ended runs stay if the user opened them. The state of the followed run isn't updated.
        """
        previous_runs, self._listed_runs = self._listed_runs, {run.run_id: run for run in listing.runs}
        for summary in reversed(listing.runs):  # the newest run gets the last tab
            run = RunFolder(summary.folder)
            has_started = summary.state not in ENDED and summary.state != "waiting"
            if has_started and self._index_of(run) is None:
                self._add_tab(RunTab(run, run_title(summary)))
        for number in reversed(range(len(self.runs))):
            tab = self.runs[number]
            listed = self._listed_runs.get(tab.run.run_id)
            is_followed = followed is not None and tab.run.path == followed.path
            if listed is not None:
                _update_content(tab, listed, with_state=not is_followed)
                self._update_tab(number)
            is_deleted = listed is None and tab.run.run_id in previous_runs and not machine_of(tab.run)
            if not is_followed and (is_deleted or not (tab.is_active or tab.is_opened)):
                self._remove_tab(number)

    def close_run(self, run: RunFolder) -> None:
        """Close the tab of a run and emit `run_closed`, unless the run is active on this machine.

        If the tab was selected, select the new job instead and emit `job_chosen`.
        """
        number = self._index_of(run)
        if number is None or not self.runs[number].is_closable:
            return
        is_current = self.currentIndex() == number + 1
        self._remove_tab(number)
        self.run_closed.emit(run)
        if is_current:
            self.select_job()
            self.job_chosen.emit()

    def _index_of(self, run: RunFolder) -> int | None:
        """Return the index of a run in `runs`, or None if it has no tab."""
        return next((number for number, tab in enumerate(self.runs) if tab.run.path == run.path), None)

    def _add_tab(self, tab: RunTab) -> None:
        """Append a tab without selecting it."""
        self.runs.append(tab)
        with QSignalBlocker(self):
            self.addTab("")
        self._update_tab(len(self.runs) - 1)

    def _remove_tab(self, number: int) -> None:
        """Remove the tab of the run at this index, without emitting signals."""
        del self.runs[number]
        with QSignalBlocker(self):
            self.removeTab(number + 1)

    def _update_tab(self, number: int) -> None:
        """Update the title, the tool tip and the close button of the tab of the run at this index."""
        tab, index = self.runs[number], number + 1
        progress = f"{100 * tab.fraction:.0f}%" if tab.fraction is not None else ""
        title = self.fontMetrics().elidedText(tab.title, Qt.TextElideMode.ElideMiddle, _TITLE_WIDTH)
        progress_and_title = " · ".join(filter(None, (progress, title)))
        text = f"{STATE_MARKS.get(tab.state, '')} {progress_and_title}".strip().replace("&", "&&")
        if text != self.tabText(index):
            self.setTabText(index, text)
            self.setAccessibleTabName(index, ", ".join(filter(None, (tab.title, tab.state, progress))))
            self.setTabToolTip(index, f"{tab.title}: {tab.state}")
        button = self.tabButton(index, _RIGHT)
        if tab.is_closable and button is None:
            close = _CloseButton()
            close.clicked.connect(lambda: self.close_run(tab.run))
            self.setTabButton(index, _RIGHT, close)
        elif not tab.is_closable and button is not None:
            self.setTabButton(index, _RIGHT, None)
            button.deleteLater()

    def _on_current_changed(self, index: int) -> None:
        """Emit `run_chosen` or `job_chosen` for the tab that the user has selected."""
        if index > 0:
            self.run_chosen.emit(self.runs[index - 1].run)
        else:
            self.job_chosen.emit()


class _CloseButton(QAbstractButton):
    """Close button of a tab, as high as the tab's text. There is a keyboard command for it."""

    def __init__(self) -> None:
        super().__init__()
        self.setIcon(icons.icon("close", "muted"))
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        styled(self, name=tr("Close the tab"), tip=tr("Close the tab; the run stays in the list"))

    def sizeHint(self) -> QSize:
        return QSize(theme.scale_pixels(_CLOSE_SIDE) + _CLOSE_MARGIN, self.fontMetrics().height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        square = self.rect().adjusted(0, 0, -_CLOSE_MARGIN, 0)
        if self.underMouse():
            painter.fillRect(square, self.palette().mid())
        self.icon().paint(painter, square.adjusted(3, 1, -3, -1))


def _update_content(tab: RunTab, summary: RunSummary, *, with_state: bool) -> None:
    """Set a tab's title from the list of runs and, if `with_state` is True, its state and progress."""
    tab.title = run_title(summary)
    if not with_state:
        return
    tab.is_active = summary.state not in ENDED
    tab.state = STATE_LABELS[summary.state]
    has_progress = tab.is_active and summary.epochs > 0
    tab.fraction = max(0, (summary.epoch or 1) - 1) / summary.epochs if has_progress else None
