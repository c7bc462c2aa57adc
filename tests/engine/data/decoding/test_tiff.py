"""TIFFs with many bands, 16 bits or floating-point values, which are converted to 8-bit channels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from engine.data.decoding.reading import Unfit
from engine.data.decoding.tiff import (
    Bands,
    count_channels,
    is_opacity,
    learn_bands,
    open_to_show,
    read_bands,
    scale_opacity,
    stretch_values,
)
from engine.data.decoding.tiff_pages import read_tiff, read_tiff_facts

SIDE = 24


def save(path: Path, values: np.ndarray, **how: Any) -> str:
    """Save `values` [h, w] or [h, w, bands] as a TIFF, and return its path.

    `how` are options of tifffile. By default, bands are interleaved by pixel.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = {} if values.ndim == 2 else {"planarconfig": "contig"}
    tifffile.imwrite(path, values, **({"photometric": "minisblack", "metadata": None} | layout | how))
    return str(path)


def make_values(seed: int, bands: int, kind: str = "uint16", top: float = 3000) -> np.ndarray:
    """Return random values [h, w, bands] of the data type `kind`. Those of band i range from 0 to (i + 1) * `top`."""
    values = np.random.default_rng(seed).random((SIDE, SIDE, bands)) * top * np.arange(1, bands + 1)
    return values.astype(kind)


def learnt(folder: Path, files: list[str]) -> Bands:
    learned = learn_bands(str(folder), files)
    assert learned is not None
    return learned.bands


@pytest.mark.parametrize("kind", ["uint16", "int16", "float32", "float64"])
@pytest.mark.parametrize("how", [{}, {"compression": "lzw", "predictor": True}, {"planarconfig": "separate"}])
def test_bands_are_stretched_over_their_range(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    scenes = [make_values(seed, 5, kind) for seed in range(4)]
    scenes[0][0, 0] = 30000  # an outlier
    files = []
    for number, values in enumerate(scenes):
        given = values.transpose(2, 0, 1) if how.get("planarconfig") == "separate" else values
        files.append(save(tmp_path / f"{number}.tif", given, **how))
    bands = learnt(tmp_path, files)
    assert bands.count == 5
    assert bands.low == pytest.approx(15.0 * np.arange(1, 6), rel=0.5)
    assert bands.high == pytest.approx(3000.0 * np.arange(1, 6), rel=0.02)
    content = Path(files[1]).read_bytes()
    levels = read_bands(content, bands)
    assert (levels.shape, levels.dtype) == ((SIDE, SIDE, 5), np.uint8)
    expected = (scenes[1] - np.array(bands.low)) / (np.array(bands.high) - bands.low) * 255
    assert np.abs(levels - expected.clip(0, 255)).max() <= 0.51
    channels = np.concatenate([read_bands(Path(path).read_bytes(), bands) for path in files]) / 255
    assert bands.mean == pytest.approx(channels.mean((0, 1)), abs=0.01)
    assert bands.std == pytest.approx(channels.std((0, 1)), abs=0.01)


def test_8_bit_bands_and_ordinary_images_stay_unchanged(tmp_path: Path) -> None:
    four = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 4), np.uint8)
    path = save(tmp_path / "bands/nir.tif", four, photometric="rgb", extrasamples=["unassalpha"])
    bands = learnt(tmp_path, [path])
    np.testing.assert_array_equal(read_bands(Path(path).read_bytes(), bands), four)
    assert learnt(tmp_path, [save(tmp_path / "bands/two.tif", four[:, :, :2])]).count == 2
    four[:, :, 3] = 255
    four[:8, :, 3] = 100
    opaque = save(tmp_path / "scale_opacity.tif", four, photometric="rgb", extrasamples=["unassalpha"])
    assert learnt(tmp_path, [path, opaque]).count == 4
    assert np.unique(read_tiff(save(tmp_path / "bands/bits.tif", four[:, :, 0] > 99))[0]).tolist() == [0, 255]
    gray = save(tmp_path / "bands/gray.tif", four[:, :, [0, 3]], extrasamples=["unassalpha"])
    assert learn_bands(str(tmp_path), [gray]) is None
    Image.fromarray(four[:, :, :3]).save(tmp_path / "color.tif", compression="jpeg")
    Image.fromarray(four[:, :, 0]).save(tmp_path / "gray.tiff")
    Image.fromarray(four[:, :, 0]).convert("P").save(tmp_path / "palette.tif")
    Image.fromarray(four[:, :, :3]).convert("CMYK").save(tmp_path / "ink.tif")
    Image.fromarray(four[:, :, :3]).save(tmp_path / "color.jpg")
    assert learn_bands(str(tmp_path), sorted(map(str, tmp_path.glob("*.*")))) is None
    sixteen = np.concatenate([make_values(0, 3), np.full((SIDE, SIDE, 1), 65535, np.uint16)], 2)
    path = save(tmp_path / "sixteen.tif", sixteen, photometric="rgb", extrasamples=["unassalpha"])
    deep = save(tmp_path / "deep.tif", make_values(0, 4))
    mixed = learn_bands(str(tmp_path), [str(tmp_path / "bands/nir.tif"), deep])
    assert mixed is not None
    assert not mixed.is_8_bits
    assert learnt(tmp_path, [save(tmp_path / "three.tif", sixteen[:, :, 1:])]).count == 3
    learned = learn_bands(str(tmp_path), [opaque.replace("scale_opacity.tif", "color.jpg"), path])
    assert learned is not None
    assert (learned.bands.count, learned.sampled, learned.is_8_bits) == (3, 1, False)
    plain = save(tmp_path / "plain.tif", four[:, :, :3], photometric="rgb")
    assert read_bands(Path(plain).read_bytes(), learned.bands) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0, 255, 9, 9], False), ([0, 255, 255, 9], True), ([0, 0, 0, 9], True), ([], False), ([0.5, 1, 1, 0], True)],
)
def test_is_opacity_if_most_values_are_extreme(values: list[float], expected: bool) -> None:
    kind = np.float32 if 0.5 in values else np.uint8
    assert is_opacity(np.array([[7] * len(values), values], kind)) is expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [(np.float32, (0, 0.5, 1, 2)), (np.uint16, (0, 32768, 65535, 65535)), (np.uint8, (0, 128, 255, 255))],
)
def test_opacity_is_scaled_from_its_type(kind: type[np.generic], values: tuple[float, ...]) -> None:
    assert scale_opacity(np.array([values], kind)).tolist() == [[0, 128, 255, 255]]


