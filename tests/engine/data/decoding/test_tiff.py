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
from engine.data.decoding.tiff import Bands, learn_bands, open_to_show, read_bands

SIDE = 24


def save(path: Path, values: np.ndarray, **how: Any) -> str:
    """Save `values` [h, w] or [h, w, bands] as a TIFF, and return its path.

    `how` are options of tifffile. By default, bands are interleaved by pixel.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = {} if values.ndim == 2 else {"planarconfig": "contig"}
    tifffile.imwrite(path, values, **({"photometric": "minisblack", "metadata": None} | layout | how))
    return str(path)


def scene(seed: int, bands: int, kind: str = "uint16", top: float = 3000) -> np.ndarray:
    """Return random values [h, w, bands]. Those of band i range from 0 to (i + 1) * `top`."""
    values = np.random.default_rng(seed).random((SIDE, SIDE, bands)) * top * np.arange(1, bands + 1)
    return values.astype(kind)


def learnt(folder: Path, files: list[str]) -> Bands:
    learned = learn_bands(str(folder), files)
    assert learned is not None
    return learned.bands


@pytest.mark.parametrize("kind", ["uint16", "int16", "float32", "float64"])
@pytest.mark.parametrize("how", [{}, {"compression": "lzw", "predictor": True}, {"planarconfig": "separate"}])
def test_bands_are_stretched_over_their_range(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    scenes = [scene(seed, 5, kind) for seed in range(4)]
    files = []
    for number, values in enumerate(scenes):
        given = values.transpose(2, 0, 1) if how.get("planarconfig") == "separate" else values
        files.append(save(tmp_path / f"{number}.tif", given, **how))
    bands = learnt(tmp_path, files)
    assert bands.count == 5
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
    four[:, :, 3] = 255
    save(tmp_path / "opacity.tif", four, photometric="rgb", extrasamples=["unassalpha"])
    Image.fromarray(four[:, :, :3]).save(tmp_path / "color.tif", compression="jpeg")
    Image.fromarray(four[:, :, 0]).save(tmp_path / "gray.tiff")
    Image.fromarray(four[:, :, 0]).convert("P").save(tmp_path / "palette.tif")
    Image.fromarray(four[:, :, :3]).convert("CMYK").save(tmp_path / "ink.tif")
    Image.fromarray(four[:, :, :3]).save(tmp_path / "color.jpg")
    assert learn_bands(str(tmp_path), sorted(map(str, tmp_path.glob("*.*")))) is None
    sixteen = np.concatenate([scene(0, 3), np.full((SIDE, SIDE, 1), 65535, np.uint16)], 2)
    path = save(tmp_path / "sixteen.tif", sixteen, photometric="rgb", extrasamples=["unassalpha"])
    assert learnt(tmp_path, [path]).count == 3


def test_stack_of_pages_becomes_bands(tmp_path: Path) -> None:
    values = scene(0, 6).transpose(2, 0, 1)
    tifffile.imwrite(tmp_path / "stack.tif", values, photometric="minisblack")
    bands = learnt(tmp_path, [str(tmp_path / "stack.tif")])
    assert read_bands((tmp_path / "stack.tif").read_bytes(), bands).shape == (SIDE, SIDE, 6)


def test_missing_data_and_nan_become_0(tmp_path: Path) -> None:
    values = scene(0, 2, "float32") + 100
    values[:8] = -9999
    values[8, 0] = np.nan
    path = save(tmp_path / "dem.tif", values, extratags=[(42113, "s", 0, "-9999", True)])
    bands = learnt(tmp_path, [path])
    assert min(bands.low) > 99
    levels = read_bands(Path(path).read_bytes(), bands)
    assert not levels[:8].any()
    assert not levels[8, 0].any()
    assert levels[9:].any()


@pytest.mark.parametrize("dataset", ["", "all"])
def test_arcgis_statistics_are_used(tmp_path: Path, dataset: str) -> None:
    """Put the statistics into the dataset's folder, or into the parent of the folder with the images."""
    files = [save(tmp_path / f"images/{number}.tif", scene(number, 4)) for number in range(2)]
    root = tmp_path / dataset
    root.mkdir(exist_ok=True)
    statistics = [{"Min": 0, "Max": 60000, "Mean": 1000.0 * band, "StdDev": 100.0} for band in range(1, 5)]
    (tmp_path / "esri_model_definition.emd").write_text(json.dumps({"AllTilesStats": statistics}))
    bands = learnt(root, files)
    assert (bands.low[0], bands.high[0], bands.low[3], bands.high[3]) == (700, 1300, 3700, 4300)
    assert bands.mean == pytest.approx([0.5] * 4)
    assert bands.std == pytest.approx([1 / 6] * 4)
    (tmp_path / "esri_model_definition.emd").unlink()
    state = [{"Min": 0, "Max": 60000, "M1": each["Mean"], "M2": 100.0**2 * 50, "Num": 50} for each in statistics]
    (tmp_path / "esri_accumulated_stats.json").write_text(json.dumps({"BandStatsState": state}))
    assert learnt(root, files) == bands


def test_file_with_other_bands_is_refused(tmp_path: Path) -> None:
    files = [save(tmp_path / f"{number}.tif", scene(number, 4)) for number in range(3)]
    odd = save(tmp_path / "odd.tif", scene(9, 2))
    bands = learnt(tmp_path, [*files, odd])
    assert bands.count == 4
    with pytest.raises(Unfit, match="it has 2 bands, most of the others have 4"):
        read_bands(Path(odd).read_bytes(), bands)


def test_displayed_image_is_stretched_to_its_range(tmp_path: Path) -> None:
    with open_to_show(save(tmp_path / "dark.tif", scene(0, 7, top=50))) as image:
        assert (image.size, image.mode) == ((SIDE, SIDE), "RGB")
        assert np.asarray(image).max() == 255
    with open_to_show(save(tmp_path / "one.tif", scene(0, 1)[:, :, 0])) as image:
        levels = np.asarray(image.convert("RGB"))
    assert (levels == levels[:, :, :1]).all()
    Image.new("RGB", (5, 4), (1, 2, 3)).save(tmp_path / "color.tif")
    with open_to_show(str(tmp_path / "color.tif")) as image:
        assert image.getpixel((0, 0)) == (1, 2, 3)
