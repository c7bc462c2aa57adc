"""One field that a search varies: over which range, or among which values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QCheckBox, QGridLayout, QHBoxLayout, QLabel, QToolButton, QWidget

from engine.contract.job import Field
from engine.contract.problems import Problem
from gui.form.field_row import LABEL_WIDTH
from gui.format import number_in
from gui.sources.search_data import value_words
from gui.style import icons, theme
from gui.widgets.editors import ChoiceEditor, TextEditor
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.problem_label import ProblemLabel

NONE = "none"
"""What stands for an optional field's empty value."""
_SCALES = [
    ("range", "Range", "Each value is as likely as another"),
    ("log", "Log scale", "Each power of ten is as likely as another"),
    ("list", "List", "These values alone"),
]


class DimensionRow(QWidget):
    """Signals: edited() - the values may be others; removed() - the field is not to vary any more."""

    edited = Signal()
    removed = Signal()

    def __init__(self, name: str, field: Field, now: Any) -> None:
        """`name` is the field's in the space, `now` the value that it has in the job, around which the search
        begins.
        """
        super().__init__()
        self.name, self.field = name, field
        self.problem_label = ProblemLabel()
        self.scale = ChoiceEditor(list(_SCALES))
        self.low, self.high, self.step = TextEditor(), TextEditor(), TextEditor("any")
        self.listed = TextEditor("values, separated by commas")
        self.boxes: dict[Any, QCheckBox] = {}
        self.remove = QToolButton()
        self._lay_out()
        self.set_value(_suggested(field, now))

    def value(self) -> Any:
        """The dimension as it would stand in a SPACE.toml; what can't be read comes as its text."""
        if self.boxes:
            return [value for value, box in self.boxes.items() if box.isChecked()]
        if self._scale == "list":
            return [self._read(part) for part in self.listed.value().split(",") if part.strip()]
        ends: dict[str, Any] = {"low": self._read(self.low.value()), "high": self._read(self.high.value())}
        if self._scale == "log":
            ends["log"] = True
        elif self.step.value():
            ends["step"] = self._read(self.step.value())
        return ends

    def set_value(self, value: Any) -> None:
        """Shows a dimension as it stands in a SPACE.toml."""
        if self.boxes:
            for each, box in self.boxes.items():
                box.setChecked(isinstance(value, list | tuple) and each in value)
        elif isinstance(value, Mapping):
            self.scale.set_value("log" if value.get("log") else "range")
            for key, editor in (("low", self.low), ("high", self.high), ("step", self.step)):
                editor.set_value("" if value.get(key) is None else _written(value[key]))
        else:
            self.scale.set_value("list")
            listed = value if isinstance(value, list | tuple) else [value]
            self.listed.set_value(", ".join(map(_written, listed)))
        self._show_scale()

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        """Says all that is wrong with it."""
        self.problem_label.show_problems(problems)

    @property
    def _scale(self) -> str:
        return self.scale.value() if self.field.kind in ("int", "float") else "list"

    def _read(self, text: str) -> Any:
        """A number where one is asked for and given."""
        text = text.strip()
        if self.field.kind not in ("int", "float"):
            return text
        try:
            number = number_in(text)
        except ValueError:
            return text
        return int(number) if self.field.kind == "int" and number.is_integer() else number

    def _lay_out(self) -> None:
        label = QLabel(self.field.label, wordWrap=True)
        label.setFixedWidth(theme.scaled(LABEL_WIDTH + 20))
        label.setToolTip(self.field.help)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(6)
        grid.setVerticalSpacing(2)
        grid.addWidget(label, 0, 0)
        grid.addWidget(self._editors(), 0, 1)
        grid.addWidget(self.remove, 0, 2)
        grid.addWidget(self.problem_label, 1, 0, 1, 3)
        grid.setColumnStretch(1, 1)
        self.remove.setObjectName("flat")
        self.remove.setIcon(icons.icon("close", "muted"))
        self.remove.setIconSize(QSize(14, 14))
        self.remove.setAccessibleName(f"Do not vary {self.field.label}")
        self.remove.setToolTip("Leaves the field as it is in the job")
        self.remove.clicked.connect(self.removed)

    def _editors(self) -> QWidget:
        inside = QWidget()
        values = (False, True) if self.field.kind == "bool" else self.field.choices
        if values:
            flow = FlowLayout(inside, spacing=14, line_spacing=4)
            for value in values:
                self.boxes[value] = box = QCheckBox(value_words(self.name, value))
                box.setAccessibleName(f"{self.field.label}: {box.text()}")
                box.toggled.connect(self.edited)
                flow.addWidget(box)
            return inside
        row = QHBoxLayout(inside)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        named = (
            (self.scale, "scale"),
            (self.low, "from"),
            (self.high, "to"),
            (self.step, "step"),
            (self.listed, "values"),
        )
        for editor, what in named:
            editor.control.setAccessibleName(f"{self.field.label}: {what}")
            editor.edited.connect(self.edited)
        self.scale.edited.connect(self._show_scale)
        self._between = [QLabel("to"), QLabel("step")]
        row.addWidget(self.scale)
        for widget in (self.low, self._between[0], self.high, self._between[1], self.step):
            row.addWidget(widget, int(isinstance(widget, TextEditor)))
        row.addWidget(self.listed, 1)
        self.scale.setVisible(self.field.kind in ("int", "float"))
        return inside

    def _show_scale(self) -> None:
        if self.boxes:
            return
        listed, log = self._scale == "list", self._scale == "log"
        self.listed.setVisible(listed)
        for widget in (self.low, self.high, self._between[0]):
            widget.setVisible(not listed)
        for widget in (self.step, self._between[1]):
            widget.setVisible(not listed and not log)


def _suggested(field: Field, now: Any) -> Any:
    """Where a search of a field begins: around its value in the job."""
    if field.kind == "bool":
        return [False, True]
    if field.kind in ("int", "float"):
        return _range_around(field, now)
    return list(field.choices) or [now or NONE]


def _range_around(field: Field, now: float | None) -> dict[str, Any]:
    least, most = field.minimum or 0, field.maximum if field.maximum is not None else math.inf
    if not now:
        return {"low": least, "high": min(most, 10 if field.kind == "int" else 0.2)}
    if field.kind == "int":
        return {"low": max(least, int(now) // 2), "high": min(most, 2 * now)}
    if 2 * now > most:
        return {"low": round(0.8 * now, 4), "high": round(min(1.1 * now, 0.99 * most), 4)}
    return {"low": now / 10, "high": min(most, 10 * now), "log": True}


def _written(value: Any) -> str:
    return NONE if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
