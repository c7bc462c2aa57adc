"""Ranges of values that a plot shows."""

from __future__ import annotations

from gui.plots.plot import LinePlot
from gui.plots.view import PlotView


def get_horizontal_range(plot: LinePlot) -> tuple[float, float]:
    """Return the limits of the horizontal axis of a plot. A visible plot is drawn first."""
    plot.redraw()
    return _get_view(plot).box.x_range


def get_vertical_range(plot: LinePlot) -> tuple[float, float]:
    """Return the drawn limits of the vertical axis of a plot, or their logarithms if the axis is logarithmic."""
    return _get_view(plot).box.y_range


def _get_view(plot: LinePlot) -> PlotView:
    view = plot.findChild(PlotView)
    assert view is not None
    return view
