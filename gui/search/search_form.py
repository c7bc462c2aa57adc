"""The form of a search: which fields it varies, what it is after, and how much it may cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.idle_fields import idle_by_entries
from engine.contract.job import FIELDS, Field, Job
from engine.contract.problems import Problem, errors
from engine.contract.search import OPTION, SEARCHABLE, Search
from gui.actions import Action, bind
from gui.form.environment import devices_text
from gui.format import counted
from gui.search.dimension_row import DimensionRow
from gui.search.judging import Request
from gui.search.settings import NO_GOAL, OTHER_GOALS, make_rows, values_of
from gui.search.space_file import read_space, write_space
from gui.sources.background import Background, describe_error, in_background
from gui.titles import model_title
from gui.widgets import file_dialogs
from gui.widgets.editors import ChoiceEditor
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.scroll_panel import scroll_column
from gui.widgets.tab_order import order_tabs

_WIDEST = 760
_KINDS = ("int", "float", "bool", "choice", "text")
_FIRST = "learning_rate"
_OF_GOALS = ("goal", "against")
_FIXED_LATER = ("name", *_OF_GOALS, "sampler", "seed")
_LOCKED = "Can't be changed once trials have begun."


class SearchForm(QWidget):
    """Asks for a new search of the job on screen, or for another budget of one that there is.

    Signals: start_wanted(Search) - it is to be started, or continued as it now is; job_opened(Job) - the job of a
    SPACE.toml is to be put into the window's form; message(str, str) - in plain words, what was done or why not;
    "info" or "warning".
    """

    start_wanted = Signal(object)
    job_opened = Signal(object)
    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.search: Search | None = None
        self.problems: list[Problem] = []
        self._catalogue: Catalogue = load_catalogue()
        self._job: Job | None = None
        self._job_problems: list[Problem] = []
        self._devices: tuple[str, ...] = ()
        self._names: dict[str, str] = {}
        self._report: DatasetReport | None = None
        self._changed: Search | None = None
        self._taken: Collection[str] = ()
        self._judging: Background | None = None
        self._again = self._wanted = False
        self.rows = make_rows()
        self.dimensions: dict[str, DimensionRow] = {}
        self.about = QLabel(wordWrap=True)
        self.devices = QLabel(wordWrap=True)
        self.add = QComboBox()
        self.space_problems, self.device_problems, self.other_problems = ProblemLabel(), ProblemLabel(), ProblemLabel()
        self.start = Action(self, "start_search", "Start the search", "Starts it in processes of its own")
        self.open = Action(self, "open_space", "Open …", "Opens a SPACE.toml")
        self.save = Action(
            self, "save_space", "Save …", "Saves what is asked for as a SPACE.toml, for footplate search"
        )
        self.start_button = bind(QPushButton(), self.start)
        self._soon = QTimer(self, interval=0, singleShot=True)
        self._lay_out()
        self._connect()

    # What the owner tells the form

    def set_job(
        self,
        job: Job | None,
        problems: list[Problem],
        devices: tuple[str, ...],
        names: Mapping[str, str],
        report: DatasetReport | None,
    ) -> None:
        """The job in the window's form, with all that is wrong with it, the devices that are chosen and what GPUs are
        called.
        """
        of_task = self._job.task if self._job is not None else None
        self._devices, self._names, self._report = devices, dict(names), report
        self._job = job.with_fields(name="") if job is not None else None
        self._job_problems = problems if job is None else []
        if job is not None and job.task != of_task:
            self._offer_goals()
        self._offer_fields()
        self._judge_later()

    def focus_field(self, name: str) -> None:
        self.rows[name].editor.control.setFocus()

    def ask_anew(self, taken: Collection[str]) -> None:
        """Asks for a new search; those of the names `taken` are there."""
        self._changed, self._taken = None, taken
        self._lock()
        if not self.dimensions:
            self.vary(_FIRST)
        if not self.rows["name"].value() or self.rows["name"].value() in taken:
            self.rows["name"].set_value(_unused("search", taken))
        self.start.set_appearance(
            "Start the search", "Starts it in processes of its own, which go on when the window is closed"
        )
        self._judge_later()

    def change(self, search: Search) -> None:
        """Asks with which budget, devices, pruning and confirmation a search is to go on."""
        self._changed = search
        self.take(values_of(search))
        self._lock()
        self.start.set_appearance("Continue the search", "Goes on with this budget on these devices")
        self._judge_later()

    def take(self, values: Mapping[str, Any]) -> None:
        """Shows values as they stand in a SPACE.toml."""
        goals = values.get("goals", [])
        goals = [goals] if isinstance(goals, str) else list(goals) if isinstance(goals, list | tuple) else []
        plain = dict.fromkeys(self.rows) | {row.field.name: row.default for row in self.rows.values()}
        plain |= {name: value for name, value in values.items() if name in self.rows}
        plain["trials"] = values.get("trials")
        plain["goal"] = goals[0] if goals else self.rows["goal"].value()
        plain["against"] = goals[1] if len(goals) > 1 else NO_GOAL
        for name, row in self.rows.items():
            row.set_value(plain[name])
        for name in list(self.dimensions):
            self._drop(name)
        space = values.get("space")
        for name, dimension in (space if isinstance(space, Mapping) else {}).items():
            self.vary(name, dimension)

    def vary(self, name: str, dimension: Any = None) -> None:
        """Adds a field to those that vary, over `dimension` where that is given."""
        field = self._field(name)
        if field is None or name in self.dimensions:
            return
        row = DimensionRow(name, field, self._now(name, field))
        if dimension is not None:
            row.set_value(dimension)
        self.dimensions[name] = row
        self._space.addWidget(row)
        row.edited.connect(self._judge_later)
        row.removed.connect(lambda: self._drop(name))
        self._offer_fields()
        self._order_tabs()
        self._judge_later()

    def values(self) -> dict[str, Any]:
        """What is asked for, as it would stand in a SPACE.toml."""
        values = {name: row.value() for name, row in self.rows.items() if name not in _OF_GOALS}
        goals = [self.rows[name].value() for name in _OF_GOALS]
        values["goals"] = [goal for goal in goals if goal != NO_GOAL]
        values["devices"] = list(self._devices)
        values["space"] = {name: row.value() for name, row in self.dimensions.items()}
        return {name: value for name, value in values.items() if value is not None}

    def close_work(self) -> None:
        """Ends what goes on in the background."""
        if self._judging is not None:
            self._judging.finish()

    # Making it

    def _lay_out(self) -> None:
        self.about.setObjectName("muted")
        self.devices.setObjectName("muted")
        self.start_button.setObjectName("primary")
        self.add.setAccessibleName("Add a field to vary")
        column = QWidget()
        column.setMaximumWidth(_WIDEST)
        layout = QVBoxLayout(column)
        layout.setContentsMargins(0, 0, 10, 0)
        layout.setSpacing(8)
        self._space = QVBoxLayout()
        self._space.setSpacing(8)
        layout.addWidget(self.about)
        layout.addWidget(self.rows["name"])
        self._heading(layout, "Fields to vary")
        layout.addLayout(self._space)
        adding = QHBoxLayout()
        adding.addWidget(self.add)
        adding.addStretch(1)
        layout.addLayout(adding)
        layout.addWidget(self.space_problems)
        for title, names in (
            ("Goal", _OF_GOALS),
            ("Budget: no trial starts after whichever comes first", ("trials", "hours", "total_epochs")),
            ("How to search", ("sampler", "pruner", "confirm", "seed")),
        ):
            self._heading(layout, title)
            for name in names:
                layout.addWidget(self.rows[name])
        self._heading(layout, "Devices")
        layout.addWidget(self.devices)
        layout.addWidget(self.device_problems)
        layout.addWidget(self.rows["devices_per_trial"])
        self._heading(layout, "Afterwards")
        for name in ("best_epochs", "keep_checkpoints"):
            layout.addWidget(self.rows[name])
        layout.addStretch(1)
        buttons = QHBoxLayout()
        for button in (bind(QPushButton(), self.open), bind(QPushButton(), self.save)):
            buttons.addWidget(button)
        buttons.addStretch(1)
        buttons.addWidget(self.start_button)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll_column(column), 1)
        outer.addWidget(self.other_problems)
        outer.addLayout(buttons)

    def _heading(self, layout: QVBoxLayout, title: str) -> None:
        label = QLabel(title)
        label.setObjectName("heading")
        layout.addSpacing(6)
        layout.addWidget(label)

    def _connect(self) -> None:
        self._soon.timeout.connect(self._judge)
        for row in self.rows.values():
            row.edited.connect(self._judge_later)
        self.add.activated.connect(self._add)
        self.start.on_trigger(self._start)
        self.open.on_trigger(lambda: file_dialogs.choose(self, "Open a SPACE.toml", "", False, self.open_file))
        self.save.on_trigger(
            lambda: file_dialogs.choose_target(
                self, "Save the search", f"{self.rows['name'].value()}.toml", self.save_file
            )
        )

    def _order_tabs(self) -> None:
        rows = self.rows
        parts = (rows["name"], *self.dimensions.values(), self.add, *(rows[name] for name in rows if name != "name"))
        order_tabs(self, (*parts, *self.findChildren(QPushButton)))

    # What is offered

    def _offer_goals(self) -> None:
        """The measures of the job's task, and what else may be a goal."""
        task = self._catalogue.task(self._job.task) if self._job is not None else None
        measures = [(each.id, each.title, "") for each in (task.metrics if task is not None else ())]
        for name, more in (("goal", []), ("against", [(NO_GOAL, "Nothing: one goal", "")])):
            editor = self.rows[name].editor
            assert isinstance(editor, ChoiceEditor)
            known = [*more, *measures, *OTHER_GOALS]
            if editor.value() not in {value for value, *_ in known}:
                editor.box.clear()
            editor.set_choices(known)

    def _offer_fields(self) -> None:
        """The fields that have an effect in the job and do not vary yet."""
        job = self._job or Job()
        idle = idle_by_entries({name: job.value(name) for name in FIELDS}, self._catalogue)
        names = [name for name in SEARCHABLE if name not in idle and FIELDS[name].kind in _KINDS]
        names += [
            OPTION + field.name for field in self._catalogue.options_of(job.task, job.model.name, job.parallel.strategy)
        ]
        self.add.clear()
        self.add.addItem("Add a field …", "")
        for name in names:
            field = self._field(name)
            if field is not None and name not in self.dimensions:
                self.add.addItem(field.label, name)
                self.add.setItemData(self.add.count() - 1, field.help, 3)  # Qt.ItemDataRole.ToolTipRole

    def _field(self, name: str) -> Field | None:
        job = self._job or Job()
        if not name.startswith(OPTION):
            return FIELDS.get(name)
        options = self._catalogue.options_of(job.task, job.model.name, job.parallel.strategy)
        return next((field for field in options if OPTION + field.name == name), None)

    def _now(self, name: str, field: Field) -> Any:
        job = self._job or Job()
        return job.options.get(field.name, field.default) if name.startswith(OPTION) else job.value(name)

    def _add(self, index: int) -> None:
        name = self.add.itemData(index)
        if name:
            self.vary(name)
            self.dimensions[name].setFocus()

    def _drop(self, name: str) -> None:
        row = self.dimensions.pop(name)
        self._space.removeWidget(row)
        row.hide()
        row.deleteLater()
        self._offer_fields()
        self._judge_later()

    def _lock(self) -> None:
        """What defines the trials stays as it is once they have begun."""
        for name in _FIXED_LATER:
            self.rows[name].lock(_LOCKED if self._changed is not None else "")
        for row in self.dimensions.values():
            row.setEnabled(self._changed is None)
        for widget in (self.add, self.about):
            widget.setVisible(self._changed is None)
        self.open.allow("" if self._changed is None else _LOCKED)

    # Judging it

    def _judge_later(self) -> None:
        self.start.allow("Checking …")
        self._soon.start()

    def _judge(self) -> None:
        """Asks away from the window's thread, since the disk may be slow."""
        if self._judging is not None:
            self._again = True
            return
        job = self._changed.job if self._changed is not None else self._job
        self._tell_job(job)
        if job is None:
            wrong = errors(self._job_problems)
            self._show(
                None, wrong or [Problem("job", "The job in the form is incomplete.", "Correct the marked fields.")]
            )
            return
        request = Request(self.values(), job, self._report, self._taken if self._changed is None else None)
        self._judging = in_background(request.judge, self, lambda found: self._judged(*found), self._failed)

    def _judged(self, search: Search | None, problems: list[Problem]) -> None:
        self._judging = None
        if self._again or self._soon.isActive():
            self._again = False
            self._soon.start()
            return
        self._show(search, problems)

    def _failed(self, error: Exception) -> None:
        self._judging = None
        raise error

    def _show(self, search: Search | None, problems: list[Problem]) -> None:
        self.search, self.problems = search, problems
        left = list(problems)

        def those(*fields: str) -> tuple[Problem, ...]:
            found = tuple(problem for problem in left if problem.field in fields)
            left[:] = [problem for problem in left if problem.field not in fields]
            return found

        for name, dimension in self.dimensions.items():
            dimension.show_problems(those(f"space.{name}"))
        for name, row in self.rows.items():
            row.show_problems(those(name, "goals") if name == "goal" else those(name))
        self.device_problems.show_problems(those("devices"))
        self.space_problems.show_problems(those("space"))
        self.other_problems.show_problems(tuple(left))
        wrong = errors(problems)
        self.start.allow("" if search is not None and not wrong else "Correct what is marked")
        self.save.allow("" if search is not None else "Correct what is marked")
        if self._wanted:
            self._wanted = False
            self._start()

    def _tell_job(self, job: Job | None) -> None:
        if job is not None:
            what = f"{model_title(job.model.name)} on {Path(job.data.dataset).name or 'no dataset'}"
            self.about.setText(
                f"All trials train the job in the form: {what}, {counted(job.training.epochs, 'epoch')} each."
            )
        per = max(1, self.rows["devices_per_trial"].value() or 1)
        at_once = len(self._devices) // per
        runs = f"{counted(at_once, 'trial')} at once" if at_once else "too few for a trial"
        self.devices.setText(f"Selected under Devices: {devices_text(self._devices, self._names)} ({runs}).")

    def _start(self) -> None:
        if self._soon.isActive() or self._judging is not None:
            self._wanted = True  # as soon as it is known whether it can
        elif self.search is not None and self.start.ready:
            self.start_wanted.emit(self.search)

    # Files

    def open_file(self, path: str) -> None:
        """Shows the search of a SPACE.toml, and has its job put into the window's form."""
        in_background(lambda: read_space(Path(path)), self, lambda read: self._opened(*read), self._failed)

    def _opened(self, values: dict[str, Any], job: Job | None, wrong: list[Problem]) -> None:
        if wrong:
            self.message.emit(" ".join(map(str, wrong)), "warning")
        if not values:
            return
        if job is not None:
            self._job = job
            self._offer_goals()
            self.job_opened.emit(job)
        self.take(values)
        unknown = [name for name in (values.get("space") or {}) if name not in self.dimensions]
        if unknown:
            self.message.emit(f"Left out, since this job has no such fields: {', '.join(unknown)}.", "warning")

    def save_file(self, path: Path) -> None:
        """Writes what is asked for, with its job."""
        job, values = self._job, self.values()
        if job is not None:
            in_background(
                lambda: write_space(path, values, job),
                self,
                lambda _none: self.message.emit(f"The search was saved to {path}.", "info"),
                lambda error: self.message.emit(f"The search could not be saved: {describe_error(error)}.", "warning"),
            )


def _unused(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, with a number behind it where a search has that name."""
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted} {number}"
    return name
