"""Rows for all fields of the visible job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from PySide6.QtCore import QObject

from engine.contract.catalogue import Catalogue
from engine.contract.job import FIELDS, Job
from engine.contract.job_fields import Group
from engine.contract.problems import Problem
from gui.actions import append_key
from gui.form.editors import ModelPicker, SplitPointsEditor
from gui.form.field_factory import FINDER_TIPS, OPTION_PREFIX, FindButton, OptionRows, make_row
from gui.form.field_row import FieldRow
from gui.sources.resume_fork import Prefill
from gui.translation import tr
from gui.widgets.editors import ChoiceEditor, PathEditor

_LOCKED_WHEN_RESUMING = tr("Can't be changed when resuming. Fork the run to change it.")
STACKED_FIELDS = ("epochs", "batch_size", "image_size")
"""Fields that are next to each other, with labels above them."""
MAIN_FIELDS = ("dataset", "model", "encoder", *STACKED_FIELDS)
"""Fields that are always visible."""
METHOD = tr("Recipe and strategy")
"""Title of the section below the main fields."""
_METHOD_FIELDS = ("task", "pretrained", "recipe", "learning_rate", "strategy")
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
    METHOD: _METHOD_FIELDS,
    **{
        title: tuple(name for name, field in FIELDS.items() if field.group == group and name not in MAIN_FIELDS)
        for group, title in _SECTION_TITLES.items()
    },
}
"""Fields in the collapsible sections, by title."""


def find_section(name: str) -> str:
    """Return the title of the section that contains the field `name`, or "" for a field that is always visible."""
    return next((title for title, names in SECTIONS.items() if name in names), "")


_FIELDS_WITHOUT_ROW = ("devices", "model_file_sha256")
"""Fields that are set elsewhere: by the devices panel, and by the consent to run a model file."""


class JobFields(QObject):
    """Rows for the fields and options of a job, and buttons that find values for some of them."""

    def __init__(self, catalogue: Catalogue, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: dict[str, FieldRow] = {
            name: make_row(field, catalogue, stacked=name in STACKED_FIELDS)
            for name, field in FIELDS.items()
            if name not in _FIELDS_WITHOUT_ROW
        }
        for name in MAIN_FIELDS:  # other rows create their widgets when they are first needed
            self.rows[name].create_widgets()
        self.options = OptionRows()
        self.find_buttons = {name: FindButton(self.rows[name]) for name in FINDER_TIPS}

    def set_job(self, job: Job) -> None:
        """Show the values of `job`."""
        for name, row in self.rows.items():
            row.set_value(job.value(name))
        self.options.set_values(job.options)

    def values(self) -> dict[str, Any]:
        """Return the values of all fields by name, and those of the options under "options", as in a `job.toml`."""
        values = {name: row.value() for name, row in self.rows.items()}
        values["split_points"] = list(values["split_points"])
        values["options"] = self.options.values()
        return values

    def editor_values(self) -> dict[str, Any]:
        """Return the values in all editors by field name, including the editors of fields that have no effect."""
        return {name: row.editor_value() for name, row in self.rows.items()}

    def list_idle_fields(self) -> set[str]:
        """Return the names of the fields that have no effect because of the values of other fields."""
        return {name for name, row in self.rows.items() if not row.has_effect}

    def format_value(self, name: str) -> str:
        """Return the value of the field `name` as text, as the form displays it."""
        editor = self.rows[name].editor
        if editor is self.model:
            return self.model.title()
        value = str(editor.value())
        return editor.titles.get(value, value) if isinstance(editor, ChoiceEditor) else value

    def find_label(self, problem: Problem) -> str:
        """Return the label of the field or option that a problem is about, or "the run" if it is about neither."""
        if problem.field in FIELDS:
            return FIELDS[problem.field].label
        return self.options.label(problem.field) or tr("the run")

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Show problems next to their fields."""
        self.options.show_problems(problems)
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in problems if problem.field == name))

    def has_place_for(self, problem: Problem) -> bool:
        """Return True if a visible row shows the problem."""
        return problem.field in self.rows or problem.field.removeprefix(OPTION_PREFIX) in self.options.rows

    def show_prefill(self, prefill: Prefill) -> None:
        """Adapt the rows to another run's job: lock the fields that can't be changed, and set suggested values.

        The reset buttons restore the run's values.
        """
        reasons = {
            "name": append_key(tr("Can't be changed here. Rename the run on the Runs page"), "rename_run") + ".",
            "resume_from": tr("The run resumes from its own last checkpoint."),
        }
        self.options.setEnabled("options" in prefill.open_fields)
        for name, row in self.rows.items():
            row.set_standard(prefill.job.value(name), tr("Reset to the run's value"))
            row.lock("" if name in prefill.open_fields else reasons.get(name, _LOCKED_WHEN_RESUMING))
        for name, value in prefill.preset.items():
            if name != "devices":  # the devices panel contains this field
                self.rows[name].set_value(value)

    @property
    def dataset(self) -> PathEditor:
        return cast("PathEditor", self.rows["dataset"].editor)

    @property
    def model(self) -> ModelPicker:
        return cast("ModelPicker", self.rows["model"].editor)

    @property
    def split_points(self) -> SplitPointsEditor:
        return cast("SplitPointsEditor", self.rows["split_points"].editor)
