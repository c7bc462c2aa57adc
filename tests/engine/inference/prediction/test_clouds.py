"""Predictions for point clouds, and the files to which they are written."""

from __future__ import annotations

from pathlib import Path

import laspy
import msgspec
import numpy as np
import pytest
import torch
from plyfile import PlyData, PlyElement
from torch import Tensor, nn

from engine.data.decoding.mask_values import NO_CLASS
from engine.inference.prediction.sources import list_sources
from engine.inference.prediction.work import predict_cloud
from engine.tasks.points.files import CloudFiles
from engine.tasks.predictions import PointClasses
from tests.support.clouds import make_scene, write_pcd, write_ply, write_scan, write_table
from tests.support.plain_models import make_trained_model


@pytest.mark.parametrize("ending", ["pcd", "xyz", "csv", "bin"])
def test_cloud_of_other_type_is_written_as_ply(tmp_path: Path, ending: str) -> None:
    places, classes = make_scene(0, 50)
    places[3] = np.nan
    valid_rows = [row for row in range(50) if row != 3]
    source = tmp_path / f"source.{ending}"
    if ending == "pcd":
        write_pcd(source, places, "binary_compressed", intensity=np.arange(50, dtype=np.float32))
    elif ending == "bin":
        write_scan(tmp_path, "source", places, None)
        source = tmp_path / "velodyne/source.bin"
    else:
        write_table(source, places, np.arange(50) * 1.5, header="x,y,z,intensity", delimiter=",")
    target = tmp_path / "written.ply"
    numbers = classes.copy()
    numbers[7] = NO_CLASS
    found = PointClasses(classes=("floor", "ball"), numbers=numbers, probability=np.ones(50, np.float32))
    CloudFiles().write(str(source), target, found, (4, 9))
    written = PlyData.read(str(target))["vertex"].data
    assert written.dtype.names == ("x", "y", "z", "intensity", "label")
    np.testing.assert_allclose(np.stack([written[axis] for axis in "xyz"], 1), places[valid_rows], rtol=1e-5, atol=1e-8)
    assert written["label"].tolist() == [-1 if row == 7 else (4, 9)[classes[row]] for row in valid_rows]


