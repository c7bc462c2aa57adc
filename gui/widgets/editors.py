"""Editors for values, one for each type of field."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, TypeVar

from PySide6.QtCore import QLocale, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPalette, QValidator, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QCheckBox,
    QComboBox,
    QCompleter,
    QFileDialog,
    QLineEdit,
    QSpinBox,
    QStyle,
    QStyleOptionComboBox,
    QStyleOptionFrame,
    QWidget,
)

from engine.contract.job import Field
from gui.format import number_in, significant
from gui.style import icons
from gui.translation import tr
from gui.widgets import file_dialogs
from gui.widgets.buttons import tool_button
from gui.widgets.layouts import hbox


class ComboBox(QComboBox):
    """Combo box that the wheel changes only while it has the focus.

    Long titles are elided in the box and shown in full in its list. If the screen limits the height of the list, the
    list shows complete rows only.
    """

    def showPopup(self) -> None:
        """Show the list with full titles. If the screen limits its height, cut it to complete rows."""
        view = self.view()
        scroll_bar = _SCROLL_BAR_WIDTH if self.count() > self.maxVisibleItems() else 0
        view.setMinimumWidth(view.sizeHintForColumn(0) + 2 * view.frameWidth() + scroll_bar)
        super().showPopup()
        row, height = view.sizeHintForRow(0), view.viewport().height()
        if 0 < row <= height < row * min(self.count(), self.maxVisibleItems()):
            popup, excess = view.window(), height % row
            is_above = popup.y() < self.mapToGlobal(self.rect().topLeft()).y()
            popup.setGeometry(popup.geometry().adjusted(0, excess if is_above else 0, 0, 0 if is_above else -excess))

    def initStyleOption(self, option: QStyleOptionComboBox) -> None:
        """Elide the title of a visible box to the width of its field."""
        super().initStyleOption(option)
        if not self.isVisible():
            return
        field = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        elide = Qt.TextElideMode.ElideRight
        option.currentText = option.fontMetrics.elidedText(option.currentText, elide, field.width())

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


def fill_combo_box(box: QComboBox, choices: Iterable[tuple[str, Any]], value: Any) -> None:
    """Fill `box` with titles and values without emitting signals, and select `value`.

    If `value` isn't among them, select the first entry.
    """
    choices = list(choices)
    with QSignalBlocker(box):
        if choices != [(box.itemText(index), box.itemData(index)) for index in range(box.count())]:
            box.clear()
            for title, data in choices:
                box.addItem(title, data)
        box.setCurrentIndex(max(0, box.findData(value)))


_SCROLL_BAR_WIDTH = 12


class Editor(QWidget):
    """Base class of all editors.

    Attributes:
        control: Widget that takes the focus and has the accessible name.

    Signals:
        edited(): the user or the program may have changed the value.
        adjusted(str): an invalid value was replaced by a valid one, for this reason.
    """

    edited = Signal()
    adjusted = Signal(str)

    def __init__(self, control: QWidget) -> None:
        super().__init__()
        self.control = control
        self.setLayout(hbox((control, 1), spacing=4))
        self.setFocusProxy(control)

    def add_button(self, button: QWidget) -> None:
        """Place a button after the control."""
        layout = self.layout()
        assert layout is not None
        layout.addWidget(button)

    def value(self) -> Any:
        """Return the value in the type that it has in a job file (`job.toml`), or the raw text if it is invalid."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Show a value of the type that `value` returns, and emit `edited` if it differs from the previous one."""
        raise NotImplementedError

    def show_severity(self, severity: str) -> None:
        """Color the control according to its worst problem: "error", "warning", or "" for none."""
        if self.control.property("severity") != severity:
            self.control.setProperty("severity", severity)
            self.control.style().unpolish(self.control)
            self.control.style().polish(self.control)


class _SpinBox(QSpinBox):
    """Spin box that the wheel changes only while it has the focus, so that scrolling past it changes nothing.

    Numbers outside of the range can be typed. When the user leaves the field, they are replaced by the nearest valid
    number.

    Signals:
        adjusted(str): a number outside of the range was replaced, for this reason.
    """

    adjusted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._typed: int | None = None  # number that the user has typed since the last change
        self.lineEdit().textEdited.connect(self._on_typed)
        self.editingFinished.connect(self._clamp)

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        """Accept integers outside of the range while they are typed."""
        state, text, position = super().validate(text, position)
        if state == QValidator.State.Invalid and _parse_integer(text) is not None:
            state = QValidator.State.Intermediate
        return state, text, position

    def _on_typed(self, text: str) -> None:
        self._typed = _parse_integer(text)

    def _clamp(self) -> None:
        """Replace a typed number outside of the range by the nearest valid one, and emit `adjusted`."""
        typed, self._typed = self._typed, None
        minimum = self.minimum() + bool(self.specialValueText())  # the lowest value represents the empty field
        if typed is None or minimum <= typed <= self.maximum():
            return
        self.setValue(max(minimum, min(typed, self.maximum())))
        limit = tr("largest") if typed > self.maximum() else tr("smallest")
        self.adjusted.emit(tr("{typed} isn't possible; this is the {limit} value.").format(typed=typed, limit=limit))

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


