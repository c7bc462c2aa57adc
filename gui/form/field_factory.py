"""Rows for the form's fields and options, with an editor for each type of field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QToolButton, QVBoxLayout, QWidget

from engine.contract.catalogue import Catalogue, Measure, TaskEntry
from engine.contract.job import AUTO_STRATEGY, Field
from engine.contract.problems import Problem
from gui.form.editors import CutsEditor, ModelPicker
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

FINDER_TIPS = {
    "strategy": tr("Try strategies, device counts and settings on the checked devices, and rank them by speed"),
    "batch_size": tr("Find the largest batch size that fits, and measure the speed of each size"),
    "learning_rate": tr("Find a learning rate with a short training at a rising rate"),
}
"""Tool tips of the buttons that open finders, by field."""


class FindButton(QToolButton):
    """Button next to an editor that opens the finder for the field."""

    def __init__(self, row: FieldRow) -> None:
        super().__init__()
        self.setToolTip(FINDER_TIPS[row.field.name])
        if row.field.name == "strategy":  # this field's finder also sets other fields
            self.setText(tr("Advise…"))
            self.setAccessibleName(tr("Advise on the strategy"))
        else:
            self.setAccessibleName(f"Find {row.field.label.lower()}")
            self.setIconSize(QSize(14, 14))
            self.setIcon(icons.icon("find", "muted"))
        layout = row.editor.layout()
        assert layout is not None
        layout.addWidget(self)


def make_row(field: Field, catalogue: Catalogue, stacked: bool) -> FieldRow:
    """Create a row for `field` with its default value. If `stacked`, the label is above the editor."""
    editor = _editor(field, catalogue)
    editor.set_value(field.default)
    return FieldRow(field, editor, field.default, stacked)


def _editor(field: Field, catalogue: Catalogue) -> Editor:
    """Create the editor for a field: by its choices, its name, or the kind of its value."""
    choices = choices_of(field, catalogue)
    if choices:
        return ChoiceEditor(choices)
    special = {
        "model": lambda: ModelPicker(catalogue.models),
        "recipe": RecipeEditor,
        "dataset": lambda: PathEditor(
            "the dataset folder", folder=True, placeholder=tr("Type a path, browse, or drop a folder")
        ),
        "weights_file": lambda: PathEditor("a weights file", placeholder="none"),
        "resume_from": lambda: PathEditor("a checkpoint to continue from", placeholder="the beginning"),
        "format": lambda: ChoiceEditor([RECOGNIZE]),
        "cuts": CutsEditor,
        "encoder": lambda: TextEditor("resnet34", catalogue.encoders),
    }
    by_kind: dict[str, Callable[[], Editor]] = {
        "int": lambda: IntEditor(field, EMPTY.get(field.name, "automatic")),
        "float": lambda: FloatEditor(field.optional, EMPTY.get(field.name, "")),
        "list": lambda: ListEditor(str),
        "ints": lambda: ListEditor(int),
        "bool": BoolEditor,
        "text": lambda: TextEditor("optional"),
    }
    return (special.get(field.name) or by_kind[field.kind])()


def choices_of(field: Field, catalogue: Catalogue) -> list[tuple[str, str, str]]:
    """Return the choices of a field as (value, title, help), or an empty list if any value is possible."""
    if field.name == "task":
        return [(task.id, task.title, "") for task in catalogue.tasks]
    if field.name == "strategy":
        automatic = (AUTO_STRATEGY, strategy_title(AUTO_STRATEGY), tr("Chosen for the checked devices"))
        return [automatic, *((entry.id, entry.title, entry.summary) for entry in catalogue.strategies)]
    if field.name == "best_by":
        return metric_choices(catalogue, None)
    return [(value, CHOICES.get(value, value), "") for value in field.choices]


def metric_choices(
    catalogue: Catalogue, task: TaskEntry | None, of_file: Sequence[Measure] = ()
) -> list[tuple[str, str, str]]:
    """Return the metrics that can select the best checkpoint, as (value, title, help). "" is the task's default.

    Args:
        catalogue: Catalogue of tasks.
        task: Task of the job, or None for the metrics of all tasks.
        of_file: Metrics that the task's Python file defines, which come first.
    """
    listed = [*of_file, *(m for one in (catalogue.tasks if task is None else (task,)) for m in one.metrics)]
    are_metrics_known = task is not None and (not task.file or of_file)
    default = tr("Task default ({title})").format(title=listed[0].title) if are_metrics_known else tr("Task default")
    return [("", default, ""), *((name, title, "") for name, title in {m.id: m.title for m in listed}.items())]


PREFIX = "options."
"""Prefix of option names in problems."""


class OptionRows(QWidget):
    """Rows for the options, which are hidden if there are none. Options that aren't offered keep their values.

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
        self._set: dict[str, Any] = {}  # values by option, including options without a row
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        self.hide()

    def offer(self, fields: tuple[Field, ...], catalogue: Catalogue) -> None:
        """Replace the rows by rows for `fields`, with the values that were set for them. Hide without fields."""
        if fields == self._fields:
            return
        self._fields = fields
        for row in self.rows.values():
            row.deleteLater()
        self.rows = {field.name: make_row(field, catalogue, stacked=False) for field in fields}
        layout = self.layout()
        assert layout is not None
        for row in self.rows.values():
            layout.addWidget(row)
        self._show_set()
        for row in self.rows.values():
            row.edited.connect(self._edited)
            row.chosen.connect(self.chosen)
        self.setVisible(bool(fields))

    def values(self) -> dict[str, Any]:
        """Return the options whose values aren't the default."""
        return {name: row.value() for name, row in self.rows.items() if row.value() != row.default}

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Show these values, and the defaults of the other options."""
        self._set = dict(values)
        self._show_set()

    def label(self, field: str) -> str | None:
        """Return the label of a problem's field, or None if that isn't a visible option."""
        row = self.rows.get(field.removeprefix(PREFIX)) if field.startswith(PREFIX) else None
        return row.field.label if row is not None else None

    def show_problems(self, problems: Sequence[Problem]) -> None:
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in problems if problem.field == PREFIX + name))

    @property
    def has_error(self) -> bool:
        return any(row.has_error for row in self.rows.values())

    def _show_set(self) -> None:
        values = dict(self._set)  # each edit below overwrites it
        for name, row in self.rows.items():
            row.set_value(values.get(name, row.default))

    def _edited(self) -> None:
        self._set = {name: value for name, value in self._set.items() if name not in self.rows} | self.values()
        self.edited.emit()
