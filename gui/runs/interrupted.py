"""Banners above the list of runs for interrupted runs."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget

from engine.runs.folder import RunSummary
from gui.format import format_date_and_time, localized
from gui.titles import describe_activity, make_resume_texts, model_title, run_title
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import tool_button
from gui.widgets.layouts import hbox, vbox

_MAX_INTERRUPTED = 2
"""Maximum number of banners, which are for the newest interrupted runs. The list contains all of them."""


class InterruptedRuns(QWidget):
    """Banners for interrupted runs that have neither been resumed nor dismissed. They are hidden if there are none.

    Signals:
        resume(str): the user wants to resume the run with this id.
        delete(str): the user wants to delete the run with this id.
        dismissed(str): the user has closed the banner for the run with this id.
        show_all(): the user wants to see all interrupted runs.
    """

    resume = Signal(str)
    delete = Signal(str)
    dismissed = Signal(str)
    show_all = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName(tr("Interrupted runs"))
        self._runs: list[RunSummary] = []
        self._banners: list[Banner] = []
        self._more = tool_button(self.show_all, text=tr("Show all"), style="flat")
        self._layout = vbox(hbox(self._more, 1), spacing=4)
        self.setLayout(self._layout)
        self.hide()

    @property
    def count(self) -> int:
        """Number of interrupted runs that haven't been dismissed, including those without a banner."""
        return len(self._runs)

    def show_runs(self, runs: Collection[RunSummary]) -> None:
        """Show banners for the interrupted runs in `runs` that haven't been dismissed.

        A run that has been forked, but not resumed, still has its banner.
        """
        interrupted = [run for run in runs if run.state == "interrupted" and not run.set_aside]
        interrupted.sort(key=lambda run: run.started, reverse=True)
        if interrupted != self._runs:
            self._runs = interrupted
            self._create_banners()

    def _create_banners(self) -> None:
        """Create banners for the newest interrupted runs, and show a button that lists all if there are more."""
        for banner in self._banners:
            self._layout.removeWidget(banner)
            banner.deleteLater()
        self._banners = [self._make_banner(run) for run in self._runs[:_MAX_INTERRUPTED]]
        for index, (banner, run) in enumerate(zip(self._banners, self._runs, strict=False)):
            self._layout.insertWidget(index, banner)
            interrupted_at = format_date_and_time(run.started + (run.seconds or 0.0))
            banner.show_message(
                tr("{run}: interrupted {time} while {activity}.").format(
                    run=_make_title(run), time=interrupted_at, activity=describe_activity(run)
                )
            )
        remaining = len(self._runs) - _MAX_INTERRUPTED
        self._more.setText(tr("{count} more interrupted – show all").format(count=localized(remaining)))
        self._more.setVisible(remaining > 0)
        self.setVisible(bool(self._runs))

    def _make_banner(self, run: RunSummary) -> Banner:
        """Create a banner that offers to resume, delete or dismiss a run."""
        text, tip = make_resume_texts(has_checkpoint=run.has_checkpoint)
        resume = QPushButton(text.replace("&", ""))
        resume.setToolTip(tip)
        resume.setAccessibleName(f"{resume.text()} {_make_title(run)}")
        resume.clicked.connect(lambda: self.resume.emit(run.run_id))
        delete = QPushButton(tr("Delete…"))
        delete.setToolTip(tr("Move the run to the trash after a confirmation"))
        delete.setAccessibleName(tr("Delete {run}").format(run=_make_title(run)))
        delete.clicked.connect(lambda: self.delete.emit(run.run_id))
        banner = Banner(resume, delete, close=tr("Dismiss {run}").format(run=_make_title(run)))
        banner.closed.connect(lambda: self.dismissed.emit(run.run_id))
        banner.label.setToolTip(run.folder)
        return banner


def _make_title(run: RunSummary) -> str:
    return f"{run_title(run)} · {model_title(run.model)}"
