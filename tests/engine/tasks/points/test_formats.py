"""Folders of point clouds: detection, labels, and samples."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import engine.tasks.points.samples
from engine.contract.dataset import DatasetReport
from engine.contract.images import Preprocessing
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.reading import Unfit
from engine.data.drawing import encode_png
from engine.data.formats.registry import recognize
from engine.data.inspection.base import EXAMPLE_SIDE
from engine.data.inspection.inspector import inspect
from engine.data.randomness import RandomStreams
from engine.data.splits import RecognizedDataset
from engine.tasks.points import inspection
from engine.tasks.points.decoding.clouds import read_cloud, read_head
from engine.tasks.points.drawing import BACKGROUND, create_point_legend, draw_points, encode_points
from engine.tasks.points.formats import PointSplit
from engine.tasks.points.inspection import count_class_points
from engine.tasks.points.samples import MAX_BLOCK_SAMPLES, MAX_TILT_RAD, PointBlocks, UnlabeledClouds
from tests.support.clouds import make_clouds, make_scene, write_las, write_pcd, write_ply, write_table

POINTS = ("points",)


def recognize_folder(folder: Path) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=POINTS)


def names(recognized: RecognizedDataset) -> tuple[list[str], list[str]]:
    assert isinstance(recognized.train, PointSplit)
    assert isinstance(recognized.val, PointSplit)
    return [Path(path).name for path in recognized.train.files], [Path(path).name for path in recognized.val.files]


def make_blocks(folder: Path, points: int, *, training: bool = True) -> PointBlocks:
    recognized = recognize_folder(folder)
    assert recognized.code is not None
    assert isinstance(recognized.train, PointSplit)
    split = PointBlocks(recognized.train, recognized.code, str(folder), points=points)
    split.streams = RandomStreams(3)
    split.training = training
    return split


def test_point_splits_are_found_or_drawn(tmp_path: Path) -> None:
    make_clouds(tmp_path / "split", {"train": 3, "val": 2}, 40)
    assert names(recognize_folder(tmp_path / "split")) == (["00.ply", "01.ply", "02.ply"], ["00.ply", "01.ply"])
    make_clouds(tmp_path, {"flat": 8}, 40)
    drawn = recognize_folder(tmp_path / "flat")
    train, val = names(drawn)
    assert (len(train), len(val), set(train) & set(val)) == (6, 2, set())
    assert isinstance(drawn.val, PointSplit)
    assert drawn.val.is_drawn
    make_clouds(tmp_path / "tested", {"training": 2, "test": 1}, 40)
    tested = recognize_folder(tmp_path / "tested")
    assert names(tested) == (["00.ply", "01.ply"], ["00.ply"])
    assert "test images serve as one" in tested.problems[0].message
    opened = open_splits(str(tmp_path / "tested"), val_fraction=0.25, seed=0, kinds=POINTS)
    assert opened.test is opened.val
    make_clouds(tmp_path / "loose", {"": 2, "val": 1}, 40)
    loose = recognize_folder(tmp_path / "loose")
    assert (names(loose), loose.problems) == ((["00.ply", "01.ply"], ["00.ply"]), ())
    make_clouds(tmp_path / "loose", {"train": 1}, 40)
    left_out = recognize_folder(tmp_path / "loose")
    assert names(left_out) == (["00.ply"], ["00.ply"])
    assert "2 clouds are in no folder of a split" in left_out.problems[0].message


def test_point_labels_are_found_by_any_name(tmp_path: Path) -> None:
    places, classes = make_scene(0, 40)
    red = np.full(40, 200, np.uint8)
    write_ply(
        tmp_path / "a.ply", places, red=red, green=red, blue=red, scalar_Classification=classes.astype(np.float32)
    )
    write_ply(tmp_path / "b.ply", places, text=True, label=classes.astype(np.int32), nx=places[:, 0])
    for name, features in (("a", ("red", "green", "blue")), ("b", ())):
        head, cloud = read_head(str(tmp_path / f"{name}.ply")), read_cloud(str(tmp_path / f"{name}.ply"), features)
        assert (head.points, head.features, head.has_labels) == (40, features, True)
        assert cloud.labels.tolist() == classes.tolist()
        assert cloud.features.shape == (40, len(features))
        np.testing.assert_allclose(np.ptp(cloud.positions, 0), np.ptp(places, 0), atol=1e-5)
    with pytest.raises(Unfit, match="have no intensity, unlike"):
        read_cloud(str(tmp_path / "a.ply"), ("red", "intensity"))
    claimed = (tmp_path / "b.ply").read_bytes().replace(b"vertex 40", b"vertex 40000000000")
    (tmp_path / "b.ply").write_bytes(claimed)
    with pytest.raises(Unfit, match="it is truncated"):
        read_head(str(tmp_path / "b.ply"))
    write_ply(tmp_path / "c.ply", places, label=classes + 0.5)
    with pytest.raises(Unfit, match="not whole numbers"):
        read_cloud(str(tmp_path / "c.ply"), ())


@pytest.mark.parametrize("ending", ["las", "laz"])
def test_las_keeps_digits_and_standard_names(tmp_path: Path, ending: str) -> None:
    places, classes = make_scene(0, 60)
    standard = np.where(classes == 1, 6, 2)
    standard[:5] = 0
    for split in ("train", "val"):
        write_las(tmp_path / split / f"a.{ending}", places, standard, intensity=np.arange(60))
    recognized = recognize_folder(tmp_path)
    assert recognized.classes == ("ground", "building")
    assert isinstance(recognized.train, PointSplit)
    assert recognized.train.features == ("red", "green", "blue", "intensity", "return_number", "number_of_returns")
    cloud = read_cloud(recognized.train.files[0], ("intensity",))
    middle = (places.max(0) + places.min(0)) / 2
    np.testing.assert_allclose(cloud.positions, places - middle, atol=2e-3)
    assert cloud.features[:, 0].tolist() == list(range(60))
    _, target = make_blocks(tmp_path, 64).load(0, 0)
    assert sorted(set(target.tolist())) == [0, 1, NO_CLASS]
    assert int((target != NO_CLASS).sum()) == 55


def test_unnamed_point_labels_are_ignored(tmp_path: Path) -> None:
    places, classes = make_scene(0, 40)
    for split in ("train", "val"):
        write_ply(tmp_path / split / "a.ply", places, label=np.where(np.arange(40) < 3, 9, classes))
    (tmp_path / "classes.txt").write_text("floor\nball\n")
    recognized = recognize_folder(tmp_path)
    assert recognized.classes == ("floor", "ball")
    assert recognized.code is not None
    assert (recognized.code.values, 9 in recognized.code.ignored) == ((0, 1), True)
    floor, ball = np.bincount(classes[3:]).tolist()
    counted = count_class_points(recognized, recognized.train, 0)  # type: ignore[arg-type]
    assert counted == {"pixels": {"floor": floor, "ball": ball, "": 3}}


def test_unusable_clouds_are_reported(tmp_path: Path) -> None:
    places, _ = make_scene(0, 40)
    for split in ("train", "val"):
        write_ply(tmp_path / "alike" / split / "a.ply", places, label=np.zeros(40, np.uint8))
        write_ply(tmp_path / "bare" / split / "a.ply", places)
    (tmp_path / "images/cat").mkdir(parents=True)
    (tmp_path / "images/cat/a.png").write_bytes(b"")
    assert "have the label 0; at least two labels are needed" in str(recognize_folder(tmp_path / "alike").problems[0])
    assert "have no labels" in str(recognize_folder(tmp_path / "bare").problems[0])
    assert "not point clouds" in str(recognize_folder(tmp_path / "images").problems[0])
    for path in (tmp_path / "bare").glob("*/a.ply"):
        path.write_bytes(b"ply")
    assert "None of the point clouds can be read" in str(recognize_folder(tmp_path / "bare").problems[0])
    recognized = recognize(str(tmp_path / "alike"), val_fraction=0.2, seed=0)
    assert "Point cloud segmentation" in recognized.problems[0].remedy


def test_epochs_cover_every_point_in_a_new_order(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 2, "val": 1}, 1000)
    for training in (True, False):
        samples = make_blocks(tmp_path, 96, training=training)
        assert len(samples) == 2 * 12  # 1,000 points in two blocks of 500 each, of 6 samples
        epochs = []
        for epoch in (0, 1):
            loaded = [samples.load(index, epoch) for index in range(len(samples))]
            labeled = sum(int((target != NO_CLASS).sum()) for _, target in loaded)
            assert labeled == 2000
            for given, target in loaded:
                assert (given.shape, target.shape) == ((3, 96), (96,))
                assert np.unique(given.numpy(), axis=1).shape[1] == 96
                torch.testing.assert_close(given.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
            epochs.append(torch.cat([given for given, _ in loaded], 1))
        assert torch.equal(*epochs) == (not training)
        assert samples.class_counts(2) == [1000, 1000]
        again = make_blocks(tmp_path, 96, training=training)
        assert torch.equal(again.load(7, 1)[0], samples.load(7, 1)[0])
    assert list(samples.identity()) != list(make_blocks(tmp_path, 97).identity())


def test_validation_samples_are_points_of_the_file(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 1, "val": 1}, 1000)
    shutil.copy(tmp_path / "train/00.ply", tmp_path / "train/01.ply")
    samples = make_blocks(tmp_path, 96, training=False)
    cloud = read_cloud(samples.split.files[0], ())
    regular: list[np.ndarray] = []
    for index in range(len(samples)):
        rows, is_regular = samples.get_points(index)
        given, target = samples.load(index, 5)
        positions = cloud.positions[rows]
        np.testing.assert_allclose(given.T, positions - positions.mean(0), atol=1e-5)
        assert target.tolist() == np.where(is_regular, cloud.labels[rows], NO_CLASS).tolist()
        regular.append(rows[is_regular])
    for half in (regular[:12], regular[12:]):
        assert sorted(np.concatenate(half).tolist()) == list(range(1000))
    assert regular[0].tolist() != regular[12].tolist()  # each file has other samples, whatever it contains


def test_samples_are_local_and_small_clouds_repeat(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 1, "val": 1}, 4 * MAX_BLOCK_SAMPLES * 64)
    places = [make_blocks(tmp_path, 64).load(index, 0)[0] for index in range(4 * MAX_BLOCK_SAMPLES)]
    area = [float(np.prod(np.ptp(given[:2].numpy(), 1))) for given in places]
    assert np.mean(area) < 0.4 * 4  # of the floor's
    given, target = make_blocks(tmp_path, 4 * MAX_BLOCK_SAMPLES * 64 + 100).load(0, 0)
    assert int((target == NO_CLASS).sum()) == 100
    assert np.unique(given.numpy(), axis=1).shape[1] == 4 * MAX_BLOCK_SAMPLES * 64


def test_rotation_keeps_distances_and_up(tmp_path: Path) -> None:
    places, classes = make_scene(0, 100)
    write_las(tmp_path / "las/train/a.las", places, classes + 2)
    write_ply(tmp_path / "ply/train/a.ply", places, label=classes)
    for name in ("las", "ply"):
        make_clouds(tmp_path / name, {"val": 1})
        plain, turned = make_blocks(tmp_path / name, 100), make_blocks(tmp_path / name, 100)
        turned.is_rotated = True
        one, other = plain.load(0, 4)[0][:3].T, turned.load(0, 4)[0][:3].T
        apart = [(each[:, None] - each).square().sum(2) for each in (one, other)]
        torch.testing.assert_close(*apart, atol=1e-5, rtol=1e-4)
        assert not torch.allclose(one, other, atol=1e-3)
        assert torch.allclose(one[:, 2], other[:, 2], atol=1e-5) == (name == "las")
        rotations = np.stack([turned._choose_rotation(index, 0, upright=name == "las") for index in range(200)])
        assert 80 < (np.linalg.det(rotations) < 0).sum() < 120, "half of them are reflections"
        angles = np.arctan2(-rotations[:, 0, 1], rotations[:, 1, 1])
        assert np.abs(angles).max() == pytest.approx(math.pi if name == "las" else MAX_TILT_RAD, rel=0.05)


def test_samples_are_scaled_uniformly(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 3, "val": 1})
    samples = make_blocks(tmp_path, 300)
    mean, deviation = samples.compute_statistics()
    assert mean == (0, 0, 0)
    assert len(set(deviation)) == 1
    samples.statistics = mean, deviation
    given = torch.stack([samples.load(index, 0)[0] for index in range(len(samples))])
    assert float(given.square().mean()) == pytest.approx(1, abs=0.1)


def test_features_are_scaled_separately(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "train", "val")):
        places, classes = make_scene(number, 80)
        light = np.arange(80, dtype=np.float32) + 100 * number
        write_ply(
            tmp_path / split / f"{number}.ply", places, label=classes, intensity=light, red=np.full(80, 9, np.uint8)
        )
    recognized = recognize_folder(tmp_path)
    assert isinstance(recognized.train, PointSplit)
    assert recognized.code is not None
    all_features = PointBlocks(recognized.train, recognized.code, str(tmp_path), points=80)
    assert (all_features.features, all_features.channels) == (("red", "intensity"), 5)
    assert all_features.with_features(("red",)).features == ("red",)
    statistics = all_features.compute_statistics()
    clouds = [read_cloud(file, ("intensity",)) for file in recognized.train.files]
    spread = math.sqrt(np.mean([np.square(each.positions - each.positions.mean(0)).mean() for each in clouds]))
    light = np.concatenate([each.features[:, 0] for each in clouds])
    assert statistics[0] == pytest.approx((0, 0, 0, 9, light.mean()))
    assert statistics[1] == pytest.approx((spread, spread, spread, 1, light.std()))
    all_features.streams = RandomStreams(3)
    plain = all_features.load(0, 0)[0]
    all_features.training = all_features.is_rotated = True
    evaluated = [all_features.for_evaluation(statistics).load(0, epoch)[0] for epoch in (0, 1)]
    unlabeled = UnlabeledClouds(
        recognized.train.files[0],
        Preprocessing(mean=statistics[0], std=statistics[1], features=("red", "intensity")),
        80,
    )
    unlabeled.streams = RandomStreams(3)
    mean, deviation = (torch.tensor(each)[:, None] for each in statistics)
    for given in (*evaluated, unlabeled.load(0, 0)[0]):
        torch.testing.assert_close(given, (plain - mean) / deviation, atol=1e-4, rtol=1e-4)


def test_damaged_cloud_is_named(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 3, "val": 1}, 200)
    intact = (tmp_path / "train/01.ply").read_bytes()
    (tmp_path / "train/01.ply").write_bytes(intact[: len(intact) // 2])
    samples = make_blocks(tmp_path, 100)
    assert samples.path(2) == "train/01.ply"
    with pytest.raises(UnreadableImage, match=r"train/01\.ply: it is"):
        samples.load(2, 0)
    assert samples.class_counts(2) == [200, 200]
    (tmp_path / "train/01.ply").write_bytes(intact)
    with pytest.raises(UnreadableImage, match=r"train/01\.ply: it is"):  # it is not read again
        samples.load(2, 0)
    (tmp_path / "train/01.ply").write_bytes(intact[: len(intact) // 2])
    report = inspect(str(tmp_path), val_fraction=0.2, seed=0, progress=lambda done, total: None, kinds=POINTS)
    assert [each.path for each in report.unreadable] == ["train/01.ply"]
    assert report.kind == "points"
    assert [split.total for split in report.splits] == [2, 1]
    assert report.splits[0].shares == {"class 0": 0.5, "class 1": 0.5}
    assert len(report.examples) == 2


def test_inspection_reports_points_without_position(tmp_path: Path) -> None:
    places, classes = make_scene(0, 300)
    places[3] = np.nan
    write_ply(tmp_path / "train/a.ply", places, label=classes)
    write_pcd(tmp_path / "train/b.pcd", places, "binary", label=classes)
    write_table(tmp_path / "val/c.xyz", places, classes, header="x y z label")
    for split in ("train", "val"):
        write_ply(tmp_path / split / "all valid.ply", *make_scene(1, 300)[:1], label=classes)
    (tmp_path / "train/0.ply").write_bytes(b"ply")
    report = inspect(str(tmp_path), val_fraction=0.2, seed=0, progress=lambda done, total: None, kinds=POINTS)
    places[2:] = np.nan
    write_ply(tmp_path / "train/a.ply", places, label=classes)
    (tmp_path / "train/0.ply").unlink()
    with pytest.raises(UnreadableImage, match="nearly all of its points lack valid coordinates"):
        make_blocks(tmp_path, 8).load(0, 0)
    messages = [problem.message for problem in report.problems]
    ball_points = int(classes.sum()) + 2 * int(np.delete(classes, 3).sum())
    assert report.splits[0].shares["class 1"] == pytest.approx(ball_points / 898)
    assert "2 points have no valid coordinates and are left out (a.ply, b.pcd)." in messages
    assert "1 point has no valid coordinates and is left out (c.xyz)." in messages


def test_inspection_reports_missing_classes_and_clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, classes = make_scene(0, 40)
    write_ply(tmp_path / "train/a.ply", places, label=classes, red=np.full(40, 9, np.uint8))
    places[:2] = np.nan
    write_ply(tmp_path / "val/b.ply", places, label=0 * classes, red=np.full(40, 9, np.uint8))

    def inspect_folder() -> DatasetReport:
        return inspect(str(tmp_path), val_fraction=0.2, seed=0, progress=lambda done, total: None, kinds=POINTS)

    monkeypatch.setattr(inspection, "DRAWN_POINTS", 20)  # every second one
    report = inspect_folder()
    problem, invalid = report.problems
    assert invalid.message == "2 points have no valid coordinates and are left out (b.ply)."
    assert (problem.severity, report.channels) == ("warning", 4)
    assert [each.color for each in report.legend] == ["#878787", "#800000"]
    assert problem.message.startswith("The validation clouds have no points of class 1;")
    positions, classes = read_cloud(str(tmp_path / "train/a.ply"), ()).positions[::2], classes[::2]
    drawn = draw_points(positions, classes, EXAMPLE_SIDE)
    assert [each.png for each in report.examples] == [encode_png(drawn, encode_points(positions, classes))]
    (tmp_path / "val/b.ply").write_bytes(b"ply")
    assert "None of the validation clouds can be used." in [each.message for each in inspect_folder().problems]


def test_clouds_are_cached_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clouds(tmp_path / "data", {"train": 2, "val": 1}, 100)
    cached = make_blocks(tmp_path / "data", 100)
    monkeypatch.setattr(engine.tasks.points.samples, "CACHE_BYTES", 1)
    monkeypatch.setattr(engine.tasks.points.samples, "CACHE_FRACTION", 0)
    read_again = make_blocks(tmp_path / "data", 100)
    loaded = [[samples.load(index, 0)[0] for index in (0, 1, 0)] for samples in (cached, read_again)]
    assert all(torch.equal(one, other) for one, other in zip(*loaded, strict=True))
    make_clouds(tmp_path / "three", {"train": 3, "val": 1}, 100)
    monkeypatch.setattr(engine.tasks.points.samples, "CACHE_BYTES", 5000)  # two clouds
    cached_two = make_blocks(tmp_path / "three", 100)
    for index in (0, 1, 0, 2):
        cached_two.load(index, 0)
    for file in cached_two.split.files:
        Path(file).unlink()
    assert [len(cached_two.load(index, 0)) for index in (0, 2)] == [2, 2]
    with pytest.raises(UnreadableImage):  # it was not used for longest
        cached_two.load(1, 0)
    (tmp_path / "data/train/01.ply").unlink()
    assert torch.equal(cached.load(1, 0)[0], loaded[0][1])
    with pytest.raises(UnreadableImage, match="it does not exist"):
        read_again.load(1, 0)
    shutil.rmtree(tmp_path / "data")
    read_again = PointBlocks(cached.split, cached.code, cached.folder, points=100)
    with pytest.raises(DatasetError, match="no longer exists"):
        read_again.load(0, 0)


def test_common_features_are_used(tmp_path: Path) -> None:
    places, classes = make_scene(0, 80)
    red = np.full(80, 9, np.uint8)
    write_ply(tmp_path / "train/a.ply", places, label=classes, red=red, intensity=red)
    write_ply(tmp_path / "train/b.ply", places, label=classes, intensity=red)
    write_ply(tmp_path / "val/a.ply", places, label=classes, intensity=red)
    splits = open_splits(str(tmp_path), val_fraction=0.2, seed=0, kinds=POINTS)
    assert (splits.channels, splits.classes, splits.format) == (4, ("class 0", "class 1"), "points")


def test_cloud_is_drawn_tilted_by_depth() -> None:
    corners = np.array([[-8, -4, 0], [8, -4, 0], [-8, 4, 0], [8, 4, 0]], np.float32)
    pillar = np.array([[0, 0, 0], [0, 0, 2]], np.float32)
    image = draw_points(np.concatenate([corners, pillar]), np.array([1, 2, 3, 0, 1, 2], np.uint8), 81)
    assert image.shape == (81, 81, 3)
    colors_seen = {}
    for name, color in {
        "red": (128, 0, 0),
        "green": (0, 128, 0),
        "olive": (128, 128, 0),
    }.items():  # VOC colors of the classes 1, 2 and 3
        colors_seen[name] = np.argwhere((image == color).all(2))
    assert colors_seen["olive"][:, 0].max() < 40  # it is far away, that is, at the upper left
    assert colors_seen["olive"][:, 1].max() < 20
    ground, top = (
        colors_seen["red"][colors_seen["red"][:, 1] > 30],
        colors_seen["green"][colors_seen["green"][:, 1] < 60],
    )
    assert top[:, 0].mean() < ground[:, 0].mean() - 4  # the pillar is upright
    (colors,) = np.unique(image[(np.ptp(image, 2) == 0) & (image[..., 0] < BACKGROUND)], axis=0)
    assert colors[0] > 70  # unlabeled and far away
    legend = create_point_legend(("floor", "a", "b", "c"))
    assert [entry.color for entry in legend] == ["#878787", "#800000", "#008000", "#808000"]
    flat = draw_points(np.zeros((3, 3), np.float32), np.array([0, 1, 2], np.uint8), 81)
    assert (flat != BACKGROUND).any()
