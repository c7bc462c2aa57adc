"""Which editor a field gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.contract.catalogue import Catalogue, Measure, TaskEntry
from engine.contract.job import Field
from gui.form.cuts_editor import CutsEditor
from gui.form.field_row import FieldRow
from gui.form.format_choice import RECOGNIZE
from gui.form.model_picker import ModelPicker
from gui.form.recipes import RecipeEditor
from gui.titles import CHOICES, EMPTY
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


def make_row(field: Field, catalogue: Catalogue, stacked: bool) -> FieldRow:
    """The row for `field`, at its default."""
    editor = _editor(field, catalogue)
    editor.set_value(field.default)
    return FieldRow(field, editor, field.default, stacked)


def _editor(field: Field, catalogue: Catalogue) -> Editor:
    choices = choices_of(field, catalogue)
    if choices:
        return ChoiceEditor(choices)
    special = {
        "model": lambda: ModelPicker(catalogue.models),
        "recipe": RecipeEditor,
        "dataset": lambda: PathEditor("the dataset folder", True, "Type a path, browse, or drop a folder"),
        "weights_file": lambda: PathEditor("a weights file", False, "none"),
        "resume_from": lambda: PathEditor("a checkpoint to continue from", False, "the beginning"),
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
    """The values to choose from as (value, title, help); none where the field is free."""
    if field.name == "task":
        return [(task.id, task.title, "") for task in catalogue.tasks]
    if field.name == "strategy":
        return [(entry.id, entry.title, entry.summary) for entry in catalogue.strategies]
    if field.name == "best_by":
        return measure_choices(catalogue, None)
    return [(value, CHOICES.get(value, value), "") for value in field.choices]


def measure_choices(
    catalogue: Catalogue, task: TaskEntry | None, of_file: Sequence[Measure] = ()
) -> list[tuple[str, str, str]]:
    """What the best checkpoint may be chosen by: the measures of `task`, before which are those of the file that says
    what is learnt, or the measures of all tasks.
    """
    listed = [*of_file, *(m for one in (catalogue.tasks if task is None else (task,)) for m in one.measures)]
    known = task is not None and (not task.file or of_file)
    own = f"Task default ({listed[0].title})" if known else "Task default"
    return [("", own, ""), *((name, title, "") for name, title in {m.id: m.title for m in listed}.items())]