def test_stack_of_pages_becomes_bands(tmp_path: Path) -> None:
    values = make_values(0, 6).transpose(2, 0, 1)
    tifffile.imwrite(tmp_path / "stack.tif", values, photometric="minisblack")
    bands = learnt(tmp_path, [str(tmp_path / "stack.tif")])
    levels = read_bands((tmp_path / "stack.tif").read_bytes(), bands)
    assert levels.shape == (SIDE, SIDE, 6)
    interleaved = values.transpose(1, 2, 0)
    tifffile.imwrite(tmp_path / "a.tif", interleaved, photometric="minisblack", planarconfig="contig")
    np.testing.assert_array_equal(read_bands((tmp_path / "a.tif").read_bytes(), bands), levels)


def test_pages_of_no_stack_are_no_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "pages.tif")
    with tifffile.TiffWriter(path) as writer:
        for number in range(3):
            writer.write(make_values(number, 1)[:, :, 0], photometric="minisblack", metadata=None)
    monkeypatch.setattr("engine.data.decoding.tiff_pages.MAX_BANDS", 3)
    facts = read_tiff_facts(path)
    assert (facts.bands, facts.height) == (1, SIDE)
    bands = save(tmp_path / "bands.tif", make_values(0, 3))
    assert read_tiff_facts(bands).bands == read_tiff(bands)[0].shape[2] == 3
    monkeypatch.setattr("engine.data.decoding.tiff_pages.MAX_BANDS", 2)
    with pytest.raises(Unfit, match="it has 3 pages; at most 2 are supported"):
        read_tiff_facts(path)
    with pytest.raises(Unfit, match=r"it is not one image \(24 x 24 x 3\)"):
        read_tiff(bands)


