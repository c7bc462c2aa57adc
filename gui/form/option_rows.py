"""The rows of what the job's task, model and strategy declare beside themselves."""

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
    """A row for each option; hidden where there are none. What was set of one stays for when it is offered again.

    Signals: edited() - a value may have changed; chosen(Choice) - a remedy for a problem of an option.
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
        """Shows the rows of these options alone."""
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
        """The options that are not at their defaults."""
        return {name: row.value() for name, row in self.rows.items() if row.value() != row.default}

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Shows these values, and the defaults of all others."""
        self._set = dict(values)
        self._show_set()

    def label(self, field: str) -> str | None:
        """What the row of the `field` that a problem names is called; None where there is none."""
        row = self.rows.get(field.removeprefix(PREFIX)) if field.startswith(PREFIX) else None
        return row.field.label if row is not None else None

    def show_problems(self, problems: Sequence[Problem]) -> None:
        for name, row in self.rows.items():
            row.show_problems(tuple(problem for problem in problems if problem.field == PREFIX + name))

    def _show_set(self) -> None:
        given = dict(self._set)  # setting one row notes what all of them show
        for name, row in self.rows.items():
            row.set_value(given.get(name, row.default))

    def _edited(self) -> None:
        self._set = {name: value for name, value in self._set.items() if name not in self.rows} | self.values()
        self.edited.emit()
