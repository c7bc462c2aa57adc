"""Form with a field for everything in a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractSpinBox, QHBoxLayout, QLabel, QPushButton, QWidget

from engine.checks.torch_support import installed_torch
from engine.contract.catalogue import Catalogue
from engine.contract.command import command_line
from engine.contract.dataset import DatasetReport
from engine.contract.devices import Snapshot
from engine.contract.job import FIELDS, Job
from engine.contract.job_fields import Group
from engine.contract.problems import Choice, Problem, errors
from gui.actions import with_key
from gui.dataset import dataset_format
from gui.form.cached_disk import CachedDisk
from gui.form.choices import FieldChoices
from gui.form.consent import ConsentBar
from gui.form.dataset_card import DatasetCard
from gui.form.editors import CutsEditor
from gui.form.environment import JobEnvironment, QueuedRuns, devices_text
from gui.form.field_factory import FINDER_TIPS, PREFIX, FindButton, OptionRows, make_row
from gui.form.field_row import LABEL_WIDTH, CollapsibleSection, FieldRow
from gui.form.followers import FormatChoice, ModelFollower, TaskDetection
from gui.form.inspection import Inspection
from gui.form.recipes import RecipeFollower
from gui.form.submit import STEPS, JobSignals, LabelCheck, Submission, SubmitBar, queue_message
from gui.form.validator import JobValidator
from gui.format import significant
from gui.sources.resume_fork import Prefill
from gui.style import theme
from gui.titles import model_title, strategy_title
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.editors import ChoiceEditor, PathEditor
from gui.widgets.labels import ProblemLabel
from gui.widgets.layouts import hbox, scroll_panel, vbox

STACKED_FIELDS = ("epochs", "batch_size", "learning_rate")
"""Fields side by side, each below its label."""
_SECTION_TITLES: dict[Group, str] = {
    "training": tr("Training"),
    "optimizer": tr("Optimizer"),
    "schedule": tr("Schedule"),
    "checkpoints": tr("Checkpoints"),
    "faults": tr("Queue and faults"),
    "data": tr("Data"),
    "augmentation": tr("Augmentation"),
    "precision": tr("Precision and speed"),
    "model": tr("Model"),
    "parallel": tr("Strategy"),
}
SECTIONS: dict[str, tuple[str, ...]] = {
    title: tuple(name for name, field in FIELDS.items() if field.group == group)
    for group, title in _SECTION_TITLES.items()
}
"""Fields of the collapsible sections, by title."""
_FIRST_FIELDS = dict(zip(STEPS, ("dataset", "recipe", "strategy"), strict=True))
"""First field of each step to training."""
_MAX_MIN_WIDTH = 500
"""Pixels that the fields claim of the window at most; wider contents, as with text of twice the size, scroll."""
_LOCKED_WHEN_RESUMING = tr("Can't be changed when resuming. Fork the run to change it.")


class JobForm(JobSignals):
    """Fields of one job: the user's new job, or a job prefilled from another run.

    The submit bar shows the state of the form while the form is current (see `set_current`).

    Signals are those of `JobSignals`, and:
        choice_made(Choice): The user chose a remedy, which sets fields.
    """

    choice_made = Signal(object)

    def __init__(
        self,
        bar: SubmitBar,
        environment: JobEnvironment | None = None,
        label_check: LabelCheck | None = None,
        prefill: Prefill | None = None,
    ) -> None:
        super().__init__()
        self.submit_bar = bar
        self.reason, self.train, self.copy, self.steps = bar.reason, bar.train, bar.copy, bar.steps
        self.environment = environment or JobEnvironment()
        self.prefill = prefill
        """Job of another run in this form; None in the form of a new job."""
        self.problems: list[Problem] = []
        self.job: Job | None = None
        self._is_current, self._is_validating = True, False
        self._hardware = self.environment.hardware()
        self.card = DatasetCard()
        self.options = OptionRows()
        self.consent = ConsentBar()
        self.undo_scaling = QPushButton(tr("Undo"))
        self.scaled_rate = Banner(self.undo_scaling, name=tr("Scaled learning rate"))
        self.devices_label = QLabel()
        self.devices_problems = ProblemLabel()
        self.disk = CachedDisk(self)
        self.rows: dict[str, FieldRow] = {
            name: make_row(field, self.environment.catalogue, stacked=name in STACKED_FIELDS)
            for name, field in FIELDS.items()
            if name not in ("devices", "model_file_sha256")
        }
        self.find_buttons = {name: FindButton(self.rows[name]) for name in FINDER_TIPS}
        self.sections = [
            CollapsibleSection(title, [self.rows[name] for name in names]) for title, names in SECTIONS.items()
        ]
        self.inspection = Inspection(self.rows, self.card, self.disk, self)
        self.recipes = RecipeFollower(self.rows, self.environment, self.disk, self)
        self.models = ModelFollower(self.rows, self.environment, self.disk, self.recipes, self)
        self.task_detection = TaskDetection(self.rows, self.environment, self.recipes, self)
        self.formats = FormatChoice(self.rows, self.recipes, self)
        self.validator = JobValidator(self.environment, self.disk, self.inspection, self.recipes, prefill)
        self.label_check = label_check or LabelCheck()
        self.submission = Submission(self.label_check, prefill, self)
        self._lay_out()
        self._validate_timer = QTimer(self, interval=0, singleShot=True)
        self._validate_timer.timeout.connect(self.validate)
        self._connect()
        self.choices = FieldChoices(self.rows, self.options, self.environment, self.models, self.validator.model_file)
        if prefill is not None:
            self._show_prefill(prefill)
        self._shown_values = self._editor_values()
        self._validate_timer.start()

    # Fields

    def show_new(self, job: Job) -> None:
        """Show a new job, which follows the default model and the matching recipe."""
        self.set_job(job)
        self.models.is_active = True
        self.recipes.reset()

    def set_job(self, job: Job) -> None:
        """Show `job`, except its devices."""
        self.validator.trusted_sha256 = job.model.model_file_sha256
        with self.recipes.loading():
            for name, row in self.rows.items():
                row.set_value(job.value(name))
            self.options.set_values(job.options)
        self.models.is_active = False

    def set_field(self, name: str, value: Any) -> None:
        self.rows[name].set_value(value)

    def field_value(self, name: str) -> Any:
        """Return the value of a field; its default while the field has no effect."""
        return self.rows[name].value()

    def focus_field(self, name: str) -> None:
        """Move the keyboard to a field and scroll it into view; open its section if it is in one."""
        row = self.rows[name]
        control = row.editor.control
        for section in self.sections:
            if row in section.rows and not section.button.isChecked():
                section.set_open(True)
                # The section gets its height with the next layout.
                QTimer.singleShot(0, self, partial(self._area.ensureWidgetVisible, row))
        control.setFocus(Qt.FocusReason.OtherFocusReason)
        self._area.ensureWidgetVisible(row)
        if isinstance(control, QAbstractSpinBox):
            control.selectAll()

    def focus_step(self, step: str, problem: Problem | None) -> None:
        """Move the keyboard to the field of the problem, or to the first field of the step."""
        first = _FIRST_FIELDS[step]
        self.focus_field(problem.field if problem is not None and problem.field in self.rows else first)

    def browse(self) -> None:
        """Open the dialog that chooses the dataset folder."""
        editor = self.rows["dataset"].editor
        assert isinstance(editor, PathEditor)
        editor.open_browser()

    @property
    def cuts(self) -> CutsEditor:
        editor = self.rows["cuts"].editor
        assert isinstance(editor, CutsEditor)
        return editor

    def values(self) -> dict[str, Any]:
        """Return the values of the job as in a `job.toml`."""
        values = {name: row.value() for name, row in self.rows.items()}
        values["cuts"] = list(values["cuts"])
        values["devices"] = list(self.environment.devices)
        values["model_file_sha256"] = self.validator.model_file_sha256(str(self.field_value("model")))
        values["options"] = self.options.values()
        if self.prefill is None:
            return values
        return self.prefill.values(values, {name for name, row in self.rows.items() if not row.has_effect})

    @property
    def is_edited(self) -> bool:
        """Return True if the user changed a field of the prefilled job."""
        return self._editor_values() != self._shown_values

    def _editor_values(self) -> dict[str, Any]:
        return {name: row.editor.value() for name, row in self.rows.items()}

    # Environment

    @property
    def catalogue(self) -> Catalogue:
        return self.environment.catalogue

    @property
    def devices(self) -> tuple[str, ...]:
        return self.environment.devices

    def device_names(self) -> dict[str, str]:
        """Return the titles of all known GPUs, by the keys that jobs use."""
        return self.environment.device_names()

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """Offer the entries of a catalogue that plug-ins were added to."""
        self.environment.catalogue = catalogue
        self.choices.update_all()
        self.inspection.restart()
        self.validate()

    def set_devices(self, devices: tuple[str, ...]) -> None:
        """Train on these devices, which the user checked in the devices panel."""
        if devices != self.environment.devices:
            self.environment.devices = devices
            self.choices.show_effects()
            self.choices.update_options()
            self._validate_timer.start()

    def set_machine(self, snapshot: Snapshot) -> None:
        """Take a snapshot of this machine, and validate again if facts changed that jobs depend on."""
        self.environment.machine, self.environment.torch = snapshot, installed_torch()
        known, self._hardware = self._hardware, self.environment.hardware()
        if known != self._hardware:
            self._validate_timer.start()

    def set_hosts(self, names: Mapping[str, str], problems: Mapping[str, str]) -> None:
        """Take the titles of the devices of all hosts, and the reasons why hosts can't be reached."""
        environment = self.environment
        if (names, problems) != (environment.host_device_names, environment.host_problems):
            environment.host_device_names, environment.host_problems = dict(names), dict(problems)
            self._validate_timer.start()

    def set_device_warnings(self, warnings: Mapping[str, tuple[Problem, ...]]) -> None:
        """Take the active alerts about devices, as problems by device."""
        if warnings != self.environment.device_warnings:
            self.environment.device_warnings = dict(warnings)
            self._validate_timer.start()

    def set_report(self, report: DatasetReport | None) -> None:
        """Take the findings about the dataset folder."""
        if report is None or not self.task_detection.follow(report):
            self.inspection.set_report(report)

    def set_queued_runs(self, queued: QueuedRuns) -> None:
        """Take the runs that hold devices or wait for them."""
        self.environment.queued = queued
        self._show_queue()

    def set_current(self, is_current: bool) -> None:
        """Show the state of this form in the submit bar, or leave the bar to another form."""
        self._is_current = is_current
        if is_current:
            self.choices.update_all()
            self.choices.show_effects()
            if self.inspection.checking:
                self.inspection.restart()
            self.validate()

    # Start of a run

    def start(self, **extra: Any) -> None:
        """Request the run of this job, with `extra` fields, once it is validated against the current disk."""
        self.submission.schedule(extra)
        self.validate(forget_disk=True)

    def set_start_problems(self, problems: Sequence[Problem]) -> None:
        """Show why the run couldn't be started, until the next edit."""
        self.submission.start_problems = list(problems)
        self.environment.is_starting = self.submission.is_requested_here = False
        self.validate()

    def set_warnings(self, problems: Sequence[Problem]) -> None:
        """Mark fields with reasons why the job couldn't be tried, until the next edit."""
        warnings = [msgspec.structs.replace(problem, severity="warning") for problem in problems]
        self.submission.start_problems = warnings
        self.validate()

    def set_starting(self, is_starting: bool) -> None:
        """Disable Train while a run is created."""
        self.environment.is_starting = is_starting
        self.validate()

    @property
    def checking(self) -> bool:
        """Return True while the dataset folder is inspected."""
        return self.inspection.checking

    @property
    def action(self) -> str:
        """Label of the button that starts this job."""
        return self.prefill.action if self.prefill is not None else tr("Train")

    def copy_command(self) -> None:
        """Copy the command that starts this job."""
        if self.job is not None:
            resume = self.prefill.command(self.values()) if self.prefill is not None else ""
            QGuiApplication.clipboard().setText(resume or command_line(self.job))

    # Layout and connections

    def _lay_out(self) -> None:
        column = QWidget()
        self._area = scroll_panel(column, min_content_width=_MAX_MIN_WIDTH)
        self.setLayout(vbox(self._area))
        stacked = hbox(*((self.rows[name], 1) for name in STACKED_FIELDS))
        column.setLayout(
            vbox(
                self.rows["dataset"],
                self.card,
                self.rows["task"],
                self.rows["model"],
                self.consent,
                *(self.rows[name] for name in ("encoder", "pretrained", "recipe", "strategy")),
                self.options,
                self._devices_line(),
                self.devices_problems,
                stacked,
                self.scaled_rate,
                *(self.rows[name].problem_label for name in STACKED_FIELDS),
                *self.sections,
                1,
                margins=(14, 12, 14, 12),
            )
        )

    def _devices_line(self) -> QHBoxLayout:
        title = QLabel(tr("Devices"))
        title.setMinimumWidth(theme.scaled(LABEL_WIDTH))
        self.devices_label.setObjectName("muted")
        self.devices_label.setWordWrap(True)
        return hbox(title, (self.devices_label, 1), spacing=4)

    def _connect(self) -> None:
        for row in self.rows.values():
            row.edited.connect(self._on_edited)
            row.chosen.connect(self.choice_made)
        for source in (self.options, self.devices_problems, self.card):
            source.chosen.connect(self.choice_made)
        self.options.edited.connect(self._on_edited)
        self.cuts.requested.connect(self._request_cut)
        for name, button in self.find_buttons.items():
            button.clicked.connect(partial(self._request_finder, name))
        self.undo_scaling.clicked.connect(self._undo_scaling)
        self.consent.allowed.connect(self._on_file_allowed)
        self.inspection.wanted.connect(self._on_folder_chosen)
        self.inspection.changed.connect(lambda: self.formats.follow(self.inspection.report))
        self.inspection.changed.connect(self.validate)
        self.disk.changed.connect(self._on_disk_changed)

    def _show_prefill(self, prefill: Prefill) -> None:
        self.recipes.paused = True
        self.set_job(prefill.job)
        reasons = {
            "name": with_key(tr("Can't be changed here. Rename the run on the Runs page"), "rename_run") + ".",
            "resume_from": tr("The run resumes from its own last checkpoint."),
        }
        self.options.setEnabled("options" in prefill.open_fields)
        for name, row in self.rows.items():
            row.set_standard(prefill.job.value(name), tr("Reset to the run's value"))
            row.lock("" if name in prefill.open_fields else reasons.get(name, _LOCKED_WHEN_RESUMING))
        for name, value in prefill.preset.items():
            self.rows[name].set_value(value)
        for section in self.sections:
            if any(row.field.name in prefill.preset for row in section.rows):
                section.set_open(True)

    def _request_cut(self) -> None:
        self.validate()
        self.cut_requested.emit()

    def _request_finder(self, field: str, _checked: bool = False) -> None:
        self.validate()
        self.finder_requested.emit(field)

    def _on_edited(self) -> None:
        if not self._is_validating:
            self.submission.cancel()
            self.user_edited.emit()
            self._validate_timer.start()

    def _on_folder_chosen(self, job: Job | None) -> None:
        if self._is_current:
            self.folder_chosen.emit(job)

    def _on_file_allowed(self, sha256: str) -> None:
        self.validator.trusted_sha256 = sha256
        self.choices.update_metrics()  # the file may have changed since it was chosen
        self._on_edited()

    def _on_disk_changed(self) -> None:
        if not self._is_validating and self._is_current:
            self.choices.update_metrics()
            self.validate()

    # Validation

    def validate(self, *, forget_disk: bool = False) -> None:
        """Update the job, its problems and the submit bar with what the disk has answered so far.

        Later answers of the disk validate again. With `forget_disk`, earlier answers don't count.
        """
        if not self._is_current:
            return
        if self._is_validating:
            self._validate_timer.start()
            return
        self._is_validating = True
        self._validate_timer.stop()
        try:
            self.disk.start_pass(forget=forget_disk)
            self._validate_once()
            while self.disk.refresh():
                self.choices.update_metrics()
                self.disk.start_pass()
                self._validate_once()
        finally:
            self._is_validating = False
        self._show_result()
        if not self.disk.unanswered and not self.checking:
            self.submission.submit(self.job if not self._disabled_reason() else None, self.values(), self.report)

    @property
    def is_validation_pending(self) -> bool:
        """Return True if the form changed after the last validation."""
        return self._validate_timer.isActive()

    @property
    def report(self) -> DatasetReport | None:
        return self.inspection.report

    def _validate_once(self) -> None:
        self.models.follow(self.devices)
        self.recipes.follow(self.report, self.checking)
        self.validator.model_file(str(self.field_value("model")))  # asked even if other values can't be read
        self.job, self.problems = self.validator.validate(self.values())

    def _show_result(self) -> None:
        self.problems += self.submission.start_problems
        self._show_problems()
        self.rows["model"].set_note(self.models.reason)
        self.rows["pretrained"].set_note(self.validator.weights_note)
        self._ask_consent()
        self._show_scaled_rate()
        self.devices_label.setText(devices_text(self.devices, self.device_names()))
        self.choices.update_strategies()
        self._show_queue()
        for section in self.sections:
            section.reveal_problem()
        self._show_readiness()
        self._show_steps()
        self.changed.emit()

    def _show_problems(self) -> None:
        self.options.show_problems(self.problems)
        problems = dataset_format.without_readings(self.problems, self.report)
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in problems if problem.field == name))
        for name in STACKED_FIELDS:
            label = self.rows[name].problem_label
            label.setVisible(bool(label.text()))
        self.devices_problems.show_problems(tuple(p for p in self.problems if p.field == "devices"))

    def _show_scaled_rate(self) -> None:
        unscaled, text, undo = self.recipes.unscaled_rate, "", ""
        if unscaled is not None:
            text = tr("The learning rate was scaled with the batch size.")
            undo = tr("Use {rate}").format(rate=significant(unscaled[1]))
            self.undo_scaling.setToolTip(tr("Learning rate at a batch size of {batch}").format(batch=unscaled[0]))
        self.scaled_rate.say(text, "info", undo)

    def _undo_scaling(self) -> None:
        if self.recipes.unscaled_rate is not None:
            self.set_field("learning_rate", self.recipes.unscaled_rate[1])

    def _ask_consent(self) -> None:
        model = str(self.field_value("model"))
        file = self.validator.model_file(model)
        sha256 = file.sha256 if file is not None else None
        agreed = file is not None and file.agreed and sha256 == self.validator.model_file_sha256(model)
        self.consent.ask(model, sha256, agreed=agreed)

    def _show_queue(self) -> None:
        if self._is_current:
            at_once = self.field_value("start") == "at_once"
            text = queue_message(self.environment.queued, self.devices, self.device_names(), at_once)
            is_queued = bool(text) and not at_once
            self.submit_bar.show_queue(text, can_start_at_once=is_queued)
            self.submit_bar.show_action(tr("Add to queue") if is_queued and self.prefill is None else self.action)

    def _show_readiness(self) -> None:
        reason, placed = (
            self._disabled_reason(),
            {"devices", *self.rows, *(PREFIX + name for name in self.options.rows)},
        )
        shown = [problem for problem in self.problems if problem.field not in placed]
        if not shown and errors(self.problems):
            shown.append(Problem("", reason, "", "error"))
        self.submit_bar.show_ready(reason, tuple(shown))

    def _disabled_reason(self) -> str:
        """Return why the job can't be started now, "" if it can."""
        if self.environment.is_starting:
            return tr("Starting the run.")
        if blocking := errors(self.problems):
            labels = dict.fromkeys(self._label(problem) for problem in blocking)
            return tr("Correct these fields to enable {action}: {labels}.").format(
                action=self.action, labels=", ".join(labels)
            )
        if self.disk.unanswered:
            return tr("Waiting for the disk: {unanswered}.").format(unanswered=self.disk.unanswered[0])
        return tr("The folder is still being inspected.") if self.checking else ""

    def _label(self, problem: Problem) -> str:
        if problem.field in FIELDS:
            return FIELDS[problem.field].label
        return self.options.label(problem.field) or "the run"

    def _show_steps(self) -> None:
        recipe, model = self._title("recipe"), self._title("model")
        strategy = strategy_title(self.choices.resolved_strategy)
        report = self.report
        done = (
            dataset_format.summary(report) if report is not None and report.format else self.card.text(),
            f"{recipe} · {model}",
            f"{devices_text(self.devices, self.device_names())} · {strategy}",
        )
        working = {STEPS[0]: "inspecting the folder…"} if self.checking else {}
        self.steps.show_steps(self.problems, dict(zip(STEPS, done, strict=True)), working)

    def _title(self, name: str) -> str:
        """Return the title of the value of a field with choices."""
        editor = self.rows[name].editor
        value = str(editor.value())
        return editor.titles.get(value, value) if isinstance(editor, ChoiceEditor) else model_title(value)

    def apply(self, choice: Choice) -> None:
        """Set the fields of a choice, and move the keyboard to the first visible one."""
        for name, value in choice.values.items():
            self.set_field(name, value)
        self.focus_field(next((name for name in choice.values if self.rows[name].isVisible()), "dataset"))
