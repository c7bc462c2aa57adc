"""State that stacked plots share: horizontal range, crosshair and redraw timer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, Protocol

from PySide6.QtCore import QObject, QTimer, Signal
from shiboken6 import isValid

AxisKind = Literal["clock", "elapsed", "count", "epochs"]
"""Quantity on the horizontal axis: time of day, seconds since the start, whole numbers, or fractional epochs."""

REDRAW_MS = 40
"""Milliseconds for collecting changes before they are drawn."""

DESCRIBE_MS = 1000
"""Minimum milliseconds between descriptions for screen readers."""

_HEADROOM = 0.04
"""Fraction of the range that stays empty at the right, so that the axis doesn't move with every new point."""

_MIN_ZOOM = 1e-4
"""Minimum visible range after zooming in, as a fraction of the data's length."""

_MIN_SPAN_FRACTION = 0.1
"""Minimum visible range while there are few data, as a fraction of the selected time span."""


class Drawable(Protocol):
    """Interface of a plot in a `PlotGroup`."""

    def redraw(self) -> None: ...

    def update_description(self) -> None: ...

    def isVisible(self) -> bool: ...

    def has_mark(self, mark: Mark) -> bool: ...


@dataclass(frozen=True)
class Mark:
    """Vertical line that marks the start of something in the plots of a group, or its end if `ends` is True.

    Attributes:
        x: Position on the horizontal axis.
        label: Text next to the line, or "" for none.
        color: Returns the color. It is called after each change of the color scheme.
        of: Keys of the lines whose plots show the mark, or None for every plot.
    """

    x: float
    label: str
    color: Callable[[], str]
    ends: bool = False
    of: frozenset[str] | None = None


