"""Panel with the form for the user's new job, and a second form that is prefilled from another run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QFrame, QLabel, QMessageBox, QPushButton, QStackedWidget

from engine.contract.command import command_line
from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from gui.actions import Actions
from gui.form.environment import JobEnvironment
from gui.form.form import JobForm
from gui.form.submission import JobSignals, LabelCheck
from gui.form.submit_bar import DATA, DEVICES, RECIPE, SubmitBar
from gui.sources.resume_fork import Prefill
from gui.sources.settings import Settings
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import IconLabel
from gui.widgets.layouts import hbox, vbox

_FIRST_FIELDS = {DATA: "dataset", RECIPE: "recipe", DEVICES: "strategy"}
"""First field of each step of preparing a job."""


class JobPanel(JobSignals):
    """Panel with the user's form and at most one prefilled form, above the submit bar.

    It has the signals of `JobSignals`, which its forms emit, and these.

    Signals:
        inspected(): the inspection results for the current dataset folder have changed.
        gallery_requested(int): the user wants to see large examples from the dataset, starting at this index.
        devices_requested(tuple): these devices should be checked in the devices panel.
    """

    inspected = Signal()
    gallery_requested = Signal(int)
    devices_requested = Signal(object)

    def __init__(self, actions: Actions | None = None, settings: Settings | None = None) -> None:
        super().__init__()
        self.actions_of_window = actions or Actions(self)
        self.setAccessibleName(tr("Job"))
        self.environment = JobEnvironment()
        self.submit_bar = SubmitBar(self.actions_of_window)
        self._label_check = LabelCheck(settings)
        self._job_devices: tuple[str, ...] = ()  # devices of the user's job while another run's job is in the form
        self._stack = QStackedWidget()
        self.job_form = self._add_form(None)
        """Form for the user's new job, even if it isn't visible."""
        self.form = self.job_form
        """Visible form."""
        self._make_banner()
        self._escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        self._escape.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._escape.setEnabled(False)
        self._escape.activated.connect(self.cancel_prefill)
        self.panes = (self.submit_bar,)
        self.setLayout(vbox(self.banner, (self._stack, 1), self.submit_bar, spacing=0))
        self.submit_bar.reason.chosen.connect(self.apply)
        self.submit_bar.steps.pressed.connect(self._focus_step)
        self.actions_of_window.train.on_trigger(self.start)
        self.actions_of_window.start_at_once.on_trigger(partial(self.start, start="at_once"))
        self.actions_of_window.copy_command.on_trigger(self._copy_command)

    def set_field(self, name: str, value: Any) -> None:
        """Set the field `name` of the visible form.

        If the prefilled form locks the field, return to the user's form first.
        """
        self._leave_prefill_if_locked(name)
        self.form.set_field(name, value)

    def set_dataset(self, folder: str) -> None:
        self.set_field("dataset", folder)

    def browse(self) -> None:
        """Open a dialog to choose the dataset folder of a new job."""
        self._leave_prefill_if_locked("dataset")
        self.form.browse()

    def apply(self, choice: Choice) -> None:
        """Apply a remedy (`choice`) that the user has selected: set its fields, or check its devices.

        If the prefilled form locks one of the fields, they are set in the user's form.
        """
        if "devices" in choice.values:
            self.devices_requested.emit(tuple(str(choice.values["devices"]).split(",")))
            return
        for name in choice.values:
            self._leave_prefill_if_locked(name)
        self.form.apply(choice)

    def start(self, **extra: Any) -> None:
        """Request a run of the visible job. `extra` overrides fields."""
        self.form.start(**extra)

    def set_report(self, report: DatasetReport | None) -> None:
        """Pass the inspection results for the dataset folder, or None without any, to the current form."""
        self.form.set_report(report)

    def set_warnings(self, problems: Sequence[Problem]) -> None:
        """Show `problems` as warnings next to the fields of the current form, until the next edit.

        They have prevented a trial of the finder for the learning rate or the batch size, for example.
        """
        self.form.set_warnings(problems)

    def set_devices(self, devices: tuple[str, ...]) -> None:
        """Use the devices that the user has checked in the devices panel."""
        self.form.set_devices(devices)

    def show_new(self, job: Job) -> None:
        """Show a new job in the user's form."""
        self.end_prefill()
        self.form.show_new(job)

    def set_job(self, job: Job) -> None:
        """Show `job` in the user's form, except for its devices."""
        self.end_prefill()
        self.form.set_job(job)

    def on_started(self) -> None:
        """End the starting state after the start of a run.

        If the prefilled form has requested the run, return to the user's form.
        """
        is_requested_here = self.form.submission.is_requested_here
        for form in (self.job_form, self.form):  # the user may have switched between them during the start
            form.submission.is_requested_here = False
        self.form.set_starting(False)
        if is_requested_here:
            self.end_prefill()

    def on_start_failed(self, problems: list[Problem]) -> bool:
        """Show the `problems` that prevented a run from starting in the form that has requested it, and return True.

        If the visible form hasn't requested the run, only enable its Train button again, and return False.
        """
        if self.form.submission.is_requested_here:
            self.form.set_start_problems(problems)
            return True
        self.form.set_starting(False)
        return False

    def close_work(self) -> None:
        """End the processes that estimate memory for the forms, when the window closes."""
        for form in (self.job_form, self.form):
            form.estimator.close()

    # Prefilled form

    def begin_prefill(self, prefill: Prefill) -> None:
        """Show the job of another run in a second form, which replaces an earlier prefilled form."""
        if self.form is self.job_form:
            self._job_devices = self.environment.devices  # restored with the user's form
        self._switch(self._add_form(prefill))
        self._show_banner(prefill.text)
        preset = prefill.preset.get("devices")
        self.devices_requested.emit(tuple(str(preset).split(",")) if preset else prefill.job.parallel.devices)
        self.form.focus_field(prefill.focus)

    def end_prefill(self) -> None:
        """Return to the user's form and its devices, and discard the prefilled form. Emits `devices_requested`.

        If the focus was in the panel, it moves to the Train button.
        """
        if self.form is self.job_form:
            return
        focused = self.window().focusWidget()
        has_focus = focused is not None and self.isAncestorOf(focused)
        self.environment.devices = self._job_devices
        self._switch(self.job_form)
        self._show_banner("")
        self.devices_requested.emit(self._job_devices)
        if has_focus:
            self.submit_bar.focus_train()

    def cancel_prefill(self) -> None:
        """Return to the user's form. If edits would be lost, ask first."""
        if not self.form.is_edited:
            self.end_prefill()
            return
        text = tr("Discard your changes to this job?")
        box = QMessageBox(
            QMessageBox.Icon.Warning, tr("Discard changes"), text, QMessageBox.StandardButton.Cancel, self
        )
        box.addButton(tr("Discard"), QMessageBox.ButtonRole.AcceptRole)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setModal(False)
        box.accepted.connect(self.end_prefill)
        box.show()

    def _add_form(self, prefill: Prefill | None) -> JobForm:
        """Create a form for the job in `prefill` or, if that is None, for a new job.

        Connect the form without showing it.
        """
        form = JobForm(self.submit_bar, self.environment, self._label_check, prefill)
        self._stack.addWidget(form)
        form.choice_made.connect(self.apply)
        form.inspection.changed.connect(self.inspected)
        form.card.gallery_requested.connect(self.gallery_requested)
        self.relay(form)
        return form

    def _switch(self, form: JobForm) -> None:
        """Show `form` instead of the current form, and pass the report on the dataset to it.

        The previous form is deleted, except for the form of the new job.
        """
        previous, self.form = self.form, form
        previous.set_current(False)
        self.folder_chosen.emit(None)  # cancels an inspection for the previous form
        form.inspection.adopt(previous.inspection)
        self._stack.setCurrentWidget(form)
        if previous is not self.job_form:
            previous.estimator.close()
            self._stack.removeWidget(previous)
            previous.deleteLater()
        form.set_current(True)
        self.inspected.emit()

    def _focus_step(self, step: str, problem: Problem | None) -> None:
        """Focus the field of `problem`, or the first field of `step` if the form has no field for the problem.

        `step` is `DATA`, `RECIPE` or `DEVICES`.
        """
        name = problem.field if problem is not None and problem.field in self.form.rows else _FIRST_FIELDS[step]
        self.form.focus_field(name)

    def _copy_command(self) -> None:
        """Copy the terminal command that starts the visible job or, in a form that resumes a run, resumes the run.

        Do nothing if the job is invalid.
        """
        form = self.form
        if form.job is not None:
            resume_command = form.prefill.command(form.values()) if form.prefill is not None else ""
            QGuiApplication.clipboard().setText(resume_command or command_line(form.job))

    def _leave_prefill_if_locked(self, name: str) -> None:
        """Return to the user's form if the prefilled form locks the field `name`."""
        if self.form.rows[name].locked:
            self.end_prefill()

    def _make_banner(self) -> None:
        """Create the banner above a prefilled form, with a button that returns to the user's form."""
        self.banner = styled(QFrame(), "card", name=tr("Job of another run"))
        self.banner_text = QLabel(wordWrap=True)
        self.cancel = QPushButton(tr("Cancel"))
        self.cancel.setAccessibleName(tr("Cancel and return to your own job"))
        self.cancel.setToolTip(tr("Restore the previous job in the form (Esc)"))
        self.cancel.clicked.connect(self.cancel_prefill)
        self.banner.setLayout(
            hbox(
                (IconLabel("info", "accent", tr("Information")), 0, Qt.AlignmentFlag.AlignTop),
                (self.banner_text, 1),
                (self.cancel, 0, Qt.AlignmentFlag.AlignTop),
                margins=(10, 6, 8, 6),
            )
        )
        self.banner.hide()

    def _show_banner(self, text: str) -> None:
        """Show the banner with `text`, or hide it if `text` is "".

        While the banner is visible, Escape cancels the prefill.
        """
        self.banner_text.setText(text)
        self.cancel.setAccessibleDescription(text)
        self.banner.setVisible(bool(text))
        self._escape.setEnabled(bool(text))
