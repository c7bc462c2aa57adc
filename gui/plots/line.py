"""Line in a plot: data, style, smoothing, and the value at a position."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from gui.plots.view import PlotView
from gui.sources.columns import Column, Floats, reduce_to_extremes
from gui.style import fills, theme

_RAW_SHARE = 0.4
"""Fraction of a line's color in its unsmoothed curve. The rest is the color of the panel."""

_LATEST_WITHIN = 100
"""Number of newest points that are searched for a finite value."""


@dataclass(frozen=True)
class LineStyle:
    """Style of a line.

    Attributes:
        color: Returns the color. It is called after each change of the color scheme.
        smooth: True to smooth the curve as the user has set with the smoothing slider.
        markers: True to draw dots connected by dashes, for short series.
        dashed: True to draw dashes without dots.
        scale: Factor that converts values to the unit of the vertical axis, or None for the plot's factor.
        write: Formats an unscaled value for the readout, or None for the plot's format.
    """

    label: str
    color: Callable[[], str]
    smooth: bool = False
    markers: bool = False
    dashed: bool = False
    scale: float | None = None
    write: Callable[[float], str] | None = None


@dataclass(frozen=True)
class Frame:
    """Visible part of a plot, for which a line is drawn.

    Attributes:
        low: First visible position on the horizontal axis.
        high: Last visible position.
        width: Width of the range in pixels.
        scale: Factor that converts the values of lines without a factor to the unit of the vertical axis.
        log: True if the vertical axis is logarithmic.
    """

    low: float
    high: float
    width: int
    scale: float
    log: bool

    def thin(self, x: Floats, y: Floats, scale: float) -> tuple[Floats, Floats]:
        """Return the points to draw in axis units, at most a few per pixel column.

        `scale` converts `y` to the unit of the vertical axis. On a logarithmic axis, the result contains the
        logarithms, with NaN for values of 0 and below.
        """
        x, y = reduce_to_extremes(x, y, self.low, self.high, self.width)
        y = y * scale
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                y = np.log10(y)
            y[~np.isfinite(y)] = np.nan
        return x, y


class Line:
    """Series of values and its curves in a plot.

    The arrays passed to `set_data` aren't copied, so they may change only on the GUI thread.
    """

    def __init__(self, style: LineStyle, view: PlotView) -> None:
        self.style = style
        self.x: Floats = np.empty(0)
        self.y: Floats = np.empty(0)
        self.smoothed: Floats = self.y
        self._smoother = Smoother(0.0)  # without smoothing until it is requested
        self._drawn_state: tuple[Frame, int, float] | None = None  # frame and data of the last drawing
        self._drawn_limits: tuple[float, float] | None = None  # lowest and highest drawn value
        self._curves = view.curves
        self._raw = view.curves.add() if style.smooth else None  # values without smoothing
        self._curve = view.curves.add()
        self._dots = view.curves.add(dots=True) if style.markers else None
        self.recolor()

    def remove(self) -> None:
        for curve in (self._raw, self._curve, self._dots):
            if curve is not None:
                self._curves.remove(curve)

    def hide(self) -> None:
        """Draw nothing until the next `draw`."""
        for curve in (self._raw, self._curve, self._dots):
            if curve is not None:
                curve.set_data(np.empty(0), np.empty(0))
        self._drawn_state = None
        self._curves.update()

    def recolor(self) -> None:
        """Apply the current color scheme."""
        color = QColor(self.style.color())
        broken = self.style.markers or self.style.dashed
        dash = Qt.PenStyle.DashLine if broken else Qt.PenStyle.SolidLine
        self._curve.set_color(color, dash)
        if self._dots is not None:
            self._dots.set_color(color)
        if self._raw is not None:
            # Drawing semitransparent lines would take far longer.
            self._raw.set_color(fills.blend(self.style.color(), theme.colors().panel, _RAW_SHARE))
        self._curves.update()

    def set_data(self, x: Floats, y: Floats) -> None:
        """Set the data: `x` must be in ascending order, and `y` may contain NaN.

        The data must extend the previous data, unless `clear_data` has been called.
        """
        self.x, self.y = x, y
        self.smoothed = self._smoother.update(y) if self._smoother.weight else y

    def set_smoothing(self, weight: float) -> None:
        """Set the weight of the moving average, and smooth all data again. Lines without smoothing ignore it."""
        if self.style.smooth and weight != self._smoother.weight:
            self._smoother = Smoother(weight)
            self.set_data(self.x, self.y)
            self._drawn_state = None

    def clear_data(self) -> None:
        """Remove the data, so that the data of another series can be set."""
        self._smoother = Smoother(self._smoother.weight)
        self._drawn_state = None
        self.set_data(np.empty(0), np.empty(0))

    @property
    def latest(self) -> float | None:
        """Newest finite value, or None if there is none."""
        finite = np.isfinite(self.y[-_LATEST_WITHIN:])
        if not finite.any():
            return None
        return float(self.smoothed[-_LATEST_WITHIN:][finite][-1])

    def value_at(self, x: float) -> float | None:
        """Return the value at the point nearest to `x`, or None if there is none."""
        if not len(self.x):
            return None
        value = float(self.smoothed[find_nearest(self.x, x)])
        return value if np.isfinite(value) else None

    def draw(self, frame: Frame) -> tuple[float, float] | None:
        """Draw the part of the line within `frame`, unless it is up to date.

        Returns the minimum and maximum of the drawn values in the unit of the vertical axis, or None if nothing
        was drawn.
        """
        # Data are only appended, so their length and last position show whether they have changed.
        state = (frame, len(self.x), float(self.x[-1]) if len(self.x) else 0.0)
        if state != self._drawn_state:
            self._drawn_state = state
            self._drawn_limits = self._draw(frame)
        return self._drawn_limits

    def _draw(self, frame: Frame) -> tuple[float, float] | None:
        """Draw the part of the line within `frame`. Return the lowest and highest value, or None without values."""
        first = max(0, int(self.x.searchsorted(frame.low)) - 1)
        end = min(len(self.x), int(self.x.searchsorted(frame.high, side="right")) + 1)
        scale = frame.scale if self.style.scale is None else self.style.scale
        x, y = frame.thin(self.x[first:end], self.smoothed[first:end], scale)
        limits_by_curve = [self._curve.set_data(x, y)]
        if self._dots is not None:
            self._dots.set_data(x, y)
        if self._raw is not None:
            # Without smoothing, the raw values would hide behind the line.
            visible = slice(first, end) if self._smoother.weight > 0 else slice(0)
            limits_by_curve.append(self._raw.set_data(*frame.thin(self.x[visible], self.y[visible], scale)))
        self._curves.update()
        known_limits = [limits for limits in limits_by_curve if limits is not None]
        if not known_limits:
            return None
        return min(low for low, _ in known_limits), max(high for _, high in known_limits)


