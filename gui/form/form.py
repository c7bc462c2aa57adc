"""Form with a field for each value of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from PySide6.QtCore import QTimer, Signal

from engine.contract.catalogue import Catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.devices import Snapshot
from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from engine.runs.folder import RunSummary
from gui.dataset import dataset_format
from gui.form.cached_disk import CachedDisk
from gui.form.choices import FieldChoices
from gui.form.consent import ConsentBar
from gui.form.dataset_card import DatasetCard
from gui.form.editors import SplitPointsEditor
from gui.form.environment import JobEnvironment, QueuedRuns, format_device_list
from gui.form.fields import METHOD, SECTIONS, JobFields, find_section
from gui.form.followers import FormatChoice, ModelFollower, TaskDetection
from gui.form.inspection import Inspection
from gui.form.layout import FormLayout
from gui.form.readiness import Readiness
from gui.form.recipes import RecipeFollower, ScaledRate
from gui.form.submission import JobSignals, LabelCheck, Submission
from gui.form.submit_bar import SubmitBar
from gui.form.validator import JobValidator
from gui.sources.estimator import Estimator
from gui.sources.resume_fork import Prefill
from gui.translation import tr
from gui.widgets.layouts import vbox


class JobForm(JobSignals):
    """Form for one job: the user's new job, or a job that is prefilled from another run.

    While the form is current (see `set_current`), the submit bar shows its state. It has the signals of `JobSignals`,
    and this one.

    Attributes:
        submit_bar: Bar below the form, which several forms share. `reason`, `train`, `copy` and `steps` are parts of it.
        environment: Facts about the machine and its runs that validation depends on.
        disk: Cache of facts about the disk and servers.
        fields: Rows for the fields. `rows`, `options` and `find_buttons` are parts of it.
        body: Layout of the fields.
        card: Summary of the dataset.
        consent: Banner that asks for consent to run a model file.
        inspection: Requests inspections of the dataset folder.
        recipes, models, task_detection, formats: Set fields that follow other fields, the folder or the devices.
        validator: Validates the fields.
        submission: Starts the run once the job has been validated.
        choices: Offers the choices that suit the other fields.
        readiness: Shows in the submit bar if the job can start.
        estimator: Estimates time and memory of the job.

    Signals:
        choice_made(Choice): the user has selected a remedy that sets fields.
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
        """Content that was taken from another run, or None in the form for a new job."""
        # Result of the last validation. The job is None if a value is invalid.
        self.problems: list[Problem] = []
        self.job: Job | None = None
        self._is_current = True  # False while another form uses the submit bar
        self._is_validating = False
        self.card = DatasetCard()
        self.consent = ConsentBar()
        self.scaled_rate = ScaledRate()
        self.disk = CachedDisk(self)
        self.fields = JobFields(self.environment.catalogue, self)
        self.rows, self.options, self.find_buttons = self.fields.rows, self.fields.options, self.fields.find_buttons
        self.body = FormLayout(self.fields, self.card, self.consent, self.scaled_rate)
        self.body.main.resized.connect(bar.set_width)
        self.sections = self.body.sections
        self.setLayout(vbox(self.body))
        self.inspection = Inspection(self.rows, self.card, self.disk, self)
        self.recipes = RecipeFollower(self.rows, self.environment, self.disk, self)
        self.models = ModelFollower(self.rows, self.environment, self.disk, self.recipes, self)
        self.task_detection = TaskDetection(self.rows, self.environment, self.recipes, self)
        self.formats = FormatChoice(self.rows, self.recipes, self)
        self.validator = JobValidator(self.environment, self.disk, self.inspection, self.recipes, prefill)
        self.label_check = label_check or LabelCheck()
        self.submission = Submission(self.label_check, prefill, self)
        self._validate_timer = QTimer(self, interval=0, singleShot=True)
        self._validate_timer.timeout.connect(self.validate)
        self.choices = FieldChoices(self.rows, self.options, self.environment, self.models, self.validator.model_file)
        self.readiness = Readiness(
            bar,
            self.action,
            fields=self.fields,
            environment=self.environment,
            choices=self.choices,
            inspection=self.inspection,
            disk=self.disk,
        )
        self.estimator = Estimator(self)
        self.estimator.set_runs(self.environment.runs)
        self.estimator.changed.connect(self._show_estimate)
        self._connect()
        if prefill is not None:
            self._show_prefill(prefill)
        self._initial_values = self.fields.editor_values()  # the form is edited if the values differ from these
        self._validate_timer.start()

    # Fields

    def show_new(self, job: Job) -> None:
        """Show a new job, whose model and recipe are chosen automatically until the user sets them."""
        self.set_job(job)
        self.models.is_active = True
        self.recipes.reset()

    def set_job(self, job: Job) -> None:
        """Show `job`, except for its devices."""
        self.validator.trusted_sha256 = job.model.model_file_sha256
        with self.recipes.keep_loaded_values():
            self.fields.set_job(job)
        self.inspection.announce()
        self.models.is_active = False

    def set_field(self, name: str, value: Any) -> None:
        self.rows[name].set_value(value)

    def field_value(self, name: str) -> Any:
        """Return the value of the field `name`, or its default while the field has no effect."""
        return self.rows[name].value()

    def focus_field(self, name: str) -> None:
        """Open the section of the field `name`, scroll to the field, and focus it."""
        self.body.focus_field(name)

    def browse(self) -> None:
        """Open a dialog to choose the dataset folder. A choice moves the focus to the Train button."""
        self.fields.dataset.open_browser().fileSelected.connect(self.submit_bar.focus_train)

    @property
    def split_points(self) -> SplitPointsEditor:
        return self.fields.split_points

    def values(self) -> dict[str, Any]:
        """Return the values of the job by field name, as in a `job.toml` file."""
        values = self.fields.values()
        values["devices"] = list(self.environment.devices)
        values["model_file_sha256"] = self.validator.model_file_sha256(str(self.field_value("model")))
        if self.prefill is None:
            return values
        return self.prefill.values(values, self.fields.list_idle_fields())

    @property
    def is_edited(self) -> bool:
        """Return True if the user has changed a field of the prefilled job."""
        return self.fields.editor_values() != self._initial_values

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
        """Offer the models, strategies and other entries of a catalogue that plug-ins have extended."""
        self.environment.catalogue = catalogue
        self.choices.update_all()
        self.inspection.restart()
        self.validate()

    def set_devices(self, devices: tuple[str, ...]) -> None:
        """Use the devices that the user has checked in the devices panel."""
        if devices != self.environment.devices:
            self.environment.devices = devices
            self.choices.show_effects()
            self.choices.update_options()
            self._validate_timer.start()

    def set_machine(self, snapshot: Snapshot) -> None:
        """Set the last snapshot of this machine, and validate again if driver, GPUs or torch have changed."""
        if self.environment.set_machine(snapshot):
            self._validate_timer.start()

    def set_hosts(self, names: Mapping[str, str], problems: Mapping[str, str]) -> None:
        """Set the titles of the devices on watched hosts, by device key, and why hosts can't be reached, by host."""
        if self.environment.set_hosts(names, problems):
            self._validate_timer.start()

    def set_device_warnings(self, warnings: Mapping[str, tuple[Problem, ...]]) -> None:
        """Set the active alerts about devices, as problems by device."""
        if warnings != self.environment.device_warnings:
            self.environment.device_warnings = dict(warnings)
            self._validate_timer.start()

    def set_report(self, report: DatasetReport | None) -> None:
        """Set the inspection results for the dataset folder (None for none), unless they change the task.

        After a change of the task, the folder is inspected again.
        """
        if report is None or not self.task_detection.follow(report):
            self.inspection.set_report(report)

    def set_runs(self, runs: tuple[RunSummary, ...]) -> None:
        """Set all runs, newest first, which are the basis of estimates."""
        self.environment.runs = runs
        self.estimator.set_runs(runs)

    def set_queued_runs(self, queued: QueuedRuns) -> None:
        """Set the runs that use devices or wait for them, and show which of them the job would wait for."""
        self.environment.queued = queued
        if self._is_current:
            self.readiness.show_queue()

    def set_current(self, is_current: bool) -> None:
        """If `is_current`, make the submit bar show this form. Otherwise, leave the bar to another form."""
        self._is_current = is_current
        if is_current:
            self.choices.update_all()
            self.choices.show_effects()
            self._show_estimate()
            if self.inspection.is_inspecting:
                self.inspection.restart()  # it was cancelled when another form became current
            self.validate()

    # Start of a run

    def start(self, **extra: Any) -> None:
        """Request a run of this job once it has been validated against the files on disk. `extra` overrides fields."""
        self.submission.schedule(extra)
        self.validate(forget_disk=True)

    def set_start_problems(self, problems: Sequence[Problem]) -> None:
        """Show why the run couldn't be started, until the next edit."""
        self.submission.start_problems = list(problems)
        self.environment.is_starting = self.submission.is_requested_here = False
        self.validate()

    def set_warnings(self, problems: Sequence[Problem]) -> None:
        """Show the problems that prevented a trial of the job next to their fields, until the next edit."""
        warnings = [msgspec.structs.replace(problem, severity="warning") for problem in problems]
        self.submission.start_problems = warnings
        self.validate()

    def set_starting(self, is_starting: bool) -> None:
        """Disable the Train button while a run is being created (`is_starting`), and enable it afterwards."""
        self.environment.is_starting = is_starting
        self.validate()

    @property
    def is_inspecting(self) -> bool:
        """Return True while the dataset folder is being inspected."""
        return self.inspection.is_inspecting

    @property
    def action(self) -> str:
        """Label of the button that starts this job."""
        return self.prefill.action if self.prefill is not None else tr("Train")

    # Connections

    def _connect(self) -> None:
        """Validate the job after changes to fields, the dataset, facts about the disk, or the consent to a model file.

        The buttons emit the form's signals.
        """
        for row in self.rows.values():
            row.edited.connect(self._on_edited)
            row.chosen.connect(self.choice_made)
        for source in (self.options, self.body.devices_problems, self.card):
            source.chosen.connect(self.choice_made)
        self.options.edited.connect(self._on_edited)
        self.fields.model.facts_requested.connect(self._request_model_facts)
        self.split_points.requested.connect(self._request_split_points)
        for name, button in self.find_buttons.items():
            button.clicked.connect(partial(self._request_finder, name))
        self.scaled_rate.undone.connect(partial(self.set_field, "learning_rate"))
        self.consent.allowed.connect(self._on_file_allowed)
        self.inspection.requested.connect(self._on_folder_chosen)
        self.inspection.changed.connect(lambda: self.formats.follow(self.inspection.report))
        self.inspection.changed.connect(self.validate)
        self.disk.changed.connect(self._on_disk_changed)

    def _show_prefill(self, prefill: Prefill) -> None:
        """Show the job of a prefill and lock the fields that can't be changed."""
        self.recipes.paused = True
        self.set_job(prefill.job)
        self.fields.show_prefill(prefill)
        for section in self.sections:
            if any(row.field.name in prefill.preset for row in section.rows):
                section.set_open(True)

    def _request_split_points(self) -> None:
        """Validate the latest edits, and request the page that splits the model into pipeline stages."""
        self.validate()
        self.split_points_requested.emit()

    def _request_finder(self, field: str, _checked: bool = False) -> None:
        """Validate the latest edits, and request the page that finds a value for `field`."""
        self.validate()
        self.finder_requested.emit(field)

    def _on_edited(self) -> None:
        """Cancel a pending start, emit `user_edited`, and schedule a validation.

        Ignore changes that the validation itself makes.
        """
        if not self._is_validating:
            self.submission.cancel()
            self.user_edited.emit()
            self._validate_timer.start()

    def _on_folder_chosen(self, job: Job | None) -> None:
        """Request an inspection of `job`'s dataset folder (None for no folder), if this form is current."""
        if self._is_current:
            self.folder_chosen.emit(job)

    def _on_file_allowed(self, sha256: str) -> None:
        """Trust the model file with this hash, offer the metrics that it defines, and validate again."""
        self.validator.trusted_sha256 = sha256
        self.choices.update_metrics()  # the file may have changed since it was chosen
        self._on_edited()

    def _on_disk_changed(self) -> None:
        """Validate again, because a query about files or weights has been answered."""
        if not self._is_validating and self._is_current:
            self.choices.update_metrics()
            self.validate()

    # Validation

    def validate(self, *, forget_disk: bool = False) -> None:
        """Update the job, its problems and the submit bar from the fields and the known facts about the disk.

        When other facts about the disk become known, the job is validated again. `forget_disk` discards the known facts.
        """
        if not self._is_current:
            return
        if self._is_validating:  # this is called by a receiver of a signal that the validation has emitted
            self._validate_timer.start()
            return
        self._is_validating = True
        self._validate_timer.stop()
        try:
            self.disk.start_pass(forget=forget_disk)
            self._validate_with_known_facts()
            while self.disk.refresh():
                self.choices.update_metrics()
                self.disk.start_pass()
                self._validate_with_known_facts()
        finally:
            self._is_validating = False
        self.problems += self.submission.start_problems
        self._show_result()
        if not self.disk.unanswered and not self.is_inspecting:
            # Start the run now if the user requested it before the answers were known.
            can_start = not self.readiness.find_disabled_reason(self.problems)
            self.submission.submit(self.job if can_start else None, self.values(), self.report)

    @property
    def report(self) -> DatasetReport | None:
        """Return the inspection results for the dataset folder, or None without any."""
        return self.inspection.report

    def _validate_with_known_facts(self) -> None:
        """Update the model and the recipe's fields if they follow others, and find the job and its problems.

        Requests unknown facts about the disk. `validate` repeats this once they are known.
        """
        self.models.follow(self.devices)
        self.recipes.follow(self.report, is_inspecting=self.is_inspecting)
        self.job, self.problems = self.validator.validate(self.values())

    def _show_result(self) -> None:
        """Show the job's problems, model, recipe and devices in the form and the submit bar after a validation.

        Also ask for consent to run a model file, request an estimate, and emit `changed`.
        """
        self.body.show_problems(
            self.readiness.list_mistakes(dataset_format.remove_reading_choices(self.problems, self.report))
        )
        self.rows["model"].set_note(self.models.reason)
        self.rows["pretrained"].set_note(self.validator.weights_note)
        self._ask_consent()
        self.scaled_rate.show_rate(self.recipes.unscaled_rate, self.field_value("learning_rate"))
        self.body.devices.setText(format_device_list(self.devices, self.device_names()))
        self.choices.update_strategies()
        self.estimator.set_request(self.readiness.create_estimate_request(self.job))
        self.body.section(METHOD).set_summary(self.readiness.describe_method())
        self.readiness.show(self.problems)
        self.changed.emit()

    def _show_estimate(self) -> None:
        """Show the estimated time and memory of the job in the submit bar."""
        if self._is_current:
            self.readiness.show_estimate(self.estimator.request, self.estimator.estimate)

    def _request_model_facts(self) -> None:
        """Request weights and estimates for all models of the task. It is called when the model list is opened."""
        models = self.catalogue.models_of(str(self.field_value("task")))
        encoder, estimate = str(self.field_value("encoder")), self.estimator.prepare_estimates_by_model
        self.fields.model.panel.request_facts(models, self.catalogue, encoder, estimate)

    def _ask_consent(self) -> None:
        """Ask for consent to run the job's model file, or hide the banner if the model isn't a file."""
        model = str(self.field_value("model"))
        file = self.validator.model_file(model)
        sha256 = file.sha256 if file is not None else None
        agreed = file is not None and file.agreed and sha256 == self.validator.model_file_sha256(model)
        self.consent.ask(model, sha256, agreed=agreed)

    def apply(self, choice: Choice) -> None:
        """Set the fields of a remedy (`choice`) that the user has selected, and focus the topmost of them."""
        for name, value in choice.values.items():
            self.set_field(name, value)
        names = sorted(choice.values, key=lambda name: ("", *SECTIONS).index(find_section(name)))
        self.focus_field(next((name for name in names if self.rows[name].has_effect), "dataset"))
