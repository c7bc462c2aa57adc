"""Rows of the search form: options of the search, and the fields that it varies over a range or values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QCheckBox, QLabel, QWidget

from engine.contract.catalogue import ModelEntry
from engine.contract.images import STEP
from engine.contract.job import FIELDS, Field, Job
from engine.contract.search import MAX_REPEATS, PARAMETERS, SECONDS
from gui.form.field_row import FieldRow
from gui.format import number_in
from gui.sources.searches import format_field_value
from gui.style import icons
from gui.translation import tr
from gui.widgets.buttons import tool_button
from gui.widgets.editors import BoolEditor, ChoiceEditor, Editor, FloatEditor, IntEditor, TextEditor
from gui.widgets.labeled_field import LABEL_WIDTH, LabeledField
from gui.widgets.layouts import FlowLayout, hbox

NONE = "none"
"""Text for the empty value of an optional field."""
SIZE_FIELDS = ("image_size", "progressive_from")
"""Fields whose suggested range depends on the model."""
_USUAL_IMAGE_SIZE = 224
"""Image size for suggestions if neither the job nor the catalogue gives one."""
_USUAL_DIMENSIONS: dict[str, Any] = {
    "ignore_value": [NONE, 255],
    "clip_norm": {"low": 0.1, "high": 10, "log": True},
    "ema_decay": {"low": 0.99, "high": 0.9999},
    "warmup_epochs": {"low": 0, "high": 2},
    "warmup_steps": {"low": 0, "high": 1000},
    "microbatches": [4, 8, 16],
    "stages_per_device": {"low": 2, "high": 4},
}
"""Suggestions for numbers that are 0 or empty in the job, where a range from the minimum would be useless."""
_SCALES = [
    ("range", tr("Range"), tr("All values are equally likely")),
    ("log", tr("Log scale"), tr("All powers of ten are equally likely")),
    ("list", tr("List"), tr("Only these values")),
]


class DimensionRow(LabeledField):
    """Row for a field that the search varies.

    Signals:
        edited(): the values may have changed.
        removed(): the user has removed the field from the search.
    """

    edited = Signal()
    removed = Signal()

    def __init__(self, name: str, field: Field, dimension: Any) -> None:
        """Create a row for the field that has the name `name` in the search space.

        It shows `dimension` (the values to try), given in the form of a SPACE.toml.
        """
        content = QWidget()
        super().__init__(field.label, content, label_width=LABEL_WIDTH + 20)
        title, tip = tr("Don't vary {label}").format(label=field.label), tr("Keep the job's value of the field")
        self.remove = tool_button(icon=icons.icon("close", "muted"), style="flat", name=title, tip=tip)
        self.remove.setIconSize(QSize(14, 14))
        self.label.setToolTip(field.help)
        self.name, self.field = name, field
        self.scale = ChoiceEditor(list(_SCALES))
        self.low, self.high, self.step = TextEditor(), TextEditor(), TextEditor(tr("any"))
        self.listed = TextEditor(tr("values, separated by commas"))
        self.boxes: dict[Any, QCheckBox] = {}
        self.remove.clicked.connect(self.removed)
        self._add_editors(content)
        self.add_button(self.remove)
        self.set_value(dimension)

    def value(self) -> Any:
        """Return the dimension (the values to try) in the form of a SPACE.toml. Invalid values remain strings."""
        if self.boxes:
            return [value for value, box in self.boxes.items() if box.isChecked()]
        if self._scale == "list":
            return [self._parse(text) for text in self.listed.value().split(",") if text.strip()]
        ends: dict[str, Any] = {"low": self._parse(self.low.value()), "high": self._parse(self.high.value())}
        if self._scale == "log":
            ends["log"] = True
        elif self.step.value():
            ends["step"] = self._parse(self.step.value())
        return ends

    def set_value(self, value: Any) -> None:
        """Show a dimension given in the form of a SPACE.toml."""
        if self.boxes:
            for choice, box in self.boxes.items():
                box.setChecked(isinstance(value, list | tuple) and choice in value)
        elif isinstance(value, Mapping):
            self.scale.set_value("log" if value.get("log") else "range")
            for key, editor in (("low", self.low), ("high", self.high), ("step", self.step)):
                editor.set_value("" if value.get(key) is None else _format_value(value[key]))
        else:
            self.scale.set_value("list")
            values = value if isinstance(value, list | tuple) else [value]
            self.listed.set_value(", ".join(map(_format_value, values)))
        self._show_scale()

    @property
    def _is_number(self) -> bool:
        return self.field.kind in ("int", "float")

    @property
    def _scale(self) -> str:
        """Return the selected scale: "range", "log" or "list". Fields that aren't numbers always have "list"."""
        return self.scale.value() if self._is_number else "list"

    def _parse(self, text: str) -> Any:
        """Convert `text` to a number if the field is numeric. Return it unchanged if that fails."""
        text = text.strip()
        if not self._is_number:
            return text
        try:
            number = number_in(text)
        except ValueError:
            return text
        return int(number) if self.field.kind == "int" and number.is_integer() else number

    def _add_editors(self, inside: QWidget) -> None:
        """Add the editors of the dimension to the widget `inside`.

        A field with choices gets a check box for each of them. Others get editors for a range and for a list of values.
        """
        choices = (False, True) if self.field.kind == "bool" else self.field.choices
        if choices:
            flow = FlowLayout(inside, spacing=14, line_spacing=4)
            for value in choices:
                self.boxes[value] = box = QCheckBox(format_field_value(self.name, value))
                box.setAccessibleName(f"{self.field.label}: {box.text()}")
                box.toggled.connect(self.edited)
                flow.addWidget(box)
            self.setFocusProxy(next(iter(self.boxes.values())))
            return
        editors: dict[str, Editor] = {
            "scale": self.scale,
            "from": self.low,
            "to": self.high,
            "step": self.step,
            "values": self.listed,
        }
        for title, editor in editors.items():
            editor.control.setAccessibleName(f"{self.field.label}: {title}")
            editor.edited.connect(self.edited)
        self.scale.edited.connect(self._show_scale)
        self._to_label, self._step_label = QLabel(tr("to")), QLabel(tr("step"))
        limits = (self.scale, (self.low, 1), self._to_label, (self.high, 1), self._step_label, (self.step, 1))
        inside.setLayout(hbox(*limits, (self.listed, 1), spacing=6))
        self.scale.setVisible(self._is_number)
        self.setFocusProxy(self.scale.control if self._is_number else self.listed.control)

    def _show_scale(self) -> None:
        """Show the editors of the selected scale: values for "list", otherwise two limits, and a step for "range"."""
        if self.boxes:
            return
        is_list = self._scale == "list"
        self.listed.setVisible(is_list)
        for widget in (self.low, self.high, self._to_label):
            widget.setVisible(not is_list)
        for widget in (self.step, self._step_label):
            widget.setVisible(self._scale == "range")


