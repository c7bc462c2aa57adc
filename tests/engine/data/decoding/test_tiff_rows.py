"""Rows of TIFFs in every layout, compared with the decoded image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.reading import Unfit
from engine.data.decoding.tiff import Bands, learn_bands
from engine.data.decoding.tiff_rows import open_rows, read_georeference

HEIGHT, WIDTH = 40, 50


def make_pixels(kind: Any, *bands: int) -> np.ndarray:
    """Return random values, [h, w, *bands], of 8 bits if `kind` is uint8, otherwise of 12 bits."""
    top = 256 if kind == np.uint8 else 4096
    return np.random.default_rng(0).integers(0, top, (HEIGHT, WIDTH, *bands)).astype(kind)


def make_translucent_pixels(*bands: int) -> np.ndarray:
    """Return random values, uint8 [h, w, *bands], whose last band is an opacity, mostly 0 or 255."""
    values = make_pixels(np.uint8, *bands)
    values[..., -1] = np.where(values[..., -1] > 50, 255, 0)
    values[:9, :, -1] = 100
    return values


TILES, STRIPS = {"tile": (16, 16), "compression": "lzw"}, {"rowsperstrip": 7, "compression": "zlib"}
RGB, PLANES = {"photometric": "rgb"}, {"photometric": "rgb", "planarconfig": "separate"}
GRAY, WHITE = {"photometric": "minisblack"}, {"photometric": "miniswhite"}
BIG = {"byteorder": ">", "photometric": "minisblack", "planarconfig": "contig"}
SEPARATE = {"photometric": "minisblack", "planarconfig": "separate"}


@pytest.mark.parametrize(
    ("values", "how"),
    [
        (make_pixels(np.uint8), GRAY),
        (make_pixels(np.uint8), WHITE),
        (make_pixels(np.uint8), WHITE | STRIPS),
        (make_pixels(np.uint8), WHITE | {"compression": "lerc"}),
        (make_pixels(np.uint8, 3), RGB),
        (make_pixels(np.uint8, 3), RGB | TILES),
        (make_pixels(np.uint8, 3), RGB | STRIPS),
        (make_pixels(np.uint8, 3).transpose(2, 0, 1), PLANES),
        (make_pixels(np.uint8, 3).transpose(2, 0, 1), PLANES | TILES),
        (make_translucent_pixels(4), RGB | TILES | {"extrasamples": ["assocalpha"]}),
        (make_translucent_pixels(4), RGB | TILES | {"extrasamples": ["unassalpha"]}),
        (make_pixels(np.uint8, 3), RGB | {"compression": "jpeg", "tile": (16, 16)}),
        (make_translucent_pixels(2), WHITE | STRIPS | {"extrasamples": ["unassalpha"], "planarconfig": "contig"}),
        ((make_pixels(np.uint8, 5) > 99).transpose(2, 0, 1), SEPARATE),
        (
            (make_pixels(np.uint16, 4) // [1, 1, 1, 2048] * [1, 1, 1, 65535]).astype(np.uint16),
            RGB | {"extrasamples": ["unassalpha"]},
        ),
        (make_pixels(np.uint8, 4), RGB | {"extrasamples": ["unassalpha"]}),
        (make_pixels(np.uint16, 5), BIG | WHITE),
        (make_pixels(np.uint16), BIG),
        (make_pixels(np.uint16, 5), BIG),
        (make_pixels(np.float32, 5), BIG | TILES),
        (make_pixels(np.uint16, 5).transpose(2, 0, 1), SEPARATE),
        (make_pixels(np.uint16, 5).transpose(2, 0, 1), SEPARATE | STRIPS),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_rows_equal_the_decoded_image(tmp_path: Path, values: np.ndarray, how: dict[str, Any], channels: int) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, values, metadata=None, **how)
    learned = learn_bands(str(tmp_path), [str(path)])
    bands = None if learned is None else learned.bands
    count = channels if bands is None or bands.count == 1 else bands.count
    expected = decode_pixels(path.read_bytes(), count, bands)
    with open_rows(str(path), count, bands) as rows:
        assert rows.sides == (HEIGHT, WIDTH)
        found = np.concatenate([rows.rows(*edges) for edges in ((0, 5), (5, 33), (33, HEIGHT))])
    np.testing.assert_allclose(found, expected, atol=4 if how.get("compression") == "jpeg" else 0)


def test_rows_are_black_in_tiles_that_were_never_written(tmp_path: Path) -> None:
    path, values = tmp_path / "a.tif", make_pixels(np.uint8, 3)
    tifffile.imwrite(path, values, metadata=None, **RGB | TILES)
    with tifffile.TiffFile(path, mode="r+b") as file:
        counts = file.pages[0].tags["TileByteCounts"]
        counts.overwrite([0, *counts.value[1:]])
    values[:16, :16] = 0
    with open_rows(str(path), 3, None) as rows:
        np.testing.assert_array_equal(rows.rows(0, HEIGHT), values)
    with tifffile.TiffFile(path, mode="r+b") as file:
        offsets = file.pages[0].tags["TileOffsets"]
        offsets.overwrite(offsets.value[:-1])
    with pytest.raises(Unfit, match="truncated"), open_rows(str(path), 3, None):
        pass


def test_rows_are_blank_where_all_bands_lack_data(tmp_path: Path) -> None:
    values = make_pixels(np.float32, 2)
    values[0, 0], values[0, 1], values[0, 2, 0], values[0, 3] = 9999, np.nan, np.nan, (np.inf, 9999)
    path, tags = tmp_path / "a.tif", [(42113, "s", 0, "9999", True), (33550, "d", 3, (1.0, 1.0, 0.0), True)]
    tifffile.imwrite(path, values, extratags=tags, metadata=None, **BIG)
    learned = learn_bands(str(tmp_path), [str(path)])
    assert learned is not None
    with open_rows(str(path), 2, learned.bands) as rows:
        assert np.argwhere(rows.blank(0, HEIGHT)).tolist() == [[0, 0], [0, 1], [0, 3]]
        np.testing.assert_array_equal(rows.rows(0, 9), decode_pixels(path.read_bytes(), 2, learned.bands)[:9])
    found = read_georeference(str(path))
    assert found is not None
    assert found == (((33550, 12, 3, (1.0, 1.0, 0.0), True),), 9999)


ONE_BAND = Bands((0.0,), (1.0,), (0.5,), (1.0,))
PALETTE = {"photometric": "palette", "colormap": np.zeros((3, 256), np.uint16)}


@pytest.mark.parametrize(
    ("kind", "bands", "how", "reason"),
    [
        (np.uint8, None, PALETTE, "only read whole"),
        (np.uint16, None, GRAY, "only read whole"),
        (np.complex64, ONE_BAND, GRAY, r"not supported \(complex64\)"),
    ],
)
def test_rows_of_unusual_images_are_refused(
    tmp_path: Path, kind: Any, bands: Bands | None, how: dict[str, Any], reason: str
) -> None:
    tifffile.imwrite(tmp_path / "a.tif", make_pixels(kind), metadata=None, **how)
    with pytest.raises(Unfit, match=reason), open_rows(str(tmp_path / "a.tif"), 1, bands):
        pass


def test_rows_need_small_segments_if_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, packed = str(tmp_path / "a.tif"), str(tmp_path / "packed.tif")
    tifffile.imwrite(path, make_pixels(np.uint16), metadata=None, **GRAY)
    tifffile.imwrite(packed, make_pixels(np.uint16), metadata=None, **GRAY | STRIPS | {"rowsperstrip": HEIGHT})
    for limit, readable in ((2 * HEIGHT * WIDTH, [path, packed]), (2 * HEIGHT * WIDTH - 1, [path])):
        monkeypatch.setattr("engine.data.decoding.tiff_rows.MAX_SEGMENT_BYTES", limit)
        for each in readable:
            with open_rows(each, 1, ONE_BAND) as rows:
                assert rows.sides == (HEIGHT, WIDTH)
    with pytest.raises(Unfit, match="not divided into tiles or strips"), open_rows(packed, 1, ONE_BAND):
        pass


def test_files_without_a_georeference_have_none(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", make_pixels(np.uint8), metadata=None, **GRAY)
    assert read_georeference(str(tmp_path / "a.tif")) is read_georeference(str(tmp_path / "gone.tif")) is None
    tags = [(33550, "d", 3, (1.0, 1.0, 0.0), True)]
    tifffile.imwrite(tmp_path / "b.tif", make_pixels(np.uint8), extratags=tags, metadata=None, **GRAY)
    assert read_georeference(str(tmp_path / "b.tif")) == (((33550, 12, 3, (1.0, 1.0, 0.0), True),), None)
