"""The state that stacked plots share: the horizontal range, the crosshair and the redraw timer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, Protocol

from PySide6.QtCore import QObject, QTimer, Signal
from shiboken6 import isValid

AxisKind = Literal["clock", "elapsed", "count", "epochs"]
"""What the horizontal axis counts: seconds shown as the time of day, seconds since the start, whole numbers, or epochs
with fractions."""

REDRAW_MS = 40
"""Changes within so many milliseconds are drawn together."""

WORDS_EVERY_MS = 1000
"""Screen readers are told new values at most so often."""

_HEADROOM = 0.04
"""Share of the range that is kept free at the right, so that the axis need not move with every point."""

_LEAST_ZOOM = 1e-4
"""The smallest share of all data that may be zoomed into."""


class Drawable(Protocol):
    """A plot of a group: it can be redrawn, and describe its values for screen readers."""

    def redraw(self) -> None: ...

    def say(self) -> None: ...

    def isVisible(self) -> bool: ...

    def has(self, mark: Mark) -> bool: ...


@dataclass(frozen=True)
class Mark:
    """A vertical line in the plots of a group, at `x` on the horizontal axis: something began there, or, with `ends`,
    came to its end. `color` is asked anew when the scheme changes. It stands in every plot, or where `of` is given in
    those alone that show something of it.
    """

    x: float
    label: str
    color: Callable[[], str]
    ends: bool = False
    of: frozenset[str] | None = None


class PlotGroup(QObject):
    """Keeps the newest data in sight until the user zooms or pans, and again after `follow`.

    Positions on the horizontal axis are in the axis's unit, less `origin`.

    Signals:
        range_changed(): `range` is another one.
        following_changed(bool): whether the newest data is kept in sight.
        cursor_changed(): the crosshair has moved; see `cursor`.
        marks_changed(): `marks` are others.
    """

    range_changed = Signal()
    following_changed = Signal(bool)
    cursor_changed = Signal()
    marks_changed = Signal()

    def __init__(self, axis: AxisKind, *, span: float | None = None, parent: QObject | None = None) -> None:
        """`span` is how much is shown, back from the newest; None for everything."""
        super().__init__(parent)
        self.axis = axis
        self.origin = 0.0
        self.following = True
        self.cursor: float | None = None
        self.marks: tuple[Mark, ...] = ()
        self.range = (0.0, span or 1.0)
        self._span = span
        self._plots: list[Drawable] = []
        self._first = 0.0
        self._last = 0.0
        self._dirty: dict[Drawable, None] = {}
        self._untold: dict[Drawable, None] = {}
        self._timer = QTimer(self, singleShot=True, interval=REDRAW_MS)
        self._timer.timeout.connect(self._drain)
        self._teller = QTimer(self, singleShot=True, interval=WORDS_EVERY_MS)
        self._teller.timeout.connect(self._tell)

    @property
    def extent(self) -> tuple[float, float]:
        """Where the data begins and ends."""
        return self._first, self._last

    def above(self, plot: Drawable) -> list[Drawable]:
        """The plots in sight that joined before `plot`; each mark is named by the first that has it."""
        self._plots = [each for each in self._plots if isValid(each)]
        return [each for each in takewhile(lambda each: each is not plot, self._plots) if each.isVisible()]

    def join(self, plot: Drawable) -> None:
        """Takes in another plot, below those there are."""
        self._plots.append(plot)

    def set_marks(self, marks: Sequence[Mark]) -> None:
        """Replaces the markers of every plot."""
        if tuple(marks) != self.marks:
            self.marks = tuple(marks)
            self.marks_changed.emit()

    def set_span(self, span: float | None) -> None:
        """Follows the newest data, showing that much before it (None for everything), and ends any zoom."""
        self._span = span
        self.follow()

    def touch(self, plot: Drawable) -> None:
        """Has `plot` redrawn soon, together with others, and later described anew."""
        self._dirty[plot] = None
        self._untold[plot] = None
        if not self._timer.isActive():
            self._timer.start()
        if not self._teller.isActive():
            self._teller.start()

    def set_extent(self, first: float, last: float) -> None:
        """Tells where the data begins and ends now."""
        self._first, self._last = first, max(first, last)
        if self.following:
            self._show_newest()

    def set_axis(self, axis: AxisKind) -> None:
        """Counts something else from now on; what was zoomed into is given up."""
        self.axis = axis
        self.cursor = None
        self.cursor_changed.emit()
        self.range = (0.0, 0.0)
        self.follow()

    def follow(self) -> None:
        """Goes back to the newest data and stays with it."""
        was, self.following = self.following, True
        self._show_newest(exactly=True)
        if not was:
            self.following_changed.emit(True)

    def show_range(self, low: float, high: float) -> None:
        """Shows the range that the user has zoomed or panned to, and stops following the newest data."""
        whole = max(self._last - self._first, 1e-9)
        middle, half = (low + high) / 2, max((high - low) / 2, whole * _LEAST_ZOOM / 2)
        half = min(half, whole)
        middle = min(max(middle, self._first), self._last)
        self._set_range((middle - half, middle + half))
        if self.following:
            self.following = False
            self.following_changed.emit(False)

    def zoom(self, factor: float) -> None:
        """Shows `factor` times as much, around the crosshair where it is in sight, else around the middle."""
        low, high = self.range
        middle = self.cursor if self.cursor is not None and low <= self.cursor <= high else (low + high) / 2
        self.show_range(middle - (middle - low) * factor, middle + (high - middle) * factor)

    def pan(self, share: float) -> None:
        """Moves by `share` of what is shown, to the right where it is positive."""
        low, high = self.range
        move = (high - low) * share
        self.show_range(low + move, high + move)

    def set_cursor(self, x: float | None) -> None:
        if x != self.cursor:
            self.cursor = x
            self.cursor_changed.emit()

    def _show_newest(self, exactly: bool = False) -> None:
        low, high = self.range
        if self._span is not None:
            self._set_range((self._last - self._span, self._last))
            return
        length = max(self._last - self._first, 1e-9)
        fits = low == self._first and self._last <= high <= self._first + length * (1 + 3 * _HEADROOM)
        if exactly or not fits:
            self._set_range((self._first, self._first + length * (1 + _HEADROOM)))

    def _set_range(self, wanted: tuple[float, float]) -> None:
        if wanted != self.range:
            self.range = wanted
            self.range_changed.emit()

    def _drain(self) -> None:
        dirty, self._dirty = list(self._dirty), {}
        for plot in filter(isValid, dirty):  # a plot may have gone with its page
            plot.redraw()

    def _tell(self) -> None:
        untold, self._untold = list(self._untold), {}
        for plot in filter(isValid, untold):
            plot.say()
