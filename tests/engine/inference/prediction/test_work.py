"""Predictions and files of a prediction worker, which runs in the test process."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
import torch
from msgspec import structs
from PIL import Image
from plyfile import PlyData
from torch import Tensor, nn

from engine.contract.images import Preprocessing
from engine.contract.inference.prediction import PredictRequest
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.outlines import Window
from engine.data.splits import printable
from engine.inference.prediction import work
from engine.inference.prediction.journal import CompletedSamples, Entry, Journal
from engine.inference.prediction.outlines import encode_runs
from engine.inference.prediction.plan import Plan, PlanFolder
from engine.inference.prediction.results import MAX_DRAWN_PIXELS, ResultWriter, Sample
from engine.inference.prediction.sources import Kind, list_sources
from engine.inference.prediction.work import Predictor, create_write_problem
from engine.inference.trained_model import TrainedModel
from engine.inference.video import VideoWriter, frames, read_frame_rate
from engine.models.base import TaskError
from engine.tasks.predictions import Objects, Raw
from tests.support.clouds import make_scene, write_ply
from tests.support.consent import permit_model_file
from tests.support.plain_models import ChannelScores, make_trained_model, open_shard
from tests.support.things import make_things
from tests.support.trained_runs import COUNTING


def write_images(folder: Path, classes: Sequence[int | None]) -> list[str]:
    """Write an image per entry of `classes`, and return the paths of the images.

    An entry is the index of the color channel that is bright, or None for a damaged file.
    """
    folder.mkdir()
    for number, channel in enumerate(classes):
        pixels = np.zeros((16, 16, 3), np.uint8)
        pixels[..., channel or 0] = 250
        Image.fromarray(pixels).save(folder / f"{number}.png")
        if channel is None:
            (folder / f"{number}.png").write_bytes(b"no image")
    return [str(folder / f"{number}.png") for number in range(len(classes))]


def predict_shard(
    model: TrainedModel,
    paths: Sequence[str],
    out: Path,
    *,
    remaining: Sequence[int] | None = None,
    rank: int = 0,
    ranks: int = 1,
    kind: Kind = "images",
    **fields: Any,
) -> list[Entry]:
    """Let worker `rank` of `ranks` predict its part of the `remaining` samples, by default of all. Return its entries.

    `fields` are further fields of the `PredictRequest`.
    """
    sources = list_sources(paths, kind, str(out), model.task.files)
    numbers = np.array(range(len(sources.files)) if remaining is None else remaining, np.int64)
    folder = out / f"journal-{rank}"
    folder.mkdir(parents=True)
    request = PredictRequest(run="", paths=tuple(paths), out=str(out), **fields)
    advanced: list[int] = []
    with open_shard(model, rank, ranks) as shard, Journal(folder, 1, rank) as journal:
        shard.advance = advanced.append  # type: ignore[method-assign]
        predictor = Predictor(request, model, shard, journal, sources=sources, remaining=numbers)
        {
            "images": predictor.predict_images,
            "clouds": predictor.predict_clouds,
            "folder": predictor.predict_folder,
        }[kind]()
    entries = list(CompletedSamples(folder, int(numbers.max()) + 1).iterate_entries())
    assert sum(advanced) == len({entry.sample for entry in entries})
    return entries


@pytest.mark.parametrize("tile", [None, 16])
def test_ranks_predict_each_remaining_image_once(tmp_path: Path, tile: int | None) -> None:
    task = "classification" if tile is None else "segmentation"
    classes = [0, 1, 2, None, 2, 1, 0, None, 1]
    paths = write_images(tmp_path / "images", classes)
    model = make_trained_model(task, ChannelScores(pooled=tile is None))
    found = [
        entry
        for rank in range(2)
        for entry in predict_shard(
            model, paths, tmp_path / "out", remaining=range(1, 9), rank=rank, ranks=2, batch_size=3, tile=tile
        )
    ]
    found.sort(key=lambda entry: entry.sample)
    assert [entry.sample for entry in found] == list(range(1, 9))
    assert [entry.path for entry in found] == paths[1:]
    assert [entry.classes[:1] for entry in found] == [() if each is None else (each,) for each in classes[1:]]
    assert [bool(entry.skipped) for entry in found] == [each is None for each in classes[1:]]


def test_batch_size_is_the_requested_or_the_trainings(tmp_path: Path) -> None:
    paths = write_images(tmp_path / "images", [0] * 5)
    for batch_size, expected in ((None, [4, 1]), (2, [2, 2, 1])):
        network = ChannelScores(pooled=True)
        model = make_trained_model("classification", network, batch_size=4)
        predict_shard(model, paths, tmp_path / str(batch_size), batch_size=batch_size)
        assert [len(each) for each in network.inputs] == expected


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_images_larger_than_a_tile_are_divided(tmp_path: Path, ending: str) -> None:
    for size, tile, overlap, tiles in (
        ((16, 16), "auto", 0.5, 1),
        ((16, 17), "auto", 0.5, 2),
        ((16, 48), 16, 0.5, 5),
        ((16, 48), 16, 0.0, 3),
        ((48, 16), 32, 0.0, 2),
        ((48, 16), None, 0.0, 1),
    ):
        network, out = ChannelScores(), tmp_path / f"{size} {tile} {overlap}"
        path = tmp_path / f"image.{ending}"
        Image.fromarray(np.full((*size, 3), (0, 0, 200), np.uint8)).save(path)
        model = make_trained_model("segmentation", network, val_crop=0.5)
        (entry,) = predict_shard(model, [str(path)], out, tile=tile, overlap=overlap, formats=("png",))
        assert sum(map(len, network.inputs)) == tiles
        assert ((entry.height, entry.width), entry.classes) == (size, (2,))
        with Image.open(out / entry.files["png"]) as mask:
            np.testing.assert_array_equal(np.asarray(mask), np.full(size, 2))
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for name in ("0", "1"):
        Image.fromarray(noise).save(tmp_path / f"{name}.{ending}", compression="tiff_adobe_deflate")
    broken = tmp_path / f"0.{ending}"
    content = broken.read_bytes()
    broken.write_bytes(content[:512] + bytes(512) + content[1024:])
    files = [str(tmp_path / f"{name}.{ending}") for name in ("0", "1")]
    damaged, intact = predict_shard(model, files, tmp_path / "damaged", tile=16)
    assert (damaged.sample, damaged.path) == (0, str(broken))
    assert damaged.skipped
    assert (intact.sample, intact.skipped) == (1, "")


def test_bands_of_an_image_without_access_to_its_rows_are_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.data.decoding.tiff_rows.MAX_SEGMENT_BYTES", 0)
    network = ChannelScores()
    model = make_trained_model("segmentation", network, channels=2)
    model.preprocessing = structs.replace(model.preprocessing, low=(0.0, 1000.0), high=(2000.0, 3000.0))
    bands = np.full((16, 40, 2), (500, 2500), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", bands, photometric="minisblack", planarconfig="contig", compression="zlib")
    (entry,) = predict_shard(model, [str(tmp_path / "a.tif")], tmp_path / "out", tile=16)
    assert entry.classes == (1,)
    assert network.inputs[0].mean((0, 2, 3)).tolist() == pytest.approx([0.25, 0.75], abs=0.01)


def test_clouds_are_written_with_their_classes(tmp_path: Path) -> None:
    class Intensity(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return 10 * (inputs[:, 3:4] == torch.arange(3)[:, None])

    (tmp_path / "clouds/deep").mkdir(parents=True)
    for number in range(3):
        file = tmp_path / f"clouds/deep/{number}.ply"
        write_ply(file, make_scene(0, 40)[0], intensity=np.full(40, number, np.float32))
        if number == 1:
            file.write_bytes(file.read_bytes()[:-40])
    model = make_trained_model("point_segmentation", Intensity(), channels=4, model="pointcnn_x1", points=32)
    model.preprocessing = structs.replace(model.preprocessing, framing="", features=("intensity",), values=(7, 8, 9))
    found = predict_shard(model, [str(tmp_path / "clouds")], tmp_path / "out", kind="clouds", batch_size=2)
    assert [(entry.sample, entry.classes, bool(entry.skipped)) for entry in found] == [
        (0, (0,), False),
        (1, (), True),
        (2, (2,), False),
    ]
    assert found[2].files == {"cloud": "clouds/deep/2.ply"}
    written = PlyData.read(str(tmp_path / "out/clouds/deep/2.ply"))["vertex"].data
    assert set(written["label"].tolist()) == {9}


def test_folder_samples_are_those_of_both_splits(tmp_path: Path) -> None:
    class Mean(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.mean((1, 2, 3))[:, None]

    folder = make_things(tmp_path / "things", 10)
    digest = permit_model_file(COUNTING)
    fields = {"model": str(COUNTING), "model_file_sha256": digest, "dataset": str(folder), "val_fraction": 0.3}
    model = make_trained_model("custom", Mean(), size=0, **fields)
    model.preprocessing = Preprocessing(framing="", mean=(), std=())
    splits = model.task.open_splits(model.job)
    assert isinstance(splits.val, SampleSet)
    assert isinstance(splits.train, SampleSet)
    names = [split.path(index) for split in (splits.val, splits.train) for index in range(len(split))]
    assert (len(splits.val), len(names)) == (3, 10)
    for number in (3, 9):
        (folder / names[number]).write_bytes(b"")
    found = predict_shard(
        model,
        [str(folder)],
        tmp_path / "out",
        kind="folder",
        remaining=[1, 2, 3, 5, 9],
        batch_size=2,
        formats=("json",),
    )
    expected = {
        number: float(np.asarray(Image.open(folder / names[number]), np.float32).mean() / 255) for number in (1, 2, 5)
    }
    assert {entry.sample: entry.output for entry in found if not entry.skipped} == {
        number: [pytest.approx(value, abs=1e-6)] for number, value in expected.items()
    }
    assert [(entry.sample, entry.path, entry.name) for entry in found if not entry.skipped] == [
        (number, names[number], f"{number:06}") for number in expected
    ]
    skipped = [(entry.sample, entry.path, "cannot identify" in entry.skipped) for entry in found if entry.skipped]
    assert skipped == [(3, "sample 3", True), (9, "sample 9", True)]


class Box(nn.Module):
    """Detector that finds an object of class 1 with the score 0.75 and another with the score 0.25."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tensor([[[2, 4, 10, 8, 0.75, 1], [1, 1, 3, 3, 0.25, 1.0]]]).repeat(len(inputs), 1, 1)


