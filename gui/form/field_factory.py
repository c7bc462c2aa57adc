"""Rows for the form's fields and options, with an editor for each type of field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QToolButton, QWidget

from engine.contract.catalogue import Catalogue, Measure, TaskEntry
from engine.contract.job import AUTO_STRATEGY, Field
from engine.contract.problems import Problem
from gui.form.editors import ModelPicker, SplitPointsEditor
from gui.form.field_row import FieldRow
from gui.form.followers import RECOGNIZE
from gui.form.recipes import RecipeEditor
from gui.style import icons
from gui.titles import CHOICES, EMPTY, strategy_title
from gui.translation import tr
from gui.widgets.editors import (
    BoolEditor,
    ChoiceEditor,
    Editor,
    FloatEditor,
    IntEditor,
    ListEditor,
    PathEditor,
    TextEditor,
)
from gui.widgets.layouts import vbox

FINDER_TIPS = {
    "strategy": tr("Try strategies, device counts and settings on the checked devices, and rank them by speed"),
    "batch_size": tr("Find the largest batch size that fits, and measure the speed of each size"),
    "learning_rate": tr("Find a learning rate with a short training at a rising rate"),
}
"""Tool tips of the buttons that open the pages for finding a value, by field."""


class FindButton(QToolButton):
    """Button next to an editor that opens the page for finding a good value of the editor's field."""

    def __init__(self, row: FieldRow) -> None:
        super().__init__()
        self.setToolTip(FINDER_TIPS[row.field.name])
        if row.field.name == "strategy":  # this field's finder also sets other fields
            self.setText(tr("Advise…"))
            self.setAccessibleName(tr("Advise on the strategy"))
        else:
            self.setAccessibleName(tr("Find {field}").format(field=row.field.label.lower()))
            self.setIconSize(QSize(14, 14))
            self.setIcon(icons.icon("find", "muted"))
        row.editor.add_button(self)


def make_row(field: Field, catalogue: Catalogue, stacked: bool) -> FieldRow:
    """Create a row for `field` with its default value. If `stacked`, the label is above the editor."""
    return FieldRow(field, partial(_make_editor, field, catalogue), field.default, stacked)


def _make_editor(field: Field, catalogue: Catalogue) -> Editor:
    """Create the editor for `field`.

    A field with choices gets a list of them. Otherwise the name of the field or, for most fields, the type of its value
    determines the editor.
    """
    choices = list_choices(field, catalogue)
    if choices:
        return ChoiceEditor(choices)
    by_name: dict[str, Callable[[], Editor]] = {
        "model": lambda: ModelPicker(catalogue.models),
        "recipe": RecipeEditor,
        "dataset": lambda: PathEditor(
            tr("the dataset folder"), folder=True, placeholder=tr("Type a path, browse, or drop a folder")
        ),
        "weights_file": lambda: PathEditor(tr("a weights file"), placeholder=tr("none")),
        "resume_from": lambda: PathEditor(tr("a checkpoint to continue from"), placeholder=tr("the beginning")),
        "format": lambda: ChoiceEditor([RECOGNIZE]),
        "split_points": SplitPointsEditor,
        "encoder": lambda: TextEditor("resnet34", catalogue.encoders),
    }
    by_kind: dict[str, Callable[[], Editor]] = {
        "int": lambda: IntEditor(field, EMPTY.get(field.name, tr("automatic"))),
        "float": lambda: FloatEditor(field.optional, EMPTY.get(field.name, "")),
        "list": lambda: ListEditor(str),
        "ints": lambda: ListEditor(int),
        "bool": BoolEditor,
        "text": lambda: TextEditor(tr("optional")),
    }
    make_editor = by_name.get(field.name) or by_kind[field.kind]
    return make_editor()


