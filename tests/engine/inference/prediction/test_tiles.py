"""Predictions for large images in tiles: no seams, no duplicate objects, the same georeference, little memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from torch import Tensor, nn

from engine.contract.inference.prediction import PREDICTED, Predicted, PredictRequest
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.tiff_pages import NO_DATA_TAG
from engine.data.decoding.tiff_rows import GEO_TAGS, Georeference
from engine.inference import Run
from engine.inference.prediction.predict import predict
from engine.inference.prediction.rasters import STRIP_ROWS, write_tiff
from engine.inference.tiles import place_tiles
from engine.tasks.predictions import Lines, Mask, Objects
from tests.engine.cli.terminal import command
from tests.support.plain_models import make_trained_model
from tests.support.trained_runs import TrainedRun

Make = Callable[[str], TrainedRun]
NO_DATA = 0


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_tiles_cover_with_minimum_overlap() -> None:
    for length, side, overlap in ((100, 32, 0.2), (1000, 256, 0.5), (33, 32, 0.0), (20, 32, 0.2), (64, 32, 0.0)):
        begins = place_tiles(length, side, overlap)
        assert (begins[0], begins[-1]) == (0, max(0, length - side))
        assert all(side - (after - before) >= int(side * overlap) for before, after in pairwise(begins))
    assert place_tiles(64, 32, 0.0) == [0, 32]
    assert place_tiles(50, 32, 0.45) == [0, 9, 18]
    assert place_tiles(100, 32, 0.2) == [0, 23, 45, 68]


@pytest.mark.parametrize(("overlap", "height"), [(0.0, 150), (0.2, 150), (0.7, 150), (0.2, 20)])
def test_tiles_leave_no_seams(overlap: float, height: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Conv2d(3, 3, 1)
    network.weight.data *= 8
    model = make_trained_model("segmentation", network, size=32)
    image = noise(height, 117)
    (complete,) = model.predict([image], tile=32, overlap=overlap)
    assert isinstance(complete, Mask)
    likely, classes = network(torch.from_numpy(image).permute(2, 0, 1) / 255).softmax(0).max(0)
    assert np.abs(complete.probability - likely.numpy()).max() < 1e-5
    sure = likely.numpy() > 0.51
    assert (complete.plane == classes.numpy())[sure].all()
    assert sure.mean() > 0.2


class Ramp(nn.Module):
    """Edge detector whose likelihoods only depend on the position in its input of 16 x 16 pixels."""

    likelihood = (torch.arange(16.0)[:, None] + 1) * (torch.arange(16.0) + 20) / 1000

    def forward(self, inputs: Tensor) -> Tensor:
        return self.likelihood.logit().repeat(len(inputs), 1, 1, 1)


def test_overlapping_tiles_are_blended_smoothly() -> None:
    (lines,) = make_trained_model("edge_detection", Ramp()).predict(
        [noise(24, 30)], tile=16, overlap=0.4, threshold=0.3
    )
    assert isinstance(lines, Lines)
    assert lines.threshold == 0.3
    (small,) = make_trained_model("edge_detection", Ramp()).predict([noise(16, 16)], threshold=0.4)
    assert isinstance(small, Lines)
    assert small.threshold == 0.4
    assert small.likelihood == pytest.approx(Ramp.likelihood.numpy(), abs=1e-6)
    side = np.sin(np.pi * (np.arange(16) + 0.5) / 16) ** 2
    sums, weights = np.zeros((2, 24, 30))
    for top in (0, 8):
        for left in (0, 7, 14):
            sums[top : top + 16, left : left + 16] += side[:, None] * side * Ramp.likelihood.numpy()
            weights[top : top + 16, left : left + 16] += side[:, None] * side
    assert lines.likelihood == pytest.approx(sums / weights, abs=1e-3)


class Bright(nn.Module):
    """Detector that finds one object per color channel: the bounding box of the pixels brighter than 0.5.

    Larger boxes have higher scores. The mask of each object covers the left half of its box.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        out = torch.zeros(len(inputs), 3, 6 + 16)
        out[..., 4] = -1
        for rows_of_image, image in zip(out, inputs, strict=True):
            for color, plane in enumerate(image):
                rows, columns = (plane > 0.5).nonzero(as_tuple=True)
                if len(rows):
                    box = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).float()
                    area = (box[2:] - box[:2]).prod()
                    mask = torch.tensor([1.0, 1.0, 0.0, 0.0] * 4)
                    rows_of_image[color] = torch.cat([box, torch.tensor([0.4 + area / 10_000, color]), mask])
        return out


