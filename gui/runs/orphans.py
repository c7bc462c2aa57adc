"""Banners above the list of runs: for workers without a supervisor, and for interrupted runs."""

from __future__ import annotations

import time
from collections.abc import Collection

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from engine.contract.devices import Snapshot, gpu_title
from engine.runs.folder import RunFolder, RunSummary
from engine.runs.orphans import PATIENCE_S, CannotEnd, Orphan, end_orphan, find_orphans
from gui.actions import with_key
from gui.format import localised, moment, size
from gui.sources.background import SingleFlight, in_background, reraise
from gui.titles import doing, model_title, run_title, title_of
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import tool_button
from gui.widgets.layouts import hbox, vbox

MIN_INTERVAL_S = 10.0
"""Minimum seconds between two scans of the machine's processes. A scan takes about 20 ms on a thread."""

_MAX_BANNERS = 3
"""Maximum number of banners. A single button ends all orphans."""


def _orphans_with_titles() -> dict[Orphan, str]:
    return {orphan: title_of(RunFolder(orphan.folder)) for orphan in find_orphans()}


class Orphans(QWidget):
    """Banners for orphaned workers, each with a button that ends them; hidden if there are none.

    Signals:
        message(str): an error, or the information that orphans were found while the page is hidden.
    """

    message = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(tr("Workers without a supervisor"))
        self._orphans: dict[Orphan, str] = {}
        self._ending: set[Orphan] = set()
        self._memory: dict[int, list[tuple[str, int | None]]] = {}
        self._banners: dict[Orphan, _OrphanBanner] = {}
        self._scanned_at: float | None = None
        self.reading = SingleFlight(self, lambda: _orphans_with_titles, self._on_found, reraise)
        self.all = QPushButton(tr("End all"))
        self.all.setAccessibleName(tr("End all workers without a supervisor"))
        self.all.clicked.connect(lambda: self._end(list(self._orphans)))
        self._more = QLabel()
        self._footer = QWidget()
        self._footer.setLayout(hbox((self._more, 1), self.all))
        self._layout = vbox(self._footer, spacing=4)
        self.setLayout(self._layout)
        self.hide()

    @property
    def count(self) -> int:
        return len(self._orphans)

    def refresh(self, *, force: bool = False) -> None:
        """Scan the processes on a worker thread.

        Nothing happens within `MIN_INTERVAL_S` after the last scan, unless `force` is True.
        """
        now = time.monotonic()
        is_recent = self._scanned_at is not None and now - self._scanned_at < MIN_INTERVAL_S
        if force or not (is_recent or self.reading.running):
            self._scanned_at = now
            self.reading.request()

    def set_machine(self, snapshot: Snapshot) -> None:
        """Show how much GPU memory the orphans use, according to `snapshot`."""
        if not self._orphans or snapshot.foreign_pids:
            return
        memory: dict[int, list[tuple[str, int | None]]] = {}
        for gpu in snapshot.gpus:
            for process in gpu.processes or ():
                memory.setdefault(process.pid, []).append((gpu_title(gpu), process.memory_used_bytes))
        held = {orphan.pid: memory[orphan.pid] for orphan in self._orphans if orphan.pid in memory}
        if held != self._memory:
            self._memory = held
            self._update()

    def close_work(self) -> None:
        """Wait for the current scan when the window closes, but not for workers that are being ended."""
        self.reading.finish()

    def _text(self, orphan: Orphan) -> str:
        """Describe an orphan, and the GPU memory that it uses."""
        held = " and ".join(
            name if used is None else f"{size(used)} of {name}" for name, used in self._memory.get(orphan.pid, [])
        )
        lost = tr("A worker of {orphans} (rank {rank}, pid {pid}) has lost its supervisor.").format(
            orphans=self._orphans[orphan], rank=orphan.rank, pid=orphan.pid
        )
        return tr("{lost} It holds {held}.").format(lost=lost, held=held) if held else lost

    def _on_found(self, orphans: dict[Orphan, str]) -> None:
        """Show the orphans that a scan has found; send a message about new ones if the page is hidden."""
        if orphans == self._orphans:
            return
        new = [orphan for orphan in orphans if orphan not in self._orphans]
        self._orphans = orphans
        self._ending &= orphans.keys()
        self._update()
        if new and not self.isVisible():
            others = f" {localised(len(new) - 1)} others have too." if len(new) > 1 else ""
            runs, them = with_key(tr("Runs"), "runs_page"), "it" if len(new) == 1 else "them"
            self.message.emit(
                tr("{text}{others} Use {runs} to end {them}.").format(
                    text=self._text(new[0]), others=others, runs=runs, them=them
                )
            )

    def _end(self, orphans: list[Orphan]) -> None:
        """End each orphan on its own thread, because one that ignores SIGTERM takes a while."""
        for orphan in orphans:
            if orphan not in self._ending:
                self._ending.add(orphan)
                self._start_ending(orphan)
        self._update()

    def _start_ending(self, orphan: Orphan) -> None:
        def on_ended(_result: object) -> None:
            self._ending.discard(orphan)
            self._update()
            self.refresh(force=True)

        def on_failed(error: Exception) -> None:
            on_ended(None)
            if not isinstance(error, CannotEnd):
                raise error
            self.message.emit(str(error))

        in_background(lambda: end_orphan(orphan), self, on_ended, on_failed)

    def _update(self) -> None:
        listed = list(self._orphans)[:_MAX_BANNERS]
        for orphan in self._banners.keys() - set(listed):
            self._banners.pop(orphan).deleteLater()
        for index, orphan in enumerate(listed):
            if orphan not in self._banners:
                self._banners[orphan] = _OrphanBanner(orphan)
                self._banners[orphan].end.clicked.connect(lambda _on=False, orphan=orphan: self._end([orphan]))
            banner = self._banners[orphan]
            if self._layout.indexOf(banner) != index:
                self._layout.insertWidget(index, banner)
            banner.show_state(self._text(orphan), self._orphans[orphan], is_ending=orphan in self._ending)
        remaining = len(self._orphans) - _MAX_BANNERS
        self._more.setText(f"{localised(remaining)} more." if remaining > 0 else "")
        self._footer.setVisible(len(self._orphans) > 1)
        self.all.setEnabled(any(orphan not in self._ending for orphan in self._orphans))
        self.setVisible(bool(self._orphans))


