"""Contents of a page as lines of text: names, values and states of visible widgets, cells, and points of plots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QAbstractListModel, QModelIndex, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QDoubleSpinBox,
    QGraphicsView,
    QHeaderView,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QProgressBar,
    QScrollBar,
    QSpinBox,
    QTabBar,
    QTextEdit,
    QToolButton,
    QWidget,
)

from gui.plots.plot import LinePlot
from gui.style import theme
from gui.widgets.labels import RichLabel

MAX_ROWS = 4
"""Maximum number of table rows to list."""
MAX_CHARACTERS = 2000
"""Maximum number of characters of a document to list."""
_CLOSED = QAbstractSpinBox | QComboBox | QTabBar
"""Widgets whose child widgets are part of Qt and aren't listed separately."""


def list_contents(page: QWidget, *, with_roles: bool = True) -> Iterator[str]:
    """Yield a line for each visible widget of a page that shows or accepts something, in the order of creation.

    A table or list is followed by its first rows. If `with_roles`, each row is followed by a line with the accessible
    texts, tool tips, styles and icons of its cells.
    """
    for widget in page.findChildren(QWidget):
        is_inner = isinstance(widget, QScrollBar | QHeaderView | RichLabel) or isinstance(widget.parent(), _CLOSED)
        if not widget.isVisible() or is_inner:
            continue
        parts = list(_describe_state(widget))
        named = widget.accessibleName() or widget.accessibleDescription()
        if parts or named:
            name = " ".join(widget.accessibleName().split())
            is_input = isinstance(widget, QLineEdit | QComboBox | QAbstractSpinBox)  # their description is a fixed help
            # A plot updates its description once per second.
            described = widget.describe() if isinstance(widget, LinePlot) else widget.accessibleDescription()
            described = "" if is_input else " ".join(described.split())
            parts = [f"“{name}”" if name else "", *parts, f"({described})" if described else ""]
            tip = " ".join(widget.toolTip().split())
            parts.append(f"[{tip}]" if tip not in ("", described, *parts) and not is_input else "")
            yield " ".join([type(widget).__name__, *filter(None, parts)])
        if isinstance(widget, QAbstractItemView):
            yield from _list_cells(widget, with_roles=with_roles)


def _describe_state(widget: QWidget) -> Iterator[str]:
    if isinstance(widget, QLabel):
        yield " ".join(widget.text().split())
    elif isinstance(widget, QAbstractButton):
        yield widget.text().replace("&", "")
        if widget.isCheckable():
            yield "checked" if widget.isChecked() else "unchecked"
        if isinstance(widget, QToolButton) and widget.menu() is not None:
            yield widget.popupMode().name
    elif isinstance(widget, QComboBox):
        yield f"{widget.currentText()} of {widget.count()}"
    elif isinstance(widget, QLineEdit | QAbstractSpinBox):
        yield widget.text()
        yield _describe_limits(widget)
    elif isinstance(widget, QPlainTextEdit | QTextEdit):
        yield " ".join(widget.toPlainText().split())[:MAX_CHARACTERS]
    elif isinstance(widget, QTabBar):
        yield f"{widget.tabText(widget.currentIndex())} of {widget.count()}".replace("&", "")
    elif isinstance(widget, QProgressBar | QAbstractSlider):
        yield f"{widget.value()} of {widget.minimum()} to {widget.maximum()}"
        yield f"by {widget.singleStep()} or {widget.pageStep()}" if isinstance(widget, QAbstractSlider) else ""
    elif isinstance(widget, QAbstractItemView):
        yield f"{widget.model().rowCount()} rows" if widget.model() is not None else ""
        yield widget.selectionMode().name
    elif isinstance(widget, QGraphicsView):
        yield from _list_plot_items(widget)
    if not widget.isEnabled() and widget.parentWidget() is not None and widget.parentWidget().isEnabled():
        yield "disabled"


def _describe_limits(widget: QLineEdit | QAbstractSpinBox) -> str:
    """Return the range and step of a number, or the completion mode of a text. Return "" if the widget has neither."""
    if isinstance(widget, QSpinBox | QDoubleSpinBox):
        return f"from {widget.minimum():g} to {widget.maximum():g} by {widget.singleStep():g}"
    completer = widget.completer() if isinstance(widget, QLineEdit) else None
    return f"completes {completer.filterMode().name}, {completer.caseSensitivity().name}" if completer else ""


def _list_cells(view: QAbstractItemView, *, with_roles: bool) -> Iterator[str]:
    """Yield the headers and the first rows of a table or list, with check states.

    If `with_roles`, a line about the appearance and accessibility of its cells follows each row.
    """
    model = view.model()
    if model is None:
        return
    columns = range(1 if isinstance(model, QAbstractListModel) else model.columnCount())
    headers = [model.headerData(column, Qt.Orientation.Horizontal) for column in columns]
    yield f"  | {' | '.join(str(header) for header in headers)}"
    for row in range(min(model.rowCount(), MAX_ROWS)):
        cells = [model.index(row, column) for column in columns]
        yield f"  | {' | '.join(map(_describe_cell, cells))}"
        roles = [_describe_roles(cell) for cell in cells]
        if with_roles and any(roles):
            repeated = [(text, len(list(same))) for text, same in groupby(roles)]
            yield f"  ~ {' | '.join(text if count == 1 else f'{count} x {text}' for text, count in repeated)}"


def _describe_cell(index: QModelIndex) -> str:
    text = index.data()
    checked = index.data(Qt.ItemDataRole.CheckStateRole)
    mark = "" if checked is None else "[x] " if Qt.CheckState(checked) == Qt.CheckState.Checked else "[ ] "
    return mark + ("" if text is None else " ".join(str(text).split()))


def _describe_roles(index: QModelIndex) -> str:
    """Describe a cell's style and icon, and its accessible text and tool tip if they differ from its text."""
    role = Qt.ItemDataRole
    font, color, icon = (index.data(each) for each in (role.FontRole, role.ForegroundRole, role.DecorationRole))
    texts = dict.fromkeys(index.data(each) for each in (role.AccessibleTextRole, role.ToolTipRole))
    parts = [" ".join(str(text).split()) for text in texts if text and text != index.data()]
    parts += ["right"] if (index.data(role.TextAlignmentRole) or 0) & Qt.AlignmentFlag.AlignRight else []
    parts += ["bold"] if font is not None and font.bold() else []
    parts += [name for name, value in asdict(theme.colors()).items() if color is not None and value == color.name()][:1]
    return "; ".join(parts + (["icon"] if icon is not None else []))


def _list_plot_items(view: QGraphicsView) -> Iterator[str]:
    """Yield a description of each visible curve (its number of points and sums of x and y) and text in a plot."""
    for item in view.scene().items() if view.scene() is not None else ():
        if isinstance(item, pg.PlotDataItem | pg.ScatterPlotItem) and item.isVisible():
            x, y = item.getData()
            if x is not None and len(x):
                yield f"{type(item).__name__} {len(x)} {np.nansum(x):.4g} {np.nansum(y):.4g}"
        elif isinstance(item, pg.TextItem) and item.isVisible():
            yield f"“{item.toPlainText()}”"
