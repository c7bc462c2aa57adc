"""Quick check of image files, which reads only their first and last bytes."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from engine.data.decoding.header_check import HEAD_BYTES, seems_complete
from engine.data.decoding.limits import MAX_PIXELS
from tests.support.images import write_image, write_noise


@pytest.mark.parametrize("ending", ["jpg", "png", "gif"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_complete_images_seem_complete(tmp_path: Path, ending: str, mode: str) -> None:
    color = 80 if mode == "L" else (80, 90, 100)
    path = str(write_image(tmp_path / f"a.{ending}", color, mode=mode))
    open_before = psutil.Process().num_fds()
    assert seems_complete(path)
    assert psutil.Process().num_fds() == open_before


@pytest.mark.parametrize(
    "options", [{"progressive": True}, {"exif": b"Exif\0\0" + bytes(60_000)}, {"comment": bytes(9)}]
)
def test_jpeg_with_any_segments_seems_complete(tmp_path: Path, options: dict[str, object]) -> None:
    with Image.open(write_noise(tmp_path / "a.png")) as image:
        image.save(tmp_path / "a.jpg", icc_profile=bytes(100_000), **options)  # type: ignore[arg-type]
    assert (tmp_path / "a.jpg").stat().st_size > 100_000
    assert seems_complete(str(tmp_path / "a.jpg"))


@pytest.mark.parametrize("ending", ["jpg", "png", "gif"])
def test_truncated_image_does_not_seem_complete(tmp_path: Path, ending: str) -> None:
    path = write_noise(tmp_path / f"a.{ending}", size=(16, 16))
    content = path.read_bytes()
    seemed = []
    for length in reversed(range(len(content))):
        os.truncate(path, length)
        if seems_complete(str(path)):
            seemed.append(length)
    # A byte in the data of a GIF may equal the final byte.
    assert [length for length in seemed if ending != "gif" or content[length - 1 : length] != b";"] == []


@pytest.mark.parametrize("ending", ["jfif", "avif", "jp2", "ppm", "pgm", "npy"])
def test_images_of_other_suffixes_seem_complete_until_truncated(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    with Image.open(write_noise(tmp_path / "a.png", size=(16, 16))) as opened:
        if ending == "npy":
            np.save(path, np.asarray(opened))
        else:
            opened.convert("L" if ending == "pgm" else "RGB").save(path)
    content = path.read_bytes()
    assert seems_complete(str(path))
    for length in reversed(range(len(content))):
        os.truncate(path, length)
        # The last two bytes of an image may also occur within it.
        assert not seems_complete(str(path)) or content[length - 2 : length] == b"\xff\xd9"


def test_heif_seems_complete_until_truncated(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    with Image.open(write_noise(tmp_path / "a.png")) as opened:
        pillow_heif.from_pillow(opened).save(tmp_path / "a.heic")
    assert seems_complete(str(tmp_path / "a.heic"))
    for length in range(0, (tmp_path / "a.heic").stat().st_size, 7)[::-1]:
        os.truncate(tmp_path / "a.heic", length)
        assert not seems_complete(str(tmp_path / "a.heic"))


def test_unknown_and_missing_files_do_not_seem_complete(tmp_path: Path) -> None:
    assert not seems_complete(str(write_image(tmp_path / "a.bmp")))
    assert not seems_complete(str(tmp_path / "nothing.jpg"))
    (tmp_path / "a.pgm").write_bytes(b"P5 without a header")
    assert not seems_complete(str(tmp_path / "a.pgm"))
    assert not seems_complete(str(tmp_path))


def test_too_large_image_does_not_seem_complete(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.png")
    content = path.read_bytes()
    path.write_bytes(content[:16] + struct.pack(">II", MAX_PIXELS, 1) + content[24:])
    assert seems_complete(str(path))
    path.write_bytes(content[:16] + struct.pack(">II", MAX_PIXELS, 2) + content[24:])
    assert not seems_complete(str(path))
    path = write_image(tmp_path / "a.jpg")
    content = path.read_bytes()
    at = content.index(b"\xff\xc0") + 5
    for width in (11184, 11185):
        path.write_bytes(content[:at] + struct.pack(">HH", 16000, width) + content[at + 4 :])
        assert seems_complete(str(path)) is (16000 * width <= MAX_PIXELS)


def test_jpeg_of_many_segments_is_checked_quickly(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"\xff\xd8" + b"\xff\xe0\0\2" * HEAD_BYTES + b"\xff\xd9")
    assert not seems_complete(str(path))


@pytest.mark.parametrize("position", range(HEAD_BYTES - 10, HEAD_BYTES + 3, 2))
def test_jpeg_frame_may_be_anywhere(tmp_path: Path, position: int) -> None:
    with Image.open(write_noise(tmp_path / "a.png")) as image:
        image.save(tmp_path / "a.jpg")
    content = (tmp_path / "a.jpg").read_bytes()
    length = position - content.index(b"\xff\xc0") - 2
    segment = b"\xff\xef" + length.to_bytes(2, "big") + bytes(length - 2)
    (tmp_path / "a.jpg").write_bytes(content[:2] + segment + content[2:])
    assert seems_complete(str(tmp_path / "a.jpg"))


@pytest.mark.parametrize(("side", "complete"), [(100, True), (60_000, False)])
def test_largest_image_of_an_avif_counts(tmp_path: Path, side: int, complete: bool) -> None:
    sizes = b"".join(b"ispe" + bytes(4) + struct.pack(">II", each, each) for each in (10, side))
    boxes = [(b"ftyp", b"avif" + bytes(4)), (b"meta", sizes), (b"mdat", bytes(9))]
    content = b"".join(struct.pack(">I", 8 + len(body)) + kind + body for kind, body in boxes)
    (tmp_path / "a.avif").write_bytes(content)
    assert seems_complete(str(tmp_path / "a.avif")) == complete
    with_64_bits = struct.pack(">I", 1) + b"mdat" + struct.pack(">Q", 25) + bytes(9)
    for last, expected in ((with_64_bits, complete), (b"", False)):
        (tmp_path / "a.avif").write_bytes(content.removesuffix(struct.pack(">I", 17) + b"mdat" + bytes(9)) + last)
        assert seems_complete(str(tmp_path / "a.avif")) == expected


@pytest.mark.parametrize(
    ("head", "needed"), [(b"P5 3 2 255\n", 6), (b"P5 3 2 256\n", 12), (b"P6 3 2 255\n", 18), (b"P6 3 2 65535\n", 36)]
)
def test_pnm_and_array_need_all_values(tmp_path: Path, head: bytes, needed: int) -> None:
    for length in (needed, needed - 1):
        (tmp_path / "a.pnm").write_bytes(head + bytes(length))
        assert seems_complete(str(tmp_path / "a.pnm")) == (length == needed)
    np.save(tmp_path / "a.npy", np.zeros((7, 6, 3), np.uint16))
    content = (tmp_path / "a.npy").read_bytes()
    for length in (len(content), len(content) - 1):
        (tmp_path / "a.npy").write_bytes(content[:length])
        assert seems_complete(str(tmp_path / "a.npy")) == (length == len(content))
