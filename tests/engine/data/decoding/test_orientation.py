"""Exif orientations of the images of a dataset."""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile, PngInfo

from engine.data.decoding.orientation import read_rotation, read_rotations, turn_upright_like_image
from engine.data.decoding.pixels import read_to_show
from engine.data.formats.shared.boxes import read_upright_size


def write_image(path: Path, orientation: int) -> str:
    """Write an image of 9 x 6 pixels with an Exif orientation, and return its path."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (9, 6)).save(path, exif=exif)
    return str(path)


def test_read_rotations_reads_all_if_a_sampled_image_is_turned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.decoding.orientation.SAMPLED", 2)
    files = [
        write_image(tmp_path / name, value) for name, value in (("a.jpg", 1), ("b.png", 8), ("c.jpg", 1), ("d.jpg", 3))
    ]
    Image.new("RGB", (9, 6)).save(tmp_path / "torn.png", exif=b"Exif\0\0 no TIFF")
    # The first and the fourth are sampled.
    found = read_rotations([*files, str(tmp_path / "gone.jpg"), str(tmp_path / "torn.png")])
    assert [*found.items()] == [(1, (8, 9, 6)), (3, (3, 6, 9))]
    assert [each.raw for each in found.values()] == [(6, 9), (6, 9)]
    assert read_rotations([*files[:3], files[0]]) == {}


def make_png(orientation: int, place: str) -> bytes:
    """Return a PNG of 9 x 6 pixels with an orientation in Exif before or after the pixels, or in XMP, or without.

    If `place` is "date", it has a text without an orientation after the pixels, as ImageMagick writes it.
    """
    stream, exif, info = BytesIO(), Image.Exif(), PngInfo()
    exif[0x0112] = orientation
    if place == "xmp":
        info.add_itxt("XML:com.adobe.xmp", f'<x tiff:Orientation="{orientation}"/>')
    Image.new("RGB", (9, 6)).save(stream, "PNG", pnginfo=info, exif=exif if place in ("before", "after") else None)
    content = stream.getvalue()
    if place == "date":
        text = b"tEXtdate:create\0" + b"2026-01-01"
        chunk = (len(text) - 4).to_bytes(4) + text + zlib.crc32(text).to_bytes(4)
        content = content[:-12] + chunk + content[-12:]
    if place == "after":
        start = content.index(b"eXIf") - 4
        length = int.from_bytes(content[start : start + 4]) + 12
        content = content[:start] + content[start + length : -12] + content[start : start + length] + content[-12:]
    return content


@pytest.mark.parametrize("place", ["before", "after", "xmp"])
def test_png_orientation_agrees_with_the_decoded_image(tmp_path: Path, place: str) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(make_png(6, place))
    assert (read_upright_size(str(path)), read_rotation(str(path))) == ((9, 6), (6, 9, 6))
    assert read_to_show(str(path)).size == (6, 9)


@pytest.mark.parametrize(
    ("orientation", "place", "size"),
    [(6, "before", (9, 6)), (6, "xmp", (9, 6)), (3, "xmp", (6, 9)), (1, "date", (6, 9))],
)
def test_upright_size_of_a_png_needs_only_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orientation: int, place: str, size: tuple[int, int]
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(make_png(orientation, place))
    monkeypatch.setattr(PngImageFile, "load", lambda _self: pytest.fail("the pixels were decoded"))
    assert read_upright_size(str(path)) == size
    assert (read_rotation(str(path)) is None) == (orientation == 1)


def test_turn_upright_like_image_turns_planes_of_the_stored_size(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.jpg", 6)
    planes = np.arange(54).reshape(6, 9)
    assert turn_upright_like_image(planes, path, (9, 6)).tolist() == np.rot90(planes, -1).tolist()
    for other in (planes.reshape(9, 6), planes[:4, :3], planes[:, :6]):
        assert turn_upright_like_image(other, path, (9, 6)) is other
    assert turn_upright_like_image(planes, write_image(tmp_path / "b.jpg", 3), (6, 9)) is planes