def list_choices(field: Field, catalogue: Catalogue) -> list[tuple[str, str, str]]:
    """Return the choices of a field as (value, title, help), or an empty list if any value is possible."""
    if field.name == "task":
        return [(task.id, task.title, "") for task in catalogue.tasks]
    if field.name == "strategy":
        automatic = (AUTO_STRATEGY, strategy_title(AUTO_STRATEGY), tr("Chosen for the checked devices"))
        return [automatic, *((entry.id, entry.title, entry.summary) for entry in catalogue.strategies)]
    if field.name == "best_by":
        return list_metric_choices(catalogue, None)
    return [(value, CHOICES.get(value, value), "") for value in field.choices]


def list_metric_choices(
    catalogue: Catalogue, task: TaskEntry | None, of_file: Sequence[Measure] = ()
) -> list[tuple[str, str, str]]:
    """Return the metrics that can select the best checkpoint, as (value, title, help). "" is the task's default.

    Without `task`, the metrics of all tasks are returned. The metrics in `of_file`, which the task's Python file
    defines, come first. The first metric of a task is its default.
    """
    tasks = catalogue.tasks if task is None else (task,)
    metrics = [*of_file, *(metric for each in tasks for metric in each.metrics)]
    are_metrics_known = task is not None and (not task.file or of_file)
    default = tr("Task default ({title})").format(title=metrics[0].title) if are_metrics_known else tr("Task default")
    titles = {metric.id: metric.title for metric in metrics}  # tasks share metrics
    return [("", default, ""), *((name, title, "") for name, title in titles.items())]


OPTION_PREFIX = "options."
"""Prefix of option names in problems."""


class OptionRows(QWidget):
    """Rows for the options of a task, model and strategy. Options without a row keep their values.

    Signals:
        edited(): a value may have changed.
        chosen(Choice): the user has selected a remedy for a problem.
    """

    edited = Signal()
    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, FieldRow] = {}
        self._fields: tuple[Field, ...] = ()
        self._values_by_option: dict[str, Any] = {}  # also of options without a row
        self._column = vbox()
        self.setLayout(self._column)
        self.hide()

    def offer(self, fields: tuple[Field, ...], catalogue: Catalogue) -> None:
        """Replace the rows by rows for `fields`, which show the options' current values.

        Hide the widget if there are none. Do nothing if the fields are still the same, since their rows are up to date.
        """
        if fields == self._fields:
            return
        self._fields = fields
        for row in self.rows.values():
            row.deleteLater()
        self.rows = {field.name: make_row(field, catalogue, stacked=False) for field in fields}
        for row in self.rows.values():
            row.create_widgets()
            self._column.addWidget(row)
        self._show_values()
        for row in self.rows.values():
            row.edited.connect(self._on_edited)
            row.chosen.connect(self.chosen)
        self.setVisible(bool(fields))

    def values(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, by option."""
        return {name: row.value() for name, row in self.rows.items() if row.value() != row.default}

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Show these values, and the defaults of the other options."""
        self._values_by_option = dict(values)
        self._show_values()

    def label(self, field: str) -> str | None:
        """Return the label of the option that a problem's `field` names, or None if it isn't an option with a row."""
        row = self.rows.get(field.removeprefix(OPTION_PREFIX)) if field.startswith(OPTION_PREFIX) else None
        return row.field.label if row is not None else None

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Show problems next to the options that they are about. Problems with other fields are ignored."""
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in problems if problem.field == OPTION_PREFIX + name))

    @property
    def has_error(self) -> bool:
        """Return True if a visible option has an error."""
        return any(row.has_error for row in self.rows.values())

    def _show_values(self) -> None:
        """Show the value that was set for each visible option, or its default."""
        values = dict(self._values_by_option)  # each edit below overwrites it
        for name, row in self.rows.items():
            row.set_value(values.get(name, row.default))

    def _on_edited(self) -> None:
        """Store the values in the rows, keep the stored values of options without a row, and emit `edited`."""
        without_row = {name: value for name, value in self._values_by_option.items() if name not in self.rows}
        self._values_by_option = without_row | self.values()
        self.edited.emit()