def suggest_dimension(field: Field, job_value: Any) -> Any:
    """Suggest a dimension (the values that the search tries) around the job's value, in the form of a SPACE.toml.

    The dimension is a range for numbers, and a list of all choices for other fields, or of only the job's value without
    choices.
    """
    if field.kind == "bool":
        return [False, True]
    if field.kind in ("int", "float"):
        return _suggest_range(field, job_value) if job_value else _suggest_from_nothing(field)
    return list(field.choices) or [job_value or NONE]


def suggest_image_sizes(name: str, job: Job, model: ModelEntry | None) -> dict[str, Any]:
    """Suggest a range for one of the `SIZE_FIELDS`, in the form of a SPACE.toml.

    It contains only sizes that the model accepts. `model` is None if it is not in the catalogue.
    """
    step = model.image_size_step if model is not None else 1
    smallest = max(FIELDS[name].minimum or 0, model.min_image_size if model is not None else 0)
    size = job.data.image_size or (model.image_size if model is not None else 0) or _USUAL_IMAGE_SIZE
    low, high = size // 2, 2 * size
    if name == "progressive_from":  # grows to the image size
        step, smallest, high = step if step > 1 else STEP, max(smallest, STEP), size - 1
    low = math.ceil(max(low, smallest) / step) * step
    high = min(high, int(FIELDS[name].maximum or high)) // step * step
    return {"low": low, "high": high} | ({"step": step} if step > 1 else {})


def _suggest_from_nothing(field: Field) -> Any:
    """Suggest a dimension for a number that is 0 or empty in the job, in the form of a SPACE.toml."""
    if field.name in _USUAL_DIMENSIONS:
        return _USUAL_DIMENSIONS[field.name]
    minimum, maximum = field.minimum or 0, field.maximum if field.maximum is not None else math.inf
    highest = max(10 if field.kind == "int" else 0.2, 2 * minimum)
    return {"low": minimum, "high": min(maximum, highest)}


