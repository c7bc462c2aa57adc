"""Axes of a plot, with ticks at round numbers and round times."""

from __future__ import annotations

import math
import time
from typing import Any

from PySide6.QtCore import QMargins, QMarginsF, QPointF, QRectF
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QStaticText
from PySide6.QtWidgets import QGraphicsSceneWheelEvent, QGraphicsWidget, QStyleOptionGraphicsItem, QWidget

from gui.format import localized, significant
from gui.plots.group import PlotGroup
from gui.plots.view_box import Range, ViewBox, lay_out_text
from gui.style import theme

_TIME_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000,
)  # fmt: skip
_PIXELS_PER_TICK = 80
_PIXELS_PER_ROW = 26
_DAY_S = 86400
_MONTH_S = 30 * _DAY_S
_LOG_FACTORS = (
    (math.log10(10 / 9), tuple(range(1, 10))),
    (math.log10(10 / 8), (1, 2, 3, 4, 6, 8)),
    (math.log10(2), (1, 2, 5)),
    (math.log10(3), (1, 3)),
)
"""Factors to label between powers of ten, after the smallest distance between two labels with them (a logarithm)."""
OVERHANG = QMargins(20, 8, 10, 8)
"""Maximum overhang of labels beyond the plot in pixels: left, top, right, bottom.

The view has margins of this size where it has no axis.
"""
_TEXT_GAP = 5
_BELOW_THE_CURVES = -1
_HEIGHT = 22
"""Height of a horizontal axis in pixels. All sizes in this module are for a text size of 100%."""


def format_elapsed(seconds: float, spacing: float = 1.0) -> str:
    """Format seconds since the start as "0:05", "12:40" or "3:04:10".

    If `spacing`, the seconds between two labels, is less than 1, the text has decimals, as in "0:05.5".
    """
    digits = max(0, math.ceil(-math.log10(spacing)))
    total = round(abs(seconds), digits)
    sign = "-" if seconds < 0 < total else ""  # no sign if the value is rounded to 0
    minutes, remaining_seconds = divmod(total, 60)
    hours, minutes = divmod(int(minutes), 60)
    width = digits + 3 if digits else 2  # with decimals, it includes the point and two digits before it
    second = f"{remaining_seconds:0{width}.{digits}f}"
    return f"{sign}{hours}:{minutes:02}:{second}" if hours else f"{sign}{minutes}:{second}"


class Axis(QGraphicsWidget):
    """Axis next to `box`, the box with the curves, with labels, and with grid lines behind the curves.

    pyqtgraph's axis renders labels and lines to an image first, which took a third of the time for each frame of a
    moving plot.
    """

    def __init__(self, box: ViewBox) -> None:
        super().__init__()
        self.setZValue(_BELOW_THE_CURVES)
        self._box = box
        self._area = QRectF()  # area of the curves, in coordinates of the axis
        self._bounds = QRectF()
        self._layout_key: tuple[object, ...] = ()  # range and size that lines and texts were laid out for
        self._lines: list[QRectF] = []
        self._texts: list[tuple[QPointF, QStaticText]] = []
        box.geometryChanged.connect(self._update_bounds)
        self.geometryChanged.connect(self._update_bounds)
        self.recolor()

    def recolor(self) -> None:
        """Apply the current color scheme and text size."""
        scheme = theme.colors()
        self._grid_color, self._edge_color = QColor(scheme.grid), QColor(scheme.border)
        self._text_color = QColor(scheme.muted)
        self._set_thickness()
        self.update()

    def _set_thickness(self) -> None:
        """Set the height of a horizontal axis, or the width of a vertical one."""
        raise NotImplementedError

    def label_rects(self) -> list[QRectF]:
        """Return the rectangles of the labels that were painted last."""
        return [QRectF(corner, text.size()) for corner, text in self._texts]

    def boundingRect(self) -> QRectF:
        return self._bounds

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._area.isEmpty():
            return
        self._lay_out(*self._range, painter.fontMetrics())
        for line in self._lines:
            painter.fillRect(line, self._grid_color)  # ten times as fast as drawing a line
        painter.fillRect(self._make_edge_rect(), self._edge_color)
        painter.setPen(self._text_color)
        for corner, text in self._texts:
            painter.drawStaticText(corner, text)

    def compute_spacing(self, low: float, high: float, size: float) -> tuple[float, float]:
        """Return the distance between ticks and the position of one tick.

        The visible range is from `low` to `high`, and `size` pixels long.
        """
        raise NotImplementedError

    def format_labels(self, values: list[float], spacing: float) -> list[str]:
        """Return the labels of ticks at `values`, which are `spacing` apart."""
        raise NotImplementedError

    def _update_bounds(self) -> None:
        """Compute the rectangle of the plot, and the one that labels may extend to."""
        area = self.mapRectFromItem(self._box, self._box.rect())
        bounds = self.rect().united(area.marginsAdded(QMarginsF(OVERHANG) * (theme.scale_pixels(100) / 100)))
        if (area, bounds) != (self._area, self._bounds):
            self.prepareGeometryChange()
            self._area, self._bounds = area, bounds

    def _lay_out(self, low: float, high: float, metrics: QFontMetrics) -> None:
        """Lay out the ticks and labels for the range from `low` to `high`, unless the layout is up to date.

        `metrics` are those of the font of the labels.
        """
        key = (low, high, self._area, self._bounds, metrics.height(), *self._label_key)
        if key == self._layout_key:
            return
        self._layout_key = key
        spacing, ticks = self._compute_ticks(low, high)
        pixels = [self._to_pixel(tick) for tick in ticks]
        self._lines = [self._make_grid_line(pixel) for pixel in pixels]
        self._texts = []
        for pixel, text in zip(pixels, self.format_labels(ticks, spacing), strict=True):
            corner = self._find_label_corner(metrics, pixel, text)
            if corner is not None:
                self._texts.append((corner, lay_out_text(text)))

    def _compute_ticks(self, low: float, high: float) -> tuple[float, list[float]]:
        """Return the distance between ticks from `low` to `high`, and their positions."""
        spacing, offset = self.compute_spacing(low, high, self._length)
        first, last = math.ceil((low - offset) / spacing), math.floor((high - offset) / spacing)
        return spacing, [offset + number * spacing for number in range(first, last + 1)]

    @property
    def _range(self) -> Range:
        raise NotImplementedError

    @property
    def _label_key(self) -> tuple[object, ...]:
        """Values, apart from the visible range, that determine the texts of the labels.

        A change recreates the labels.
        """
        raise NotImplementedError

    @property
    def _length(self) -> float:
        """Length of the axis in pixels."""
        raise NotImplementedError

    def _to_pixel(self, value: float) -> float:
        """Return the coordinate of `value` along the axis, in pixels."""
        raise NotImplementedError

    def _make_edge_rect(self) -> QRectF:
        """Return the line between the axis and the plot, as a rectangle."""
        raise NotImplementedError

    def _make_grid_line(self, pixel: float) -> QRectF:
        """Return the grid line at the coordinate `pixel` along the axis, as a rectangle."""
        raise NotImplementedError

    def _find_label_corner(self, metrics: QFontMetrics, pixel: float, text: str) -> QPointF | None:
        """Return the upper left corner of the label `text` at the coordinate `pixel`, or None if there is no room."""
        raise NotImplementedError