@pytest.mark.parametrize("tile", [None, 16])
@pytest.mark.parametrize(("threshold", "expected"), [(0.1, [0.75, 0.25]), (0.5, [0.75]), (0.8, [])])
def test_threshold_limits_objects(tmp_path: Path, tile: int | None, threshold: float, expected: list[float]) -> None:
    Image.new("RGB", (16, 18)).save(tmp_path / "image.png")
    model = make_trained_model("detection", Box())
    (entry,) = predict_shard(
        model, [str(tmp_path / "image.png")], tmp_path / "out", threshold=threshold, tile=tile, overlap=0.85
    )
    assert {each.score for each in entry.objects} == set(expected)
    (result,) = model.predict([tmp_path / "image.png"], threshold=threshold, tile=tile, overlap=0.85)
    assert [round(score, 6) for score in result.scores.tolist()] == [each.score for each in entry.objects]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("task", "threshold", "expected"),
    [("multilabel", 0.6, (0, 1)), ("multilabel", 0.7, (0,)), ("classification", 0.0, (0,))],
)
def test_threshold_limits_labels(tmp_path: Path, task: str, threshold: float, expected: tuple[int, ...]) -> None:
    Image.new("RGB", (16, 16), (250, 20, 0)).save(tmp_path / "image.png")
    model = make_trained_model(task, ChannelScores(pooled=True))
    (entry,) = predict_shard(model, [str(tmp_path / "image.png")], tmp_path / "out", threshold=threshold)
    assert entry.classes == expected


