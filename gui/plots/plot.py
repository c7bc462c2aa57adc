"""Line plot that is fast with hundreds of thousands of points, and can be operated by keyboard."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QAction, QColor, QContextMenuEvent, QKeyEvent, QPainter, QPaintEvent, QPen, QShowEvent
from PySide6.QtWidgets import QAbstractButton, QLabel, QMenu, QWidget

from engine.system.format import with_unit
from gui.format import localized, significant
from gui.plots.annotations import Threshold
from gui.plots.group import Mark, PlotGroup
from gui.plots.line import Frame, Line, LineStyle
from gui.plots.readout import Readout, format_position
from gui.plots.view import PlotView
from gui.sources.columns import Floats
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.layouts import vbox

_FOCUS_WIDTH = 2
_NEAR_PX = 4
"""Distance in pixels within which the pointer counts as being on a mark."""
_ZOOM_FACTOR = 1.4
_ROOM = 0.06
"""Room above and below the curves, as a fraction of their range."""


class LinePlot(QWidget):
    """Plot of lines over a horizontal axis that all plots of a group share.

    The wheel zooms around the pointer, dragging pans, and a double click returns to the newest data. On the keyboard,
    Left and Right move the crosshair, Shift+Left and Shift+Right pan, + and - zoom, Home returns to the newest data,
    and Escape hides the crosshair. The title row shows the values at the crosshair, or the newest ones. The label of a
    mark is shown by the topmost plot with the mark.
    """

    def __init__(
        self,
        title: str,
        group: PlotGroup,
        *,
        unit: str = "",
        scale: float = 1.0,
        write: Callable[[float], str] | None = None,
        low: float | None = None,
        high: float | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
        dense: bool = False,
        meaning: str = "",
    ) -> None:
        """Create an empty plot.

        Args:
            title: Heading and accessible name.
            group: Plots with the same horizontal axis.
            unit: Unit of the vertical axis.
            scale: Factor that converts values to `unit`.
            write: Formats a value in `unit`.
            low: Fixed lower limit in `unit`; None to follow the data.
            high: Fixed upper limit in `unit`; None to follow the data.
            bounds: Smallest and largest possible value in `unit`, for limits that follow the data.
            dense: Leave out the title row and use a narrow axis. The parent shows the values (see `read`).
            meaning: Tool tip of the title. A tool tip of the graph would cover the curves.
        """
        super().__init__()
        self.title = title
        self.group = group
        self._scale = scale
        self._fixed_limits = (low, high)  # fixed limits of the vertical axis
        # Smallest and largest value with a label on the vertical axis.
        self._bounds = (bounds[0] if low is None else low, bounds[1] if high is None else high)
        self._log = False  # True for a logarithmic vertical axis
        self._lines: dict[str, Line] = {}  # by key
        self._hidden: set[str] = set()  # keys of the lines that the user has hidden
        self._fitted_range: tuple[float, float] | None = None  # visible vertical range, or None until it is computed
        self._empty_text = tr("No data yet")
        self._readout = Readout(
            title, unit, scale, write or (lambda value: with_unit(significant(value, 4), unit)), meaning
        )
        self._dense = dense
        self._build_view()
        self._view.left_axis.set_label_limits(*self._bounds)
        self.setLayout(
            vbox(
                self._readout,
                (self._view, 1),
                spacing=2,
                margins=(_FOCUS_WIDTH, _FOCUS_WIDTH, _FOCUS_WIDTH, _FOCUS_WIDTH),
            )
        )
        self._readout.setVisible(not dense)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(title)
        group.join(self)
        group.range_changed.connect(self.schedule_redraw)
        group.marks_changed.connect(self.schedule_redraw)
        group.cursor_changed.connect(self._on_cursor_changed)
        theme.notifier.changed.connect(self.recolor)
        self.recolor()
        self.update_description()

    def add_line(self, key: str, style: LineStyle) -> None:
        """Add a line with this key and style, unless a line with this key exists."""
        if key not in self._lines:
            self._lines[key] = Line(style, self._view)

    def line_actions(self, menu: QMenu) -> list[QAction]:
        """Return an action for each line that shows or hides it. The actions belong to `menu`."""
        actions = []
        for key, line in self._lines.items():
            action = QAction(line.style.label, menu, checkable=True, checked=key not in self._hidden)
            action.toggled.connect(partial(self.show_line, key))
            actions.append(action)
        return actions

    def show_line(self, key: str, is_visible: bool) -> None:
        """Show or hide the line with this key. The choice also applies if the line is removed and added again."""
        self._hidden = self._hidden - {key} if is_visible else self._hidden | {key}
        if key in self._lines and not is_visible:
            self._lines[key].hide()
        self.schedule_redraw()

    @property
    def _visible_lines(self) -> list[Line]:
        return [line for key, line in self._lines.items() if key not in self._hidden]

    def add_button(self, button: QAbstractButton) -> None:
        """Add a button at the end of the title row."""
        self._readout.add_button(button)

    def remove_lines(self) -> None:
        """Remove all lines and their data."""
        for line in self._lines.values():
            line.remove()
        self._lines.clear()
        self.schedule_redraw()

    def set_data(self, key: str, x: Floats, y: Floats) -> None:
        """Set the values `y` of the line with this key, at the positions `x`.

        The arrays aren't copied, so they may change only on the GUI thread.
        """
        line = self._lines[key]
        if len(x) < len(line.x):  # these are other data, not a continuation
            line.clear_data()
        line.set_data(x, y)
        self.schedule_redraw()

    def set_thresholds(self, thresholds: Sequence[Threshold]) -> None:
        """Replace the thresholds. The vertical axis isn't extended to include them."""
        self._view.annotations.show_thresholds(thresholds)

    def read(self, key: str) -> str:
        """Format the value of the line with this key at the crosshair or, without a crosshair, its newest value.

        Returns a dash if there is no value.
        """
        line, cursor = self._lines[key], self.group.cursor
        return self._readout.write(line, line.latest if cursor is None else line.value_at(cursor))

    def clear_data(self) -> None:
        """Remove the data of all lines, and reset the vertical range."""
        for line in self._lines.values():
            line.clear_data()
        self._fitted_range = None
        self._view.box.set_y_range(0.0, 1.0)

    def set_smoothing(self, weight: float) -> None:
        """Set the weight of the moving average. A weight of 0 disables smoothing."""
        for line in self._lines.values():
            line.set_smoothing(weight)
        self.schedule_redraw()

    def set_log(self, log: bool) -> None:
        """Set whether the vertical axis is logarithmic. A logarithmic axis hides values of 0 and below."""
        self._log = log
        self._view.left_axis.log = log
        self._view.annotations.log = log
        self.schedule_redraw()

    def set_title(self, title: str) -> None:
        """Set the heading and the accessible name."""
        if title == self.title:
            return
        self.title = title
        self.setAccessibleName(title)
        self._view.setAccessibleName(tr("{plot} plot area").format(plot=title))
        self._readout.set_title(title)

    def set_empty_text(self, text: str) -> None:
        """Set the text that is displayed instead of missing data."""
        self._empty_text = text
        self._empty.setText(text)

    def schedule_redraw(self) -> None:
        self.group.schedule_redraw(self)

    def redraw(self) -> None:
        """Draw all changes. A hidden plot draws them when it becomes visible."""
        if not self.isVisible():
            return
        self._view.box.set_x_range(*self.group.range)
        frame = Frame(*self.group.range, self._view.box_width, self._scale, self._log)
        drawn_limits = [line.draw(frame) for line in self._visible_lines]
        self._fit_vertical_range([limits for limits in drawn_limits if limits is not None])
        self._show_marks()
        self._empty.setVisible(not any(len(line.x) for line in self._lines.values()))
        self._write_values()

    def has_mark(self, mark: Mark) -> bool:
        """Return True if `mark` is for all plots or for a line of this plot."""
        return mark.of is None or not mark.of.isdisjoint(self._lines)

    def _show_marks(self) -> None:
        """Show the marks of this plot, with the labels that no visible plot above shows."""
        marks = tuple(filter(self.has_mark, self.group.marks))
        above = self.group.plots_above(self) if marks else []
        named = frozenset(mark for mark in marks if not any(plot.has_mark(mark) for plot in above))
        self._view.annotations.show_marks(marks, named)

    def describe(self) -> str:
        """Describe the latest values of all lines, for screen readers."""
        return self._readout.describe(self._visible_lines, self.group.cursor, self._cursor_text) or self._empty_text

    def update_description(self) -> None:
        """Set the accessible description to the latest values, for screen readers."""
        self.setAccessibleDescription(self.describe())

    def sizeHint(self) -> QSize:
        return QSize(400, 150)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.schedule_redraw()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.hasFocus():
            painter = QPainter(self)
            painter.setPen(QPen(QColor(theme.colors().accent), _FOCUS_WIDTH))
            painter.drawRect(self.rect().adjusted(1, 1, -1, -1))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Open a menu that shows or hides lines. A dense plot leaves the menu to its parent."""
        if self._dense or len(self._lines) < 2:
            event.ignore()
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addActions(self.line_actions(menu))
        menu.popup(event.globalPos())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Handle the keys that move the crosshair, pan, zoom, return to the newest data, or hide the crosshair.

        The docstring of the class lists the keys.
        """
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        key = event.key()
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            direction = 1 if key == Qt.Key.Key_Right else -1
            if shift:
                self.group.pan(0.1 * direction)  # by a tenth of the visible range
            else:
                self._step_cursor(direction)
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.group.zoom(1 / _ZOOM_FACTOR)
        elif key == Qt.Key.Key_Minus:
            self.group.zoom(_ZOOM_FACTOR)
        elif key == Qt.Key.Key_Home:
            self.group.follow()
        elif key == Qt.Key.Key_Escape and self.group.cursor is not None:
            self.group.set_cursor(None)
        else:
            super().keyPressEvent(event)

    def _build_view(self) -> None:
        """Create the view with the curves, and the text that covers it while there are no data."""
        view = self._view = PlotView(self.group, narrow=self._dense)
        view.setAccessibleName(tr("{plot} plot area").format(plot=self.title))
        self._empty = styled(QLabel(self._empty_text, view), "muted")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        view.box.moved_by_mouse.connect(self._on_moved_by_mouse)
        view.scene().sigMouseMoved.connect(self._on_mouse_moved)
        view.left.connect(lambda: self.group.set_cursor(None))
        view.double_clicked.connect(self.group.follow)
        view.resized.connect(self._on_resized)

    def _on_resized(self) -> None:
        self._empty.setGeometry(self._view.rect())
        self.schedule_redraw()

    def recolor(self) -> None:
        self._view.recolor()
        for line in self._lines.values():
            line.recolor()
        self.schedule_redraw()

    def _on_moved_by_mouse(self) -> None:
        self.group.show_range(*self._view.box.x_range)
        self.schedule_redraw()

    def _on_mouse_moved(self, position: QPointF) -> None:
        """Move the crosshair to the pointer, and show the label of a mark near it as a tool tip."""
        box = self._view.box
        is_inside = box.sceneBoundingRect().contains(position)
        pointer_x = box.pixel_to_x(box.mapFromScene(position).x()) if is_inside else None
        mark = self._view.annotations.find_mark(pointer_x, _NEAR_PX) if pointer_x is not None else None
        self._view.setToolTip(mark.label if mark is not None else "")
        self.group.set_cursor(pointer_x)

    def _step_cursor(self, direction: int) -> None:
        """Move the crosshair to the next point of the longest line (`direction` 1), or to the previous one (-1).

        Steps are at least a pixel wide. If the crosshair is hidden, show it at the newest visible point.
        """
        longest = max(self._lines.values(), key=lambda line: len(line.x), default=None)
        if longest is None or not len(longest.x):
            return
        x = longest.x
        cursor = self.group.cursor
        if cursor is None:
            index = int(np.searchsorted(x, self.group.range[1], side="right")) - 1
        else:
            # Move by at least a pixel, so that the keys can move through a long run.
            stride = (self.group.range[1] - self.group.range[0]) / max(1, self._view.width())
            if direction > 0:
                index = int(np.searchsorted(x, cursor + stride))
            else:
                index = int(np.searchsorted(x, cursor - stride, side="right")) - 1
        self.group.set_cursor(float(x[min(max(index, 0), len(x) - 1)]))

    def _on_cursor_changed(self) -> None:
        """Draw the crosshair at its new position, and show the values there."""
        cursor = self.group.cursor
        self._view.annotations.show_cursor(cursor)
        self._write_values()
        self.schedule_redraw()

    def _fit_vertical_range(self, drawn_limits: list[tuple[float, float]]) -> None:
        """Fit the vertical range to the drawn values and fixed limits, unless the current range fits (see `_fits`).

        `drawn_limits` contains the minimum and maximum of each line.
        """
        # Fixed limits and bounds are values, so they don't apply to a logarithmic axis.
        low, high = (None, None) if self._log else self._fixed_limits
        bounds = (-math.inf, math.inf) if self._log else self._bounds
        if low is None or high is None:
            if not drawn_limits:
                return
            lowest = min(minimum for minimum, _ in drawn_limits) if low is None else low
            highest = max(maximum for _, maximum in drawn_limits) if high is None else high
            if self._fitted_range is None or not _fits(self._fitted_range, lowest, highest):
                self._fitted_range = _extend_range(lowest, highest, bounds)
        else:
            self._fitted_range = _extend_range(low, high, bounds)
        self._view.box.set_y_range(*self._fitted_range)

    @property
    def _cursor_text(self) -> str:
        """Text for the crosshair's position, with the label of the mark near it if this plot shows the label."""
        cursor = self.group.cursor
        if cursor is None:
            return ""
        text = format_position(self.group, cursor)
        annotations = self._view.annotations
        mark = annotations.find_mark(cursor, _NEAR_PX)
        return f"{text} · {mark.label}" if mark is not None and mark in annotations.named else text

    def _write_values(self) -> None:
        if self._dense:
            return
        self._readout.show_values(self._visible_lines, self.group.cursor, self._cursor_text)


def _fits(vertical_range: tuple[float, float], lowest: float, highest: float) -> bool:
    """Return True if the values from `lowest` to `highest` fit into the range and fill at least half of it."""
    low, high = vertical_range
    return low <= lowest and highest <= high and highest - lowest >= 0.5 * (high - low)


def _extend_range(lowest: float, highest: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Extend the range from `lowest` to `highest`, so that curves and labels don't touch the edges.

    `bounds` are the smallest and the largest possible value. At a bound, the range gets only a small margin, in which a
    curve at the bound is visible.
    """
    min_value, max_value = bounds
    margin = _ROOM * (highest - lowest) or 0.05 * abs(highest) or 1.0  # also around a single value, and around 0
    low = min(lowest, max(lowest - margin, min_value))
    high = max(highest, min(highest + margin, max_value))
    room = _ROOM * (high - low)
    return low - room if low == min_value else low, high + room if high == max_value else high


def create_percent_plot(title: str, group: PlotGroup) -> LinePlot:
    """Create a plot with the heading `title` in `group`, which shows fractions from 0 to 1 in percent."""
    return LinePlot(
        title, group, unit="%", scale=100, bounds=(0.0, 100.0), write=lambda value: f"{localized(value, 1)}%"
    )