def _parse_integer(text: str) -> int | None:
    """Convert a text to an integer, or return None if it isn't one."""
    try:
        return int(text)
    except ValueError:
        return None


class PathLine(QLineEdit):
    """Text field that elides the middle of a long text while it isn't being edited."""

    def paintEvent(self, event: QPaintEvent) -> None:
        """Shorten a long path in its middle unless it is being edited."""
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        contents = (
            self.style().subElementRect(QStyle.SubElement.SE_LineEditContents, option, self).adjusted(2, 0, -2, 0)
        )
        if self.hasFocus() or self.fontMetrics().horizontalAdvance(self.text()) <= contents.width():
            super().paintEvent(event)
            return
        painter = QPainter(self)
        self.style().drawPrimitive(QStyle.PrimitiveElement.PE_PanelLineEdit, option, painter, self)
        text = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideMiddle, contents.width())
        painter.setPen(self.palette().color(QPalette.ColorRole.Text))
        painter.drawText(contents, Qt.AlignmentFlag.AlignVCenter, text)


class TextEditor(Editor):
    """Editor for a line of text, which offers completions if it is created with known texts."""

    def __init__(self, placeholder: str = "", known: Sequence[str] = (), line: QLineEdit | None = None) -> None:
        self.line = line or QLineEdit()
        self.line.setPlaceholderText(placeholder)
        self.line.setMinimumWidth(56)
        self.line.setAcceptDrops(False)  # a dropped folder belongs to the window
        super().__init__(self.line)
        if known:
            completer = QCompleter(list(known), self)
            completer.setFilterMode(Qt.MatchFlag.MatchContains)
            completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
            self.line.setCompleter(completer)
        self.line.textChanged.connect(lambda _text: self.edited.emit())

    def value(self) -> str:
        return self.line.text().strip()

    def set_value(self, value: Any) -> None:
        self.line.setText(str(value))


class ListEditor(TextEditor):
    """Editor for a list of texts or integers, separated by commas."""

    def __init__(self, kind: type[str] | type[int]) -> None:
        super().__init__("none")
        self._kind = kind

    def value(self) -> Any:
        """Return the entries as a tuple, or the raw text if one isn't an integer."""
        texts = [text.strip() for text in self.line.text().split(",") if text.strip()]
        try:
            return tuple(map(self._kind, texts))
        except ValueError:
            return self.line.text().strip()

    def set_value(self, value: Any) -> None:
        self.line.setText(", ".join(map(str, value)))


class PathEditor(TextEditor):
    """Editor for a path, with a button that opens a file dialog."""

    def __init__(self, content: str, *, folder: bool = False, placeholder: str = "") -> None:
        """Create an editor for the path of a file or, if `folder`, of a folder.

        `content` names what it contains in texts for the user, as in "the dataset".
        """
        super().__init__(placeholder, line=PathLine())
        self._folder = folder
        self._content = content
        name, icon = tr("Browse for {what}").format(what=content), icons.icon("folder" if folder else "file", "muted")
        self.browse = tool_button(self.open_browser, icon=icon, name=name, tip=name)
        self.add_button(self.browse)

    def open_browser(self) -> QFileDialog:
        """Open a non-modal file dialog, and return it."""
        return file_dialogs.choose_path(
            self,
            tr("Choose {what}").format(what=self._content),
            self.set_value,
            folder=self._folder,
            start=self.value(),
        )


_Spin = TypeVar("_Spin", bound=QAbstractSpinBox)


def indent_text(spin: _Spin) -> _Spin:
    """Indent the text of a spin box and return the spin box. The left padding in a style sheet doesn't do this."""
    spin.lineEdit().setTextMargins(6, 0, 0, 0)
    return spin