class _OrphanBanner(Banner):
    """Banner for an orphaned worker."""

    def __init__(self, orphan: Orphan) -> None:
        end = QPushButton(tr("End"))
        super().__init__(end)
        self.end, self._orphan = end, orphan
        self.end.setToolTip(f"Sends SIGTERM, then kills it after {PATIENCE_S:.0f} s")
        self.label.setToolTip(orphan.folder)

    def show_state(self, text: str, run_title: str, *, is_ending: bool) -> None:
        self.say(text, "warning", tr("Ending…") if is_ending else tr("End"))
        self.end.setEnabled(not is_ending)
        self.end.setAccessibleName(
            tr("End the worker of {run_title}, rank {rank}, pid {pid}").format(
                run_title=run_title, rank=self._orphan.rank, pid=self._orphan.pid
            )
        )


_MAX_INTERRUPTED = 2
"""Maximum number of banners, which are for the newest interrupted runs. The list contains all of them."""


class InterruptedRuns(QWidget):
    """Banners for interrupted runs that have neither been resumed nor dismissed; hidden if there are none.

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

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
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

        Forking a run doesn't dismiss it.
        """
        found = [run for run in runs if run.state == "interrupted" and not run.set_aside]
        found.sort(key=lambda run: run.started, reverse=True)
        if found != self._runs:
            self._runs = found
            self._create_banners()

    def _create_banners(self) -> None:
        for banner in self._banners:
            self._layout.removeWidget(banner)
            banner.deleteLater()
        self._banners = [self._banner(run) for run in self._runs[:_MAX_INTERRUPTED]]
        for index, (banner, run) in enumerate(zip(self._banners, self._runs, strict=False)):
            self._layout.insertWidget(index, banner)
            interrupted_at = moment(run.started + (run.seconds or 0.0))
            banner.say(f"{_title(run)}: interrupted {interrupted_at} while {doing(run)}.")
        remaining = len(self._runs) - _MAX_INTERRUPTED
        self._more.setText(f"{localised(remaining)} more interrupted – show all")
        self._more.setVisible(remaining > 0)
        self.setVisible(bool(self._runs))

    def _banner(self, run: RunSummary) -> Banner:
        resume = QPushButton(tr("Resume"))
        resume.setToolTip(tr("Resumes from its last checkpoint on the same devices; starts over if it has none"))
        resume.setAccessibleName(tr("Resume {run}").format(run=_title(run)))
        resume.clicked.connect(lambda: self.resume.emit(run.run_id))
        delete = QPushButton(tr("Delete…"))
        delete.setToolTip(tr("Asks first, then moves the run to the trash"))
        delete.setAccessibleName(tr("Delete {run}").format(run=_title(run)))
        delete.clicked.connect(lambda: self.delete.emit(run.run_id))
        banner = Banner(resume, delete, close=tr("Dismiss {run}").format(run=_title(run)))
        banner.closed.connect(lambda: self.dismissed.emit(run.run_id))
        banner.label.setToolTip(run.folder)
        return banner


def _title(run: RunSummary) -> str:
    return f"{run_title(run)} · {model_title(run.model)}"
