"""Reader for LAS and LAZ files (ASPRS: LAS Specification 1.4). Torch-free."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING

import numpy as np

from engine.data.decoding.reading import Unfit
from engine.data.splits import Labels
from engine.system.regular_files import open_regular
from engine.tasks.points.decoding.fields import CHUNK_POINTS, FEATURES, Columns, Head, require_fields, stack_columns

if TYPE_CHECKING:
    from laspy import LasReader

_MIN_LAS_BYTES, _LAS_HEADER_BYTES, _VLR_BYTES = 227, 375, 54


def read_head(path: str) -> Head:
    """Return the number of points in a LAS file and their fields. Raises Unfit, and any exception of laspy."""
    with _open_las(path) as reader:
        names = set(reader.header.point_format.dimension_names)
        return Head(reader.header.point_count, tuple(name for name in FEATURES if name in names), True)


def read_chunks(path: str, features: Sequence[str], with_labels: bool) -> Iterator[Columns]:
    """Yield the points of a LAS file in chunks: positions [n, 3], features [n, f] and labels [n].

    If `with_labels` is False, the labels are 0. Raises Unfit and errors of laspy.
    """
    require_fields(read_head(path), features, with_labels)
    count = 0
    with _open_las(path) as reader:
        for points in reader.chunk_iterator(CHUNK_POINTS):
            classification = points.classification if with_labels else np.zeros(len(points))
            labels: Labels = np.asarray(classification).astype(np.int64)
            positions = np.stack([np.asarray(points.x), np.asarray(points.y), np.asarray(points.z)], 1)
            count += len(labels)
            yield positions, stack_columns([np.asarray(points[name]) for name in features], len(labels)), labels
        if count < reader.header.point_count:
            raise Unfit("it is truncated")


@contextmanager
def _open_las(path: str) -> Iterator[LasReader]:
    """Open a LAS or LAZ file inside the context, and silence the log messages of laspy.

    Raises Unfit for damaged compressed points. It is also raised if the header announces more points than the file
    contains, because laspy would try to read all of them.
    """
    import laspy

    logging.getLogger("laspy").setLevel(logging.CRITICAL)
    with open_regular(path) as stream:
        _check_las(stream)
        try:
            with laspy.open(stream, closefd=False, read_evlrs=False) as reader:
                yield reader
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise Unfit("its compressed points are damaged") from error  # a panic in lazrs is not an Exception


def _check_las(stream: BufferedReader) -> None:
    """Raise Unfit if a LAS file is shorter than its header, or than the chunk table of its compressed points.

    Sources: LAS Specification 1.4; Isenburg, LASzip, 2013, section 6.
    """
    file_bytes, header = os.fstat(stream.fileno()).st_size, stream.read(_LAS_HEADER_BYTES)
    if not header:
        raise Unfit("it is empty")
    if not header.startswith(b"LASF"):
        raise Unfit("it is not a LAS file")
    if len(header) < _MIN_LAS_BYTES:
        raise Unfit("it is truncated")
    header_bytes, points_offset, vlr_count, point_format, point_bytes, point_count = struct.unpack_from(
        "<HIIBHI", header, 94
    )
    minor_version = header[25]
    if minor_version >= 4 and len(header) == _LAS_HEADER_BYTES:  # LAS 1.4 has a 64-bit number of points
        (point_count,) = struct.unpack_from("<Q", header, 247)
    compression_bits = point_format & 0xC0
    has_room_for_points = compression_bits or point_count * point_bytes <= file_bytes - points_offset
    has_room_for_records = _VLR_BYTES * vlr_count <= points_offset - header_bytes
    if points_offset > file_bytes or not has_room_for_records or not has_room_for_points:
        raise Unfit("it is truncated: its header announces more points than there are")
    if compression_bits and point_count:
        stream.seek(points_offset)
        (chunk_table,) = struct.unpack("<q", stream.read(8))
        if chunk_table == -1:  # streamed files have the chunk table at their end
            stream.seek(-8, os.SEEK_END)
            (chunk_table,) = struct.unpack("<q", stream.read(8))
        stream.seek(max(points_offset, min(chunk_table, file_bytes)))
        _, chunk_count = struct.unpack("<II", stream.read(8))
        if chunk_count * point_bytes > file_bytes:  # each chunk has an uncompressed first point
            raise Unfit("it is truncated: its header announces more points than there are")
    stream.seek(0)