@pytest.mark.parametrize("channels", [1, 3])
def test_videos_are_predicted_frame_by_frame(tmp_path: Path, channels: int) -> None:
    colors = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 250), (0, 0, 0), (0, 0, 0)]
    with VideoWriter(tmp_path / "film.mp4", 10.0) as video:
        for color in colors:
            video.add(np.full((32, 32, 3), color, np.uint8))
    network = (
        ChannelScores(pooled=True) if channels == 3 else nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(1, 3))
    )
    if channels == 1:
        network[2].weight.data, network[2].bias.data = (
            torch.tensor([[0.0], [20.0], [50.0]]),
            torch.tensor([2.0, 0, -12]),
        )
    model = make_trained_model("classification", network, channels=channels)
    paths = [str(tmp_path / "film.mp4")]
    found = predict_shard(model, paths, tmp_path / "out", batch_size=2, max_frames=5)
    assert [(entry.sample, entry.frame, entry.last) for entry in found] == [
        (0, frame, frame == 4) for frame in range(5)
    ]
    assert [entry.path for entry in found] == [f"{paths[0]}#{frame}" for frame in range(5)]
    expected = [0, 1, 2] if channels == 3 else [1, 1, 1]  # a third of the light
    assert [entry.classes[0] for entry in found][:3] == expected
    if channels == 1:
        assert found[3].classes == (2,)
    assert predict_shard(model, paths, tmp_path / "rest", rank=1, ranks=2) == []


