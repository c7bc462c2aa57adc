"""Generator and file writers for small point clouds: a floor with a ball on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from plyfile import PlyData, PlyElement

CORNER = np.array([500_000.0, 5_400_000.0, 100.0])
"""Survey coordinates in meters of the scene's origin in LAS files."""


def make_scene(seed: int, points: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return positions, float32 [n, 3], and classes, uint8 [n], of points on a floor (0) and a ball (1)."""
    random = np.random.default_rng(seed)
    floor = np.concatenate([random.uniform(-1, 1, (points // 2, 2)), random.normal(0, 0.01, (points // 2, 1))], 1)
    directions = random.normal(size=(points - points // 2, 3))
    middle = np.append(random.uniform(-0.5, 0.5, 2), 0.4)
    ball = middle + 0.3 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    order = random.permutation(points)
    classes = np.repeat(np.array([0, 1], np.uint8), [points // 2, points - points // 2])
    return np.concatenate([floor, ball])[order].astype(np.float32), classes[order]


def write_ply(path: Path, positions: np.ndarray, text: bool = False, **columns: np.ndarray) -> None:
    """Write points to a PLY file, in its text format if `text`, otherwise in the binary one.

    `columns` are additional properties of the points.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    named: dict[str, np.ndarray] = dict(zip("xyz", positions.T, strict=True)) | columns
    vertex = np.empty(len(positions), [(name, column.dtype) for name, column in named.items()])
    for name, column in named.items():
        vertex[name] = column
    PlyData([PlyElement.describe(vertex, "vertex")], text=text).write(path)


def write_las(path: Path, positions: np.ndarray, classes: np.ndarray, **columns: Any) -> None:
    """Write points with survey coordinates to a LAS 1.4 file, or to a LAZ file if the suffix says so.

    `columns` are further dimensions of the points.
    """
    import laspy

    path.parent.mkdir(parents=True, exist_ok=True)
    header = laspy.LasHeader(point_format=7, version="1.4")
    header.offsets, header.scales = CORNER, np.full(3, 0.001)
    las = laspy.LasData(header)
    las.xyz = positions.astype(np.float64) + CORNER
    las.classification = classes
    for name, column in columns.items():
        las[name] = column
    las.write(path)


def make_clouds(folder: Path, counts: dict[str, int], points: int = 600) -> Path:
    """Write scenes of `points` points as PLY files into one folder per split, and return `folder`.

    `counts` maps a split to its number of scenes.
    """
    for split, count in counts.items():
        for number in range(count):
            positions, classes = make_scene(1000 * (split == "val") + number, points)
            write_ply(folder / split / f"{number:02}.ply", positions, label=classes)
    return folder


def write_pcd(path: Path, positions: np.ndarray, data: str, **columns: np.ndarray) -> None:
    """Write points to a PCD file. `columns` are additional fields of the points.

    `data` is the encoding: "ascii", "binary" or "binary_compressed". A column `rgb` must be float32, with the color
    packed into its bits.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    named: dict[str, np.ndarray] = dict(zip("xyz", positions.astype(np.float32).T, strict=True)) | columns
    arrays = list(named.values())
    header = [
        "# .PCD v0.7 - Point Cloud Data file format",
        "VERSION 0.7",
        "FIELDS " + " ".join(named),
        "SIZE " + " ".join(str(each.dtype.itemsize) for each in arrays),
        "TYPE " + " ".join(each.dtype.kind.upper() for each in arrays),
        "COUNT " + " ".join("1" for _ in arrays),
        f"WIDTH {len(positions)}",
        "HEIGHT 1",
        "VIEWPOINT 0 0 0 1 0 0 0",
        f"POINTS {len(positions)}",
        f"DATA {data}",
        "",
    ]
    if data == "ascii":
        lines = [" ".join(repr(value.item()) for value in row) for row in zip(*arrays, strict=True)]
        content = "\n".join([*lines, ""]).encode()
    elif data == "binary":
        points = np.empty(len(positions), [(name, each.dtype) for name, each in named.items()])
        for name, each in named.items():
            points[name] = each
        content = points.tobytes()
    else:
        raw = b"".join(each.tobytes() for each in arrays)
        packed = compress_lzf(raw)
        content = np.array([len(packed), len(raw)], "<u4").tobytes() + packed
    path.write_bytes("\n".join(header).encode() + content)


def compress_lzf(content: bytes) -> bytes:
    """Compress bytes in the LZF format: literals, and references to bytes up to 8 KiB earlier."""
    packed, literals = bytearray(), bytearray()
    known: dict[bytes, int] = {}
    at = 0

    def flush() -> None:
        for first in range(0, len(literals), 32):
            piece = literals[first : first + 32]
            packed.extend([len(piece) - 1, *piece])
        literals.clear()

    while at < len(content):
        key = content[at : at + 3]
        before = known.get(key, -1)
        known[key] = at
        if len(key) < 3 or before < 0 or at - before > 8192:
            literals.append(content[at])
            at += 1
            continue
        length = 3
        while at + length < len(content) and length < 264 and content[before + length] == content[at + length]:
            length += 1
        flush()
        high, low = divmod(at - before - 1, 256)
        if length - 2 < 7:
            packed.extend([(length - 2) << 5 | high, low])
        else:
            packed.extend([7 << 5 | high, length - 9, low])
        at += length
    flush()
    return bytes(packed)


def write_table(path: Path, *columns: np.ndarray, header: str = "", delimiter: str = " ") -> None:
    """Write a text table of points, one per line.

    Each column is an array [n] or [n, k] with one row per point. `header` is the first line, unless it is empty.
    Integers have no decimal point.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [value for group in (np.atleast_2d(each.T) for each in columns) for value in group]
    lines = [delimiter.join(f"{value.item():.9g}" for value in row) for row in zip(*values, strict=True)]
    path.write_text("\n".join(([header] if header else []) + lines) + "\n")


def write_scan(folder: Path, name: str, positions: np.ndarray, labels: np.ndarray | None) -> None:
    """Write a scan in the layout of SemanticKITTI: points to "velodyne", labels (if any) to "labels".

    The upper 16 bits of a label hold an object number.
    """
    (folder / "velodyne").mkdir(parents=True, exist_ok=True)
    intensity = np.linspace(0, 1, len(positions))[:, None]
    (folder / f"velodyne/{name}.bin").write_bytes(np.concatenate([positions, intensity], 1).astype("<f4").tobytes())
    if labels is not None:
        (folder / "labels").mkdir(exist_ok=True)
        objects = np.arange(len(labels), dtype=np.uint32) << 16
        (folder / f"labels/{name}.label").write_bytes((objects | labels.astype(np.uint32)).astype("<u4").tobytes())


def write_room(folder: Path, objects: dict[str, np.ndarray]) -> None:
    """Write a room in the layout of S3DIS. `objects` maps names such as "chair_1" to positions. All points are gray."""
    for name, positions in objects.items():
        write_table(folder / "Annotations" / f"{name}.txt", positions, np.full((len(positions), 3), 128))
    together = np.concatenate(list(objects.values()))
    write_table(folder / f"{folder.name}.txt", together, np.full((len(together), 3), 128))
