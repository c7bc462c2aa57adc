"""Shapes of the VGG Image Annotator. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.data.formats.shapes import Shape, box_shape, polygon_shape

AREAS = ("polygon", "polyline", "circle", "ellipse")
"""Shapes with an outline; of a polyline the ends are joined."""
_CORNERS = 64
"""Corners of the polygon that a circle becomes."""


def shape_of(name: str, shape: Mapping[str, Any]) -> Shape | None:
    """Return an object of class `name` from VIA's shape_attributes; None for points and for what lacks numbers."""
    try:
        match shape.get("name"):
            case "rect":
                x, y, width, height = (float(shape[key]) for key in ("x", "y", "width", "height"))
                return box_shape(name, x, y, x + width, y + height)
            case "polygon" | "polyline":
                xs, ys = ([float(value) for value in shape[key]] for key in ("all_points_x", "all_points_y"))
                return polygon_shape(name, zip(xs, ys, strict=True))
            case "circle":
                x, y, radius = (float(shape[key]) for key in ("cx", "cy", "r"))
                return _ellipse(name, (x, y), (radius, radius), 0.0)
            case "ellipse":
                x, y, across, down = (float(shape[key]) for key in ("cx", "cy", "rx", "ry"))
                return _ellipse(name, (x, y), (across, down), float(shape.get("theta", 0)))
    except (KeyError, TypeError, ValueError):
        return None
    return None


def _ellipse(name: str, center: tuple[float, float], radii: tuple[float, float], theta: float) -> Shape | None:
    """Return an ellipse with its half axes, turned by `theta` in radians."""
    sine, cosine = math.sin(theta), math.cos(theta)
    angles = [2 * math.pi * corner / _CORNERS for corner in range(_CORNERS)]
    points = [(radii[0] * math.cos(angle), radii[1] * math.sin(angle)) for angle in angles]
    return polygon_shape(
        name, [(center[0] + u * cosine - v * sine, center[1] + u * sine + v * cosine) for u, v in points]
    )
