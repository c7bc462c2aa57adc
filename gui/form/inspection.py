"""When the dataset folder on screen is looked through, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.dataset import DatasetReport
from engine.contract.job import deciding, job_from_values
from gui.form.cached_disk import CachedDisk
from gui.form.dataset_card import DatasetCard
from gui.form.field_row import FieldRow

_FIELDS = deciding("report")

_TYPING_MS = 250
"""A folder's name is looked up once nothing has been typed for so long."""


class Inspection(QObject):
    """Asks for the folder to be looked through whenever it, or how it is divided, has changed.

    Signals: wanted(object) - the folder of this Job, of which the fields that decide on the report are set, None for
    none; changed() - what is known of it.

    Attributes: checking - whether it is still being looked through; report - the findings, None while there are none.
    """

    wanted = Signal(object)
    changed = Signal()

    def __init__(self, rows: Mapping[str, FieldRow], card: DatasetCard, disk: CachedDisk, parent: QObject) -> None:
        super().__init__(parent)
        self.checking = False
        self.report: DatasetReport | None = None
        self._rows = rows
        self._card = card
        self._disk = disk
        self._unsure = False
        self._asked_for: tuple[Any, ...] | None = None
        self._soon = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._soon.timeout.connect(self._ask)
        disk.changed.connect(self._seen)
        card.cancelled.connect(self._cancel)
        for name in _FIELDS:
            rows[name].edited.connect(self._edited)

    def set_report(self, report: DatasetReport | None) -> None:
        self.report = report
        self.checking = False
        if report is not None:
            self._card.show_report(report)
        self.changed.emit()

    def again(self) -> None:
        """Has the folder looked through once more, for formats that are known only now."""
        self._asked_for = None
        self._edited()

    def _shown(self) -> tuple[Any, ...]:
        return tuple(self._rows[name].value() for name in _FIELDS)

    def _edited(self) -> None:
        if self._shown() == self._asked_for:
            return
        self.report = None
        self._asked_for = None
        self.checking = bool(self._rows["dataset"].value())
        self._soon.start()

    def _ask(self) -> None:
        shown = self._shown()
        if shown == self._asked_for:
            return
        job, _unread = job_from_values(dict(zip(_FIELDS, shown, strict=True)))
        kind = self._disk.kind(job.dataset) if job is not None else ""
        if job is not None and kind is None and self._disk.look():
            kind = self._disk.kind(job.dataset)
        self._unsure = kind is None
        if kind is None:
            return
        self._asked_for = shown
        self.checking = kind == "folder"
        if not self.checking:
            self._card.clear()
        self.wanted.emit(job if self.checking else None)
        self.changed.emit()

    def _seen(self) -> None:
        """The disk has told more."""
        if self._unsure:
            self._ask()

    def _cancel(self) -> None:
        self.checking = self._unsure = False
        self.wanted.emit(None)
        self._card.clear("Not inspected. Training can start, but problems with the images will appear only then.")
        self.changed.emit()