def test_overlays_of_a_video_are_a_video(tmp_path: Path) -> None:
    (tmp_path / "films/deep").mkdir(parents=True)
    with VideoWriter(tmp_path / "films/deep/film.mp4", 12.0) as video:
        for _ in range(3):
            video.add(np.full((32, 48, 3), 100, np.uint8))
    model = make_trained_model("segmentation", ChannelScores())
    found = predict_shard(model, [str(tmp_path / "films")], tmp_path / "out", batch_size=2, overlays=True)
    assert {entry.files["overlays"] for entry in found} == {"overlays/deep/film.mp4"}
    assert [image.shape for image in frames(tmp_path / "out/overlays/deep/film.mp4")] == [(32, 48, 3)] * 3
    assert read_frame_rate(str(tmp_path / "out/overlays/deep/film.mp4")) == pytest.approx(12)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_image_whose_name_is_not_utf8_is_drawn(tmp_path: Path) -> None:
    [path] = write_images(tmp_path / "images", [1])
    renamed = str(Path(path).rename(tmp_path / os.fsdecode(b"\xff.png")))
    model = make_trained_model("segmentation", ChannelScores())
    [entry] = predict_shard(model, [renamed], tmp_path / "out", overlays=True)
    assert (tmp_path / "out" / entry.files["overlays"]).is_file()
    assert entry.path == printable(renamed)


