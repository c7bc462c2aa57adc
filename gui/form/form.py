"""The form: every field of a job, what is wrong with it, and the Train button."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from engine.contract import checks
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.command import command_line
from engine.contract.dataset import DatasetReport
from engine.contract.devices import CPU, Snapshot
from engine.contract.job import FIELDS, Job, job_from_values
from engine.contract.problems import Problem, errors
from gui.devices.words import gpu_title
from gui.form import relevance
from gui.form.consent import ConsentBar
from gui.form.cuts import CutsEditor
from gui.form.dataset_card import DatasetCard
from gui.form.editors import ChoiceEditor, PathEditor
from gui.form.fold import Fold
from gui.form.groups import FOLDS, TRIPLE, devices_in_words
from gui.form.row import LABEL_WIDTH, FieldRow, ProblemLabel
from gui.form.rows import make_row

INSPECTED = ("dataset", "val_fraction", "seed")
"""The fields on which the findings about the folder depend."""
DECIDING = ("strategy", "pipeline_schedule")
"""The fields that decide which others have an effect."""


class JobForm(QWidget):
    """The job on screen.

    Signals: changed() - the job, or what is wrong with it, has been judged anew; train_requested(object) - the Job
    to run; folder_chosen(str, float, int) - look through this folder with this validation share and seed ("" for none);
    touched() - the user is at work here, so that a run may follow soon; cut_wanted() - the picture of the cut.
    """

    changed = Signal()
    train_requested = Signal(object)
    folder_chosen = Signal(str, float, int)
    touched = Signal()
    cut_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.catalogue: Catalogue = load_catalogue()
        self.rows: dict[str, FieldRow] = {}
        self.problems: list[Problem] = []
        self.job: Job | None = None
        self._devices: tuple[str, ...] = (CPU,)
        self._trusted = ""
        self._machine: Snapshot | None = None
        self._report: DatasetReport | None = None
        self._start_problems: list[Problem] = []
        self._focus_due = False
        self._inspected: tuple[Any, ...] | None = None
        self._checking = False
        self._starting = False
        self.card = DatasetCard()
        self.consent = ConsentBar()
        self.devices_label = QLabel()
        self.devices_problems = ProblemLabel()
        self.reason = ProblemLabel()
        self.train = QPushButton("Train")
        self.copy = QPushButton("Copy as command")
        self._make_rows()
        self.folds = [Fold(title, [self.rows[name] for name in names]) for title, names in FOLDS.items()]
        self._lay_out()
        self._judge_soon = _single_shot(self, 0, self._judge)
        self._inspect_soon = _single_shot(self, 250, self._ask_for_inspection)
        self._connect()
        self._show_effects()
        self._judge_soon.start()

    # What the owner tells the form

    def set_job(self, job: Job) -> None:
        """Puts `job` on screen, all but its devices."""
        self._trusted = job.model_file_sha256
        for name, row in self.rows.items():
            row.set_value(getattr(job, name))

    def set_dataset(self, folder: str) -> None:
        self.rows["dataset"].set_value(folder)

    def browse(self) -> None:
        """Opens the dialog that chooses the dataset's folder."""
        editor = self.rows["dataset"].editor
        assert isinstance(editor, PathEditor)
        editor.open_browser()

    def set_devices(self, devices: tuple[str, ...]) -> None:
        """The devices chosen in the devices panel."""
        if devices != self._devices:
            self._devices = devices
            self._judge_soon.start()

    def set_machine(self, snapshot: Snapshot) -> None:
        """What the machine has; judged anew only where that differs from before."""
        known = self._machine
        self._machine = snapshot
        if known is None or _hardware(known) != _hardware(snapshot):
            self._judge_soon.start()

    def set_report(self, report: DatasetReport | None) -> None:
        """The findings about the folder on screen."""
        self._report = report
        self._checking = False
        if report is not None:
            self.card.show_report(report)
        self._judge()

    def set_start_problems(self, problems: list[Problem]) -> None:
        """What went wrong on starting the job; gone with the next change of the form."""
        self._start_problems = problems
        self._judge()

    def set_starting(self, starting: bool) -> None:
        """Whether a run is being made at this moment, while which Train waits."""
        self._starting = starting
        self._judge()

    @property
    def checking(self) -> bool:
        """Whether the folder on screen is still being looked through."""
        return self._checking

    def device_names(self) -> dict[str, str]:
        """What the machine's GPUs are called here, by UUID."""
        return {gpu.uuid: gpu_title(gpu) for gpu in self._machine.gpus} if self._machine else {}

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
        values["devices"] = list(self._devices)
        values["model_file_sha256"] = self._trusted if str(values["model"]).endswith(".py") else ""
        return values

    # Making it

    def _make_rows(self) -> None:
        for name, field in FIELDS.items():
            if name not in ("devices", "model_file_sha256"):
                self.rows[name] = make_row(field, self.catalogue, stacked=name in TRIPLE)

    def _lay_out(self) -> None:
        column = QWidget()
        layout = QVBoxLayout(column)
        layout.setContentsMargins(14, 12, 14, 12)
        layout.setSpacing(8)
        for widget in (self.rows["dataset"], self.card, self.rows["task"], self.rows["model"], self.consent):
            layout.addWidget(widget)
        layout.addWidget(self.rows["strategy"])
        layout.addLayout(self._devices_line())
        layout.addWidget(self.devices_problems)
        triple = QHBoxLayout()
        triple.setSpacing(8)
        for name in TRIPLE:
            triple.addWidget(self.rows[name], 1)
        layout.addLayout(triple)
        for name in TRIPLE:
            layout.addWidget(self.rows[name].problem_label)
        for fold in self.folds:
            layout.addWidget(fold)
        layout.addStretch(1)
        area = QScrollArea()
        area.setObjectName("panel")
        area.setWidget(column)
        area.setWidgetResizable(True)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(area, 1)
        outer.addWidget(self._foot())

    def _devices_line(self) -> QHBoxLayout:
        title = QLabel("Devices")
        title.setMinimumWidth(LABEL_WIDTH)
        self.devices_label.setObjectName("muted")
        self.devices_label.setWordWrap(True)
        line = QHBoxLayout()
        line.setSpacing(4)
        line.addWidget(title)
        line.addWidget(self.devices_label, 1)
        return line

    def _foot(self) -> QWidget:
        foot = QWidget()
        foot.setObjectName("panel")
        self.train.setObjectName("primary")
        self.train.setAccessibleName("Train")
        self.copy.setAccessibleName("Copy as command")
        self.copy.setToolTip("Puts the footplate train command for this job on the clipboard")
        layout = QVBoxLayout(foot)
        layout.setContentsMargins(14, 8, 14, 12)
        layout.setSpacing(6)
        layout.addWidget(self.reason)
        buttons = QHBoxLayout()
        buttons.addWidget(self.train, 1)
        buttons.addWidget(self.copy)
        layout.addLayout(buttons)
        return foot

    def _connect(self) -> None:
        for name, row in self.rows.items():
            row.edited.connect(self._edited)
            if name in INSPECTED:
                row.edited.connect(self._folder_edited)
            if name in DECIDING:
                row.edited.connect(self._show_effects)
        self.cuts.wanted.connect(self._want_cut)
        self.consent.allowed.connect(self._trust)
        self.card.cancelled.connect(self._cancel_inspection)
        self.train.clicked.connect(self.start)
        self.copy.clicked.connect(self.copy_command)

    # What the user does

    def start(self) -> None:
        """Asks for the run of the job on screen, if nothing stands in its way."""
        self._judge()
        if self.train.isEnabled() and self.job is not None:
            self.train_requested.emit(self.job)

    def copy_command(self) -> None:
        """Puts the command for the job on screen on the clipboard."""
        if self.job is not None:
            QGuiApplication.clipboard().setText(command_line(self.job))

    def _want_cut(self) -> None:
        self._judge()
        self.cut_wanted.emit()

    def _edited(self) -> None:
        self._start_problems = []
        self.touched.emit()
        self._judge_soon.start()

    def _folder_edited(self) -> None:
        if self._inspection() == self._inspected:
            return
        self._report = None
        self._inspected = None
        self._checking = bool(self.rows["dataset"].value())
        self._inspect_soon.start()

    def _inspection(self) -> tuple[Any, ...]:
        return tuple(self.rows[name].value() for name in INSPECTED)

    def _ask_for_inspection(self) -> None:
        wanted = self._inspection()
        if wanted == self._inspected:
            return
        self._inspected = wanted
        folder, val_fraction, seed = wanted
        looked_at = Job(dataset=folder)
        wrong = [p for p in checks.problems(looked_at, self.catalogue) if p.field == "dataset"]
        if wrong or not isinstance(val_fraction, float) or not 0 < val_fraction < 1:
            self._checking = False
            self.card.clear()
            self.folder_chosen.emit("", 0.0, 0)
        else:
            self._checking = True
            self.folder_chosen.emit(folder, val_fraction, seed)
        self._judge()

    def _cancel_inspection(self) -> None:
        self._checking = False
        self.folder_chosen.emit("", 0.0, 0)
        self.card.clear("Not looked through. Training can start, but problems with the pictures show only then.")
        self._judge()

    def _trust(self, sha256: str) -> None:
        self._trusted = sha256
        self._edited()

    # Judging it

    def _judge(self) -> None:
        self._judge_soon.stop()
        self.job, self.problems = self._judged()
        self.problems += self._start_problems
        shown = set(self.rows)
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in self.problems if problem.field == name))
        for name in TRIPLE:
            self.rows[name].problem_label.setVisible(bool(self.rows[name].problem_label.text()))
        self.devices_problems.show_problems(tuple(p for p in self.problems if p.field == "devices"))
        self.consent.ask(str(self.rows["model"].value()), self._trusted)
        self.devices_label.setText(devices_in_words(self._devices, self.device_names()))
        self._offer_strategies()
        for fold in self.folds:
            fold.reveal_problem()
        elsewhere = [p for p in self.problems if p.field not in shown and p.field != "devices"]
        self._show_whether_ready(elsewhere)
        self.changed.emit()

    def _judged(self) -> tuple[Job | None, list[Problem]]:
        """The job, or None, with all that is wrong: fields that cannot be read do not hide the others'."""
        values = self.values()
        job, unread = job_from_values(values)
        sane = job
        if sane is None:
            bad = {problem.field for problem in unread}
            sane, _none = job_from_values({name: value for name, value in values.items() if name not in bad})
        found = list(unread)
        if sane is not None:
            wrong = {problem.field for problem in unread}
            judged = checks.problems(sane, self.catalogue, self._machine, self._report)
            found += [problem for problem in judged if problem.field not in wrong]
        return job, found

    def _show_effects(self) -> None:
        """Shows those of the strategy's fields that it goes by."""
        strategy = self.catalogue.strategy(str(self.rows["strategy"].value()))
        idle = relevance.without_effect(FOLDS["Strategy"], strategy, str(self.rows["pipeline_schedule"].value()))
        for name in FOLDS["Strategy"]:
            self.rows[name].set_effect(name not in idle)

    def _offer_strategies(self) -> None:
        editor = self.rows["strategy"].editor
        assert isinstance(editor, ChoiceEditor)
        marks = relevance.marks(self.catalogue, self._devices, str(self.rows["model"].value()))
        editor.set_marks(marks, relevance.kind_marks(self.catalogue, self._devices))

    def _show_whether_ready(self, elsewhere: list[Problem]) -> None:
        wrong = errors(self.problems)
        if self._starting:
            why = "The run is being started."
        elif wrong:
            fields = dict.fromkeys(FIELDS[p.field].label if p.field in FIELDS else "the run" for p in wrong)
            why = f"Train is off until these are right: {', '.join(fields)}."
        elif self._checking:
            why = "The folder is still being looked through."
        else:
            why = ""
        self._enable_train(not why)
        self.train.setToolTip(why or "Starts the training (Ctrl+Return)")
        self.train.setAccessibleDescription(why)
        shown = list(elsewhere)
        if wrong and not elsewhere:
            shown.append(Problem("", why, "", "error"))
        self.reason.show_problems(tuple(shown))
        self.copy.setEnabled(self.job is not None)

    def _enable_train(self, on: bool) -> None:
        """Qt moves the keyboard on from a button that is switched off; it comes back unless somebody has moved it."""
        window = self.window()  # whose focus widget is known before the window itself is active, too
        if window.focusWidget() is self.train and not on:
            self._focus_due = True
        self.train.setEnabled(on)
        if on and self._focus_due:
            self._focus_due = False
            if window.focusWidget() in (self.copy, None):
                self.train.setFocus()


def _single_shot(parent: JobForm, wait_ms: int, act: Any) -> QTimer:
    timer = QTimer(parent)
    timer.setSingleShot(True)
    timer.setInterval(wait_ms)
    timer.timeout.connect(act)
    return timer


def _hardware(snapshot: Snapshot) -> tuple[Any, ...]:
    return (snapshot.nvml, tuple((gpu.uuid, gpu.cuda_index, gpu.lost) for gpu in snapshot.gpus))
