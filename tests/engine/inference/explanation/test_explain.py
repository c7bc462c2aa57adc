"""Heat maps for models of every task, which must be aligned with the images."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tifffile
import torch
from msgspec.structs import replace
from PIL import Image
from torch import nn

from engine.cli.terminal import BAD_REQUEST
from engine.contract.images import Preprocessing
from engine.contract.inference.explanation import (
    EXPLANATION_FILE,
    ExplainRequest,
    Explanation,
    Method,
    decode_explanation,
)
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.data.decoding.view import View
from engine.inference.explanation import explain as explain_module
from engine.inference.explanation.explain import (
    MAX_DRAWN_SIDE,
    explain,
    explain_images,
    find_visible_box,
    overlay,
    project,
    to_rgb,
)
from engine.inference.explanation.explainer import Explainer
from engine.inference.trained_model import CannotLoad, load
from engine.inference.worker import Shard
from engine.tasks.registry import TASKS
from engine.training.report import Reporter
from tests.engine.cli.terminal import footplate
from tests.support.cases import mark_long_cases
from tests.support.consent import permit_model_file
from tests.support.plain_models import make_trained_model, open_shard
from tests.support.specs import make_worker_spec
from tests.support.things import make_things
from tests.support.trained_runs import COUNTING, DATASETS, TrainedRun, train_small_model
from tests.support.worker_group import Forker

CORNERS = {"blue": (slice(21, 31), slice(27, 37)), "red": (slice(1, 11), slice(7, 17))}
"""Positions of the square that determines a class: rows and columns in images of 32 x 44 px."""
COLORS = {"blue": (20, 20, 255), "red": (255, 20, 20)}


def explain_paths(of: TrainedRun, out: Path, *images: Path, **values: Any) -> Explanation:
    """Compute heat maps for `images` with the last checkpoint of the run `of`, and write them to `out`.

    `values` are further fields of the `ExplainRequest`. Returns the content of the explanation file.
    """
    out.mkdir(exist_ok=True)
    paths = tuple(map(str, images))
    request = ExplainRequest(run=str(of.run.path), checkpoint="last", paths=paths, out=str(out), **values)
    worker_end, supervisor_end = socket.socketpair()
    reporter = Reporter(worker_end, 0, on_end=lambda: None)
    try:
        spec = make_worker_spec(of.job, run_folder=str(out))
        explain_images(request, load(of.run, "last"), Shard(spec, reporter))
    finally:
        reporter.close()
        supervisor_end.close()
        worker_end.close()
    return decode_explanation((out / EXPLANATION_FILE).read_bytes())


def first_image(folder: Path) -> Path:
    return min(path for path in folder.rglob("*") if path.suffix in (".png", ".jpg"))


def gray(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image, np.float64)


@pytest.mark.parametrize(
    "task", mark_long_cases(sorted(DATASETS.keys() - {"point_segmentation"}), ("classification", "detection"))
)
def test_explanation_of_every_task(
    task: str, trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trained(task)
    permit_model_file(COUNTING)
    image = first_image(Path(of.job.data.dataset))
    with Image.open(image) as original:
        size = original.size if task != "custom" else (48, 48)
    objects: Any = (
        load(of.run, "last").predict([image], threshold=0.0)[0]
        if task in ("detection", "instance_segmentation")
        else None
    )
    boxed_count = 0
    for method in get_args(Method):
        found = explain_paths(of, tmp_path / method, image, method=method)
        (explained_image,) = found.images
        assert explained_image.maps, explained_image.reason
        assert found.layer
        assert min(found.grid) >= 4
        for each in explained_image.maps:
            assert each.class_name or each.note
            for file in (each.overlay, each.raw):
                with Image.open(tmp_path / method / file) as drawn:
                    assert drawn.size == size
            assert each.empty == (not gray(tmp_path / method / each.raw).any())
            if each.box is not None:  # that of a detection, in pixels of the image
                boxed_count += 1
                distances = np.abs(objects.boxes - np.array(each.box)).max(1)
                assert distances.min() < 0.1
                assert objects.scores[distances.argmin()] == pytest.approx(each.score, abs=1e-4)
    assert bool(boxed_count) == (objects is not None)
    if objects is None:
        return
    drawn_boxes: list[tuple[Any, ...]] = []

    def draw(image: np.ndarray, boxes: np.ndarray, *, labels: list[str], **_: object) -> np.ndarray:
        drawn_boxes.append((*boxes[0], *labels))
        return image

    monkeypatch.setattr(explain_module, "MAX_DRAWN_SIDE", max(size) // 2)
    monkeypatch.setattr(explain_module, "draw_boxes", draw)
    (explained_image,) = explain_paths(of, tmp_path / "reduced", image).images
    assert drawn_boxes == [
        (*(pytest.approx(edge / 2, abs=0.1) for edge in each.box or ()), f"{each.class_name} {each.score:.0%}")
        for each in explained_image.maps
    ]


@pytest.mark.long
def test_explanation_is_deterministic(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained("detection")
    image = first_image(Path(of.job.data.dataset))
    assert explain_paths(of, tmp_path / "once", image) == explain_paths(of, tmp_path / "again", image)
    files = sorted((tmp_path / "once").glob("*.png"))
    assert files
    for path in files:
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_unexplainable_request_lists_reasons(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    clouds, colors = trained("point_segmentation"), trained("classification")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/thesis.txt").write_text("mine")
    cases: list[tuple[TrainedRun, str, tuple[str, ...], dict[str, str]]] = [
        (clouds, str(tmp_path / "out"), (), {"run": "A model of point clouds can't be explained"}),
        (
            colors,
            str(tmp_path / "taken"),
            ("red", "reed"),
            {"classes": "The model has no class “reed”.", "out": "already exists"},
        ),
        (colors, str(tmp_path / "taken/thesis.txt"), (), {"out": "already exists"}),
    ]
    for of, out, classes, expected in cases:
        request = ExplainRequest(run=str(of.run.path), paths=(str(colors.job.data.dataset),), out=out, classes=classes)
        with pytest.raises(CannotLoad) as refused:
            explain(request, print)
        assert {problem.field for problem in refused.value.problems} == set(expected)
        for problem in refused.value.problems:
            assert expected[problem.field] in problem.message
    assert not (tmp_path / "out").exists()


def test_unreadable_image_is_skipped(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained("classification")
    broken = [tmp_path / name for name in ("broken.png", "empty.png")]
    broken[0].write_bytes(b"nothing")
    broken[1].touch()
    image = first_image(Path(of.job.data.dataset))
    found = explain_paths(of, tmp_path / "out", broken[0], image, classes=("red",))
    assert "can't be read" in found.images[0].reason
    assert not found.images[0].maps
    assert [each.class_name for each in found.images[1].maps] == ["red"]
    assert (found.images[1].side_by_side, found.images[1].reason) == ("", "")
    (prediction,) = load(of.run, "last").predict([image])
    assert found.images[1].predicted == prediction.text
    with pytest.raises(CannotLoad, match=r"None of the images can be read\. The first, .*broken\.png: "):
        explain_paths(of, tmp_path / "out", *broken)


def test_samples_of_a_custom_task_are_explained(tmp_path: Path) -> None:
    folder, out = make_things(tmp_path / "things", 4), tmp_path / "out"
    fields = {"model": str(COUNTING), "model_file_sha256": permit_model_file(COUNTING), "dataset": str(folder)}
    module = TASKS["custom"].build_model(Job.from_fields(task="custom", **fields), 1, 3)
    model = make_trained_model("custom", module, size=0, **fields)
    model.preprocessing = Preprocessing(framing="", mean=(), std=())
    paths = (str(folder / "images/000.png"), str(folder / "other.png"), str(folder / "images/003.png"))
    shutil.copy(paths[0], paths[1])
    out.mkdir()
    with open_shard(model) as shard:
        explain_images(ExplainRequest(run="", paths=paths, out=str(out)), model, shard)
    found = decode_explanation((out / EXPLANATION_FILE).read_bytes())
    assert "it is not a sample of the run's dataset" in found.images[1].reason
    drawn = [gray(out / image.maps[0].overlay) for image in found.images if image.maps]
    assert [each.shape for each in drawn] == [(48, 48, 3)] * 2
    assert (drawn[0] != drawn[1]).any()


def test_bands_of_an_image_are_explained(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(2, 4, 2, 2), nn.Flatten(), nn.Linear(4 * 8 * 8, 3))
    model, out = make_trained_model("classification", network, channels=2), tmp_path / "out"
    model.preprocessing = replace(model.preprocessing, low=(0.0, 1000.0), high=(2000.0, 3000.0))
    bands = np.full((16, 16, 2), (500, 2500), np.uint16)
    tifffile.imwrite(tmp_path / "bands.tif", bands, photometric="minisblack", planarconfig="contig")
    out.mkdir()
    with open_shard(model) as shard:
        explain_images(ExplainRequest(run="", paths=(str(tmp_path / "bands.tif"),), out=str(out)), model, shard)
    (found,) = decode_explanation((out / EXPLANATION_FILE).read_bytes()).images
    assert found.maps, found.reason


def test_images_without_detections_are_explained(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trained("classification")
    monkeypatch.setattr(Explainer, "explain", lambda _self, _inputs, _classes: [])
    found = explain_paths(of, tmp_path / "out", first_image(Path(of.job.data.dataset)))
    assert "detects nothing" in found.images[0].reason
    assert not found.images[0].maps


def write_corners(folder: Path, count: int) -> Path:
    """Write a dataset of images of 32 x 44 px: gray noise with a square that determines the class.

    The square is blue at the lower right, red at the upper left, or missing. There are `count` training images and
    eight validation images per class. Returns `folder`.
    """
    random = np.random.default_rng(0)
    for split, images in (("train", count), ("val", 8)):
        for name in (*CORNERS, "none"):
            (folder / split / name).mkdir(parents=True)
            for number in range(images):
                pixels = random.integers(0, 120, (32, 44, 1), dtype=np.uint8).repeat(3, 2)
                if name in CORNERS:
                    pixels[CORNERS[name]] = COLORS[name]
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")
    return folder


def measure_mass_in(heat: np.ndarray, corner: str) -> float:
    """Return the fraction of a heat map's sum that is in the square at `corner`, one of `CORNERS`, or close to it.

    Up to three pixels next to the square count, too.
    """
    rows, columns = CORNERS[corner]
    margin = 3
    inside = heat[
        max(0, rows.start - margin) : rows.stop + margin, max(0, columns.start - margin) : columns.stop + margin
    ]
    return float(inside.sum() / heat.sum())


def test_map_covers_the_deciding_region(forker: Forker, tmp_path: Path) -> None:
    """Use wide images with squares near the edges of their visible center, which shifted heat maps would miss."""
    dataset = write_corners(tmp_path / "dataset", 32)
    of = train_small_model(
        forker, tmp_path, "classification", dataset=str(dataset), image_size=32, epochs=8, learning_rate=0.002
    )
    assert of.measures["top1"] == 1.0
    image = dataset / "val/blue/0.png"
    both = tmp_path / "both.png"
    with Image.open(image) as opened:
        pixels = np.asarray(opened).copy()
    pixels[CORNERS["red"]] = COLORS["red"]
    Image.fromarray(pixels).save(both)
    found = explain_paths(of, tmp_path / "out", image, dataset / "val/red/0.png", both, classes=("blue", "red"))
    for explained_image, corner in zip(found.images, CORNERS, strict=False):
        maps = {each.class_name: each for each in explained_image.maps}
        heat = gray(tmp_path / "out" / maps[corner].raw)
        assert measure_mass_in(heat, corner) > 0.9, (corner, measure_mass_in(heat, corner))
        assert maps[corner].score is not None
        assert maps[corner].score > 0.9
    assert found.images[0].region == (6.0, 0.0, 38.0, 32.0)
    of_both = {each.class_name: gray(tmp_path / "out" / each.raw) for each in found.images[2].maps}
    for corner, other in (("blue", "red"), ("red", "blue")):
        assert measure_mass_in(of_both[corner], corner) > 2 * measure_mass_in(of_both[corner], other)
    with Image.open(tmp_path / "out" / found.images[2].side_by_side) as together:
        assert together.size == (3 * 44 + 2 * 2, 32)


def test_images_to_draw_on_are_small_and_rgb() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 4), dtype=np.uint8)
    np.testing.assert_array_equal(to_rgb(pixels), pixels[..., :3])
    np.testing.assert_array_equal(to_rgb(pixels[..., 1:3]), pixels[..., 1:2].repeat(3, 2))
    assert to_rgb(np.zeros((3 * MAX_DRAWN_SIDE, MAX_DRAWN_SIDE, 1), np.uint8)).shape == (
        MAX_DRAWN_SIDE,
        round(MAX_DRAWN_SIDE / 3),
        3,
    )


def test_heat_is_projected_to_the_pixels_of_the_image() -> None:
    heat = torch.rand(8, 8)
    same, is_visible = project(heat, View(1.0, 1.0, 0.0, 0.0), (8, 8), (8, 8))
    np.testing.assert_allclose(same, heat, atol=1e-6)
    assert is_visible.all()
    moved, is_visible = project(heat, View(1.0, 1.0, 2.0, -3.0), (10, 10), (10, 10))
    np.testing.assert_allclose(moved[:6, 3:], heat[2:, :7], atol=1e-6)
    assert is_visible.tolist() == np.outer(np.arange(10) < 6, np.arange(10) >= 3).tolist()
    assert find_visible_box(View(1.0, 1.0, 2.0, -3.0), (10, 10), 8) == (3, 0, 10, 6)
    image = np.full((10, 10, 3), 200, np.uint8)
    drawn = overlay(image, np.zeros((10, 10), np.float32), is_visible)
    assert drawn[~is_visible].tolist() == [[70] * 3] * int((~is_visible).sum())
    assert (drawn[is_visible] == 200).all()
    weak, strong = (overlay(image, np.full((10, 10), heat, np.float32), is_visible | True)[0, 0] for heat in (0.25, 1))
    assert np.abs(strong - 200.0).max() > np.abs(weak - 200.0).max() > 5
    assert strong[0] > strong[2]


@pytest.mark.long
def test_explain_command_writes_maps(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained("classification")
    image = first_image(Path(of.job.data.dataset))
    home = {"FOOTPLATE_HOME": os.environ.get("FOOTPLATE_HOME", str(tmp_path / "home"))}
    answer = footplate(
        "explain", str(of.run.path), str(image), "--class", "red,blue", "--out", str(tmp_path / "out"), **home
    )
    assert answer.code == 0, answer.err
    assert "red (" in answer.out
    assert "side by side" in answer.out
    assert "at the layer pool (a map of 12 x 12 cells)" in answer.out
    assert len(list((tmp_path / "out").glob("*.png"))) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_not_utf8_are_explained(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained("classification")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "broken.png").touch()
    for name in ("good.png", os.fsdecode(b"\xff\xfe.png")):
        shutil.copy(first_image(Path(of.job.data.dataset)), folder / name)
    request = ExplainRequest(run=str(of.run.path), checkpoint="last", paths=(str(folder),), out=str(tmp_path / "out"))
    for devices in (("cpu",), ("cpu", "cpu")):  # the same folder is used again, and one device
        progress: list[Progress] = []
        found = decode_explanation(explain(replace(request, devices=devices), progress.append).read_bytes())
        assert [bool(image.maps) for image in found.images] == [False, True, True]
        assert progress[-1].fraction == 1.0
        assert any(0 < each.fraction < 1 for each in progress)
    refused = footplate("explain", str(of.run.path), str(folder / name), "--out", str(tmp_path / "other"))
    assert refused.code == BAD_REQUEST
    assert "UTF-8" in refused.err
