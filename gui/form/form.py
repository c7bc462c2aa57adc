"""The form: every field of a job, what is wrong with it, and the Train button."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from engine.checks import job_checks
from engine.checks.disk import ModelFile
from engine.checks.gpu_support import gpu_problems
from engine.checks.machine_findings import cpu_warnings
from engine.checks.torch_build import TorchBuild, installed_torch
from engine.checks.weights_checks import weights_line
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.command import command_line
from engine.contract.dataset import DatasetReport
from engine.contract.devices import CPU, Snapshot, gpu_title, host_of
from engine.contract.idle_fields import DECIDING, idle_fields
from engine.contract.job import FIELDS, Job, job_from_values
from engine.contract.problems import Choice, Problem, errors
from gui.actions import Actions
from gui.dataset import dataset_format
from gui.form import queue_estimate, strategy_limits
from gui.form.cached_disk import CachedDisk
from gui.form.collapsible_section import CollapsibleSection
from gui.form.consent import ConsentBar
from gui.form.cuts_editor import CutsEditor
from gui.form.dataset_card import DatasetCard
from gui.form.field_factory import choices_of, make_row, measure_choices
from gui.form.field_groups import SECTIONS, TRIPLE, devices_in_words
from gui.form.field_row import LABEL_WIDTH, FieldRow
from gui.form.find_button import FOUND, FindButton
from gui.form.format_choice import FormatChoice
from gui.form.inspection import Inspection
from gui.form.label_check import LabelCheck
from gui.form.model_follower import ModelFollower
from gui.form.model_picker import ModelPicker
from gui.form.option_rows import PREFIX, OptionRows
from gui.form.prefill_mode import PrefillMode
from gui.form.recipes import RecipeFollower
from gui.form.steps import StepList
from gui.form.submit_bar import SubmitBar
from gui.form.task_detection import TaskDetection
from gui.format import size
from gui.sources.settings import Settings
from gui.style import theme
from gui.titles import CHOICES, model_title
from gui.widgets.editors import ChoiceEditor, PathEditor
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.scroll_panel import scroll_panel

_WIDEST = 500
"""Pixels that the fields can claim of the window: beyond, as with texts of twice the size, they scroll sideways."""


class JobForm(QWidget):
    """The job on screen.

    Signals: changed() - the job or its problems have changed; train_requested(object) - the Job to run;
    resume_requested(object, object) - the RunFolder to resume, and the changes of its job (a dict);
    folder_chosen(object) - the folder of this Job is to be inspected, None for none; touched() - the user is editing,
    so a run may follow soon; cut_wanted() - the page of the cut is to be shown; finder_wanted(str) - a value for this
    field is to be found by trials; labels_requested() - the user has to see the labels before training starts.

    Attributes: prefill_mode - shows another run's job in the form, and restores the form's own; asked - whether the
    run that is being started was requested here.
    """

    changed = Signal()
    train_requested = Signal(object)
    resume_requested = Signal(object, object)
    folder_chosen = Signal(object)
    touched = Signal()
    cut_wanted = Signal()
    finder_wanted = Signal(str)
    labels_requested = Signal()

    def __init__(self, actions: Actions | None = None, settings: Settings | None = None) -> None:
        super().__init__()
        self.acts = actions or Actions(self)
        self.catalogue: Catalogue = load_catalogue()
        self.rows: dict[str, FieldRow] = {}
        self.problems: list[Problem] = []
        self.job: Job | None = None
        self.devices: tuple[str, ...] = (CPU,)
        self.trusted = ""
        self.asked = False
        self._ahead: queue_estimate.Ahead = {}
        self._names: Mapping[str, str] = {}
        self._troubles: Mapping[str, str] = {}
        self._machine: Snapshot | None = None
        self._torch: TorchBuild | None = None
        self._hardware: tuple[Any, ...] = ()
        self._start_problems: list[Problem] = []
        self._starting = False
        self._wanted: dict[str, str] | None = None
        self._judging = False
        self._weights_line = ""
        self.card = DatasetCard()
        self.label_check = LabelCheck(settings)
        self.options = OptionRows()
        self.consent = ConsentBar()
        self.devices_label = QLabel()
        self.devices_problems = ProblemLabel()
        self.steps = StepList(self._go_to)
        self.submit_bar = SubmitBar(self.acts, self.steps)
        self.reason, self.train, self.copy = self.submit_bar.reason, self.submit_bar.train, self.submit_bar.copy
        self.disk = CachedDisk(self)
        self._make_rows()
        self.sections = [
            CollapsibleSection(title, [self.rows[name] for name in names]) for title, names in SECTIONS.items()
        ]
        self.inspection = Inspection(self.rows, self.card, self.disk, self)
        self.recipes = RecipeFollower(self.rows, self.catalogue, self.disk, self)
        self.models = ModelFollower(self.rows, self.catalogue, self.disk, self.recipes, self)
        self.recognition = TaskDetection(self.rows, self.catalogue, self.recipes, self)
        self.formats = FormatChoice(self.rows, self.recipes, self)
        self.prefill_mode = PrefillMode(self)
        self._lay_out()
        self._judge_soon = QTimer(self, interval=0, singleShot=True)
        self._judge_soon.timeout.connect(self.judge)
        self._connect()
        self._offer_measures()
        self._offer_losses()
        self._offer_options()
        self._show_effects()
        self._judge_soon.start()

    # What the owner tells the form

    def show_new(self, job: Job) -> None:
        """Show `job` as a new one, which follows the default model and the recipe that fits."""
        self.set_job(job)
        self.models.is_active = True
        self.recipes.begin()

    def set_job(self, job: Job) -> None:
        """Puts `job` on screen, all but its devices."""
        self.trusted = job.model_file_sha256
        with self.recipes.loading():
            for name, row in self.rows.items():
                row.set_value(getattr(job, name))
            self.options.set_values(job.options)
        self.models.is_active = False

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """Offers what is in `catalogue` from now on, which has what it had before and what plug-ins add."""
        self.catalogue = self.recipes.catalogue = self.models.catalogue = self.recognition.catalogue = catalogue
        for name in ("task", "strategy"):
            editor = self.rows[name].editor
            assert isinstance(editor, ChoiceEditor)
            editor.set_choices(choices_of(FIELDS[name], catalogue))
        self._offer_models()
        self._offer_measures()
        self._offer_options()
        self.inspection.again()
        self.judge()

    def set_dataset(self, folder: str) -> None:
        self.set_value("dataset", folder)

    def set_value(self, name: str, value: Any) -> None:
        """Sets a field; a prefill that locks the field ends first."""
        self._free(name)
        self.rows[name].set_value(value)

    def browse(self) -> None:
        """Opens the dialog that chooses the dataset's folder."""
        self._free("dataset")
        editor = self.rows["dataset"].editor
        assert isinstance(editor, PathEditor)
        editor.open_browser()

    def apply(self, choice: Choice) -> None:
        """Set the fields of a choice, and move the keyboard to the first of them that is visible."""
        for name, value in choice.values.items():
            self.set_value(name, value)
        visible = [name for name in choice.values if self.rows[name].isVisible()]
        self.rows[next(iter(visible), "dataset")].editor.control.setFocus()

    def _free(self, name: str) -> None:
        if self.rows[name].locked:
            self.prefill_mode.end()

    def set_devices(self, devices: tuple[str, ...]) -> None:
        """The devices chosen in the devices panel."""
        if devices != self.devices:
            self.devices = devices
            self._show_effects()
            self._judge_soon.start()

    def set_machine(self, snapshot: Snapshot) -> None:
        """What the machine has; judged anew only where that differs from before."""
        self._machine, self._torch = snapshot, installed_torch()
        known, self._hardware = self._hardware, (*_hardware(snapshot), self._torch)
        if known != self._hardware:
            self._judge_soon.start()

    def set_hosts(self, names: Mapping[str, str], troubles: Mapping[str, str]) -> None:
        """What the devices of all machines are called, as jobs name them, and why nothing comes from a machine."""
        if (names, troubles) != (self._names, self._troubles):
            self._names, self._troubles = dict(names), dict(troubles)
            self._judge_soon.start()

    def set_report(self, report: DatasetReport | None) -> None:
        """The findings about the folder on screen."""
        if report is None or not self.recognition.follow(report):
            self.inspection.set_report(report)

    def set_start_problems(self, problems: list[Problem]) -> None:
        """What went wrong on starting the job; gone with the next change of the form."""
        self._start_problems = problems
        self._starting = self.asked = False
        self.judge()

    def set_remarks(self, problems: Sequence[Problem]) -> None:
        """Why the job could not be tried, marked at its fields; gone with the next change of the form."""
        self._start_problems = [msgspec.structs.replace(problem, severity="warning") for problem in problems]
        self.judge()

    def set_starting(self, starting: bool) -> None:
        """Whether a run is being made at this moment, while which Train waits."""
        self._starting = starting
        self.judge()

    def set_started(self) -> None:
        """Called once a run has started; ends the prefill that was submitted here."""
        asked, self.asked = self.asked, False
        self.set_starting(False)
        if asked:
            self.prefill_mode.end()

    def set_ahead(self, found: queue_estimate.Ahead) -> None:
        """Which runs hold the devices, or wait for them."""
        self._ahead = found
        self._show_ahead()

    @property
    def checking(self) -> bool:
        """Whether the folder on screen is still being looked through."""
        return self.inspection.checking

    def device_names(self) -> dict[str, str]:
        """What GPUs are called here, by what jobs call them."""
        return {**self._names, **{gpu.uuid: gpu_title(gpu) for gpu in (self._machine.gpus if self._machine else ())}}

    @property
    def cuts(self) -> CutsEditor:
        """The editor of the cuts."""
        editor = self.rows["cuts"].editor
        assert isinstance(editor, CutsEditor)
        return editor

    def values(self) -> dict[str, Any]:
        """The form's values as they would stand in a `job.toml`."""
        values = {name: row.value() for name, row in self.rows.items()}
        values["cuts"] = list(values["cuts"])
        values["devices"] = list(self.devices)
        values["model_file_sha256"] = self._model_file_sha256()
        values["options"] = self.options.values()
        hidden = {name for name, row in self.rows.items() if not row.has_effect}
        return self.prefill_mode.prefill.values(values, hidden) if self.prefill_mode.prefill is not None else values

    # Making it

    def _make_rows(self) -> None:
        for name, field in FIELDS.items():
            if name not in ("devices", "model_file_sha256"):
                self.rows[name] = make_row(field, self.catalogue, stacked=name in TRIPLE)
        self.find_buttons = {name: FindButton(self.rows[name]) for name in FOUND}
        for name, button in self.find_buttons.items():
            button.clicked.connect(lambda _checked=False, name=name: self._want_finder(name))

    def _lay_out(self) -> None:
        column = QWidget()
        area = self._area = scroll_panel(column, whole_up_to=_WIDEST)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.prefill_mode.band)
        outer.addWidget(area, 1)
        layout = QVBoxLayout(column)
        layout.setContentsMargins(14, 12, 14, 12)
        layout.setSpacing(8)
        for widget in (self.rows["dataset"], self.card, self.rows["task"], self.rows["model"], self.consent):
            layout.addWidget(widget)
        for name in ("encoder", "pretrained", "recipe"):
            layout.addWidget(self.rows[name])
        layout.addWidget(self.rows["strategy"])
        layout.addWidget(self.options)
        layout.addLayout(self._devices_line())
        layout.addWidget(self.devices_problems)
        triple = QHBoxLayout()
        triple.setSpacing(8)
        for name in TRIPLE:
            triple.addWidget(self.rows[name], 1)
        layout.addLayout(triple)
        for name in TRIPLE:
            layout.addWidget(self.rows[name].problem_label)
        for section in self.sections:
            layout.addWidget(section)
        layout.addStretch(1)
        outer.addWidget(self.submit_bar)

    def _devices_line(self) -> QHBoxLayout:
        title = QLabel("Devices")
        title.setMinimumWidth(theme.scaled(LABEL_WIDTH))
        self.devices_label.setObjectName("muted")
        self.devices_label.setWordWrap(True)
        line = QHBoxLayout()
        line.setSpacing(4)
        line.addWidget(title)
        line.addWidget(self.devices_label, 1)
        return line

    def _connect(self) -> None:
        for name, row in self.rows.items():
            row.edited.connect(self._edited)
            row.chosen.connect(self.apply)
            if name in DECIDING:
                row.edited.connect(self._show_effects)
        self.cuts.wanted.connect(self._want_cut)
        self.consent.allowed.connect(self._trust)
        self.rows["task"].edited.connect(self._offer_models)
        self.rows["task"].edited.connect(self._offer_losses)
        for name in ("task", "model"):
            self.rows[name].edited.connect(self._offer_measures)
        for name in ("task", "model", "strategy"):
            self.rows[name].edited.connect(self._offer_options)
        self.options.edited.connect(self._edited)
        for problems in (self.options, self.devices_problems, self.reason):
            problems.chosen.connect(self.apply)
        self.inspection.wanted.connect(self.folder_chosen)
        self.inspection.changed.connect(lambda: self.formats.follow(self.inspection.report))
        self.inspection.changed.connect(self.judge)
        self.card.chosen.connect(self.apply)
        self.disk.changed.connect(self._seen)
        self.acts.train.on_trigger(self.start)
        self.acts.start_at_once.on_trigger(self.start_at_once)
        self.acts.copy_command.on_trigger(self.copy_command)

    # What the user does

    def start(self) -> None:
        """Asks for the run of the job on screen, if nothing stands in its way."""
        self._ask({})

    def start_at_once(self) -> None:
        """As `start`, beside the runs that are on its devices; the field that says so stays as it is."""
        self._ask({"start": "at_once"})

    def _ask(self, besides: dict[str, str]) -> None:
        """Goes by what the disk says now, as soon as it does and the folder has been looked through."""
        self._wanted = besides
        self.judge(afresh=True)

    def _request(self, besides: dict[str, str]) -> None:
        if not self.acts.train.ready or self.job is None:
            return
        prefill = self.prefill_mode.prefill
        resumes = prefill is not None and prefill.run is not None
        if not resumes and self.label_check.holds_back(self.job.dataset, self.inspection.report):
            self.labels_requested.emit()
            return
        self.asked = True
        if prefill is not None and prefill.run is not None:
            self.resume_requested.emit(prefill.run, prefill.changes(self.values()) | besides)
        else:
            self.train_requested.emit(msgspec.structs.replace(self.job, **besides))

    def copy_command(self) -> None:
        """Puts the command for what is on screen on the clipboard."""
        prefill = self.prefill_mode.prefill
        if self.job is not None:
            resume = prefill.command(self.values()) if prefill is not None else ""
            QGuiApplication.clipboard().setText(resume or command_line(self.job))

    def _want_cut(self) -> None:
        self.judge()
        self.cut_wanted.emit()

    def _want_finder(self, field: str) -> None:
        self.judge()
        self.finder_wanted.emit(field)

    def _edited(self) -> None:
        if self._judging:
            return
        self._wanted = None
        self._start_problems = []
        self.touched.emit()
        self._judge_soon.start()

    def _trust(self, sha256: str) -> None:
        self.trusted = sha256
        self._offer_measures()  # the file may be another than when it was chosen
        self._edited()

    # Judging it

    def judge(self, *, afresh: bool = False) -> None:
        """Finds anew what the job is and what is wrong with it, as far as the disk has answered by now; the rest
        follows. `afresh`: not by what it answered before.
        """
        if self._judging:
            self._judge_soon.start()
            return
        self._judging = True
        self._judge_soon.stop()
        try:
            self.disk.begin(afresh=afresh)
            self._follow_defaults()
            self.job, self.problems = self._judged()
            while self.disk.look():
                self._offer_measures()
                self.disk.begin()
                self._follow_defaults()
                self.job, self.problems = self._judged()
        finally:
            self._judging = False
        self._show_judgement()
        wanted = self._wanted
        if wanted is not None and not self.disk.unanswered and not self.checking:
            self._wanted = None
            self._request(wanted)

    def _follow_defaults(self) -> None:
        """Update the model and the fields of the recipe, except what the user has set."""
        self.models.follow(self.devices)
        self.recipes.follow(self.inspection.report, self.checking)

    def _show_judgement(self) -> None:
        self.problems += self._start_problems
        self.options.show_problems(self.problems)
        shown = {*self.rows, *(PREFIX + name for name in self.options.rows)}
        problems = dataset_format.without_readings(self.problems, self.inspection.report)
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in problems if problem.field == name))
        self.rows["model"].set_note(self.models.reason)
        self.rows["pretrained"].set_note(self._weights_line)
        for name in TRIPLE:
            self.rows[name].problem_label.setVisible(bool(self.rows[name].problem_label.text()))
        self.devices_problems.show_problems(tuple(p for p in self.problems if p.field == "devices"))
        file = self._model_file()
        sha256 = file.sha256 if file is not None else None
        agreed = file is not None and file.agreed and sha256 == self._model_file_sha256()
        self.consent.ask(str(self.rows["model"].value()), sha256, agreed=agreed)
        self.devices_label.setText(devices_in_words(self.devices, self.device_names()))
        self._offer_strategies()
        self._show_ahead()
        for section in self.sections:
            section.reveal_problem()
        elsewhere = [p for p in self.problems if p.field not in shown and p.field != "devices"]
        self._show_whether_ready(elsewhere)
        self._show_steps()
        self.changed.emit()

    def _judged(self) -> tuple[Job | None, list[Problem]]:
        """The job, or None, with all that is wrong: fields that cannot be read do not hide the others'."""
        prefill, values = self.prefill_mode.prefill, self.values()
        self._model_file()  # which consent is asked for even where the rest cannot be read
        job, unread = job_from_values(values)
        sane = job
        if sane is None:
            bad = {problem.field for problem in unread}
            sane, _none = job_from_values({name: value for name, value in values.items() if name not in bad})
        found = list(unread)
        if sane is not None:
            wrong = {problem.field for problem in unread}
            if prefill is not None:
                sane = prefill.to_check(sane)
            report, chosen = self.inspection.report, self.recipes.chosen
            problems = job_checks.problems(sane, self.catalogue, self._machine, report, self.disk, chosen=chosen)
            problems += gpu_problems(sane, self._machine, self._torch, os.environ)
            problems += self._out_of_reach(sane)
            if self._machine is not None:
                problems += cpu_warnings(sane, self._machine, self._torch, os.environ, chosen=True)
            if prefill is not None and prefill.run is not None:
                problems += prefill.problems(values, self.disk.standing(prefill.run))
            found += [problem for problem in problems if problem.field not in wrong]
            self._weights_line = weights_line(sane, self.catalogue, self.disk, size)
        return job, found

    def _out_of_reach(self, job: Job) -> list[Problem]:
        """The machines of the job's devices that are not reached."""
        hosts = [host for host in dict.fromkeys(map(host_of, job.devices)) if host]
        remedy = "Until then, uncheck its devices."
        return [Problem("devices", self._troubles[host], remedy) for host in hosts if host in self._troubles]

    def _show_steps(self) -> None:
        """How data, recipe and devices stand."""
        report = self.inspection.report
        recipe, strategy, model = (self._title(name) for name in ("recipe", "strategy", "model"))
        done = {
            "Data": dataset_format.summary(report) if report is not None and report.format else self.card.text(),
            "Recipe": f"{recipe} · {model}",
            "Devices": f"{devices_in_words(self.devices, self.device_names())} · {strategy}",
        }
        working = {"Data": "looking through the folder …"} if self.checking else {}
        self.steps.show_steps(self.problems, done, working)

    def _title(self, name: str) -> str:
        """What the value of a field with choices is called."""
        editor = self.rows[name].editor
        value = str(editor.value())
        return editor.titles.get(value, value) if isinstance(editor, ChoiceEditor) else model_title(value)

    def _go_to(self, step: str, problem: Problem | None) -> None:
        """Brings the field of the problem, or else the first of the step, into sight and gives it the keyboard."""
        first = {"Data": "dataset", "Recipe": "recipe", "Devices": "strategy"}[step]
        row = self.rows.get(problem.field if problem is not None else first, self.rows[first])
        row.editor.setFocus()
        self._area.ensureWidgetVisible(row)

    def _model_file(self) -> ModelFile | None:
        """The Python file that is the model; None where it is none, or not known yet."""
        model = str(self.rows["model"].value())
        return self.disk.model_file(model) if model.endswith(".py") else None

    def _model_file_sha256(self) -> str:
        """Of which contents of the model file the job is: those that it came with or was allowed, or else those that
        the user has agreed to before.
        """
        file = self._model_file()
        if not str(self.rows["model"].value()).endswith(".py"):
            return ""
        return self.trusted or (file.sha256 or "" if file is not None and file.agreed else "")

    def _seen(self) -> None:
        """The disk has told more, or something else, of what was asked."""
        if not self._judging:
            self._offer_measures()
            self.judge()

    def _show_effects(self) -> None:
        """Shows the fields that have an effect."""
        values = {name: self.rows[name].editor.value() for name in DECIDING}
        idle = idle_fields({**values, "devices": self.devices}, self.catalogue)
        for name, row in self.rows.items():
            row.set_effect(name not in idle)

    def _show_ahead(self) -> None:
        """Says who is on the devices before this run, and what that means for it."""
        at_once = self.rows["start"].value() == "at_once"
        text = queue_estimate.words(self._ahead, self.devices, self.device_names(), at_once)
        self.submit_bar.show_ahead(text, bool(text) and not at_once)

    def _offer_models(self) -> None:
        """Offer the models of the task; one of another task gives way to its default."""
        editor, task = self.rows["model"].editor, self.catalogue.task(str(self.rows["task"].value()))
        assert isinstance(editor, ModelPicker)
        if task is None:
            return
        offered = self.catalogue.models_of(task.id)
        editor.set_models(offered, task.file)
        chosen = self.catalogue.model(editor.value())
        if chosen is not None and chosen not in offered:
            self.models.is_active = True
            self.models.follow(self.devices)
            size, model = self.rows["image_size"], self.catalogue.model(editor.value())
            if model is not None and (size.value() or model.min_image_size) < model.min_image_size:
                size.set_value(None)  # it was chosen for another model

    def _offer_measures(self) -> None:
        """Offers the measures of the task; one that it does not have gives way to its own."""
        row, task = self.rows["best_by"], self.catalogue.task(str(self.rows["task"].value()))
        assert isinstance(row.editor, ChoiceEditor)
        file = self._model_file() if task is not None and task.file else None
        choices = measure_choices(self.catalogue, task, file.measures if file is not None else ())
        if task is not None and not task.file and row.editor.value() not in {value for value, *_ in choices}:
            row.set_value("")
        row.editor.set_choices(choices)

    def _offer_losses(self) -> None:
        """Offers the losses of the task; one that it does not have gives way to its own."""
        row, task = self.rows["loss"], self.catalogue.task(str(self.rows["task"].value()))
        if task is None or not task.losses:
            return
        assert isinstance(row.editor, ChoiceEditor)
        if row.editor.value() not in task.losses:
            row.set_value(task.losses[0])
        row.editor.set_choices([(value, CHOICES[value], "") for value in task.losses])

    def _offer_options(self) -> None:
        """Offers the options of the task, the model and the strategy."""
        task, model, strategy = (str(self.rows[name].value()) for name in ("task", "model", "strategy"))
        self.options.offer(self.catalogue.options_of(task, model, strategy), self.catalogue)

    def _offer_strategies(self) -> None:
        editor = self.rows["strategy"].editor
        assert isinstance(editor, ChoiceEditor)
        marks = strategy_limits.marks(self.catalogue, self.devices, str(self.rows["model"].value()))
        editor.set_marks(marks, strategy_limits.kind_marks(self.catalogue, self.devices))
        self.rows["strategy"].set_note(strategy_limits.words(self.catalogue, editor.value(), marks))

    def _label(self, problem: Problem) -> str:
        """What the problem's field is called."""
        if problem.field in FIELDS:
            return FIELDS[problem.field].label
        return self.options.label(problem.field) or "the run"

    def _show_whether_ready(self, elsewhere: list[Problem]) -> None:
        wrong = errors(self.problems)
        action = self.prefill_mode.action
        if self._starting:
            why = "Starting the run."
        elif wrong:
            fields = dict.fromkeys(map(self._label, wrong))
            why = f"Correct these fields to enable {action}: {', '.join(fields)}."
        elif self.disk.unanswered:
            why = f"Waiting for the disk: {self.disk.unanswered[0]}."
        elif self.checking:
            why = "The folder is still being inspected."
        else:
            why = ""
        shown = list(elsewhere)
        if wrong and not elsewhere:
            shown.append(Problem("", why, "", "error"))
        self.submit_bar.show_action(action)
        self.submit_bar.show_ready(why, tuple(shown))
        self.acts.copy_command.allow("" if self.job is not None else "The form is not complete yet.")


def _hardware(snapshot: Snapshot) -> tuple[Any, ...]:
    """What jobs are judged by of a machine; who is on a GPU matters to those alone that take one process at a time."""
    gpus = tuple(
        (gpu.uuid, gpu.cuda_index, gpu.lost, gpu.mig_enabled, gpu.compute_mode)
        + ((gpu.processes,) if gpu.compute_mode.startswith("exclusive") else ())
        for gpu in snapshot.gpus
    )
    return snapshot.nvml, gpus
