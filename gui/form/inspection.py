"""Inspection of the dataset folder: scheduling and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.dataset import DatasetReport
from engine.contract.job import fields_with_trait, job_from_values
from gui.form.cached_disk import CachedDisk
from gui.form.dataset_card import DatasetCard
from gui.form.field_row import FieldRow
from gui.translation import tr

_FIELDS = fields_with_trait("report")
"""Fields that determine the result of an inspection."""
_TYPING_MS = 250
"""Milliseconds without typing after which a folder is looked up."""


class Inspection(QObject):
    """Controller that requests an inspection whenever the dataset folder or a setting that affects its report changes.

    Signals:
        requested(Job | None): the dataset folder of this job should be inspected, or no folder if it is None. Only
            relevant fields are set.
        changed(): the results or the state have changed.
    """

    requested = Signal(object)
    changed = Signal()

    def __init__(self, rows: Mapping[str, FieldRow], card: DatasetCard, disk: CachedDisk, parent: QObject) -> None:
        super().__init__(parent)
        self.is_inspecting = False
        """True while the folder is being inspected."""
        self.report: DatasetReport | None = None
        self._rows, self._card, self._disk = rows, card, disk
        self._waits_for_disk = False  # True if the request is repeated when the disk answers
        self._requested_values: tuple[Any, ...] | None = None  # values of `_FIELDS` at the last request
        self._timer = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._timer.timeout.connect(self._request)
        disk.changed.connect(self._on_disk_changed)
        card.cancelled.connect(self._cancel)
        for name in _FIELDS:
            rows[name].edited.connect(self._on_edited)

    @property
    def card_text(self) -> str:
        """Text on the dataset card while the card shows no report, such as the progress of the inspection."""
        return self._card.text()

    def set_report(self, report: DatasetReport | None) -> None:
        self.report = report
        self.is_inspecting = False
        if report is not None:
            self._card.show_report(report)
        self.changed.emit()

    def announce(self) -> None:
        """Show on the dataset card that the folder is being inspected, before the inspection starts."""
        if self.is_inspecting:
            self._card.show_progress(0, 0)

    def restart(self) -> None:
        """Inspect the dataset folder again."""
        self._requested_values = None
        self._on_edited()

    def adopt(self, other: Inspection) -> None:
        """Use the inspection results of another form if its dataset folder and options are the same."""
        has_new_report = other.report is not None and other.report is not self.report
        if has_new_report and self._read_values() == other._requested_values:
            self._requested_values = other._requested_values
            self.set_report(other.report)

    def _read_values(self) -> tuple[Any, ...]:
        """Return the values of the fields that determine the result of an inspection."""
        return tuple(self._rows[name].value() for name in _FIELDS)

    def _on_edited(self) -> None:
        """Discard the report, and request another inspection after a pause in typing, if the folder has changed."""
        if self._read_values() == self._requested_values:
            return
        self.report = None
        self._requested_values = None
        self.is_inspecting = bool(self._rows["dataset"].value())
        self._timer.start()

    def _request(self) -> None:
        """Request an inspection if the folder or its options have changed, as soon as the disk responds.

        Emits `requested`, with None if there is no folder to inspect, and `changed`.
        """
        values = self._read_values()
        if values == self._requested_values:
            return
        job, _problems = job_from_values(dict(zip(_FIELDS, values, strict=True)))
        # Kind of the file, such as "folder", or None until the disk answers.
        kind = self._disk.kind(job.data.dataset) if job is not None else ""
        if job is not None and kind is None and self._disk.refresh():  # most disks answer immediately
            kind = self._disk.kind(job.data.dataset)
        self._waits_for_disk = kind is None
        if kind is None:
            return
        self._requested_values = values
        self.is_inspecting = kind == "folder"
        if not self.is_inspecting:
            self._card.clear()
        self.requested.emit(job if self.is_inspecting else None)
        self.changed.emit()

    def _on_disk_changed(self) -> None:
        """Request the pending inspection once it is known if the dataset path is a folder."""
        if self._waits_for_disk:
            self._request()

    def _cancel(self) -> None:
        """Cancel the inspection, because the user has pressed Cancel. The job can be trained without it."""
        self.is_inspecting = self._waits_for_disk = False
        self._timer.stop()
        self.requested.emit(None)
        self._card.clear(tr("Not inspected. You can train, but problems with the images will appear only then."))
        self.changed.emit()
