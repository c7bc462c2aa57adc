"""Search for texts that a page doesn't show in full, and for unwanted horizontal scroll bars."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QCoreApplication, QEvent, QModelIndex, QRect, QRectF, Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QAbstractScrollArea,
    QComboBox,
    QHeaderView,
    QLabel,
    QListView,
    QPlainTextEdit,
    QTabBar,
    QTableView,
    QTextEdit,
    QTreeView,
    QWidget,
)
from shiboken6 import isValid

from gui.dataset.examples import ExampleList
from gui.plots.axes import Axis
from gui.plots.view import PlotView
from gui.widgets.labels import ElidedLabel

SLACK = 2
"""Number of pixels by which a text may be larger than the space for it."""

_MAY_SCROLL = QPlainTextEdit | QTextEdit | QTableView | QTreeView | ExampleList
"""Types of widgets that may scroll horizontally: tables, trees, and text without line wrapping."""


def find_clipped_texts(page: QWidget) -> Iterator[str]:
    """Yield a message for each text that is cut off and shown nowhere else, and for each horizontal scroll bar.

    Numbers at the axes of plots that overlap, and lists of combo boxes that are too small, are also reported.
    """
    page.grab()  # plots place their numbers while they are painted
    for widget in (page, *page.findChildren(QWidget)):
        if isValid(widget) and widget.isVisible() and not _get_visible_part(widget).isEmpty():
            for fault in _find_faults(widget):
                yield f"{type(widget).__name__} {_name(widget)!r}: {fault}"


def _find_faults(widget: QWidget) -> Iterator[str]:
    if isinstance(widget, ElidedLabel):
        yield from _find_elided_texts(widget)
    elif isinstance(widget, QTabBar):
        if widget.usesScrollButtons() and widget.sizeHint().width() > widget.width() + SLACK:
            yield f"tabs need {widget.sizeHint().width()} of {widget.width()} pixels"
    elif isinstance(widget, QComboBox):
        yield from _check_popup(widget)
    elif isinstance(widget, PlotView):
        yield from _check_axes(widget)
    if isinstance(widget, QTableView | QTreeView | QListView):
        yield from _check_cells(widget)
    if isinstance(widget, QHeaderView):
        yield from _check_sections(widget)
    elif isinstance(widget, QAbstractScrollArea) and not isinstance(widget, _MAY_SCROLL):
        bar = widget.horizontalScrollBar()
        if bar.isVisible() and bar.maximum() > 0:
            yield f"scrolls sideways by {bar.maximum()} pixels"


def _find_elided_texts(label: ElidedLabel) -> Iterator[str]:
    text = label.text()
    if label.fontMetrics().horizontalAdvance(text) <= label.width() + SLACK:
        return
    tips = [holder.toolTip().lower() for holder in _with_parents(label)]
    if label.toolTip() and not any(all(part in tip for part in text.lower().split(" · ")) for tip in tips):
        yield "is elided and its tool tip doesn't contain the text"


def _check_popup(box: QComboBox) -> Iterator[str]:
    """Open the list of a combo box and yield a message if it is too narrow or too short."""
    view = box.view()
    box.showPopup()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
    try:
        needed = view.sizeHintForColumn(0)
        room = view.viewport().width()
        if needed > room + SLACK and view.textElideMode() != Qt.TextElideMode.ElideNone:
            yield f"popup is {room} pixels wide and needs {needed}"
        visible = min(box.count(), box.maxVisibleItems())
        rows = sum(view.sizeHintForRow(row) for row in range(visible))
        if view.viewport().height() < rows - SLACK and not _shows_complete_rows(view):
            yield f"popup is {view.viewport().height()} pixels high and needs {rows} for {visible} rows"
    finally:
        box.hidePopup()


def _shows_complete_rows(view: QAbstractItemView) -> bool:
    """Return True if the last visible row of a list isn't cut off by the bottom edge."""
    last = view.indexAt(view.viewport().rect().bottomLeft())
    return not last.isValid() or view.visualRect(last).bottom() <= view.viewport().height() + SLACK


def _check_axes(view: PlotView) -> Iterator[str]:
    for axis in (view.bottom_axis, view.left_axis):
        assert isinstance(axis, Axis)
        texts = [axis.mapRectToScene(rect) for rect in axis.label_rects()]
        if any(first.adjusted(0, 0, -1, -1).intersects(other) for i, first in enumerate(texts) for other in texts[:i]):
            yield f"numbers of {type(axis).__name__} overlap"
        slack = view.fontMetrics().height() / 2
        room = QRectF(view.rect()).adjusted(-slack, -slack, slack, slack)
        outside = [text for text in texts if not room.contains(text)]
        if outside:
            yield f"{len(outside)} numbers of {type(axis).__name__} are cut"


def _check_cells(view: QTableView | QTreeView | QListView) -> Iterator[str]:
    model = view.model()
    if model is None or isinstance(view.parent(), QComboBox):
        return
    line = view.fontMetrics().height()
    room = view.viewport().rect()
    index = view.indexAt(room.topLeft())
    for row in range(max(0, index.row()), min(model.rowCount(), max(0, index.row()) + 40)):
        for column in range(1 if isinstance(view, QListView) else model.columnCount()):
            cell = model.index(row, column, index.parent() if index.isValid() else QModelIndex())
            rect = view.visualRect(cell)
            text = str(cell.data() or "")
            if rect.isEmpty() or not text or not room.contains(rect.center()):
                continue
            if rect.height() < line - SLACK:
                yield f"row of {text[:40]!r} is {rect.height()} pixels high, its text {line}"
            if _is_cut(view, text, rect) and text not in str(cell.data(Qt.ItemDataRole.ToolTipRole) or ""):
                yield f"cell {text[:40]!r} has {rect.width()} pixels and no tool tip"


def _is_cut(view: QAbstractItemView, text: str, rect: QRect) -> bool:
    if isinstance(view, QListView) and view.viewMode() == QListView.ViewMode.IconMode:
        return False
    return view.fontMetrics().horizontalAdvance(max(text.splitlines() or [""], key=len)) > rect.width() + SLACK


def _check_sections(header: QHeaderView) -> Iterator[str]:
    model = header.model()
    if model is None or header.orientation() == Qt.Orientation.Vertical:
        return
    for section in range(header.count()):
        if header.isSectionHidden(section):
            continue
        text = str(model.headerData(section, header.orientation()) or "")
        tip = str(model.headerData(section, header.orientation(), Qt.ItemDataRole.ToolTipRole) or "")
        if header.fontMetrics().horizontalAdvance(text) > header.sectionSize(section) and text not in tip:
            yield f"title {text!r} has {header.sectionSize(section)} pixels"
    if header.height() < header.fontMetrics().height() - SLACK and header.count():
        yield f"is {header.height()} pixels high"


def _get_visible_part(widget: QWidget) -> QRect:
    """Return the part of a widget that its parents don't clip, in window coordinates."""
    rect, holder = widget.rect(), widget
    while not holder.isWindow() and (parent := holder.parentWidget()) is not None:
        rect = rect.translated(holder.pos()) & parent.rect()
        holder = parent
    return rect


def _name(widget: QWidget) -> str:
    text = widget.text() if isinstance(widget, QLabel) else widget.accessibleName()
    return (text or widget.accessibleName() or type(widget.parent()).__name__)[:60]


def _with_parents(widget: QWidget) -> Iterator[QWidget]:
    holder: QWidget | None = widget
    while holder is not None:
        yield holder
        holder = holder.parentWidget()
