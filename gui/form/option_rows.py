"""Rows for the options that the task, the model and the strategy declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.contract.catalogue import Catalogue
from engine.contract.job import Field
from engine.contract.problems import Problem
from gui.form.field_factory import make_row
from gui.form.field_row import FieldRow

PREFIX = "options."
"""Prefix of an option's name in problems."""


class OptionRows(QWidget):
    """Row for each option; hidden without any. Values are remembered while their options are not offered.

    Signals:
        edited(): A value may have changed.
        chosen(Choice): The user chose a remedy for a problem.
    """

    edited = Signal()
    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, FieldRow] = {}
        self._fields: tuple[Field, ...] = ()
        self._set: dict[str, Any] = {}
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        self.hide()

    def offer(self, fields: tuple[Field, ...], catalogue: Catalogue) -> None:
        """Show the rows of these options."""
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
        """Return the options with non-default values."""
        return {name: row.value() for name, row in self.rows.items() if row.value() != row.default}

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Show these values, and the defaults of other options."""
        self._set = dict(values)
        self._show_set()

    def label(self, field: str) -> str | None:
        """Return the label of a problem's field; None if it is no option on screen."""
        row = self.rows.get(field.removeprefix(PREFIX)) if field.startswith(PREFIX) else None
        return row.field.label if row is not None else None

    def show_problems(self, problems: Sequence[Problem]) -> None:
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in problems if problem.field == PREFIX + name))

    def _show_set(self) -> None:
        values = dict(self._set)  # each edit below overwrites it
        for name, row in self.rows.items():
            row.set_value(values.get(name, row.default))

    def _edited(self) -> None:
        self._set = {name: value for name, value in self._set.items() if name not in self.rows} | self.values()
        self.edited.emit()