class BottomAxis(Axis):
    """Horizontal axis of a plot in `group`. Dragging and the wheel work as in the plot itself."""

    def __init__(self, box: ViewBox, group: PlotGroup) -> None:
        super().__init__(box)
        self._group = group
        box.x_range_changed.connect(self.update)

    def compute_spacing(self, low: float, high: float, size: float) -> tuple[float, float]:
        """Return the distance between ticks and the position of one tick.

        Distances above 30 days are multiples of 30 days. Ticks of clock times are aligned with local time.
        """
        min_step = (high - low) / max(1.0, size / theme.scale_pixels(_PIXELS_PER_TICK))
        if self._group.axis == "count":
            step = max(1.0, round_up_step(min_step))
        elif min_step < 1 or self._group.axis == "epochs":
            step = round_up_step(min_step)
        else:
            months_s = math.ceil(min_step / _MONTH_S) * _MONTH_S
            step = next((float(step_s) for step_s in _TIME_STEPS_S if step_s >= min_step), months_s)
        if self._group.axis != "clock":
            return step, 0.0
        # In local time, each tick is a multiple of `step`.
        local_origin = self._group.origin + time.localtime(self._group.origin + low).tm_gmtoff
        return step, -local_origin % step

    def format_labels(self, values: list[float], spacing: float) -> list[str]:
        if self._group.axis == "count":
            return [localized(value) for value in values]
        if self._group.axis == "epochs":
            return [significant(value, 6) for value in values]
        if self._group.axis == "elapsed":
            return [format_elapsed(value, spacing) for value in values]
        return [_format_clock_label(time.localtime(value + self._group.origin), spacing) for value in values]

    def _set_thickness(self) -> None:
        self.setMinimumHeight(theme.scale_pixels(_HEIGHT))
        self.setMaximumHeight(theme.scale_pixels(_HEIGHT))

    def wheelEvent(self, event: QGraphicsSceneWheelEvent) -> None:
        self._box.wheelEvent(event)

    def mouseDragEvent(self, event: Any) -> None:
        self._box.mouseDragEvent(event)

    @property
    def _range(self) -> Range:
        return self._box.x_range

    @property
    def _label_key(self) -> tuple[object, ...]:
        return self._group.axis, self._group.origin

    @property
    def _length(self) -> float:
        return self._area.width()

    def _to_pixel(self, value: float) -> float:
        return round(self._area.left() + self._box.x_to_pixel(value))

    def _make_edge_rect(self) -> QRectF:
        return QRectF(self._area.left(), self._area.bottom(), self._area.width(), 1)

    def _make_grid_line(self, pixel: float) -> QRectF:
        return QRectF(pixel, self._area.top(), 1, self._area.height())

    def _find_label_corner(self, metrics: QFontMetrics, pixel: float, text: str) -> QPointF | None:
        half_width = metrics.horizontalAdvance(text) / 2
        if pixel - half_width < self._bounds.left() or pixel + half_width > self._bounds.right():
            return None
        return QPointF(round(pixel - half_width), self._area.bottom() + _TEXT_GAP)


