"""Transparent images, which are composited with the same background by every decoder."""

from __future__ import annotations

import io
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.images import decode, decode_letterboxed, decode_stretched
from engine.data.decoding.pixels import decode_pixels, read_to_show
from engine.data.decoding.tiff import learn_bands
from engine.data.decoding.tiff_rows import open_rows
from engine.data.decoding.transparency import blend

SIDE = 32
SHAPE = np.zeros((SIDE, SIDE), np.uint8)
SHAPE[8:20, 4:28] = 255


def draw_icon(color: tuple[int, int, int]) -> Image.Image:
    """Draw `SHAPE` in one color, as an RGBA image whose alpha channel is the shape."""
    pixels = np.zeros((SIDE, SIDE, 4), np.uint8)
    pixels[SHAPE > 0, :3], pixels[..., 3] = color, SHAPE
    return Image.fromarray(pixels)


def encode(image: Image.Image, form: str = "PNG", **how: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **how)
    return stream.getvalue()


def palette(image: Image.Image) -> bytes:
    plain = Image.fromarray((SHAPE > 0).astype(np.uint8)).convert("P")
    plain.putpalette([0, 0, 0, *image.getpixel((10, 10))[:3]])  # type: ignore[index]
    return encode(plain, transparency=0)


@pytest.mark.parametrize("color", [(0, 0, 0), (250, 30, 30)])
@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF", "palette", "gray", "16 bits"])
def test_dark_icons_are_on_white(color: tuple[int, int, int], form: str) -> None:
    image = draw_icon(color)
    if form == "palette":
        content = palette(image)
    elif form == "gray":
        image = draw_icon((color[1],) * 3)
        content = encode(image.convert("LA"))
    elif form == "16 bits":
        content = imagecodecs.png_encode(np.asarray(image).astype(np.uint16) * 257)
    else:
        content = encode(image, form, **({"lossless": True} if form == "WEBP" else {}))
    pixels = decode_pixels(content, 3)
    assert (pixels[SHAPE == 0] == 255).all()
    assert (pixels[SHAPE > 0] == image.getpixel((10, 10))[:3]).all()  # type: ignore[index]


@pytest.mark.parametrize("level", [230, 255])
def test_nearly_white_icons_are_on_black(level: int) -> None:
    pixels = decode_pixels(encode(draw_icon((level,) * 3)), 1)
    assert (pixels[SHAPE == 0] == 0).all()
    assert (pixels[SHAPE > 0] == level).all()


@pytest.mark.parametrize("alpha", [0, 10, 255])
def test_an_alpha_that_is_the_same_everywhere_is_ignored(alpha: int) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8))
    expected = np.asarray(image)
    image.putalpha(alpha)
    np.testing.assert_array_equal(decode_pixels(encode(image), 3), expected)


def test_blend_rounds_to_the_nearest_level() -> None:
    levels, alpha = np.array([[7, 4], [9, 200]], np.uint8), np.array([100, 255], np.uint8)
    assert blend(levels, alpha, 0).tolist() == [[3, 2], [9, 200]]


def test_all_decoders_compose_the_same_background(tmp_path: Path) -> None:
    content = encode(draw_icon((20, 20, 20)))
    expected = decode_pixels(content, 3).transpose(2, 0, 1)
    np.testing.assert_array_equal(decode(content, SIDE, 3), expected)
    np.testing.assert_array_equal(decode_stretched(content, SIDE, 3)[0], expected)
    np.testing.assert_array_equal(decode_letterboxed(content, 3, SIDE)[0], expected)
    path = tmp_path / "set/a/0.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    np.testing.assert_array_equal(np.asarray(read_to_show(str(path))), expected.transpose(1, 2, 0))


def test_alpha_of_16_bits_is_composed_with_learned_bands(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(4):
            pixels = np.zeros((SIDE, SIDE, 4), np.uint16)
            pixels[..., :3] = np.random.default_rng(number).integers(0, 3000, (SIDE, SIDE, 3))
            pixels[..., 3] = SHAPE.astype(np.uint16) * 257
            path = tmp_path / name / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(imagecodecs.png_encode(pixels))
    splits = open_splits(str(tmp_path), val_fraction=0.25, seed=0)
    assert splits.channels == 3
    levels = np.asarray(splits.train.load(0, SIDE, 3))  # type: ignore[call-arg, arg-type]
    assert (levels[:, SHAPE == 0] == 255).all()
    assert 50 < levels[:, SHAPE > 0].mean() < 200


@pytest.mark.parametrize(("count", "photometric"), [(1, "minisblack"), (3, "rgb")])
def test_rows_of_deep_bands_are_composed_as_all_of_it(tmp_path: Path, count: int, photometric: str) -> None:
    pixels = np.zeros((SIDE, SIDE, count + 1), np.uint16)
    pixels[..., :count] = np.random.default_rng(0).integers(0, 3000, (SIDE, SIDE, count))
    pixels[..., count] = SHAPE.astype(np.uint16) * 257
    path = tmp_path / "a.tif"
    layout = {"photometric": photometric, "planarconfig": "contig", "extrasamples": ["unassalpha"]}
    tifffile.imwrite(path, pixels, metadata=None, **layout)
    learned = learn_bands(str(tmp_path), [str(path)])
    assert learned is not None
    bands = learned.bands
    with open_rows(str(path), 3, bands) as rows:
        np.testing.assert_array_equal(rows.rows(0, SIDE), decode_pixels(path.read_bytes(), 3, bands))