def test_missing_data_and_nan_become_0(tmp_path: Path) -> None:
    values = make_values(0, 2, "float32") + 100
    values[:8], values[8, 0], values[9, :9, 0], values[10, 0, 0] = 99999, np.nan, 99999, np.nan
    only_missing = learnt(tmp_path, [save(tmp_path / "empty.tif", np.full_like(values, np.nan))])
    assert (only_missing.low, only_missing.high) == ((0, 0), (1, 1))
    path = save(tmp_path / "dem.tif", values, extratags=[(42113, "s", 0, "99999", True)])
    bands = learnt(tmp_path, [path])
    assert (min(bands.low) > 99, max(bands.high) < 6200) == (True, True)
    levels = read_bands(Path(path).read_bytes(), bands)
    missing = (levels[:8], levels[8, 0], levels[9, :9, 0], levels[10, 0, :1])
    assert [region.any() for region in missing] == [False] * 4
    assert levels[9:].any()
    with open_to_show(path) as image:
        assert 100 < np.median(np.asarray(image)[11:]) < 150
        assert not np.asarray(image)[:8].any()


def test_stretched_maps_ranges_and_missing_data_to_levels() -> None:
    values = np.array([[0, 10], [10, 30], [5, np.nan], [99, 20], [np.inf, 50]], np.float32)[None]
    bands = Bands((0.0, 10.0), (10.0, 30.0), (0.5, 0.5), (1.0, 1.0))
    assert stretch_values(values, bands, 99).tolist() == [[[0, 0], [255, 255], [128, 0], [0, 128], [0, 255]]]
    full_range = Bands((0.0, 0.0), (255.0, 255.0), (0.5, 0.5), (1.0, 1.0))
    assert stretch_values(np.array([[[7, 9]]], np.uint8), full_range, 7).tolist() == [[[0, 9]]]
    for low, high, expected in ((100.0, 255.0, [0, 255]), (0.0, 100.0, [255, 255])):
        limited_range = Bands((low,), (high,), (0.5,), (1.0,))
        assert stretch_values(np.array([[[100], [255]]], np.uint8), limited_range).ravel().tolist() == expected
    constant = Bands((5.0,), (5.0,), (0.5,), (1.0,))
    assert stretch_values(np.array([[[4], [5], [6]]], np.uint16), constant).tolist() == [[[0], [0], [0]]]
    assert [count_channels(bands, channels) for channels in (None, 1, 3)] == [2, 2, 2]
    one = Bands((0.0,), (10.0,), (0.5,), (1.0,))
    assert [count_channels(one, channels) for channels in (None, 1, 3)] == [1, 1, 3]


@pytest.mark.parametrize(("kind", "limits"), [("uint16", (0, 65535)), ("int16", (500, 501)), ("float32", (500, 501))])
def test_constant_band_has_the_limits_of_its_type(tmp_path: Path, kind: str, limits: tuple[float, float]) -> None:
    values = make_values(0, 5, kind)
    values[:, :, 1] = 500
    bands = learnt(tmp_path, [save(tmp_path / "a.tif", values)])
    assert ((bands.low[1], bands.high[1]), bands.std[1]) == (limits, 1)


