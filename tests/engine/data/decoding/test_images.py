"""JPEG decoding with libjpeg-turbo. Its results equal Pillow's, which decodes the files that it rejects."""

from __future__ import annotations

import contextlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps

from engine.data.decoding import images
from engine.data.decoding.images import decode, decode_jpeg_pixels, decode_letterboxed, decode_stretched
from engine.data.decoding.reading import Unfit
from engine.data.decoding.tiff import Bands


def draw_scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """Draw a random image with smooth colors and sharp ellipses."""
    random = np.random.default_rng(seed)
    image = Image.fromarray(random.integers(0, 256, (6, 8, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        left, top = random.uniform(0, width), random.uniform(0, height)
        draw.ellipse((left, top, left + width / 5, top + height / 9), fill=tuple(random.integers(0, 256, 3).tolist()))
    return image


def jpeg(image: Image.Image, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, "JPEG", **{"quality": 90} | options)
    return stream.getvalue()


def decode_with_pillow(content: bytes, size: int, channels: int) -> np.ndarray:
    with Image.open(BytesIO(content)) as image:
        upright = ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
    return images._fit(np.array(upright), size)


def compute_mean_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean absolute difference between two images, whose pixels range from 0 to 255."""
    assert one.shape == other.shape
    return float(abs(one.astype(float) - other).mean())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"subsampling": "4:4:4"}),
        ("RGB", {"subsampling": "4:2:2"}),
        ("RGB", {"subsampling": "4:2:0"}),
        ("RGB", {"progressive": True}),
        ("RGB", {"keep_rgb": True}),
        ("L", {}),
        ("CMYK", {}),
    ],
)
def test_jpegs_match_pillow(mode: str, options: dict[str, Any], channels: int) -> None:
    content = jpeg(draw_scene(151, 97).convert(mode), **options)
    for size in (32, 97, 120):
        pixels = decode(content, size, channels)
        assert (pixels.dtype, pixels.shape) == (np.uint8, (channels, size, size))
        assert compute_mean_difference(pixels, decode_with_pillow(content, size, channels)) < 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("by", ["exif", "xmp"])
def test_orientations_match_pillow(orientation: int, by: str) -> None:
    if by == "exif":
        exif = Image.Exif()
        exif[0x0112] = orientation
        content = jpeg(draw_scene(60, 90), exif=exif)
    else:
        # XMP is read only if there is no Exif data.
        content = jpeg(draw_scene(60, 90), xmp=b'<x tiff:Orientation="%d"/>' % orientation)
    assert compute_mean_difference(decode(content, 60, 3), decode_with_pillow(content, 60, 3)) < 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_decode_stretched_keeps_all_of_the_upright_image(orientation: int, form: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = BytesIO()
    draw_scene(60, 90).save(stream, form, exif=exif, **({"quality": 95} if form == "JPEG" else {}))
    with Image.open(BytesIO(stream.getvalue())) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    pixels, aspect = decode_stretched(stream.getvalue(), 48, 3)
    expected = np.asarray(upright.resize((48, 48), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert pixels.dtype == np.uint8
    assert compute_mean_difference(pixels, expected) < 1
    assert aspect == pytest.approx(upright.width / upright.height)


def test_scaled_jpeg_resembles_full_decode() -> None:
    content = jpeg(draw_scene(1203, 901))
    scaled, full = decode(content, 40, 3), decode_with_pillow(content, 40, 3)
    assert 0 < compute_mean_difference(scaled, full) < 3


@pytest.mark.parametrize(("size", "shape"), [(10, (31, 46)), (11, (61, 91)), (40, (121, 181)), (41, (241, 361))])
def test_jpeg_is_reduced_to_three_times_the_size(size: int, shape: tuple[int, int]) -> None:
    pixels = decode_jpeg_pixels(jpeg(draw_scene(361, 241)), size, 3)
    assert pixels is not None
    assert pixels.shape[:2] == shape


def test_images_are_resized_like_in_pillow() -> None:
    image, stream = draw_scene(151, 97), BytesIO()
    image.save(stream, "PNG")
    content = stream.getvalue()
    filled, boxed = (np.asarray(image.resize(size, Image.Resampling.BILINEAR)) for size in ((50, 32), (32, 21)))
    assert compute_mean_difference(decode(content, 32, 3), filled[:, 9:41].transpose(2, 0, 1)) < 1
    square, sides = decode_letterboxed(content, 3, 32)
    assert compute_mean_difference(square[:, 5:26], boxed.transpose(2, 0, 1)) < 1
    assert not square[:, :5].any()
    assert sides == (97, 151)
    assert decode_stretched(content, 97, 3)[0].shape == (3, 97, 97)


def test_jpeg_among_images_of_bands_is_refused() -> None:
    four = Bands(*((each,) * 4 for each in (0.0, 255.0, 0.5, 1.0)))
    with pytest.raises(Unfit, match="it is not an image of 4 bands, unlike most of the others"):
        decode(jpeg(draw_scene(80, 60)), 32, 4, four)


def test_jpeg_with_harmless_damage_is_read() -> None:
    content = jpeg(draw_scene(80, 60))
    blemished = content[:-2] + b"\0\1\2\3" + content[-2:]
    assert np.array_equal(decode(blemished, 48, 3), decode_with_pillow(content, 48, 3))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.99])
def test_truncated_jpeg_is_refused(share: float) -> None:
    content = jpeg(draw_scene(400, 300))
    with pytest.raises(OSError, match=r"(?i)truncated|cannot identify"):
        decode(content[: int(len(content) * share)], 64, 3)


def test_random_damage_only_fails_in_decoder() -> None:
    random = np.random.default_rng(0)
    content = jpeg(draw_scene(120, 90))
    read = 0
    for _ in range(150):
        damaged = bytearray(content)
        for place in random.integers(2, len(content), 3):
            damaged[place] = random.integers(256)
        with contextlib.suppress(OSError, SyntaxError, ValueError, Unfit):
            assert decode(bytes(damaged), 16, 3).shape == (3, 16, 16)
            read += 1
    assert 100 < read < 150


def test_decoded_image_is_not_overwritten_by_the_next() -> None:
    contents = []
    for seed in range(2):
        stream = BytesIO()
        draw_scene(32, 32, seed).save(stream, "JPEG")
        contents.append(stream.getvalue())
    first = decode(contents[0], 32, 3)
    before = first.copy()
    assert not np.array_equal(decode(contents[1], 32, 3), before)
    assert np.array_equal(first, before)


@pytest.mark.parametrize("size", [(60, 1200), (1200, 60)])
def test_long_jpeg_is_reduced_by_its_short_side(size: tuple[int, int]) -> None:
    image, stream = draw_scene(*size), BytesIO()
    image.save(stream, "JPEG", quality=95)
    left, top = (side // 2 - 30 for side in size)
    expected = np.asarray(image.crop((left, top, left + 60, top + 60))).astype(int)
    assert np.abs(decode(stream.getvalue(), 60, 3).transpose(1, 2, 0) - expected).mean() < 8
