"""NumPy arrays, and images with more than 8 bits that aren't TIFFs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from engine.contract.images import Preprocessing
from engine.data.datasets.open_splits import open_splits
from engine.data.datasets.unlabeled_images import UnlabeledImages
from engine.data.decoding.deep import Facts, choose_mode, make_image, read_deep, read_deep_facts, to_levels
from engine.data.decoding.images import frame, letterbox
from engine.data.decoding.limits import MAX_PIXELS, Unfit
from engine.data.decoding.pixels import decode_pixels, read_to_show
from engine.data.decoding.tiff import learn_bands

SIDE = 24


def values(seed: int, bands: int = 1, top: int = 4095) -> np.ndarray:
    shape = (SIDE, SIDE) if bands == 1 else (SIDE, SIDE, bands)
    return np.random.default_rng(seed).integers(0, top + 1, shape, np.uint16)


def pnm(array: np.ndarray) -> bytes:
    kind = b"P5" if array.ndim == 2 else b"P6"
    height, width = array.shape[:2]
    return kind + b"\n# by a test\n%d %d\n65535\n" % (width, height) + array.astype(">u2").tobytes()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def tif(array: np.ndarray, **how: Any) -> bytes:
    stream = io.BytesIO()
    how = {"photometric": "minisblack" if array.ndim == 2 else "rgb", "metadata": None} | how
    tifffile.imwrite(stream, array, **how)
    return stream.getvalue()


def jp2(array: np.ndarray) -> bytes:
    return bytes(imagecodecs.jpeg2k_encode(array, reversible=True, level=0))


ENCODERS = {"png": imagecodecs.png_encode, "pgm": pnm, "jp2": jp2, "npy": npy, "tif": tif}


def write_dataset(folder: Path, ending: str, bands: int = 1) -> Path:
    """Write 12-bit images with `bands` bands and the suffix `ending`, in two classes and the splits train and val.

    Returns `folder`.
    """
    for first, name in enumerate(("train/a", "train/b", "val/a", "val/b")):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            content = ENCODERS[ending](values(10 * first + number, bands))
            (folder / name / f"{number}.{ending}").write_bytes(content)
    return folder


@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("ending", ["png", "pgm", "jp2", "npy"])
def test_deep_images_have_the_levels_of_the_same_tiff(tmp_path: Path, ending: str, bands: int) -> None:
    opened = [
        open_splits(str(write_dataset(tmp_path / name, name, bands)), val_fraction=0.25, seed=0)
        for name in (ending, "tif")
    ]
    assert opened[0].channels == opened[1].channels == bands
    for split in ("train", "val"):
        images, expected = (getattr(each, split) for each in opened)
        for index in range(len(images)):
            levels = images.load(index, SIDE, bands)
            assert len(np.unique(levels)) > 100
            np.testing.assert_allclose(levels, expected.load(index, SIDE, bands), atol=1)


def test_predictions_use_the_range_that_training_learned(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "set", "png")
    train = open_splits(str(folder), val_fraction=0.25, seed=0).train
    assert train.bands is not None  # type: ignore[union-attr]
    low, high = train.bands.low, train.bands.high  # type: ignore[union-attr]
    preprocessing = Preprocessing(framing="crop", mean=(0.5,), std=(0.2,), low=low, high=high)
    images = UnlabeledImages(train.files, preprocessing)  # type: ignore[union-attr]
    np.testing.assert_array_equal(images.load(2, SIDE, 1), train.load(2, SIDE, 1))  # type: ignore[arg-type, call-arg]


def test_gray_deep_images_among_color_ones_keep_the_colors(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "set", "png")
    for number in range(6):
        Image.new("RGB", (SIDE, SIDE), (200, 30, 10 * number)).save(folder / "train/b" / f"color{number}.jpg")
    assert open_splits(str(folder), val_fraction=0.25, seed=0).channels == 3


@pytest.mark.parametrize("kind", [np.uint16, np.float32, np.int32])
@pytest.mark.parametrize("layout", ["hw", "hwc", "chw"])
def test_arrays_are_read_in_every_layout(kind: Any, layout: str, tmp_path: Path) -> None:
    array = values(0, 1 if layout == "hw" else 3).astype(kind)
    given = array.transpose(2, 0, 1) if layout == "chw" else array
    path = tmp_path / "a.npy"
    np.save(path, np.asfortranarray(given))
    learned = learn_bands(str(tmp_path), [str(path)])
    assert learned is not None
    bands = learned.bands
    levels = decode_pixels(path.read_bytes(), bands.count, bands)
    low, high = np.array(bands.low), np.array(bands.high)
    expected = ((array.reshape(SIDE, SIDE, -1) - low) / (high - low) * 255).clip(0, 255)
    assert np.abs(levels - expected).max() <= 0.51


@pytest.mark.parametrize("shape", [(SIDE, SIDE + 2), (SIDE, SIDE + 2, 1), (SIDE, SIDE + 2, 3), (3, SIDE, SIDE + 2)])
def test_byte_arrays_are_images_as_they_are(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    expected = array.transpose(1, 2, 0) if shape[0] == 3 else array.reshape(SIDE, SIDE + 2, -1)
    pixels = decode_pixels(npy(array), 3)
    np.testing.assert_array_equal(pixels, np.broadcast_to(expected, pixels.shape))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (npy(np.array([{}], object)), "Python objects"),
        (npy(np.zeros((4, 4), complex)), "complex"),
        (npy(np.zeros(7)), "not one image"),
        (npy(np.zeros((9, 9, 9))), "not one image"),
        (npy(np.zeros((0, 5))), r"not one image of up to 4 channels \(0 x 5\)"),
        (b"\x93NUMPY\3\0" + bytes(9), "of a kind that is not an image"),
        (b"P2 2 2 65535\n1 2 3", "truncated"),
        (tif(values(0, 2), photometric="minisblack", planarconfig="contig"), "it has 2 bands"),
        (npy(np.zeros((3, 9, 4))), "could both be the channels"),
        (npy(np.array(["a", "b"])), "no numbers"),
        (npy(np.zeros((40, 40)))[:-9], "truncated"),
        (pnm(values(0))[:-1], "truncated"),
        (imagecodecs.png_encode(values(0)), "go only to"),
        (jp2(values(0)), "go only to"),
        (npy(values(0).astype(np.float32)), "no known scale"),
        (npy(values(0).astype(np.int64)), "no known scale"),
        (tif(np.zeros((9, 9), np.complex64)), "complex"),
        (tif(values(0, 3).astype(np.float32)), "no known scale"),
    ],
)
def test_unusable_files_are_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        decode_pixels(content, 3)


@pytest.mark.parametrize("compression", ["lerc", "jpeg2000", "jpegxl", "png"])
@pytest.mark.parametrize("bands", [1, 3])
def test_tiffs_that_pillow_cannot_decode_are_read(tmp_path: Path, compression: str, bands: int) -> None:
    shape = (SIDE, SIDE) if bands == 1 else (SIDE, SIDE, bands)
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    how = {"level": 100} if compression == "jpegxl" else {}
    path = tmp_path / "a.tif"
    path.write_bytes(tif(array, compression=compression, compressionargs=how))
    pixels = decode_pixels(path.read_bytes(), bands)
    np.testing.assert_allclose(pixels[..., 0], array.reshape(SIDE, SIDE, bands)[..., 0], atol=3)
    assert read_to_show(str(path)).size == (SIDE, SIDE)


def full_scale(bands: int) -> np.ndarray:
    return (values(1, bands, 255) * 257).astype(np.uint16)


@pytest.mark.parametrize(
    "content",
    [
        imagecodecs.png_encode(full_scale(3)),
        pnm(full_scale(3)),
        npy(full_scale(3)),
        tif(full_scale(3)),
        tif(full_scale(3) / np.float32(65535)),
        jp2(full_scale(3)),
    ],
)
def test_known_scales_are_read_without_learned_ranges(content: bytes) -> None:
    np.testing.assert_array_equal(decode_pixels(content, 3), values(1, 3, 255))


@pytest.mark.parametrize(("kind", "opacity"), [("unassalpha", 999), ("unspecified", 65535)])
def test_rgba_of_16_bits_is_read_for_a_color_model(kind: str, opacity: int) -> None:
    array = np.concatenate([full_scale(3), np.full((SIDE, SIDE, 1), opacity, np.uint16)], 2)
    content = tif(array, extrasamples=[kind])
    np.testing.assert_array_equal(decode_pixels(content, 3), values(1, 3, 255))


def make_codestream(bits: int) -> bytes:
    """Return the header of a JPEG 2000 codestream for an image of 60 x 90 pixels, with `bits` bits per value.

    The image is only a part of the canvas that the header declares.
    """
    sides = (100, 80, 10, 20, 100, 80, 0, 0)
    size = b"".join(side.to_bytes(4, "big") for side in sides)
    return b"\xff\x4f\xff\x51\0\x29\0\0" + size + b"\0\x01" + bytes([bits - 1]) + bytes(20)


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        (make_codestream(12), (60, 90, 1, np.uint16, 4095)),
        (make_codestream(8), None),
        (make_codestream(16), (60, 90, 1, np.uint16, 65535)),
        (make_codestream(17), None),
        (make_codestream(12 + 128), (60, 90, 1, np.uint16, 4095)),  # signed
        (imagecodecs.png_encode(np.zeros((3, 5), np.uint16)), (3, 5, 1, np.uint16, 65535, False)),
        (imagecodecs.png_encode(np.zeros((3, 5, 4), np.uint16)), (3, 5, 4, np.uint16, 65535, True)),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"P3 3 2 300\n", (2, 3, 3, np.uint16, 300)),
        (b"P5 3 2 65536\n", None),
        (b"P5 without a header", None),
        (b"P5 3 2 256\n", (2, 3, 1, np.uint16, 256)),
        (b"P6 3 2 65535\n", (2, 3, 3, np.uint16, 65535)),
        (b"P5 3 2 255\n", None),
        (npy(np.zeros((3, 5), np.uint16)), (3, 5, 1, np.uint16, 65535)),
        (npy(np.zeros((9, 5, 2), np.uint32)), (9, 5, 2, np.uint32, None)),
        (npy(np.zeros((3, 9, 5), ">f4")), (9, 5, 3, np.float32, None)),
    ],
)
def test_facts_are_read_from_headers(content: bytes, facts: tuple[object, ...] | None) -> None:
    found = read_deep_facts(io.BytesIO(content))
    assert (None if found is None or facts is None else tuple(found)[: len(facts)]) == facts
    assert (found is None) == (facts is None)


def test_text_and_floats_of_pnm_are_read() -> None:
    assert decode_pixels(b"P2\n2 1\n65535\n65535 0\n", 1).tolist() == [[[255], [0]]]
    assert decode_pixels(b"Pf\n2 1\n-1.0\n" + np.array([0, 1], "<f4").tobytes(), 1).tolist() == [[[0], [255]]]


@pytest.mark.parametrize(("height", "width", "bands"), [(2, MAX_PIXELS // 2 + 1, 1), (1, MAX_PIXELS // 2, 9)])
def test_read_deep_limits_pixels_and_values(height: int, width: int, bands: int) -> None:
    with pytest.raises(Unfit, match=rf"it is too large \({width:,} x {height:,} pixels\)"):
        read_deep(b"", Facts(height, width, bands, np.dtype(np.uint16)))


def test_arrays_of_newer_versions_are_read() -> None:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([[7, 9]], np.uint8), version=(2, 0))
    assert decode_pixels(stream.getvalue(), 1).tolist() == [[[7], [9]]]


def test_arrays_of_bools_are_black_and_white() -> None:
    content = npy(np.array([[True, False]]))
    found = read_deep_facts(io.BytesIO(content))
    assert found is not None
    assert read_deep(content, found).tolist() == [[[255], [0]]]


@pytest.mark.parametrize("shape", [(3, 5, 3), (4, 9, 2), (7, 5, 9)])
def test_arrays_without_clear_channels_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(Unfit):
        read_deep_facts(io.BytesIO(npy(np.zeros(shape, np.uint8))))


@pytest.mark.parametrize("value", [1 << 40, -(1 << 40)])
def test_image_of_refuses_numbers_beyond_32_bits(value: int) -> None:
    with pytest.raises(Unfit):
        make_image(np.full((2, 2, 1), value))
    assert np.asarray(make_image(np.full((2, 2, 1), value >> 12))).tolist() == [[value >> 12] * 2] * 2
    for kind, bands, reason in ((np.int16, 3, "no color image of 8 bits"), (np.uint8, 5, "it has 5 bands")):
        with pytest.raises(Unfit, match=reason):
            make_image(np.zeros((2, 2, bands), kind))


@pytest.mark.parametrize(("bands", "mode"), [(1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA"), (5, "RGBA")])
def test_mode_depends_on_bands(bands: int, mode: str) -> None:
    assert choose_mode(Facts(2, 2, bands, np.dtype(np.uint8))) == mode
    assert choose_mode(Facts(2, 2, 1, np.dtype(np.float32))) == "F"


@pytest.mark.parametrize(
    ("kind", "low", "high", "largest", "levels"),
    [
        (np.float32, 0, 1, None, [0, 255]),
        (np.float32, 0.25, 1, None, [64, 255]),  # 63.75 is rounded
        (np.float32, -0.5, 1, None, None),
        (np.float32, 0, 0.003, None, None),
        (np.float32, 0, 1.5, None, None),
        (np.uint16, 0, 65535, 65535, [0, 255]),
        (np.uint16, 0, 0, 65535, [0, 0]),
        (np.uint16, 0, 4095, 65535, None),
        (np.uint16, 0, 4097, 65535, [0, 16]),
        (np.uint16, 0, 4095, None, None),
    ],
)
def test_to_levels_needs_a_known_scale(
    kind: Any, low: float, high: float, largest: int | None, levels: list[int] | None
) -> None:
    values_ = np.array([low, high], kind).reshape(1, 2, 1)
    if levels is None:
        with pytest.raises(Unfit):
            to_levels(values_, largest)
    else:
        assert to_levels(values_, largest).ravel().tolist() == levels


def test_unlabeled_images_are_framed_like_training_images(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (12, 20, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    loaded = {}
    for framing in ("crop", "whole", "continued"):
        images = UnlabeledImages(
            [str(tmp_path / "a.png")], Preprocessing(framing=framing, mean=(0.5,) * 3, std=(0.5,) * 3)
        )
        loaded[framing] = images.load(0, 10, 3).numpy()
        assert np.array_equal(loaded[framing], frame(pixels, 10, framing))  # type: ignore[arg-type]
        assert images.sides.tolist() == ([[0, 0]] if framing == "crop" else [[12, 20]])
    assert np.array_equal(loaded["whole"], letterbox(pixels, 10))
    assert not loaded["whole"][:, 0].any()
    assert np.array_equal(loaded["continued"][:, 0], loaded["continued"][:, 2])