def find_nearest(positions: Floats, x: float) -> int:
    """Return the index of the position that is nearest to `x`, or -1 if there are none.

    `positions` must be in ascending order. Of two equally near ones, the later is returned.
    """
    index = int(positions.searchsorted(x))  # the first position at or after `x`
    if index == len(positions) or (index > 0 and x - positions[index - 1] < positions[index] - x):
        return index - 1
    return index


_LARGEST_EXPONENT = 200.0
"""Maximum exponent within a block of values.

Values are divided by powers of the weight. A power of e^200 fits into a float64.
"""


class Smoother:
    """Exponential moving average of a growing series, which processes only new values.

    s_n = w s_(n-1) + (1 - w) v_n with s_0 = 0, displayed as s_n / (1 - w^n). Without the divisor, the first values
    would be too close to 0 (TensorBoard, `resmooth` in vz_line_chart). A NaN remains NaN and isn't counted.
    """

    def __init__(self, weight: float) -> None:
        """Create a smoother. Raises ValueError unless the weight is at least 0 (no smoothing) and less than 1."""
        if not 0 <= weight < 1:
            raise ValueError(f"a smoothing weight is at least 0 and below 1, not {weight}")
        self.weight = weight
        self._smoothed = Column()
        self._sum = 0.0
        self._count = 0

    def update(self, values: Floats) -> Floats:
        """Smooth `values`, which must extend the values of earlier calls."""
        new_values = values[len(self._smoothed) :]
        if len(new_values):
            self._smoothed.extend(self._smooth(new_values))
        return self._smoothed.values

    def _smooth(self, new_values: Floats) -> Floats:
        """Return the moving average after each new value. A NaN remains NaN and isn't counted."""
        if self.weight == 0:
            return new_values
        result = np.full(len(new_values), np.nan)
        finite = np.isfinite(new_values)
        result[finite] = self._average(new_values[finite])
        return result

    def _average(self, values: Floats) -> Floats:
        """Return the exponential moving average after each of `values`, corrected for its start at 0.

        The values must be finite. Later calls continue the average. It is computed in blocks, since high powers of the
        weight are too small for floats.
        """
        log_weight = math.log(self.weight)
        block = max(1, int(_LARGEST_EXPONENT / -log_weight))
        result = np.empty(len(values))
        for start in range(0, len(values), block):
            block_values = values[start : start + block]
            exponents = np.arange(1, len(block_values) + 1)
            powers = np.exp(log_weight * exponents)
            # The recursion in closed form: s_n = w^n (s_0 + (1 - w) (v_1 / w + ... + v_n / w^n)).
            sums = powers * (self._sum + (1 - self.weight) * np.cumsum(block_values / powers))
            # Compute 1 - w^n without loss of digits if w^n is close to 1.
            result[start : start + block] = sums / -np.expm1(log_weight * (self._count + exponents))
            self._sum = float(sums[-1])
            self._count += len(block_values)
        return result