def _suggest_range(field: Field, value: float) -> dict[str, Any]:
    """Suggest a range around `value` within the limits of the field, in the form of a SPACE.toml.

    The range of an integer reaches from half to twice its value, and the range of another number from a tenth to ten
    times its value, on a logarithmic scale. It is narrow around a value near the maximum, such as a momentum of 0.9.
    """
    minimum, maximum = field.minimum or 0, field.maximum if field.maximum is not None else math.inf
    if field.kind == "int":
        return {"low": max(minimum, int(value) // 2), "high": min(maximum, 2 * value)}
    if 2 * value > maximum:
        highest = max(value, min(1.1 * value, 0.99 * maximum))
        return {"low": max(minimum, round(0.8 * value, 4)), "high": round(highest, 4)}
    return {"low": max(minimum, value / 10), "high": min(maximum, 10 * value), "log": True}


def _format_value(value: Any) -> str:
    """Format a value for a text field. None is the text "none"."""
    if value is None:
        return NONE
    return f"{value:.6g}" if isinstance(value, float) else str(value)


NO_GOAL = ""
_SAMPLERS = [
    ("tpe", "TPE", tr("Learn from finished trials where good settings are (Bergstra et al. 2011)")),
    ("random", tr("Random"), tr("Choose at random")),
    ("grid", tr("Grid"), tr("Try all combinations of lists and stepped ranges")),
    ("nsgaii", "NSGA-II", tr("An evolutionary search, for two goals (Deb et al. 2002)")),
]
_PRUNERS = [
    (
        "hyperband",
        tr("Hyperband"),
        tr("Stop trials at several ages, so that late starters get a chance (Li et al. 2018)"),
    ),
    ("halving", tr("Successive halving"), tr("Keep the best fraction of the trials at each age (Li et al. 2020)")),
    ("median", tr("Median"), tr("Stop trials that are below the median of the others at the same epoch")),
    ("none", tr("None"), tr("Train every trial to its end")),
]


def _create_field(name: str, label: str, help_text: str, kind: Any, default: Any, **limits: Any) -> Field:
    """Create the description of an option of the search, which isn't a field of a job.

    `kind` is the type of its value, as in `Field`. `limits` are further attributes of `Field`.
    """
    return Field(name=name, label=label, help=help_text, group="main", kind=kind, default=default, **limits)


def _pair_with_int_editor(field: Field, empty: str = tr("no limit")) -> tuple[Field, Callable[[], Editor]]:
    """Return `field` and a function that creates its integer editor. The editor displays None as `empty`."""
    return field, partial(IntEditor, field, empty)


_CONFIRM_HELP = tr(
    "How often the best trials are trained again with other seeds. The mean of these repeats decides which trial is best."
)

_ROWS: tuple[tuple[Field, Callable[[], Editor]], ...] = (
    (_create_field("name", tr("Name"), tr("Name of the search."), "text", ""), partial(TextEditor, tr("required"))),
    (_create_field("goal", tr("Goal"), tr("Result to optimize."), "choice", ""), partial(ChoiceEditor, [])),
    (_create_field("against", tr("Second goal"), tr("A second goal; the search looks for the best trade-offs."), "choice", NO_GOAL), partial(ChoiceEditor, [])),
    _pair_with_int_editor(_create_field("trials", tr("Trials"), tr("Number of trials."), "int", 20, optional=True, minimum=1, maximum=100_000)),
    (_create_field("hours", tr("Hours"), tr("Time during which new trials start."), "float", None), partial(FloatEditor, True, tr("no limit"))),
    _pair_with_int_editor(_create_field("total_epochs", tr("Total epochs"), tr("Sum of the epochs of all trials."), "int", None, optional=True, minimum=1, maximum=100_000_000)),
    (_create_field("sampler", tr("Sampler"), tr("Method that chooses settings."), "choice", "tpe"), partial(ChoiceEditor, list(_SAMPLERS))),
    (_create_field("pruner", tr("Pruning"), tr("Method that stops trials early."), "choice", "hyperband"), partial(ChoiceEditor, list(_PRUNERS))),
    _pair_with_int_editor(_create_field("confirm", tr("Confirm"), _CONFIRM_HELP, "int", 1, minimum=0, maximum=MAX_REPEATS)),
    _pair_with_int_editor(_create_field("seed", tr("Sampler seed"), tr("Makes the choice of settings reproducible."), "int", 0, minimum=0, maximum=2**31 - 1)),
    _pair_with_int_editor(_create_field("devices_per_trial", tr("Per trial"), tr("Number of devices of each trial."), "int", 1, minimum=1, maximum=1024)),
    _pair_with_int_editor(_create_field("best_epochs", tr("Retrain for"), tr("Epochs of the full training with the best settings."), "int", None, optional=True, minimum=1, maximum=FIELDS["epochs"].maximum), tr("as long as a trial")),
    (_create_field("keep_checkpoints", tr("Keep all"), tr("Keeps the checkpoints of all trials, not only of the best."), "bool", False), BoolEditor),
)  # fmt: skip


OTHER_GOALS = [
    (SECONDS, tr("Training time"), tr("Duration of a trial; less is better")),
    (PARAMETERS, tr("Parameters"), tr("Number of the model's parameters; fewer is better")),
]


def make_rows() -> dict[str, FieldRow]:
    """Create the rows for the options of the search with their defaults, by name."""
    rows = {}
    for field, make_editor in _ROWS:
        row = rows[field.name] = FieldRow(field, make_editor, field.default)
        row.create_widgets()
    return rows
