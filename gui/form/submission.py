"""Submission of a form's job: wait for its validation, check the labels before the first run, and request the run."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from PySide6.QtCore import QElapsedTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from gui.sources.resume_fork import Prefill
from gui.sources.settings import Settings


class JobSignals(QWidget):
    """Base class of a form for a job and of the panel with the forms, with the signals of both.

    Signals:
        changed(): the job or its problems have changed.
        train_requested(Job): the user wants to start a new run.
        resume_requested(RunFolder, dict): the user wants to resume a run with these changes to its job.
        labels_requested(): the user should see the labels of the dataset before the first training.
        folder_chosen(Job | None): the dataset folder of this job should be inspected, or no folder if it is None.
        user_edited(): the user is editing the job, and may start a run soon.
        split_points_requested(): the user wants to see the page that splits the model into pipeline stages.
        finder_requested(str): the user wants to find a value for this field with trials.
    """

    changed = Signal()
    train_requested = Signal(object)
    resume_requested = Signal(object, object)
    labels_requested = Signal()
    folder_chosen = Signal(object)
    user_edited = Signal()
    split_points_requested = Signal()
    finder_requested = Signal(str)

    def relay(self, form: JobSignals) -> None:
        """Forward every signal that `form` emits."""
        for name, signal in vars(JobSignals).items():
            if isinstance(signal, Signal):
                getattr(form, name).connect(getattr(self, name))


class Submission:
    """Submission of a form's job. It waits until the job has been validated, and then requests the run.

    Requesting a run means to emit `train_requested` or `resume_requested` of the form.
    """

    def __init__(self, label_check: LabelCheck, prefill: Prefill | None, form: JobSignals) -> None:
        self._form = form
        self.is_requested_here = False
        """True if this form has requested the run that is being created."""
        self.start_problems: list[Problem] = []
        """Problems with the last start, which are removed by the next edit."""
        self._label_check, self._prefill = label_check, prefill
        self._pending: dict[str, Any] | None = None  # fields that the pending request overrides

    def schedule(self, overrides: dict[str, Any]) -> None:
        """Request that the run starts once the next validation of the form has finished.

        `overrides` has values for job fields, which take precedence over the form's.
        """
        self._pending = overrides

    def cancel(self) -> None:
        """Discard a pending request and the problems with the last start, because the user edits the form."""
        self._pending, self.start_problems = None, []

    def submit(self, job: Job | None, values: dict[str, Any], report: DatasetReport | None) -> None:
        """Emit the pending request for a run, or instead `labels_requested` if the user should check the labels first.

        Afterwards, no request is pending, even if none was emitted because the user must check the labels or because
        `job` is None (invalid). `values` are the values of the form's fields, and `report` is the report on the dataset
        folder.
        """
        overrides, self._pending = self._pending, None
        if overrides is None or job is None:
            return
        prefill = self._prefill
        resumed_run = prefill.run if prefill is not None else None
        # The labels are checked before the first training, so not for a run that is resumed.
        if resumed_run is None and self._label_check.start_if_needed(job.data.dataset, report):
            self._form.labels_requested.emit()
            return
        self.is_requested_here = True
        if prefill is not None and resumed_run is not None:
            self._form.resume_requested.emit(resumed_run, prefill.changes(values) | overrides)
        else:
            self._form.train_requested.emit(job.with_fields(**overrides))


_SETTING = "labels_seen"
_MAX_REMEMBERED = 500
"""Maximum number of datasets in the setting."""


class LabelCheck:
    """Label check before the first training run on a folder whose format or labels were inferred with uncertainty.

    It delays the start once for each folder and format, which are remembered in `settings` unless that is None.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._checked_datasets = _load(settings)
        self._pressed = QElapsedTimer()

    def start_if_needed(self, folder: str, report: DatasetReport | None) -> bool:
        """Start the label check for the dataset in `folder`, if the check is needed and hasn't been made before.

        Returns True if the labels must be shown instead of starting a run. Saves that they have been shown. A report
        without examples never delays the start. Two presses of the Train button within the time of a double click count
        as one.
        """
        if report is None or not report.format or report.certain or not report.examples:
            return False
        dataset = (os.path.abspath(os.path.expanduser(folder)), report.format)
        if dataset not in self._checked_datasets:
            self._remember(dataset)
            self._pressed.start()
            return True
        if self.is_pausing:  # the second press of a double click
            self._pressed.start()
            return True
        return False

    @property
    def is_pausing(self) -> bool:
        """Return True within the time of a double click after the labels have been shown.

        The second press of a double click then doesn't start the run.
        """
        return self._pressed.isValid() and self._pressed.elapsed() < QApplication.doubleClickInterval()

    def _remember(self, dataset: tuple[str, str]) -> None:
        """Save that the labels of `dataset` (folder and format) have been shown. The oldest datasets are forgotten."""
        saved = _load(self._settings)  # other windows may have added some
        unique = list(dict.fromkeys([*saved, *self._checked_datasets, dataset]))
        self._checked_datasets = unique[-_MAX_REMEMBERED:]
        if self._settings is not None:
            self._settings.set(_SETTING, msgspec.json.encode(self._checked_datasets).decode())


def _load(settings: Settings | None) -> list[tuple[str, str]]:
    """Return the datasets (folder and format) whose labels were shown, or [] if `settings` is None or can't be read."""
    try:
        text = settings.text(_SETTING, "[]") if settings is not None else "[]"
        return msgspec.json.decode(text, type=list[tuple[str, str]])
    except NOT_DECODED:
        return []