def write_results(model: TrainedModel, out: Path, sample: Sample, maps: Tensor | Objects | Raw, **fields: Any) -> Entry:
    """Write the files for one prediction, and return its entry in the journal.

    `maps` is a prediction, or a tensor of scores [classes, h, w], which is written in two halves of rows as for large
    images. `fields` are those of the `PredictRequest`.
    """
    results = ResultWriter(PredictRequest(run="", paths=(), out=str(out), **fields), model)
    if isinstance(maps, Tensor):
        return results.write_maps(sample, maps.split(maps.shape[1] // 2, 1))
    return results.write_prediction(sample, maps)


def sample_of(sides: tuple[int, int]) -> Sample:
    image = np.zeros((*sides, 3), np.uint8)
    return Sample(3, "s", "p", "", sides, lambda: image, frame=2, last=False)


def test_entry_describes_the_sample_and_its_files(tmp_path: Path) -> None:
    maps = torch.zeros(3, 3, 6)
    maps[1], maps[2, 2] = 0.5, 0.9
    entry = write_results(
        make_trained_model("segmentation", ChannelScores()), tmp_path, sample_of((3, 6)), maps, overlays=True
    )
    assert entry == Entry(
        sample=3,
        frame=2,
        last=False,
        name="s",
        path="p",
        words="b 67%, c 33%",
        classes=(1, 2),
        scores=(0.666667, 0.333333),
        height=3,
        width=6,
        files={"png": "masks/s.png", "overlays": "overlays/s.jpg"},
    )


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_lines_are_written_as_gray_levels(tmp_path: Path, threshold: float) -> None:
    maps = torch.zeros(1, 4, 8)
    maps[0, 1], maps[0, 2, :4] = 0.9, 0.5
    model = make_trained_model("edge_detection", ChannelScores())
    entry = write_results(model, tmp_path, sample_of((4, 8)), maps, threshold=threshold, overlays=True)
    fraction = 0.25 if threshold == 0.8 else 0.375
    assert (entry.classes, entry.scores) == ((0,), (fraction,))
    with Image.open(tmp_path / entry.files["png"]) as mask:
        assert np.asarray(mask).tolist() == (maps[0] * 255).round().int().tolist()
    drawn = cv2.imread(str(tmp_path / entry.files["overlays"])).max(2)
    assert (drawn[2, :4].min() > 40) == (threshold == 0.5)
    entry = write_results(model, tmp_path, sample_of((4, 8)), torch.zeros(1, 4, 8))
    assert (entry.classes, entry.scores) == ((), ())


def test_boxes_and_outlines_are_fractions_of_the_image(tmp_path: Path) -> None:
    objects = Objects(
        classes=("a", "b", "c"),
        size=(50, 100),
        boxes=np.array([[10, 5, 30, 25], [40, 10, 60, 40]], np.float32),
        scores=np.array([0.75123449, 0.5]),
        numbers=np.array([2, 1]),
        windows=None,
    )
    model = make_trained_model("instance_segmentation", ChannelScores())
    entry = write_results(model, tmp_path, sample_of((50, 100)), objects, formats=("yolo",))
    assert [structs.astuple(each) for each in entry.objects] == [
        (2, 0.751234, (10, 5, 30, 25), 400.0, ""),
        (1, 0.5, (40, 10, 60, 40), 600.0, ""),
    ]
    lines = (tmp_path / entry.files["yolo"]).read_text().splitlines()
    assert [list(map(float, line.split())) for line in lines] == [[2, 0.2, 0.3, 0.2, 0.4], [1, 0.5, 0.5, 0.2, 0.6]]

    pixels = np.zeros((20, 20), bool)
    pixels[2, 1], pixels[8:18, 4:16] = True, True
    masked = Objects(
        classes=objects.classes,
        size=objects.size,
        boxes=objects.boxes[:1],
        scores=objects.scores[:1],
        numbers=objects.numbers[:1],
        windows=(Window(5, 10, pixels),),
    )
    entry = write_results(model, tmp_path, sample_of((50, 100)), masked, formats=("yolo",))
    assert (entry.objects[0].area, entry.objects[0].runs) == (121, encode_runs(Window(5, 10, pixels), 50, 100))
    number, *outline = map(float, (tmp_path / entry.files["yolo"]).read_text().split())
    assert number == 2
    xs, ys = np.array(outline[::2]) * 100, np.array(outline[1::2]) * 50
    assert (xs.min(), ys.min(), xs.max(), ys.max()) == pytest.approx((14, 13, 26, 23), abs=1e-4)


@pytest.mark.parametrize("formats", [(), ("npy",), ("json", "npy")])
def test_raw_outputs_are_written_in_the_requested_formats(tmp_path: Path, formats: tuple[Any, ...]) -> None:
    model = make_trained_model("classification", ChannelScores())
    model.task = type("Custom", (), {"entry": structs.replace(model.task.entry, id="custom")})()  # type: ignore[assignment]
    raw = Raw(classes=(), output=np.array([1.5, 2.5]), drawing=np.zeros((4, 4, 3), np.uint8), drawing_text="two")
    entry = write_results(model, tmp_path, sample_of((0, 0)), raw, formats=formats, overlays=True)
    assert entry.output == ([1.5, 2.5] if formats != ("npy",) else None)
    assert ("npy" in entry.files) == ("npy" in formats)
    assert "overlays" in entry.files


def test_huge_images_are_not_drawn(tmp_path: Path) -> None:
    objects = Objects(
        classes=("a",),
        size=(4, 4),
        boxes=np.zeros((0, 4), np.float32),
        scores=np.zeros(0),
        numbers=np.zeros(0, np.int64),
        windows=None,
    )
    model = make_trained_model("detection", ChannelScores())
    for height, expected in ((MAX_DRAWN_PIXELS, False), (4, True)):
        sample = Sample(0, f"{height}", "p", "", (height, 2), lambda: np.zeros((4, 2, 3), np.uint8))
        assert ("overlays" in write_results(model, tmp_path, sample, objects, overlays=True).files) == expected


def test_unwritable_journal_is_a_problem_of_the_output(tmp_path: Path) -> None:
    [path] = write_images(tmp_path / "images", [1])
    sources, folder = list_sources([path], "images", str(tmp_path / "out")), PlanFolder(tmp_path)
    folder.write_plan(Plan(kind="images", samples=1, start=1), sources, np.zeros(1, np.int64))
    (tmp_path / "journal-0001-0000.jsonl").mkdir()
    with open_shard(make_trained_model("classification", ChannelScores(pooled=True))) as shard:
        shard.folder = tmp_path
        request = PredictRequest(run="", paths=(path,), out=str(tmp_path / "out"))
        with pytest.raises(TaskError, match=r"can't be written into .*/out: Is a directory") as raised:
            work.predict_shard(request, make_trained_model("classification", ChannelScores(pooled=True)), shard)
    assert raised.value.field == "out"
    assert folder.read_model().classes == ("a", "b", "c")


@pytest.mark.parametrize(
    ("error", "field", "text"),
    [
        (OSError(errno.ENOSPC, "No space"), "", "is full"),
        (OSError(errno.EDQUOT, "Quota"), "", "is full"),
        (OSError(errno.EACCES, "Permission denied"), "out", "Permission denied"),
        (OSError("no such codec"), "out", "no such codec"),
    ],
)
def test_unwritable_results_have_a_reason(error: OSError, field: str, text: str) -> None:
    problem = create_write_problem(Path("/results"), error)
    assert (problem.field, text in problem.message, "/results" in problem.message) == (field, True, True)
