"""The workers that are left without their supervisor, above all runs: what each holds, and a button that ends it."""

from __future__ import annotations

import time

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.devices import Snapshot, gpu_title
from engine.runs.folder import RunFolder
from engine.runs.orphans import PATIENCE_S, CannotEnd, Orphan, end_orphan, find_orphans
from gui.actions import with_key
from gui.format import localised, size
from gui.sources.background import SingleFlight, in_background, reraise
from gui.titles import title_of
from gui.widgets.banner import Banner

LOOK_EVERY_S = 10.0
"""A look goes through all processes of the machine, some 20 ms on a thread."""

_MOST = 3
"""The most orphans with a line each; one button ends all."""


def named_orphans() -> dict[Orphan, str]:
    """The workers left alone, with the names of their runs. To be called away from the window's thread."""
    return {orphan: title_of(RunFolder(orphan.folder)) for orphan in find_orphans()}


class Orphans(QWidget):
    """Hidden where there are none.

    Signals: message(str) - in words for the user: what went wrong; when some are found out of sight, that there are.
    """

    message = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Workers without a supervisor")
        self._orphans: dict[Orphan, str] = {}
        self._ending: set[Orphan] = set()
        self._memory: dict[int, list[tuple[str, int | None]]] = {}
        self.reading = SingleFlight(self, lambda: named_orphans, self._looked, reraise)
        self._looked_at: float | None = None
        self._rows: dict[Orphan, _Row] = {}
        self.all = QPushButton("End all")
        self.all.setAccessibleName("End all workers without a supervisor")
        self.all.clicked.connect(lambda: self._end(list(self._orphans)))
        self._more = QLabel()
        self._last = QWidget()
        last = QHBoxLayout(self._last)
        last.setContentsMargins(0, 0, 0, 0)
        last.addWidget(self._more, 1)
        last.addWidget(self.all)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(4)
        self._layout.addWidget(self._last)
        self.hide()

    @property
    def count(self) -> int:
        return len(self._orphans)

    def look(self, *, at_once: bool = False) -> None:
        """Looks for them on a thread, unless that was done within the last `LOOK_EVERY_S` and is not wanted
        `at_once`.
        """
        now = time.monotonic()
        fresh = self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S
        if at_once or not (fresh or self.reading.running):
            self._looked_at = now
            self.reading.request()

    def set_machine(self, snapshot: Snapshot) -> None:
        """Takes in what they hold of the GPUs."""
        if not self._orphans or snapshot.foreign_pids:
            return
        memory: dict[int, list[tuple[str, int | None]]] = {}
        for gpu in snapshot.gpus:
            for process in gpu.processes or ():
                memory.setdefault(process.pid, []).append((gpu_title(gpu), process.memory_used_bytes))
        held = {orphan.pid: memory[orphan.pid] for orphan in self._orphans if orphan.pid in memory}
        if held != self._memory:
            self._memory = held
            self._show()

    def close_work(self) -> None:
        """Wait for the current reading, at the end of the window, but not for workers that are being ended."""
        self.reading.finish()

    def words(self, orphan: Orphan) -> str:
        """ "A worker of dusk (rank 0, pid 123) has lost its supervisor. It holds 4.1 GiB of GPU 0."."""
        held = " and ".join(
            name if used is None else f"{size(used)} of {name}" for name, used in self._memory.get(orphan.pid, [])
        )
        lost = f"A worker of {self._orphans[orphan]} (rank {orphan.rank}, pid {orphan.pid}) has lost its supervisor."
        return f"{lost} It holds {held}." if held else lost

    def _looked(self, orphans: dict[Orphan, str]) -> None:
        if orphans != self._orphans:
            new = [orphan for orphan in orphans if orphan not in self._orphans]
            self._orphans = orphans
            self._ending &= orphans.keys()
            self._show()
            if new and not self.isVisible():
                self._tell(new)

    def _tell(self, new: list[Orphan]) -> None:
        others = f" {localised(len(new) - 1)} others have too." if len(new) > 1 else ""
        runs, them = with_key("Runs", "runs_page"), "it" if len(new) == 1 else "them"
        self.message.emit(f"{self.words(new[0])}{others} Use {runs} to end {them}.")

    def _end(self, orphans: list[Orphan]) -> None:
        """Ends them on a thread each, since one that does not listen takes its time."""
        for orphan in orphans:
            if orphan not in self._ending:
                self._ending.add(orphan)
                self._start_ending(orphan)
        self._show()

    def _start_ending(self, orphan: Orphan) -> None:
        def over() -> None:
            self._ending.discard(orphan)
            self._show()
            self.look(at_once=True)

        def failed(error: Exception) -> None:
            over()
            if not isinstance(error, CannotEnd):
                raise error
            self.message.emit(str(error))

        in_background(lambda: end_orphan(orphan), self, lambda _none: over(), failed)

    # What is shown

    def _show(self) -> None:
        shown = list(self._orphans)[:_MOST]
        for orphan in [orphan for orphan in self._rows if orphan not in shown]:
            self._rows.pop(orphan).deleteLater()
        for index, orphan in enumerate(shown):
            row = self._rows.get(orphan)
            if row is None:
                row = self._rows[orphan] = _Row(orphan)
                row.end.clicked.connect(lambda _on=False, orphan=orphan: self._end([orphan]))
            if self._layout.indexOf(row) != index:
                self._layout.insertWidget(index, row)
            row.tell(self.words(orphan), self._orphans[orphan], ending=orphan in self._ending)
        left = len(self._orphans) - _MOST
        self._more.setText(f"{localised(left)} more." if left > 0 else "")
        self._last.setVisible(len(self._orphans) > 1)
        self.all.setEnabled(any(orphan not in self._ending for orphan in self._orphans))
        self.setVisible(bool(self._orphans))


class _Row(Banner):
    """One of them, and the button that ends it."""

    def __init__(self, orphan: Orphan) -> None:
        end = QPushButton("End")
        super().__init__(end)
        self.end, self._orphan = end, orphan
        self.end.setToolTip(f"Sends SIGTERM, then kills it after {PATIENCE_S:.0f} s")
        self.label.setToolTip(orphan.folder)

    def tell(self, words: str, name: str, *, ending: bool) -> None:
        self.say(words, "warning", "Ending …" if ending else "End")
        self.end.setEnabled(not ending)
        self.end.setAccessibleName(f"End the worker of {name}, rank {self._orphan.rank}, pid {self._orphan.pid}")