@pytest.mark.parametrize("dataset", ["", "all"])
def test_arcgis_statistics_are_used(tmp_path: Path, dataset: str) -> None:
    """Put the statistics into the dataset's folder, or into the parent of the folder with the images."""
    files = [save(tmp_path / f"images/{number}.tif", make_values(number, 4)) for number in range(2)]
    root = tmp_path / dataset
    root.mkdir(exist_ok=True)
    statistics = [{"Min": 0, "Max": 60000, "Mean": 1000.0 * band, "StdDev": 100.0} for band in range(1, 6)]
    statistics[1] |= {"Min": 1900, "Max": 2100}
    (tmp_path / "images/torn.tif").write_bytes(b"II*\0torn")
    (tmp_path / "images/cut.tif").write_bytes(Path(files[0]).read_bytes()[:-100])
    (tmp_path / "esri_model_definition.emd").write_text(json.dumps({"AllTilesStats": statistics}))
    unreadable = [str(tmp_path / f"images/{name}.tif") for name in ("gone", "torn", "cut")]
    learned = learn_bands(str(root), [*files, *unreadable])
    assert learned is not None
    assert learned.sampled == 2
    bands = learned.bands
    assert (bands.low, bands.high) == ((700, 1900, 2700, 3700), (1300, 2100, 3300, 4300))
    assert bands.mean == pytest.approx([0.5] * 4)
    assert bands.std == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
    of_8_bits = learnt(root, [save(tmp_path / "images/8.tif", make_values(0, 4, "uint8", top=60))])
    assert (of_8_bits.low, of_8_bits.high) == ((0,) * 4, (255,) * 4)
    state = [
        {"Min": each["Min"], "Max": each["Max"], "M1": each["Mean"], "M2": 100.0**2 * 50, "Num": 50}
        for each in statistics
    ]
    (tmp_path / "esri_accumulated_stats.json").write_text(json.dumps({"BandStatsState": state}))
    for unusable in ([{**each, "StdDev": float("nan")} for each in statistics], []):
        (tmp_path / "esri_model_definition.emd").write_text(json.dumps({"AllTilesStats": unusable}))
        assert learnt(root, files) == bands
    other = [{**each, "StdDev": 50.0} for each in statistics]
    (tmp_path / "esri_model_definition.emd").write_text(json.dumps({"AllTilesStats": other}))
    assert learnt(root, files).low[0] == 850
    (tmp_path / "esri_model_definition.emd").unlink()
    empty = [{**each, "Num": 0} for each in state]
    (tmp_path / "esri_accumulated_stats.json").write_text(json.dumps({"BandStatsState": empty}))
    assert learnt(root, files).low[0] < 100


def test_file_with_other_bands_is_refused(tmp_path: Path) -> None:
    files = [save(tmp_path / f"{number}.tif", make_values(number, 4)) for number in range(3)]
    odd = [save(tmp_path / f"odd{count}.tif", make_values(9, count)) for count in (2, 5)]
    bands = learnt(tmp_path, [*odd, *files])
    assert bands.count == 4
    for count, path in zip((2, 5), odd, strict=True):
        with pytest.raises(Unfit, match=f"it has {count} bands, most of the others have 4"):
            read_bands(Path(path).read_bytes(), bands)


def test_displayed_image_is_stretched_to_its_range(tmp_path: Path) -> None:
    values = make_values(0, 7, top=50)[:, :20]
    with open_to_show(save(tmp_path / "dark.tif", values)) as image:
        assert (image.size, image.mode) == ((20, SIDE), "RGB")
        levels = np.asarray(image)
        image.putpixel((0, 0), (1, 2, 3))
        assert image.getpixel((0, 0)) == (1, 2, 3)
    assert levels.max() == 255
    assert np.corrcoef(levels[:, :, 0].ravel(), values[:, :, 0].ravel())[0, 1] > 0.99
    with open_to_show(save(tmp_path / "bytes.tif", values[:, :, :2].astype(np.uint8))) as image:
        np.testing.assert_array_equal(np.asarray(image)[:, :, 0], values[:, :, 0])
    with open_to_show(save(tmp_path / "three.tif", values[:, :, :3])) as image:
        np.testing.assert_array_equal(np.asarray(image), levels)
    with open_to_show(save(tmp_path / "one.tif", make_values(0, 1)[:, :, 0])) as image:
        levels = np.asarray(image.convert("RGB"))
    assert (levels == levels[:, :, :1]).all()
    Image.new("RGB", (5, 4), (1, 2, 3)).save(tmp_path / "color.tif")
    with open_to_show(str(tmp_path / "color.tif")) as image:
        assert image.getpixel((0, 0)) == (1, 2, 3)
