"""Point clouds made on the spot: a floor, and balls that lie on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from plyfile import PlyData, PlyElement

CORNER = np.array([500_000.0, 5_400_000.0, 100.0])
"""Where surveys begin, in metres."""


def scene(seed: int, points: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Places float32 [n, 3] and classes uint8 [n], half of them on the floor, 0, and half on a ball, 1."""
    random = np.random.default_rng(seed)
    floor = np.concatenate([random.uniform(-1, 1, (points // 2, 2)), random.normal(0, 0.01, (points // 2, 1))], 1)
    around = random.normal(size=(points - points // 2, 3))
    middle = np.append(random.uniform(-0.5, 0.5, 2), 0.4)
    ball = middle + 0.3 * around / np.linalg.norm(around, axis=1, keepdims=True)
    order = random.permutation(points)
    classes = np.repeat(np.array([0, 1], np.uint8), [points // 2, points - points // 2])
    return np.concatenate([floor, ball])[order].astype(np.float32), classes[order]


def write_ply(path: Path, places: np.ndarray, text: bool = False, **columns: np.ndarray) -> None:
    """A PLY file of points with such properties besides x, y and z."""
    path.parent.mkdir(parents=True, exist_ok=True)
    named: dict[str, np.ndarray] = dict(zip("xyz", places.T, strict=True)) | columns
    vertex = np.empty(len(places), [(name, column.dtype) for name, column in named.items()])
    for name, column in named.items():
        vertex[name] = column
    PlyData([PlyElement.describe(vertex, "vertex")], text=text).write(path)


def write_las(path: Path, places: np.ndarray, classes: np.ndarray, **columns: Any) -> None:
    """A LAS 1.4 file, or by its ending a LAZ one, at places as a survey has them."""
    import laspy

    path.parent.mkdir(parents=True, exist_ok=True)
    header = laspy.LasHeader(point_format=7, version="1.4")
    header.offsets, header.scales = CORNER, np.full(3, 0.001)
    las = laspy.LasData(header)
    las.xyz = places.astype(np.float64) + CORNER
    las.classification = classes
    for name, column in columns.items():
        las[name] = column
    las.write(path)


def make_clouds(folder: Path, counts: dict[str, int], points: int = 600) -> Path:
    """Scenes as PLY files, in a folder for each split."""
    for split, count in counts.items():
        for number in range(count):
            places, classes = scene(1000 * (split == "val") + number, points)
            write_ply(folder / split / f"{number:02}.ply", places, label=classes)
    return folder
