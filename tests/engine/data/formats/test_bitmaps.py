"""Masks that labeling tools embed in annotation files."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from engine.data.decoding.outlines import read_outline
from engine.data.decoding.reading import Unfit
from engine.data.formats.shared.bitmaps import decode_brush, decode_png, decode_runs, make_patch_shape
from tests.support.dataset_formats.label_studio import encode_alpha

Mask = npt.NDArray[np.bool_]


def png(mode: str, values: npt.NDArray[np.uint8], **options: object) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(values) if mode in ("L", "LA", "RGB", "RGBA") else Image.fromarray(values).convert(mode)
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()


def declare_rows(content: bytes, size: int) -> bytes:
    """Return the PNG file `content` with a header that declares `size` rows and columns."""
    header = b"IHDR" + struct.pack(">II", size, size) + content[24:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


def encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def place_patch(mask: Mask, left: int, top: int, size: tuple[int, int]) -> Mask:
    """Convert `mask` to a shape with its corner at (`left`, `top`), and return the shape's mask in the image.

    `size` is the height and width of the image. Also checks that the box of the shape encloses its pixels.
    """
    shape = make_patch_shape("cat", mask, left, top, size)
    full = np.zeros(size, bool)
    assert shape is not None
    assert shape.outline is not None
    window = read_outline(shape.outline).window(*size)
    assert window is not None
    full[window.slices] = window.pixels
    rows, columns = np.nonzero(full)
    assert shape.box == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    return full


@pytest.mark.parametrize(("left", "top"), [(0, 0), (3, 5), (13, 0), (0, 13), (13, 13), (-2, -3), (16, 16)])
def test_patch_shape_covers_the_same_pixels(left: int, top: int) -> None:
    mask = np.random.default_rng(3).random((7, 7)) < 0.6
    expected = np.zeros((40, 40), bool)
    expected[10 + top : 17 + top, 10 + left : 17 + left] = mask
    assert (place_patch(mask, left, top, (20, 20)) == expected[10:30, 10:30]).all()


def test_patch_shape_may_fill_the_image() -> None:
    assert place_patch(np.ones((4, 6), bool), 0, 0, (4, 6)).all()


@pytest.mark.parametrize(("value", "left", "top"), [(0, 0, 0), (1, 9, 0), (1, 11, 0), (1, 0, 11), (1, 0, -4)])
def test_patch_shape_refuses_masks_without_pixels(value: int, left: int, top: int) -> None:
    with pytest.raises(Unfit):
        make_patch_shape("cat", np.full((4, 4), bool(value)), left, top, (9, 9))


@pytest.mark.parametrize("pack", [bytes, zlib.compress], ids=["plain", "compressed"])
@pytest.mark.parametrize(
    "content",
    [
        png("L", np.array([[0, 200], [1, 0]], np.uint8)),
        png("1", np.array([[0, 255], [255, 0]], np.uint8)),
        png("RGB", np.array([[[0, 0, 0], [0, 0, 9]], [[5, 0, 0], [0, 0, 0]]], np.uint8)),
        png("RGBA", np.array([[[9, 9, 9, 0], [0, 0, 0, 255]], [[0, 0, 0, 9], [9, 9, 9, 0]]], np.uint8)),
        png("LA", np.array([[[9, 0], [0, 255]], [[0, 9], [9, 0]]], np.uint8)),
        png("P", np.array([[0, 255], [255, 0]], np.uint8), transparency=0),
    ],
    ids=["L", "1", "RGB", "RGBA", "LA", "P"],
)
def test_png_masks_of_all_kinds_are_decoded(content: bytes, pack: Callable[[bytes], bytes]) -> None:
    assert decode_png(encode(pack(content)), (2, 2)).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        (None, "missing"),
        (7, "missing"),
        ("§", "can't be decoded"),
        (encode(b"\x89PNG, not really"), "can't be decoded"),
        (encode(zlib.compress(b"\0" * (65 << 20), 1)), "too large"),
        (encode(zlib.compress(b"no image")), "can't be decoded"),
        (encode(png("L", np.zeros((10, 9), np.uint8))), "9 x 10 pixels, the image 9 x 9"),
        (encode(png("L", np.zeros((9, 10), np.uint8))), "10 x 9 pixels, the image 9 x 9"),
        (encode(declare_rows(png("1", np.zeros((1, 1), np.uint8)), 20_000)), "too large"),
    ],
)
def test_png_masks_that_are_no_masks_are_refused(text: object, phrase: str) -> None:
    with pytest.raises(Unfit, match=phrase):
        decode_png(text, (9, 9))


def test_runs_go_along_rows() -> None:
    assert decode_runs([1, 3, 2], 2, 3).tolist() == [[False, True, True], [True, False, False]]


@pytest.mark.parametrize("counts", [[], [5], [-1, 7], [3, 4], [1 << 40]])
def test_runs_that_do_not_fill_the_mask_are_refused(counts: list[int]) -> None:
    with pytest.raises(Unfit, match="do not fill"):
        decode_runs(counts, 2, 3)
    for size in ((0, 3), (1 << 20, 1 << 20)):
        with pytest.raises(Unfit, match="do not fill"):
            decode_runs([size[0] * size[1]], *size)


@pytest.mark.parametrize("values", ["1000011" + "1", "0000011" + "0001"], ids=["a run of ones", "only opacity"])
def test_brushes_may_hold_numbers_of_any_width(values: str) -> None:
    bits = f"{4:032b}" + "00000" + 4 * "0011" + values  # four values of one bit, and lengths of four bits
    assert decode_brush(list(int(bits.ljust(64, "0"), 2).to_bytes(8, "big")), 1, 1).tolist() == [[True]]


@pytest.mark.parametrize("size", [(3, 5), (300, 700), (1, 1)])
def test_brushes_are_unpacked(size: tuple[int, int]) -> None:
    alpha = (np.random.default_rng(1).random(size) < 0.5).astype(np.uint8) * 255
    assert (decode_brush(encode_alpha(alpha), *size) == (alpha > 0)).all()


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        ([255] * 9, "has 1,073,741,823 pixels, the image has 15"),
        (encode_alpha(np.zeros((3, 5), np.uint8))[:-2], "too early"),
        ([0, 0, 0, 60, 0x38, 0, 0, 0x7F, 255, 255, 255, 255], "too early|do not fill"),
        ([300], "not a list of bytes"),
        ("text", "not a list of bytes"),
        (None, "not a list of bytes"),
        (10**400, "not a list of bytes"),
    ],
)
def test_brushes_that_are_damaged_are_refused(content: object, phrase: str) -> None:
    with pytest.raises(Unfit, match=phrase):
        decode_brush(content, 3, 5)
