"""Predictions for every task, requested as the window and the terminal do."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from plyfile import PlyData
from pycocotools.coco import COCO

from engine.contract.inference.prediction import PREDICTED, Predicted, PredictRequest
from engine.contract.messages import Progress
from engine.data.decoding.mask_values import class_colors, read_values
from engine.inference import Run
from engine.inference.prediction.predict import predict
from engine.tasks.predictions import Labels, Lines, Mask, Objects
from tests.support.cases import mark_long_cases
from tests.support.clouds import make_clouds
from tests.support.consent import permit_model_file
from tests.support.trained_runs import COUNTING, TrainedRun

Make = Callable[[str], TrainedRun]
SIZES = ((40, 70), (64, 64), (90, 30))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create images of several sizes, one of them in a subfolder and one damaged, and files to ignore."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "deeper").mkdir()
    (folder / ".hidden").mkdir()
    random = np.random.default_rng(0)
    for number, (height, width) in enumerate(SIZES):
        image = Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        image.save(folder / ("deeper" if number == 2 else "") / f"{number}.png")
        image.save(folder / ".hidden" / f"{number}.png")
    (folder / "broken.png").write_bytes(b"no image")
    (folder / "notes.txt").write_text("not an image")
    return folder


def run_prediction(trained: TrainedRun, paths: Path, out: Path, **fields: Any) -> Predicted:
    """Predict for the images in `paths` with two workers, and return the contents of predictions.json.

    The files are written to `out`. `fields` override fields of the `PredictRequest`.
    """
    reported: list[Progress] = []
    values = {"run": str(trained.run.path), "checkpoint": "last", "devices": ("cpu", "cpu"), "batch_size": 2} | fields
    path = predict(PredictRequest(paths=(str(paths),), out=str(out), **values), reported.append)
    assert path == out / "predictions.json"
    found = PREDICTED.decode(path.read_bytes())
    assert reported[-1].fraction == 1.0
    return found


def predict_directly(trained: TrainedRun, images: Path, found: Predicted, **options: Any) -> list[Any]:
    """Predict for the images in `found` with the Python API in this process, and return the predictions.

    `options` are passed to `predict`.
    """
    model = Run(trained.run.path).load("last", "cpu")
    assert found.sha256 == model.sha256
    return model.predict([row.path for row in found.rows], **options)


def check_summary(found: Predicted, images: Path) -> None:
    assert [Path(row.path).relative_to(images).as_posix() for row in found.rows] == ["0.png", "1.png", "deeper/2.png"]
    assert (found.samples, found.predicted, found.skipped_count) == (4, 3, 1)
    ((path, reason),) = [(skipped.path, skipped.reason) for skipped in found.skipped]
    assert (Path(path).name, reason) == ("broken.png", "it is not a readable image")


@pytest.mark.parametrize("task", mark_long_cases(["classification", "multilabel"], ["classification"]))
def test_probabilities_are_written_as_csv(task: str, trained: Make, images: Path, tmp_path: Path) -> None:
    found = run_prediction(trained(task), images, tmp_path / "out", threshold=0.4)
    check_summary(found, images)
    with open(tmp_path / "out" / "predictions.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row, result, predicted_row in zip(
        rows, predict_directly(trained(task), images, found, threshold=0.4), found.rows, strict=True
    ):
        assert isinstance(result, Labels)
        assert row["path"] == predicted_row.path
        assert row["predicted"] == "; ".join(found.classes[number] for number in predicted_row.classes)
        assert predicted_row.classes == result.ranked_classes[0]
        assert [float(row[name]) for name in found.classes] == pytest.approx(result.probabilities.tolist(), abs=2e-6)
    assert sum(found.class_counts) == sum(len(row.classes) for row in found.rows)


def test_masks_have_the_runs_classes_and_colors(trained: Make, images: Path, tmp_path: Path) -> None:
    of = trained("segmentation")
    found = run_prediction(of, images, tmp_path / "out", formats=("png", "geotiff"), overlays=True)
    check_summary(found, images)
    assert [entry.color for entry in found.legend] == ["", "#800000", "#008000"]
    for row, result in zip(found.rows, predict_directly(of, images, found), strict=True):
        assert isinstance(result, Mask)
        content = (tmp_path / "out" / row.mask).read_bytes()
        assert (read_values(content).values == result.plane).all()
        with Image.open(tmp_path / "out" / row.mask) as mask:
            assert mask.mode == "P"
            assert (np.array(mask.getpalette()).reshape(-1, 3)[:3] == class_colors(3)).all()
        with Image.open(tmp_path / "out" / row.mask.replace(".png", ".tif")) as mask:
            assert (np.asarray(mask) == result.plane).all()
        with Image.open(tmp_path / "out" / row.overlay) as drawn:
            assert drawn.size == result.plane.shape[::-1]
        assert row.classes == result.ranked_classes[0]


@pytest.mark.long
@pytest.mark.parametrize("task", ["edge_detection", "road_extraction"])
def test_edges_are_written_as_gray_levels(task: str, trained: Make, images: Path, tmp_path: Path) -> None:
    found = run_prediction(trained(task), images, tmp_path / "out", overlays=True)
    check_summary(found, images)
    for row, result in zip(found.rows, predict_directly(trained(task), images, found), strict=True):
        assert isinstance(result, Lines)
        with Image.open(tmp_path / "out" / row.mask) as mask:
            assert mask.mode == "L"
            assert np.abs(np.asarray(mask) / 255 - result.likelihood).max() <= 0.5 / 255 + 1e-5
        assert row.text == result.text
        assert (tmp_path / "out" / row.overlay).is_file()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # warning of pycocotools with NumPy 2
@pytest.mark.parametrize("task", mark_long_cases(["detection", "instance_segmentation"], ["detection"]))
def test_objects_are_written_as_coco_and_yolo(
    task: str, trained: Make, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    found = run_prediction(trained(task), images, out, formats=("coco", "yolo"), threshold=0.0, overlays=True)
    check_summary(found, images)
    coco = COCO(str(out / "predictions.coco.json"))
    capsys.readouterr()
    total = 0
    for number, (row, result) in enumerate(
        zip(found.rows, predict_directly(trained(task), images, found, threshold=0.0), strict=True), 1
    ):
        assert isinstance(result, Objects)
        total += len(result)
        annotations = coco.loadAnns(coco.getAnnIds([number]))
        assert [each["category_id"] - 1 for each in annotations] == result.numbers.tolist()
        left, top, right, bottom = result.boxes.T
        boxes = np.stack([left, top, right - left, bottom - top], 1)
        assert np.reshape([each["bbox"] for each in annotations], (-1, 4)) == pytest.approx(boxes, abs=2e-3)
        assert [each["score"] for each in annotations] == pytest.approx(result.scores.tolist(), abs=1e-5)
        if task == "instance_segmentation":
            masks = zip(map(coco.annToMask, annotations), result.masks, strict=True)
            assert all((written == mask).all() for written, mask in masks)
        assert (out / row.overlay).is_file()
    assert total > 0
    assert sum(found.class_counts) == total


@pytest.mark.long
def test_points_get_classes_and_keep_fields(trained: Make, tmp_path: Path) -> None:
    clouds = make_clouds(tmp_path / "clouds", {"train": 1})
    found = run_prediction(trained("point_segmentation"), clouds, tmp_path / "out")
    assert (found.predicted, [written.count for written in found.files]) == (1, [1])
    (source,), (written,) = clouds.rglob("*.ply"), (tmp_path / "out" / "clouds").rglob("*.ply")
    before, after = (PlyData.read(str(path))["vertex"].data for path in (source, written))
    assert after.dtype.names == before.dtype.names
    assert all((after[name] == before[name]).all() for name in after.dtype.names if name != "label")
    assert set(after["label"].tolist()) <= set(before["label"].tolist())
    assert found.rows[0].scores[0] > 0


@pytest.mark.long
def test_custom_task_writes_its_outputs(trained: Make, tmp_path: Path) -> None:
    permit_model_file(COUNTING)
    of = trained("custom")
    found = run_prediction(of, Path(of.job.data.dataset), tmp_path / "out", formats=("json", "npy"), overlays=True)
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert found.predicted == len(lines) == 20
    model = Run(of.run.path).load("last", "cpu")
    val = model.task.open_splits(of.job).val
    output = model.outputs(val.load(0, 0)[0][None])[0].tolist()
    assert lines[0]["path"] == val.path(0)
    assert lines[0]["output"] == pytest.approx(output, abs=1e-5)
    assert np.load(tmp_path / "out" / "outputs" / "000000.npy").tolist() == pytest.approx(output, abs=1e-5)
    assert found.rows[0].text == f"{output[0]:.1f} counted"
    assert (tmp_path / "out" / found.rows[0].overlay).is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_not_utf8_are_predicted_for(trained: Make, images: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    names = ["good.png", os.fsdecode(b"\xff\xfe.png"), os.fsdecode(b"\xff" * 200 + b".png")]
    for name in names:
        shutil.copy(images / "0.png", folder / name)
    found = run_prediction(trained("segmentation"), folder, tmp_path / "out")
    assert (found.predicted, found.skipped_count) == (3, 0)
