"""Reader for Velodyne scans from KITTI, with the labels from SemanticKITTI. Torch-free.

A scan (.bin) has four float32 numbers per point: x, y, z and intensity. Its labels (.label) have one uint32 per point:
the lower 16 bits are the class, the upper bits the number of the object (Behley et al. 2019).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from engine.data.decoding.reading import Unfit
from engine.data.splits import printable
from engine.system.format import counted
from engine.system.regular_files import open_regular
from engine.tasks.points.decoding.fields import CHUNK_POINTS, Columns, Head, require_fields

_POINT_BYTES, _LABEL_BYTES = 16, 4
_CLASS_BITS = 0xFFFF
_SAMPLE_POINTS = 1024
_FARTHEST_M = 10_000
"""Largest coordinate of a scan, in meters from the scanner. A file with larger numbers is not a scan."""


def find_label_file(path: str) -> str | None:
    """Return the path of the labels for a scan, or None if there are none.

    They may be next to the scan, or in a folder `labels` next to the folder `velodyne` of the scan.
    """
    folder, name = os.path.split(path)
    name = os.path.splitext(name)[0] + ".label"
    candidates = [os.path.join(folder, name)]
    if os.path.basename(folder).lower() == "velodyne":
        candidates.append(os.path.join(os.path.dirname(folder), "labels", name))
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)


def is_scan(path: str) -> bool:
    """Return True if a file has the size of a Velodyne scan and begins with plausible points."""
    try:
        if not read_head(path).points:
            return False
        with open_regular(path) as stream:
            sample = np.frombuffer(stream.read(_SAMPLE_POINTS * _POINT_BYTES), "<f4").reshape(-1, 4)
    except (Unfit, OSError):
        return False
    is_plausible = np.isfinite(sample).all() and (np.abs(sample[:, :3]) < _FARTHEST_M).all()
    return bool(is_plausible and np.ptp(sample))  # a file of equal numbers, such as zeros, is not a scan


def read_head(path: str) -> Head:
    """Return the number of points in a Velodyne scan and their fields. Raises Unfit."""
    size = os.stat(path).st_size
    if path.lower().endswith(".pcd.bin"):
        raise Unfit("it is a scan of nuScenes, with five numbers per point; convert it to PLY")
    if size % _POINT_BYTES:
        raise Unfit("it is no scan of KITTI: its size is no multiple of 16 bytes")
    return Head(size // _POINT_BYTES, ("intensity",), find_label_file(path) is not None)


def read_chunks(path: str, features: Sequence[str], with_labels: bool) -> Iterator[Columns]:
    """Yield the points of a scan in chunks: positions [n, 3], features [n, f] and labels [n].

    If `with_labels` is False, the labels are 0. Raises Unfit.
    """
    head = read_head(path)
    require_fields(head, features, with_labels)
    labels = _read_labels(path, head.points) if with_labels else np.zeros(head.points, np.int64)
    first_row = 0
    with open_regular(path) as stream:
        while content := stream.read(CHUNK_POINTS * _POINT_BYTES):
            points = np.frombuffer(content, "<f4").reshape(-1, 4)
            # The intensity is the only feature.
            columns = points[:, 3:] if features else points[:, :0]
            chunk_labels = labels[first_row : first_row + len(points)]
            yield points[:, :3].astype(np.float64), columns.astype(np.float32), chunk_labels
            first_row += len(points)


def _read_labels(path: str, points: int) -> np.ndarray:
    """Return the class labels of a scan with this number of points, int64 [points]. Raises Unfit for another number."""
    file = find_label_file(path)
    assert file is not None
    count = os.stat(file).st_size / _LABEL_BYTES
    if count != points:
        raise Unfit(
            f"it has {counted(points, 'point')}, but {printable(os.path.basename(file))} has {count:,.0f} labels"
        )
    with open_regular(file) as stream:
        return (np.frombuffer(stream.read(), "<u4") & _CLASS_BITS).astype(np.int64)
