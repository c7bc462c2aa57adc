"""Row in a form: label, editor, reset button, note and problems."""

from __future__ import annotations

from functools import cached_property

from PySide6.QtCore import QEvent, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QToolButton, QWidget

from engine.contract.problems import Problem
from gui.style import theme
from gui.widgets.labels import ElidedLabel, ProblemLabel, muted_label

LABEL_WIDTH = 104
"""Default width of labels in pixels, at a text size of 100%."""


class LabeledField(QWidget):
    """Editor with a label, an optional button, and a note and problems below.

    Note and problems are created on demand, because most of a form's eighty rows never have any.

    Signals:
        chosen(Choice): the user has selected a remedy for a problem.
    """

    chosen = Signal(object)

    def __init__(
        self,
        text: str,
        content: QWidget | None = None,
        *,
        control: QWidget | None = None,
        label_width: int = LABEL_WIDTH,
        indented: bool = False,
        stacked: bool = False,
    ) -> None:
        """Create a row.

        Args:
            text: Label.
            content: Editor, or a widget that contains it, or None if `lay_out` will be called.
            control: Widget that the label refers to, or None for a label of several widgets.
            label_width: Width of the label in pixels, at a text size of 100%.
            indented: Show note and problems below the editor instead of below the full row.
            stacked: Show the label above the editor. The owner places `problem_label`.
        """
        super().__init__()
        self._text, self._label_width, self._indented, self._stacked = text, label_width, indented, stacked
        grid = self._grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(2)
        grid.setColumnStretch(0 if stacked else 1, 1)
        grid.setRowStretch(3, int(stacked))  # a note must not move the editors of the fields next to it
        if content is not None:
            self.lay_out(content, control)

    @cached_property
    def label(self) -> QLabel:
        return QLabel(self._text)

    def lay_out(self, content: QWidget, control: QWidget | None) -> None:
        """Add the label and the editor. See the constructor for the arguments."""
        if control is not None:
            self.label.setBuddy(control)
        self._grid.addWidget(self.label, 0, 0)
        self._grid.addWidget(content, *((1, 0, 1, 2) if self._stacked else (0, 1)))
        self._fit_label()

    def add_button(self, button: QToolButton) -> None:
        """Place a button after the editor, or next to the label of a stacked field.

        In the tab order, it follows the editor.
        """
        self._grid.addWidget(button, 0, 1 if self._stacked else 2)

    @cached_property
    def problem_label(self) -> ProblemLabel:
        """Problems of the field, at the bottom of the row."""
        label = ProblemLabel()
        label.chosen.connect(self.chosen)
        if not self._stacked:
            self._add_below(label, 2)
        return label

    @cached_property
    def note(self) -> QLabel:
        """Note about the value, below the editor. It is created when it is first used."""
        label = self.make_note()
        label.hide()
        self._add_below(label, 2 if self._stacked else 1)
        return label

    def make_note(self) -> QLabel:
        """Create the label of the note. Subclasses may create another kind of label."""
        return muted_label(word_wrap=True)

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        """Show the problems of the field. The label is created with the first ones."""
        if problems or "problem_label" in vars(self):  # a cached property that has been used
            self.problem_label.show_problems(problems)

    def set_note(self, text: str) -> None:
        """Show a note below the editor, or hide it if `text` is "". Its label is created with the first note."""
        has_label = "note" in vars(self)  # `note` is a cached property that creates it
        if (text or has_label) and text != self.note.text():
            self.note.setText(text)
            if isinstance(self.note, ElidedLabel):
                self.note.setToolTip(text)
            self.note.setVisible(bool(text))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and "label" in vars(self):
            self._fit_label()

    def _add_below(self, label: QWidget, row: int) -> None:
        """Add a note or the problems, as `label`, in a row of the grid below the editor.

        It begins below the editor if the field is indented, otherwise below the label of the field.
        """
        column = 1 if self._indented else 0
        self._grid.addWidget(label, row, column, 1, 3 - column)

    def _fit_label(self) -> None:
        """Give the label the same width as in other rows, and wrap it if it is longer."""
        if self._stacked:
            return
        width = theme.scale_pixels(self._label_width)
        self.label.setFixedWidth(width)
        # Only if needed, because wrapped labels make layouts compute heights by width.
        self.label.setWordWrap(self.fontMetrics().horizontalAdvance(self.label.text()) > width - 4)