def _format_clock_label(moment: time.struct_time, spacing: float) -> str:
    """Return the label of a tick at a clock time. `spacing` is the number of seconds between two ticks.

    The label is the date if ticks are at least a day apart, or at midnight if they are at least a minute apart.
    Otherwise, it is the time of day, with seconds if ticks are less than a minute apart.
    """
    if spacing >= _DAY_S or (spacing >= 60 and (moment.tm_hour, moment.tm_min) == (0, 0)):
        return time.strftime("%d %b", moment)
    return time.strftime("%H:%M:%S" if spacing < 60 else "%H:%M", moment)


def compute_log_ticks(low: float, high: float, max_ticks: float) -> list[float]:
    """Return the logarithms of about `max_ticks` round numbers between 10^`low` and 10^`high`."""
    min_distance = (high - low) / max(1.0, max_ticks)  # between labels, in powers of ten
    factors = next((factors for distance, factors in _LOG_FACTORS if min_distance <= distance), (1,))
    decades = max(1, math.ceil(min_distance))  # only each `decades`-th power has labels
    powers = range(math.floor(low), math.ceil(high) + 1)
    values = [power + math.log10(factor) for power in powers if power % decades == 0 for factor in factors]
    return [value for value in values if low <= value <= high]


class LeftAxis(Axis):
    """Vertical axis, logarithmic if `log`. Its width is fixed, so that stacked plots are aligned.

    If `narrow`, the axis is narrower, for small plots.
    """

    WIDTH, NARROW = 58, 34

    def __init__(self, box: ViewBox, narrow: bool = False) -> None:
        self._width = self.NARROW if narrow else self.WIDTH  # first, for `_set_thickness`
        super().__init__(box)
        self.log = False
        self._label_limits = (-math.inf, math.inf)
        box.y_range_changed.connect(self.update)

    def set_label_limits(self, low: float, high: float) -> None:
        """Hide labels outside of `low` to `high`, the possible values, such as "105%" on an axis of percentages."""
        self._label_limits = (low, high)

    def compute_spacing(self, low: float, high: float, size: float) -> tuple[float, float]:
        return round_up_step((high - low) / max(1.0, size / theme.scale_pixels(_PIXELS_PER_ROW))), 0.0

    def _set_thickness(self) -> None:
        self.setMinimumWidth(theme.scale_pixels(self._width))
        self.setMaximumWidth(theme.scale_pixels(self._width))

    def format_labels(self, values: list[float], spacing: float) -> list[str]:
        if self.log:
            return [significant(10**value, 3) for value in values]
        # Logarithms of powers of ten may be inexact, hence the tolerance.
        digits = max(0, math.ceil(-math.log10(spacing) - 1e-9))
        if digits > 4:
            return [significant(value, 2) for value in values]
        return [localized(value, digits) for value in values]

    def _compute_ticks(self, low: float, high: float) -> tuple[float, list[float]]:
        """Return the distance between ticks and their positions: round numbers, or logarithms of them."""
        if self.log:
            return 1.0, compute_log_ticks(low, high, self._length / theme.scale_pixels(_PIXELS_PER_ROW))
        spacing, ticks = super()._compute_ticks(low, high)
        lowest, highest = self._label_limits
        return spacing, [tick for tick in ticks if lowest <= tick <= highest]

    @property
    def _range(self) -> Range:
        return self._box.y_range

    @property
    def _label_key(self) -> tuple[object, ...]:
        return (self.log,)

    @property
    def _length(self) -> float:
        return self._area.height()

    def _to_pixel(self, value: float) -> float:
        return round(self._area.top() + self._box.y_to_pixel(value))

    def _make_edge_rect(self) -> QRectF:
        return QRectF(self._area.left() - 1, self._area.top(), 1, self._area.height())

    def _make_grid_line(self, pixel: float) -> QRectF:
        return QRectF(self._area.left(), pixel, self._area.width(), 1)

    def _find_label_corner(self, metrics: QFontMetrics, pixel: float, text: str) -> QPointF | None:
        right = self.rect().right() - _TEXT_GAP
        return QPointF(round(right - metrics.horizontalAdvance(text)), round(pixel - metrics.height() / 2))


def round_up_step(min_step: float) -> float:
    """Return the smallest number that is at least `min_step` and has the form 1, 2 or 5 times a power of ten."""
    if min_step <= 0 or not math.isfinite(min_step):
        return 1.0
    power = 10.0 ** math.floor(math.log10(min_step))
    # The factor 0.999 ignores rounding errors of `power`.
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= 0.999 * min_step)


def compute_round_ticks(highest: float, max_ticks: int) -> list[float]:
    """Return about `max_ticks` equally spaced round numbers from 0 up to `highest`."""
    if highest <= 0 or not math.isfinite(highest):
        return [0.0]
    step = round_up_step(highest / max(1, max_ticks))
    count = int(highest / step * (1 + 1e-9))  # a rounding error must not remove the last tick
    return [round(step * number, 12) for number in range(count + 1)]