class PlotGroup(QObject):
    """Group of plots that share a horizontal range, which follows the newest data until the user zooms or pans.

    Horizontal positions are in the unit of the axis, relative to `origin`.

    Signals:
        range_changed(): `range` has changed.
        following_changed(bool): the group has started (True) or stopped (False) following the newest data.
        cursor_changed(): the crosshair has moved; see `cursor`.
        marks_changed(): `marks` has changed.
    """

    range_changed = Signal()
    following_changed = Signal(bool)
    cursor_changed = Signal()
    marks_changed = Signal()

    def __init__(self, axis: AxisKind, *, span: float | None = None, parent: QObject | None = None) -> None:
        """Create a group that shows the last `span` of the data, or all data if `span` is None.

        `axis` is the quantity on the horizontal axis, which determines the unit of all positions and of `span`.
        """
        super().__init__(parent)
        self.axis = axis
        self.origin = 0.0  # position 0; for clock times, in seconds since the epoch
        self.following = True  # False once the user has zoomed or panned
        self.cursor: float | None = None  # position of the crosshair
        self.marks: tuple[Mark, ...] = ()
        self.range = (0.0, span or 1.0)  # visible positions
        self._span = span
        self._plots: list[Drawable] = []
        self._data_start = 0.0  # range of the data
        self._data_end = 0.0
        self._changed: dict[Drawable, None] = {}  # plots to redraw, in order
        self._undescribed: dict[Drawable, None] = {}  # plots whose accessible description is outdated
        self._timer = QTimer(self, singleShot=True, interval=REDRAW_MS)
        self._timer.timeout.connect(self._redraw_changed)
        self._describe_timer = QTimer(self, singleShot=True, interval=DESCRIBE_MS)
        self._describe_timer.timeout.connect(self._update_descriptions)

    @property
    def extent(self) -> tuple[float, float]:
        """Positions of the first and last data."""
        return self._data_start, self._data_end

    def plots_above(self, plot: Drawable) -> list[Drawable]:
        """Return the visible plots above `plot`, which determine the marks whose labels `plot` shows.

        Only the topmost plot with a mark shows the label of the mark. Plots that have been deleted are removed from the
        group.
        """
        self._plots = [each for each in self._plots if isValid(each)]
        return [each for each in takewhile(lambda each: each is not plot, self._plots) if each.isVisible()]

    def join(self, plot: Drawable) -> None:
        """Add a plot below the others."""
        self._plots.append(plot)

    def set_marks(self, marks: Sequence[Mark]) -> None:
        if tuple(marks) != self.marks:
            self.marks = tuple(marks)
            self.marks_changed.emit()

    def set_span(self, span: float | None) -> None:
        """Follow the newest data, and show the last `span` of it, or all data if `span` is None."""
        self._span = span
        self.follow()

    def schedule_redraw(self, plot: Drawable) -> None:
        """Schedule a redraw of `plot`, and an update of its description."""
        self._changed[plot] = None
        self._undescribed[plot] = None
        if not self._timer.isActive():
            self._timer.start()
        if not self._describe_timer.isActive():
            self._describe_timer.start()

    def set_extent(self, first: float, last: float) -> None:
        """Set the positions of the first and last data, and show the newest data if the group follows them."""
        self._data_start, self._data_end = first, max(first, last)
        if self.following:
            self._show_newest()

    def set_axis(self, axis: AxisKind) -> None:
        """Change the quantity on the horizontal axis, hide the crosshair, and follow the newest data."""
        self.axis = axis
        self.cursor = None
        self.cursor_changed.emit()
        self.range = (0.0, 0.0)  # `follow` then emits `range_changed`, even for the same numbers
        self.follow()

    def follow(self) -> None:
        """Resume following the newest data."""
        was_following, self.following = self.following, True
        self._show_newest(refit=True)
        if not was_following:
            self.following_changed.emit(True)

    def show_range(self, low: float, high: float) -> None:
        """Show the range that the user has zoomed or panned to. The group stops following the newest data.

        The center of the range is moved into the data. The range is at most twice as long as the data.
        """
        length = max(self._data_end - self._data_start, 1e-9)
        middle, half = (low + high) / 2, max((high - low) / 2, length * _MIN_ZOOM / 2)
        half = min(half, length)
        middle = min(max(middle, self._data_start), self._data_end)
        self._set_range((middle - half, middle + half))
        if self.following:
            self.following = False
            self.following_changed.emit(False)

    def zoom(self, factor: float) -> None:
        """Scale the range by `factor` around the crosshair, or around the middle if the crosshair is hidden."""
        low, high = self.range
        middle = self.cursor if self.cursor is not None and low <= self.cursor <= high else (low + high) / 2
        self.show_range(middle - (middle - low) * factor, middle + (high - middle) * factor)

    def pan(self, fraction: float) -> None:
        """Move the range to the right by `fraction` of its length, or to the left if `fraction` is negative."""
        low, high = self.range
        distance = (high - low) * fraction
        self.show_range(low + distance, high + distance)

    def set_cursor(self, x: float | None) -> None:
        if x != self.cursor:
            self.cursor = x
            self.cursor_changed.emit()

    def _show_newest(self, *, refit: bool = False) -> None:
        """Show the last `_span` of the data or, if `_span` is None, all data with room for more at the right.

        A range that shows all data changes only if the data don't fit into it, if they leave too much room, or if
        `refit`.
        """
        if self._span is not None:
            data_span = max(self._data_end - self._data_start, _MIN_SPAN_FRACTION * self._span)
            self._set_range((self._data_end - min(self._span, data_span), self._data_end))
            return
        low, high = self.range
        length = max(self._data_end - self._data_start, 1e-9)
        highest_fitting = self._data_start + length * (1 + 3 * _HEADROOM)
        fits = low == self._data_start and self._data_end <= high <= highest_fitting
        if refit or not fits:
            self._set_range((self._data_start, self._data_start + length * (1 + _HEADROOM)))

    def _set_range(self, new_range: tuple[float, float]) -> None:
        if new_range != self.range:
            self.range = new_range
            self.range_changed.emit()

    def _redraw_changed(self) -> None:
        changed, self._changed = list(self._changed), {}
        for plot in filter(isValid, changed):  # a plot may have been deleted with its page
            plot.redraw()

    def _update_descriptions(self) -> None:
        plots, self._undescribed = list(self._undescribed), {}
        for plot in filter(isValid, plots):
            plot.update_description()
