"""Search form: fields to vary, goals, budget and method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.idle_fields import find_idle_by_entries
from engine.contract.job import FIELDS, Field, Job
from engine.contract.problems import Problem, errors
from engine.contract.search import CONFIRMED, OPTION, SEARCHABLE, Search
from gui.actions import Action, bind
from gui.form.environment import format_device_list
from gui.format import counted
from gui.search.dimension_row import (
    NO_GOAL,
    OTHER_GOALS,
    SIZE_FIELDS,
    DimensionRow,
    make_rows,
    suggest_dimension,
    suggest_image_sizes,
)
from gui.search.search_file import ValidationRequest, make_values, read_space, write_space
from gui.sources.background import SingleFlight, describe_error, in_background, reraise
from gui.style import theme
from gui.titles import model_title
from gui.translation import tr
from gui.widgets import file_dialogs
from gui.widgets.buttons import styled
from gui.widgets.editors import ChoiceEditor, ComboBox
from gui.widgets.labels import ProblemLabel, heading_label, muted_label
from gui.widgets.layouts import hbox, scroll_column, vbox
from gui.widgets.tab_order import order_tabs

_MAX_WIDTH = 760
_KINDS = ("int", "float", "bool", "choice", "text")
_FIRST_FIELD = "learning_rate"
_GOAL_ROWS = ("goal", "against")
_LOCKED_ROWS = ("name", *_GOAL_ROWS, "sampler", "seed")
_LOCKED = tr("Can't be changed once trials have begun.")
_SECTIONS = (
    (tr("Goal"), _GOAL_ROWS),
    (tr("Budget (stops at the first limit reached)"), ("trials", "hours", "total_epochs")),
    (tr("How to search"), ("sampler", "pruner", "confirm", "seed")),
)


class _Validated(NamedTuple):
    """Result of a validation. The search is None if there are errors.

    The values were those after `edit_count` edits.
    """

    edit_count: int
    search: Search | None
    problems: list[Problem]


class SearchForm(QWidget):
    """Form for a new search that varies the window's job, or for changing an existing search.

    Signals:
        start_requested(Search): the user wants to start or continue the search.
        job_opened(Job): a SPACE.toml with a job has been opened.
        message(str, str): a message for the user and its severity, "info" or "warning".
    """

    start_requested = Signal(object)
    job_opened = Signal(object)
    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        # Result of the last validation. The search is None if it has errors.
        self.search: Search | None = None
        self.problems: list[Problem] = []
        self._catalogue: Catalogue = load_catalogue()
        self._job: Job | None = None
        self._job_problems: list[Problem] = []  # empty while the job is valid
        self._devices: tuple[str, ...] = ()
        self._device_names: dict[str, str] = {}
        self._report: DatasetReport | None = None
        self._existing: Search | None = None  # search that is being changed, or None for a new one
        self._taken_names: Collection[str] = ()  # names of other searches
        self._edit_count = 0  # the number of edits tells outdated validations apart
        self.rows = make_rows()
        self.dimensions: dict[str, DimensionRow] = {}  # by name of the varied field
        self.about = muted_label(word_wrap=True)
        self.devices = muted_label(word_wrap=True)
        self.add = ComboBox()
        self.space_problems, self.device_problems, self.other_problems = ProblemLabel(), ProblemLabel(), ProblemLabel()
        self.start = Action(self, "start_search", tr("Start the search"), "")
        self.open = Action(self, "open_space", tr("Open…"), tr("Open a SPACE.toml"))
        self.save = Action(self, "save_space", tr("Save…"), tr("Save the search as a SPACE.toml, for footplate search"))
        self._validation = SingleFlight(self, self._next_validation, self._on_validated, reraise)
        self._timer = QTimer(self, interval=0, singleShot=True)
        self._timer.timeout.connect(self._validation.request)
        self._lay_out()
        self._connect()

    def set_job(
        self,
        job: Job | None,
        problems: list[Problem],
        devices: tuple[str, ...],
        names: Mapping[str, str],
        report: DatasetReport | None,
    ) -> None:
        """Set the window's job, which is None if it has errors, and the report on its dataset.

        `devices` are checked in the devices panel. `names` contains titles of GPUs by the keys that jobs use.
        """
        previous_task = self._job.task if self._job is not None else None
        self._devices, self._device_names, self._report = devices, dict(names), report
        self._job = job.with_fields(name="") if job is not None else None
        self._job_problems = problems if job is None else []
        if job is not None and job.task != previous_task:
            self._update_goals()
        self._update_addable_fields()
        self._schedule_validation()

    def focus_field(self, name: str) -> None:
        self.rows[name].editor.control.setFocus()

    def reset(self, taken: Collection[str]) -> None:
        """Prepare the form for a new search. `taken` are the names of existing searches.

        The values remain, but an empty or taken name is replaced by an unused one.
        """
        self._existing, self._taken_names = None, taken
        self._update_locked_fields()
        if not self.dimensions:
            self.vary(_FIRST_FIELD)
        if not self.rows["name"].value() or self.rows["name"].value() in taken:
            self.rows["name"].set_value(_make_unused_name(taken))
        self.start.set_appearance(
            tr("Start the search"), tr("Start it in separate processes; you can close the window")
        )
        self._schedule_validation()

    def show_search(self, search: Search) -> None:
        """Show budget, devices, pruning and confirmation of an existing search for editing."""
        self._existing = search
        self.set_values(make_values(search))
        self._update_locked_fields()
        self.start.set_appearance(tr("Continue the search"), tr("Continue with this budget on these devices"))
        self._schedule_validation()

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Show the values of a SPACE.toml."""
        goals = values.get("goals")
        if isinstance(goals, str):
            goals = [goals]
        elif not isinstance(goals, list | tuple):  # a file may contain anything
            goals = []
        row_values = {name: values.get(name, row.default) for name, row in self.rows.items()}
        row_values["trials"] = values.get("trials")  # a missing number means no limit, not the default of a new search
        # A search always has a goal. Its default depends on the task, so the visible one is kept.
        row_values["goal"] = goals[0] if goals else self.rows["goal"].value()
        row_values["against"] = goals[1] if len(goals) > 1 else NO_GOAL
        for name, row in self.rows.items():
            row.set_value(row_values[name])
        for name in list(self.dimensions):
            self._remove_dimension(name)
        space = values.get("space")
        if isinstance(space, Mapping):
            for name, dimension in space.items():
                self.vary(name, dimension)

    def vary(self, name: str, dimension: Any = None) -> None:
        """Add the field `name` to those that the search varies.

        If `dimension` (the values to try) is None, suggest one.

        Unknown fields and those that are already varied are ignored.
        """
        field = self._find_field(name)
        if field is None or name in self.dimensions:
            return
        row = DimensionRow(name, field, self._suggest_dimension(name, field) if dimension is None else dimension)
        self.dimensions[name] = row
        self._space.addWidget(row)
        row.edited.connect(self._schedule_validation)
        row.removed.connect(lambda: self._remove_dimension(name))
        self._update_addable_fields()
        self._order_tabs()
        self._schedule_validation()

    def values(self) -> dict[str, Any]:
        """Return the entered values, structured as in a SPACE.toml file. Empty ones are left out."""
        values = {name: row.value() for name, row in self.rows.items() if name not in _GOAL_ROWS}
        goals = [self.rows[name].value() for name in _GOAL_ROWS]
        values["goals"] = [goal for goal in goals if goal != NO_GOAL]
        values["devices"] = list(self._devices)
        values["space"] = {name: row.value() for name, row in self.dimensions.items()}
        return {name: value for name, value in values.items() if value is not None}

    def close_work(self) -> None:
        """Stop the background validation when the window closes."""
        self._validation.finish()

    def _lay_out(self) -> None:
        column = QWidget()
        theme.scale_with_text(column.setMaximumWidth, _MAX_WIDTH)
        self._space = vbox()
        self.add.setAccessibleName(tr("Add a field to vary"))
        layout = vbox(self.about, self.rows["name"], margins=(0, 0, 10, 0))
        column.setLayout(layout)
        _add_section(layout, tr("Fields to vary"))
        layout.addLayout(self._space)
        layout.addLayout(hbox(self.add, 1))
        layout.addWidget(self.space_problems)
        for title, names in _SECTIONS:
            _add_section(layout, title, *(self.rows[name] for name in names))
        _add_section(layout, tr("Devices"), self.devices, self.device_problems, self.rows["devices_per_trial"])
        _add_section(layout, tr("Afterwards"), self.rows["best_epochs"], self.rows["keep_checkpoints"])
        layout.addStretch(1)
        start_button = styled(bind(QPushButton(), self.start), "primary")
        buttons = hbox(bind(QPushButton(), self.open), bind(QPushButton(), self.save), 1, start_button)
        self.setLayout(vbox((scroll_column(column), 1), self.other_problems, buttons))

    def _connect(self) -> None:
        """Validate after each edit, and connect the buttons."""
        for row in self.rows.values():
            row.edited.connect(self._schedule_validation)
        self.add.activated.connect(self._add_dimension)
        self.start.on_trigger(self._start)
        self.open.on_trigger(lambda: file_dialogs.choose_path(self, tr("Open a SPACE.toml"), self.open_file))
        self.save.on_trigger(
            lambda: file_dialogs.choose_target(
                self, tr("Save the search"), f"{self.rows['name'].value()}.toml", self.save_file
            )
        )

    def _order_tabs(self) -> None:
        """Set the tab order: name, varied fields, other options, buttons."""
        rows = self.rows
        parts = (rows["name"], *self.dimensions.values(), self.add, *(rows[name] for name in rows if name != "name"))
        order_tabs(self, (*parts, *self.findChildren(QPushButton)))

    def _update_goals(self) -> None:
        """Offer the metrics of the job's task and `OTHER_GOALS` as goals. A goal that isn't offered is deselected."""
        task = self._catalogue.task(self._job.task) if self._job is not None else None
        metrics = [(metric.id, metric.title, "") for metric in (task.metrics if task is not None else ())]
        no_second_goal = (NO_GOAL, tr("None (single goal)"), "")
        for name, first_choices in (("goal", []), ("against", [no_second_goal])):
            editor = self.rows[name].editor
            assert isinstance(editor, ChoiceEditor)
            choices = [*first_choices, *metrics, *OTHER_GOALS]
            if editor.value() not in {value for value, *_ in choices}:
                editor.box.clear()  # otherwise the goal of another task would remain
            editor.set_choices(choices)

    def _update_addable_fields(self) -> None:
        """Offer the fields that affect the job and aren't varied."""
        job = self._job or Job()
        idle = find_idle_by_entries({name: job.value(name) for name in FIELDS}, self._catalogue)
        names = [name for name in SEARCHABLE if name not in idle and FIELDS[name].kind in _KINDS]
        names += self._list_available_options()
        self.add.clear()
        self.add.addItem(tr("Add a field…"), "")
        for name in names:
            field = self._find_field(name)
            if field is not None and name not in self.dimensions:
                self.add.addItem(field.label, name)
                self.add.setItemData(self.add.count() - 1, field.help, Qt.ItemDataRole.ToolTipRole)

    def _list_available_options(self) -> dict[str, Field]:
        """Return the options of the job's task, model and strategy, by their names in a search space."""
        job = self._job or Job()
        options = self._catalogue.options_of(job.task, job.model.name, job.resolved_strategy)
        return {OPTION + field.name: field for field in options}

    def _find_field(self, name: str) -> Field | None:
        """Return the description of a field or option, or None if the job has none of this name."""
        return self._list_available_options().get(name) if name.startswith(OPTION) else FIELDS.get(name)

    def _suggest_dimension(self, name: str, field: Field) -> Any:
        """Suggest values to try for the field or option `name`, whose description is `field`."""
        job = self._job or Job()
        if name in SIZE_FIELDS:
            return suggest_image_sizes(name, job, self._catalogue.model(job.model.name))
        is_option = name.startswith(OPTION)
        return suggest_dimension(field, job.options.get(field.name, field.default) if is_option else job.value(name))

    def _add_dimension(self, index: int) -> None:
        """Vary the field at this index of the list "Add a field…"."""
        name = self.add.itemData(index)
        if name:  # the first entry has none
            self.vary(name)
            self.dimensions[name].setFocus()

    def _remove_dimension(self, name: str) -> None:
        """Stop varying the field `name`, so that all trials use the job's value."""
        row = self.dimensions.pop(name)
        self._space.removeWidget(row)
        row.hide()
        row.deleteLater()
        self._update_addable_fields()
        self._schedule_validation()

    def _update_locked_fields(self) -> None:
        """Disable the fields that define the trials while an existing search is edited. Otherwise, enable them."""
        is_new = self._existing is None
        for name in _LOCKED_ROWS:
            self.rows[name].lock("" if is_new else _LOCKED)
        for row in self.dimensions.values():
            row.setEnabled(is_new)
        for widget in (self.add, self.about):
            widget.setVisible(is_new)
        self.open.set_disabled_reason("" if is_new else _LOCKED)

    def _schedule_validation(self) -> None:
        """Validate after the current event. The search can't be started until then."""
        self._edit_count += 1
        self.start.set_disabled_reason(tr("Checking…"))
        self._timer.start()

    def _next_validation(self) -> Callable[[], _Validated] | None:
        """Return a function that validates the current values on a worker thread, or None if the job is invalid.

        Also updates the description of the trials and, if the job is invalid, shows its problems.
        """
        job = self._existing.job if self._existing is not None else self._job
        self._describe_trials(job)
        if job is None:
            incomplete = Problem("job", tr("The job in the form is incomplete."), tr("Correct the marked fields."))
            self._show_validated(None, errors(self._job_problems) or [incomplete])
            return None
        taken = self._taken_names if self._existing is None else None
        request, edit_count = ValidationRequest(self.values(), job, self._report, taken), self._edit_count
        return lambda: _Validated(edit_count, *request.validate())

    def _on_validated(self, validated: _Validated) -> None:
        """Show the result of a validation, unless the form has been edited since."""
        if validated.edit_count == self._edit_count:
            self._show_validated(validated.search, validated.problems)

    def _show_validated(self, search: Search | None, problems: list[Problem]) -> None:
        """Show the problems next to their fields, and allow starting the `search` if there are none."""
        self.search, self.problems = search, problems
        remaining = list(problems)

        def pop_problems(*fields: str) -> tuple[Problem, ...]:
            """Remove the problems with these fields from `remaining` and return them."""
            found = tuple(problem for problem in remaining if problem.field in fields)
            remaining[:] = [problem for problem in remaining if problem.field not in fields]
            return found

        for name, dimension in self.dimensions.items():
            dimension.show_problems(pop_problems(f"space.{name}"))
        for name, row in self.rows.items():
            row.show_problems(pop_problems(name, "goals") if name == "goal" else pop_problems(name))
        self.device_problems.show_problems(pop_problems("devices"))
        self.space_problems.show_problems(pop_problems("space"))
        self.other_problems.show_problems(tuple(remaining))
        self.start.set_disabled_reason(
            "" if search is not None and not errors(problems) else tr("Correct the marked fields")
        )
        self.save.set_disabled_reason("" if search is not None else tr("Correct the marked fields"))

    def _compute_max_confirmations(self) -> int:
        """Return the maximum number of runs that are started to confirm the best trials and the unchanged job."""
        max_confirmed = CONFIRMED + 1
        confirmed = min(max_confirmed, self.rows["trials"].value() or max_confirmed)  # None if trials are not limited
        return int(self.rows["confirm"].value() or 0) * confirmed

    def _describe_trials(self, job: Job | None) -> None:
        """Show what each trial trains (unless `job` is None), and how many trials the selected devices run at once."""
        if job is not None:
            text = tr("Each trial trains the current job ({model} on {dataset}, {epochs}).").format(
                model=model_title(job.model.name),
                dataset=Path(job.data.dataset).name or tr("no dataset"),
                epochs=counted(job.training.epochs, "epoch"),
            )
            repeats = self._compute_max_confirmations()
            if repeats:
                text += " " + tr("To confirm the best, up to {runs} with other seeds follow.").format(
                    runs=counted(repeats, "more run")
                )
            self.about.setText(text)
        per_trial = max(1, self.rows["devices_per_trial"].value() or 1)
        parallel_trials = len(self._devices) // per_trial
        trials = (
            tr("{trials} at once").format(trials=counted(parallel_trials, "trial"))
            if parallel_trials
            else tr("too few for a trial")
        )
        self.devices.setText(
            tr("Selected under Devices: {devices} ({trials}).").format(
                devices=format_device_list(self._devices, self._device_names), trials=trials
            )
        )

    def _start(self) -> None:
        """Emit `start_requested` if the search is valid. The action is disabled during a validation."""
        if self.search is not None:
            self.start_requested.emit(self.search)

    def open_file(self, path: str) -> None:
        """Read a SPACE.toml, show its search, and emit `job_opened` with its job."""
        in_background(lambda: read_space(Path(path)), self, lambda read: self._on_opened(*read), reraise)

    def _on_opened(self, values: dict[str, Any], job: Job | None, problems: list[Problem]) -> None:
        """Put the contents of a SPACE.toml into the form. Report problems and fields that the job doesn't have.

        Nothing changes if `values` is empty, because the file couldn't be read.
        """
        if problems:
            self.message.emit(" ".join(map(str, problems)), "warning")
        if not values:
            return
        if job is not None:
            self._job = job
            self._update_goals()
            self.job_opened.emit(job)
        self.set_values(values)
        unknown = [name for name in (values.get("space") or {}) if name not in self.dimensions]
        if unknown:
            self.message.emit(tr("Ignored, not in this job: {unknown}.").format(unknown=", ".join(unknown)), "warning")

    def save_file(self, path: Path) -> None:
        """Write the values and the job to a SPACE.toml."""
        job, values = self._job, self.values()
        if job is not None:
            in_background(
                lambda: write_space(path, values, job),
                self,
                lambda _none: self.message.emit(tr("Search saved to {path}.").format(path=path), "info"),
                lambda error: self.message.emit(
                    tr("Couldn't save the search: {error}.").format(error=describe_error(error)), "warning"
                ),
            )


def _add_section(layout: QVBoxLayout, title: str, *widgets: QWidget) -> None:
    """Add a title and `widgets` below it to a layout."""
    layout.addSpacing(6)
    for widget in (heading_label(title), *widgets):
        layout.addWidget(widget)


def _make_unused_name(taken: Collection[str]) -> str:
    """Return "search" or, if this name is in `taken`, the first of "search 2", "search 3" and so on that isn't."""
    name, number = "search", 1
    while name in taken:
        number += 1
        name = f"search {number}"
    return name