def test_every_valid_point_of_a_cloud_is_predicted(tmp_path: Path) -> None:
    class Intensity(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return 10 * (inputs[:, 3:4] == torch.arange(3)[:, None])

    places, _ = make_scene(0, 300)
    places[7] = np.nan
    numbers = np.arange(300) % 3
    write_ply(tmp_path / "cloud.ply", places, intensity=numbers.astype(np.float32))
    model = make_trained_model("point_segmentation", Intensity(), channels=4, model="pointcnn_x1", points=32)
    model.preprocessing = msgspec.structs.replace(model.preprocessing, framing="", features=("intensity",))
    found = predict_cloud(model, str(tmp_path / "cloud.ply"), 2)
    numbers[7] = NO_CLASS
    assert found.numbers.tolist() == numbers.tolist()
    assert found.probability[7] == 0
    assert np.delete(found.probability, 7).min() > 0.99

    class Numbered(nn.Module):
        samples = 0

        def forward(self, inputs: Tensor) -> Tensor:
            numbers = self.samples + torch.arange(len(inputs))
            self.samples += len(inputs)
            return 10.0 * (numbers[:, None, None] % 3 == torch.arange(3)[:, None]).repeat(1, 1, inputs.shape[2])

    model.module = Numbered()
    found = predict_cloud(model, str(tmp_path / "cloud.ply"), 2)
    samples, _ = CloudFiles().open(str(tmp_path / "cloud.ply"), model.preprocessing, model.job)
    for index in range(len(samples)):
        rows, is_predicted = samples.get_points(index)  # the others are the context of the sample
        assert set(found.numbers[rows[is_predicted]]) == {index % 3}


def test_ply_keeps_everything_but_the_labels(tmp_path: Path) -> None:
    types = [*((axis, ">f4") for axis in "xyz"), ("Class", "u1"), ("scalar_label", ">f4"), ("label", ">i2")]
    vertex = np.zeros(3, types)
    vertex["x"], vertex["Class"] = [1, 2, 3], [7, 8, 9]
    faces = np.array([([0, 1, 2],)], [("vertex_indices", ">i4", (3,))])
    source, target = tmp_path / "a.PLY", tmp_path / "b.PLY"
    elements = [PlyElement.describe(vertex, "vertex", comments=["of points"]), PlyElement.describe(faces, "face")]
    PlyData(elements, byte_order=">", comments=["by me"], obj_info=["none"]).write(str(source))
    files = CloudFiles()
    endings = {"a.PLY": ".PLY", "a.ply": ".ply", "a.las": ".las", "a.LAZ": ".LAZ", "a.pcd": ".ply"}
    assert {name: files.get_output_extension(name) for name in endings} == endings
    found = PointClasses(classes=("a", "b"), numbers=np.array([1, NO_CLASS, 0]), probability=np.ones(3, np.float32))
    for values, expected in (((), [1, -1, 0]), ((40, 300), [300, -1, 40])):
        files.write(str(source), target, found, values)
        written = PlyData.read(str(target))
        assert written["vertex"].data["label"].tolist() == expected
        for name in ("x", "Class", "scalar_label"):
            assert (written["vertex"].data[name] == vertex[name]).all()
        assert [element.name for element in written.elements] == ["vertex", "face"]
        facts = (written.byte_order, written.comments, written.obj_info, written["vertex"].comments)
        assert facts == (">", ["by me"], ["none"], ["of points"])


@pytest.mark.parametrize(("point_format", "version", "highest"), [(3, "1.2", 31), (6, "1.4", 255), (7, "1.4", 255)])
@pytest.mark.parametrize("ending", ["las", "laz"])
def test_las_stores_classes_that_fit(
    tmp_path: Path, ending: str, point_format: int, version: str, highest: int
) -> None:
    las = laspy.create(point_format=point_format, file_version=version)
    las.x = las.y = las.z = las.gps_time = np.arange(3.0)
    source = tmp_path / f"0.{ending}"
    las.write(source)
    found = PointClasses(classes=("a", "b"), numbers=np.array([1, NO_CLASS, 0]), probability=np.ones(3, np.float32))
    for number, value in enumerate((highest, highest + 1, 70_000, highest)):
        target = tmp_path / f"{number + 1}.{ending}"
        CloudFiles().write(str(source), target, found, (2, value))
        with laspy.open(target) as reader:
            assert reader.header.are_points_compressed == (ending == "laz")
            written = reader.read()
        name = "classification" if value == highest else "predicted"
        assert np.asarray(written[name]).tolist() == [value, 0, 2]
        assert ("predicted" in written.point_format.extra_dimension_names) == (name == "predicted")
        assert np.asarray(written.gps_time).tolist() == np.asarray(written.x).tolist() == [0, 1, 2]
        source = target  # its points already have a predicted class


def test_colors_of_other_clouds_are_bytes(tmp_path: Path) -> None:
    source, target = tmp_path / "a.xyz", tmp_path / "b.ply"
    source.write_text("x,y,z,red,intensity\n1,2,3,300,300\n4,5,6,-1,0.5\n")
    found = PointClasses(classes=("a", "b"), numbers=np.array([1, 0]), probability=np.ones(2, np.float32))
    CloudFiles().write(str(source), target, found, ())
    assert PlyData.read(str(target))["vertex"].data.tolist() == [(1, 2, 3, 255, 300, 1), (4, 5, 6, 0, 0.5, 0)]


def test_clouds_of_every_type_are_listed_and_other_files_are_not(tmp_path: Path) -> None:
    places, classes = make_scene(0, 50)
    write_ply(tmp_path / "a.ply", places)
    write_pcd(tmp_path / "b.pcd", places, "ascii")
    write_table(tmp_path / "c.txt", places, classes)
    write_scan(tmp_path, "d", places, None)
    (tmp_path / "readme.txt").write_text("no points\n")
    (tmp_path / "model.bin").write_bytes(b"\xff" * 33)
    found = list_sources([str(tmp_path)], "clouds", str(tmp_path / "out"), CloudFiles())
    assert [Path(path).name for path in found.files] == ["a.ply", "b.pcd", "c.txt", "d.bin"]
