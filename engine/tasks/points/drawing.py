"""Draw point clouds for display. Torch-free."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.contract.images import CLOUD_GRAY, CLOUD_TILT_DEG, LegendEntry
from engine.data.decoding.idx import Bytes
from engine.data.drawing import get_class_colors, mask_legend
from engine.data.splits import spread_evenly
from engine.tasks.points.decoding.fields import Points

BACKGROUND, FAR, NEAR = CLOUD_GRAY
TILT = np.deg2rad(CLOUD_TILT_DEG)
"""Angle in radians between the view of a drawn point cloud and the axis along which its points vary least."""
MAX_ENCODED = 4096
"""Maximum number of points, evenly spaced in the cloud, that `encode_points` keeps."""


def create_point_legend(classes: Sequence[str]) -> tuple[LegendEntry, ...]:
    """Return the legend for images drawn by `draw_points`."""
    first, *others = mask_legend(classes)
    return (LegendEntry(first.name, "#" + f"{(FAR + NEAR) // 2:02x}" * 3), *others)


def draw_points(positions: Points, classes: Bytes, side: int) -> Bytes:
    """Draw an orthographic view of points in the colors of their classes, uint8 [side, side, 3].

    `positions` are float32 [n, 3], and `classes` uint8 [n]. Points without a class are gray, and so are points of the
    first class, whose color is black. Points nearer to the viewer are darker. The view is tilted by `TILT` from the
    direction in which the points vary least, so that a floor and the objects on it are visible whichever axis is
    vertical.
    """
    image = np.full((side, side, 3), BACKGROUND, np.uint8)
    x, y, depth = _project(positions)
    # Each point is drawn as a square, which is larger if there are fewer points.
    half_dot = max(0, min(4, round(side / np.sqrt(len(positions)) / 4)))
    scale = (side - 1 - 2 * half_dot) / max(float(np.ptp(x)), float(np.ptp(y)), 1e-12)
    order = np.argsort(depth, kind="stable")  # the nearest are drawn last
    columns, rows = (
        np.rint((coordinates[order] - (coordinates.min() + coordinates.max()) / 2) * scale + (side - 1) / 2).astype(int)
        for coordinates in (x, -y)
    )
    nearness = (depth[order] - depth.min()) / max(float(np.ptp(depth)), 1e-12)
    grays = (FAR + (NEAR - FAR) * nearness).astype(np.uint8)[:, None]
    colors = get_class_colors(classes[order])
    colors = np.where(colors.any(1, keepdims=True), colors, grays)
    for down in range(-half_dot, half_dot + 1):
        for right in range(-half_dot, half_dot + 1):
            image[np.clip(rows + down, 0, side - 1), np.clip(columns + right, 0, side - 1)] = colors
    return image


def encode_points(positions: Points, classes: Bytes) -> str:
    """Encode points as the text described at `CLOUD_TEXT`, in the colors of their classes.

    `positions` are float32 [n, 3], and `classes` are uint8 [n]. At most `MAX_ENCODED` points are kept.
    """
    rows = spread_evenly(len(positions), MAX_ENCODED)
    coordinates = _compute_principal_coordinates(positions[rows])
    middle = (coordinates.min(1) + coordinates.max(1)) / 2
    shifted = coordinates - middle[:, None]
    records = np.empty(len(rows), [("position", "<i2", 3), ("color", "u1", 3)])
    records["position"] = np.rint(32767 * shifted.T / max(float(np.abs(shifted).max()), 1e-12))
    records["color"] = get_class_colors(classes[rows])
    return base64.b64encode(zlib.compress(records.tobytes())).decode()


def _project(positions: Points) -> npt.NDArray[np.float64]:
    """Return the coordinates of points in the view, [3, n]: to the right, up, and towards the viewer."""
    first, second, third = _compute_principal_coordinates(positions)
    up = np.cos(TILT) * second + np.sin(TILT) * third
    near = np.cos(TILT) * third - np.sin(TILT) * second
    return np.stack([first, up, near])


def _compute_principal_coordinates(positions: Points) -> npt.NDArray[np.float64]:
    """Return the coordinates of centered points along their principal axes, [3, n], by descending scatter.

    Each principal axis points in the positive direction of the file's axis that is nearest to it.
    """
    centered = positions.astype(np.float64) - positions.mean(0, np.float64)
    _, axes = np.linalg.eigh(centered.T @ centered)  # sorted by ascending variance
    signs = np.where(axes[np.abs(axes).argmax(0), range(3)] < 0, -1.0, 1.0)
    coordinates: npt.NDArray[np.float64] = (axes * signs)[:, ::-1].T @ centered.T
    return coordinates
