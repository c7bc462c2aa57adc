"""Refusal of Matlab files that announce more data than they have."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import scipy

from engine.data.decoding.reading import MAX_PIXELS, Unfit
from engine.tasks.edges import matlab
from engine.tasks.edges.matlab import check_mat

DIMENSIONS_START = 128 + 8 + 16 + 8
"""Offset of an array's dimensions: after the header, the tag of the array, its class, and the tag of the dimensions."""


def save(*, compressed: bool = False, **variables: Any) -> bytes:
    stream = BytesIO()
    scipy.io.savemat(stream, variables, do_compression=compressed)
    return stream.getvalue()


def nest(depth: int) -> np.ndarray:
    """Return an array inside `depth` nested cells."""
    value: np.ndarray = np.zeros((2, 3))
    for _ in range(depth):
        cell = np.empty((1, 1), object)
        cell[0, 0], value = value, cell
    return value


@pytest.mark.parametrize("compressed", [False, True])
def test_intact_files_are_accepted(compressed: bool) -> None:
    sparse = scipy.sparse.csc_matrix(([1.0], ([5], [7])), (MAX_PIXELS // 1000, 1000))
    check_mat(save(compressed=compressed, first_drawing=np.zeros((41, 31), np.uint8), b=sparse, c="text", d=nest(8)))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("shape", [(1 << 20, 1 << 20), (13, 10), (-1, 1)])
def test_arrays_larger_than_their_data_are_refused(order: str, shape: tuple[int, int]) -> None:
    content = bytearray(save(a=np.zeros((5, 4), np.uint8)))
    assert struct.unpack_from("<2i", content, DIMENSIONS_START) == (5, 4)
    struct.pack_into("<2i", content, DIMENSIONS_START, *shape)
    if order == ">":
        content[126:128] = b"MI"
        numbers = np.frombuffer(bytes(content[128:176]), "<u4").astype(">u4")
        content[128:] = numbers.tobytes() + struct.pack(">II", 1, len(content) - 184) + content[184:]
    with pytest.raises(Unfit, match=f"declares an array of {shape[0]} x {shape[1]}"):
        check_mat(bytes(content))


def test_damaged_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = scipy.sparse.csc_matrix(([1.0], ([5], [7])), (MAX_PIXELS // 1000 + 1, 1000))
    inner, huge = struct.pack("<2i", 2, 3), struct.pack("<2i", 1 << 20, 1 << 20)
    for content, reason in (
        (save(first_drawing=nest(1)).replace(inner, huge), "declares an array of 1048576 x 1048576"),
        (b"MATLAB" + bytes(121), "it is truncated"),
        (b"Matrix" + bytes(121), "not a MATLAB file"),
        (save(a=np.zeros((40, 30)))[:-8], "truncated"),
        (save(a=sparse), "declares an array of"),
        (save(a=nest(10)), "nested too deeply"),
    ):
        with pytest.raises(Unfit, match=reason):
            check_mat(content)
    two = save(compressed=True, a=np.zeros((40, 30)), b=np.zeros((40, 30)))
    size = len(save(a=np.zeros((40, 30)), b=np.zeros((40, 30)))) - 128
    monkeypatch.setattr(matlab, "MAX_BYTES", size)
    check_mat(two)
    monkeypatch.setattr(matlab, "MAX_BYTES", size - 1)
    with pytest.raises(Unfit, match="unpacks to more than"):
        check_mat(two)
