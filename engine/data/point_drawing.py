"""Pictures of point clouds, for people to look at. Torch-free."""

from __future__ import annotations

import numpy as np

from engine.data.clouds import Points
from engine.data.drawing import class_colours
from engine.data.idx import Bytes
from engine.data.masks import NO_CLASS

BACKGROUND = 245
"""The grey level of what has no points."""
FAR, NEAR = 200, 70
"""The grey levels of points without a colour of their own."""


def draw_points(places: Points, classes: Bytes, side: int) -> Bytes:
    """An orthographic picture, uint8 [side, side, 3], of points at places float32 [n, 3] in the colours of their classes,
    uint8 [n]. It is taken along the axis in which they reach least far, from its upper end; what is of no class, and the
    first class, whose colour is black, is grey, the darker the nearer."""
    picture = np.full((side, side, 3), BACKGROUND, np.uint8)
    reach = np.ptp(places, 0)
    depth = int(np.argmin(reach))
    across, up = sorted((axis for axis in range(3) if axis != depth), key=lambda axis: (-reach[axis], axis))
    half = max(0, min(4, round(side / np.sqrt(len(places)) / 4)))
    scale = (side - 1 - 2 * half) / max(float(reach[across]), 1e-12)
    middle = (places.min(0) + places.max(0)) / 2
    order = np.argsort(places[:, depth], kind="stable")  # the nearest are drawn last
    there = (places[order] - middle) * scale + (side - 1) / 2
    columns, rows = np.rint(there[:, across]).astype(int), side - 1 - np.rint(there[:, up]).astype(int)
    near = (places[order, depth] - places[:, depth].min()) / max(float(reach[depth]), 1e-12)
    greys = (FAR + (NEAR - FAR) * near).astype(np.uint8)[:, None]
    colours = np.concatenate([class_colours(NO_CLASS), np.zeros((1, 3), np.uint8)])[classes[order]]
    colours = np.where(colours.any(1, keepdims=True), colours, greys)
    for down in range(-half, half + 1):
        for right in range(-half, half + 1):
            picture[np.clip(rows + down, 0, side - 1), np.clip(columns + right, 0, side - 1)] = colours
    return picture