class IntEditor(Editor):
    """Editor for an integer. The value below the minimum represents an empty field."""

    def __init__(self, field: Field, empty: str = "automatic") -> None:
        self.spin = indent_text(_SpinBox())
        super().__init__(self.spin)
        self._optional = field.optional
        minimum = int(field.minimum if field.minimum is not None else -(2**31))
        self._empty = minimum - 1  # value that stands for an empty editor and is shown as text
        self.spin.setLocale(QLocale.c())
        self.spin.setRange(self._empty if field.optional else minimum, int(field.maximum or 2**31 - 1))
        self.spin.setMinimumWidth(56)
        self.spin.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        if field.optional:
            self.spin.setSpecialValueText(empty)
        self.spin.valueChanged.connect(lambda _value: self.edited.emit())
        self.spin.adjusted.connect(self.adjusted)

    def set_empty(self, text: str) -> None:
        """Set the text that represents the empty value of an optional field."""
        if self._optional:
            self.spin.setSpecialValueText(text)

    def value(self) -> int | None:
        number = self.spin.value()
        return None if self._optional and number == self._empty else number

    def set_value(self, value: Any) -> None:
        self.spin.setValue(self._empty if value is None else int(value))


class FloatEditor(TextEditor):
    """Editor for a number in the desktop's notation or in Python's, such as 0.001 or 1e-3.

    An empty, optional field has the value None.
    """

    def __init__(self, optional: bool = False, empty: str = "") -> None:
        super().__init__(empty)
        self._optional = optional

    def value(self) -> Any:
        """Return the number, None for an empty optional field, or the raw text if it isn't a number."""
        text = super().value()
        if self._optional and not text:
            return None
        try:
            return number_in(text)
        except ValueError:
            return text

    def set_value(self, value: Any) -> None:
        if value is None:
            self.line.setText("")
        else:
            self.line.setText(significant(value, 10) if isinstance(value, float | int) else str(value))


class BoolEditor(Editor):
    def __init__(self) -> None:
        self.box = QCheckBox()
        super().__init__(self.box)
        self.box.toggled.connect(lambda _on: self.edited.emit())

    def value(self) -> bool:
        return self.box.isChecked()

    def set_value(self, value: Any) -> None:
        self.box.setChecked(bool(value))


class ChoiceEditor(Editor):
    """Editor for a choice from a list of (value, title, help). An unknown value is shown as it is."""

    def __init__(self, choices: list[tuple[str, str, str]]) -> None:
        self.box = ComboBox()
        self.box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.box.setMinimumContentsLength(8)
        super().__init__(self.box)
        self.titles: dict[str, str] = {}
        self.set_choices(choices)
        self.box.currentIndexChanged.connect(lambda _index: self.edited.emit())

    def set_choices(self, choices: list[tuple[str, str, str]]) -> None:
        """Replace the choices (value, title, help). The value doesn't change, even if it isn't among them."""
        chosen = self.box.currentData()
        with QSignalBlocker(self.box):
            self.box.clear()
            self.titles = {value: title for value, title, _help in choices}
            for value, title, help_text in choices:
                self.box.addItem(title, value)
                self.box.setItemData(self.box.count() - 1, help_text or None, Qt.ItemDataRole.ToolTipRole)
            if chosen is not None:
                self.set_value(chosen)

    def reset_choices(self, choices: list[tuple[str, str, str]], value: str | None = None) -> None:
        """Replace the choices (value, title, help), and select `value` or the first one, without emitting `edited`."""
        with QSignalBlocker(self):
            self.box.clear()
            self.set_choices(choices)
            self.box.setCurrentIndex(max(0, self.box.findData(value)))

    def value(self) -> str:
        return str(self.box.currentData())

    def set_value(self, value: Any) -> None:
        """Select a value. It is added to the choices if it isn't among them."""
        index = self.box.findData(value)
        if index < 0:
            self.box.addItem(str(value), value)
            index = self.box.count() - 1
        self.box.setCurrentIndex(index)

    def set_marks(self, marks: dict[str, str], off: Container[str] = ()) -> None:
        """Append `marks` (texts by value) to the titles in the list, and disable the values in `off`.

        The current value has no mark, because its problems are shown below the field.
        """
        for index in range(self.box.count()):
            value = self.box.itemData(index)
            title = self.titles.get(value, str(value))
            mark = marks.get(value, "") if index != self.box.currentIndex() else ""
            self.box.setItemText(index, f"{title} – {mark}" if mark else title)
            item_index = self.box.model().index(index, 0)
            enabled_flags = int((Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEnabled).value)
            # The standard item model keeps an item's flags in the role below UserRole (Qt's own example does so).
            self.box.model().setData(item_index, 0 if value in off else enabled_flags, Qt.ItemDataRole.UserRole - 1)