@pytest.mark.parametrize("task", ["detection", "instance_segmentation"])
def test_object_in_several_tiles_is_found_once(task: str) -> None:
    model = make_trained_model(task, Bright(), size=64)
    image = np.zeros((200, 170, 3), np.uint8)
    truth = [((60, 60, 84, 72), 0), ((140, 150, 150, 170), 2), ((10, 150, 20, 170), 1), ((100, 8, 110, 22), 1)]
    for (left, top, right, bottom), color in truth:
        image[top:bottom, left:right, color] = 255
    truth.sort(key=lambda each: (each[0][0] - each[0][2]) * (each[0][3] - each[0][1]))  # larger ones have higher scores
    (found,) = model.predict([image], tile=64, overlap=0.5, threshold=0.0)
    assert isinstance(found, Objects)
    boxes = found.boxes.astype(int).tolist()
    assert sorted(zip(map(tuple, boxes), found.numbers.tolist(), strict=True)) == sorted(truth)
    if task == "instance_segmentation":
        for (left, top, right, bottom), mask in zip(boxes, found.masks, strict=True):
            rows, columns = np.nonzero(mask)
            edges = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert np.abs(np.array(edges) - (left, top, (left + right) // 2, bottom)).max() <= 1
    (found,) = model.predict([image], tile=64, overlap=0.5, threshold=0.425)  # above the scores of the small objects
    assert found.boxes.astype(int).tolist() == [list(truth[0][0])]


def test_clipped_object_within_one_of_another_class_is_kept() -> None:
    image = np.zeros((16, 40, 3), np.uint8)
    image[2, :, 1] = image[12, :, 1] = image[6:9, :, 0] = 255  # both are wider than a tile
    (found,) = make_trained_model("detection", Bright()).predict([image], tile=16, overlap=0.5, threshold=0.0)
    assert isinstance(found, Objects)
    assert set(found.numbers.tolist()) == {0, 1}


def write_map(path: Path, side: tuple[int, int], **options: Any) -> np.ndarray:
    """Write a GeoTIFF of random colors in UTM zone 32, and return its pixels. The upper left corner has no data.

    `side` is the height and the width in pixels. `options` are passed to `tifffile.imwrite`.
    """
    pixels = np.maximum(noise(*side), NO_DATA + 1)
    pixels[:40, :50] = NO_DATA
    tags = [
        (33550, 12, 3, (0.30000000000000004, 0.1 + 0.2, 0.0), True),
        (33922, 12, 6, (0.0, 0.0, 0.0, 443210.123456789, 5412345.987654321, 0.0), True),
        (34735, 3, 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32632), True),
        (34737, 2, 0, "WGS 84 / UTM zone 32N|", True),
        (42113, 2, 0, str(NO_DATA), True),
    ]
    tifffile.imwrite(path, pixels, photometric="rgb", compression="lzw", metadata=None, extratags=tags, **options)
    return pixels


def test_map_keeps_georeference_and_no_data(trained: Make, tmp_path: Path) -> None:
    source = tmp_path / "map.tif"
    pixels = write_map(source, (130, 220), tile=(48, 64))
    of = trained("segmentation")
    request = PredictRequest(
        run=str(of.run.path),
        checkpoint="last",
        paths=(str(source),),
        out=str(tmp_path / "out"),
        tile="auto",
        overlays=True,
    )
    found = PREDICTED.decode(predict(request, print).read_bytes())
    assert [(each.path, each.format) for each in found.files] == [("masks", "geotiff"), ("overlays", "overlays")]
    target = tmp_path / "out" / found.rows[0].mask
    with tifffile.TiffFile(source) as before, tifffile.TiffFile(target) as after:
        first, second = before.pages.first, after.pages.first
        for code in GEO_TAGS:
            assert (code in first.tags) == (code in second.tags)
            if code in first.tags:
                assert first.tags[code].value == second.tags[code].value
                assert first.tags[code].dtype == second.tags[code].dtype
        plane = second.asarray()
    (prediction,) = Run(of.run.path).load("last", "cpu").predict([pixels], tile=32)
    assert isinstance(prediction, Mask)
    assert (plane[:40, :50] == NO_CLASS).all()
    prediction.plane[:40, :50] = NO_CLASS
    assert (plane == prediction.plane).all()
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open(source) as before, rasterio.open(target) as after:
        assert before.crs == after.crs
        assert after.crs.to_epsg() == 32632
        assert before.transform == after.transform
        assert before.bounds == after.bounds
        assert (after.nodata, after.count, after.dtypes) == (NO_CLASS, 1, ("uint8",))
        assert after.colormap(1)[1][:3] == (128, 0, 0)
        assert (after.read(1) == plane).all()


@pytest.mark.parametrize("has_palette", [True, False])
@pytest.mark.parametrize("georeference", [None, Georeference(((33550, 12, 3, (0.5, 0.5, 0.0), True),), 7.0)])
def test_planes_are_written_in_strips(tmp_path: Path, has_palette: bool, georeference: Georeference | None) -> None:
    colors, plane, path = noise(256, 1)[:, 0], noise(769, 9)[..., 0], tmp_path / "a/plane.tif"
    write_tiff(path, np.split(plane, [100, 200, 300, 650]), (769, 9), colors if has_palette else None, georeference)
    with tifffile.TiffFile(path) as file:
        page = file.pages.first
        assert (page.asarray() == plane).all()
        assert page.rowsperstrip == STRIP_ROWS
        assert page.colormap is None or (page.colormap == colors.T * 257.0).all()
        tags = {code: page.tags[code].value for code in (*GEO_TAGS, NO_DATA_TAG) if code in page.tags}
    with_no_data = {NO_DATA_TAG: str(NO_CLASS)} if has_palette else {}
    assert tags == ({} if georeference is None else {33550: (0.5, 0.5, 0.0)} | with_no_data)
    with pytest.raises(KeyboardInterrupt):
        write_tiff(path.with_name("b.tif"), _raise_after_rows(), (700, 9), None, None)
    assert list(path.parent.iterdir()) == [path]


def _raise_after_rows() -> Iterator[np.ndarray]:
    yield np.zeros((300, 9), np.uint8)
    raise KeyboardInterrupt


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_huge_map_needs_less_than_two_gib(trained: Make, tmp_path: Path) -> None:
    source, side = tmp_path / "large.tif", 20_000
    row = np.random.default_rng(0).integers(8, 256, (256, 256, 3), dtype=np.uint8)
    tiles = (row for _ in range((side // 256 + 1) ** 2))
    tifffile.imwrite(
        source, tiles, shape=(side, side, 3), dtype=np.uint8, photometric="rgb", tile=(256, 256), compression="zlib"
    )
    arguments = [
        "predict",
        str(trained("segmentation").run.path),
        str(source),
        "--checkpoint",
        "last",
        "--devices",
        "cpu",
    ]
    arguments += ["--tile", "512", "--batch-size", "16", "--out", str(tmp_path / "out"), "--format", "geotiff"]
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(command(*arguments), stdout=output, stderr=subprocess.STDOUT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (tmp_path / "output.txt").read_text()
    peak = used.ru_maxrss / 1024
    assert peak < 2048, f"{peak:.0f} MiB"
    (written,) = (tmp_path / "out" / "masks").iterdir()
    with tifffile.TiffFile(written) as file:
        assert file.pages.first.shape == (side, side)
    found: Predicted = PREDICTED.decode((tmp_path / "out" / "predictions.json").read_bytes())
    assert sum(found.rows[0].scores) == pytest.approx(1, abs=1e-4)
