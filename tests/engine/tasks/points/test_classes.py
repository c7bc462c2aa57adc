"""Labels of points: classes, class names, and values to ignore."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.contract.problems import errors
from engine.data.decoding.reading import Unfit
from engine.data.formats.format import Content
from engine.data.formats.tree import Tree
from engine.data.splits import MaskCode
from engine.tasks.points.classes import PointCode, label_classes
from engine.tasks.points.formats import FORMAT
from tests.support.clouds import make_scene, write_las, write_ply, write_room, write_table


def read(folder: Path) -> Content:
    tree = Tree(str(folder))
    (detection,) = FORMAT.detect(tree)
    return FORMAT.read(tree, detection, "points")


def write_clouds(folder: Path, labels: list[int], ending: str = "las") -> Content:
    """Write two point clouds that contain each label equally often, and return the content that Footplate reads.

    `ending` is the suffix of the files, which determines their format.
    """
    places, _ = make_scene(0, 10 * len(labels))
    for name in ("a", "b"):
        if ending == "las":
            write_las(folder / f"{name}.las", places, np.repeat(labels, 10))
        elif ending == "ply":
            write_ply(folder / f"{name}.ply", places, label=np.repeat(labels, 10).astype(np.int32))
        else:
            write_table(folder / f"{name}.xyz", places, np.repeat(labels, 10), header="x y z label")
    return read(folder)


def list_values(content: Content) -> tuple[int, ...]:
    assert content.code is not None
    return content.code.values


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1], [0, 1, 2, 3, 4, 5]])
def test_las_labels_counted_from_0_are_all_classes(tmp_path: Path, labels: list[int]) -> None:
    content = write_clouds(tmp_path, labels)
    assert content.classes == tuple(f"class {label}" for label in labels)
    assert list_values(content) == tuple(labels)
    (problem,) = content.problems
    assert f"Label 0 ({100 / len(labels):.2g}% of the points) is kept" in problem.message


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([0, 2, 6], ("ground", "building")),
        ([0, 2, 5, 9], ("ground", "high vegetation", "water")),
        ([0, 0, 0, 1, 2], ("unclassified", "ground")),
    ],
)
def test_las_class_0_of_survey_is_left_out_with_share(
    tmp_path: Path, labels: list[int], names: tuple[str, ...]
) -> None:
    if labels.count(0) > 1:
        labels = [*labels, 5]
        names = (*names, "high vegetation")
    content = write_clouds(tmp_path, labels)
    assert content.classes == names
    assert content.code is not None
    assert 0 in content.code.ignored
    (problem,) = content.problems
    assert f"Label 0 ({100 * labels.count(0) / len(labels):.2g}% of the points)" in problem.message
    assert "classes.txt" in problem.remedy


@pytest.mark.parametrize(
    ("labels", "ending", "names"),
    [
        ([2, 6], "las", ("ground", "building")),
        ([2, 64, 65], "las", ("ground", "class 64", "class 65")),
        ([2, 40, 41], "las", ("class 2", "class 40", "class 41")),
        ([2, 6], "ply", ("class 2", "class 6")),
        ([2, 6], "xyz", ("class 2", "class 6")),
    ],
)
def test_standard_names_need_las_and_standard_labels(
    tmp_path: Path, labels: list[int], ending: str, names: tuple[str, ...]
) -> None:
    content = write_clouds(tmp_path, labels, ending)
    assert (content.classes, content.problems) == (names, [])


@pytest.mark.parametrize(
    ("labels", "ending", "ignored"), [([-1, 0, 1], "ply", "-1"), ([-7, 3, 9], "xyz", "-7"), ([1, 2, 255], "las", "255")]
)
def test_labels_below_0_and_255_are_reported(tmp_path: Path, labels: list[int], ending: str, ignored: str) -> None:
    content = write_clouds(tmp_path, labels, ending)
    assert len(content.classes) == 2
    assert not errors(content.problems)
    assert f"Label {ignored} (33% of the points)" in content.problems[0].message


def test_labels_without_name_in_list_are_reported(tmp_path: Path) -> None:
    for number, (labels, share) in enumerate([([0, 1, 9], 33), ([0, 1, 2, 3], 50), ([1, 7], 50)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "classes.txt").write_text("floor\nball\n")
        content = write_clouds(folder, labels, "ply")
        assert content.classes == ("floor", "ball")
        assert content.code is not None
        assert content.code.ignored == (255, *sorted({*labels} - {*content.code.values}))
        assert f"({share}% of the points)" in content.problems[0].message


@pytest.mark.parametrize(
    ("labels", "ending", "names", "fields"),
    [
        ([0, 2], "ply", ("class 0", "class 2"), []),
        ([0, 1, 2, 65], "las", ("unclassified", "ground", "class 65"), ["warning"]),
        ([0, 19, 63], "las", ("class 0", "class 19", "class 63"), ["warning"]),
        ([2, 64], "las", ("ground", "class 64"), []),
        ([0], "las", (), ["error"]),
        ([-1, 3], "ply", (), ["error", "warning"]),
        ([*range(300, 554)], "ply", tuple(f"class {label}" for label in range(300, 554)), []),
        ([*range(300, 555)], "ply", (), ["error"]),
    ],
)
def test_problems_of_labels_are_reported_with_the_classes(
    tmp_path: Path, labels: list[int], ending: str, names: tuple[str, ...], fields: list[str]
) -> None:
    content = write_clouds(tmp_path, labels, ending)
    assert (content.classes, [problem.severity for problem in content.problems]) == (names, fields)


def test_names_need_the_same_source_for_all_clouds(tmp_path: Path) -> None:
    write_clouds(tmp_path / "las", [2, 6])
    write_ply(tmp_path / "las/c.ply", make_scene(0, 20)[0], label=np.repeat([2, 6], 10).astype(np.int32))
    assert read(tmp_path / "las").classes == ("class 2", "class 6")
    write_room(tmp_path / "rooms/hall_1", {"floor_1": make_scene(0, 20)[0], "wall_1": make_scene(1, 20)[0]})
    write_ply(tmp_path / "rooms/c.ply", make_scene(0, 20)[0], label=np.repeat([2, 6], 10).astype(np.int32))
    assert read(tmp_path / "rooms").classes == ("class 1", "class 2", "class 6")
    for name in "ab":
        path = tmp_path / f"scans/{name}_xyz_intensity_rgb.txt"
        write_table(path, make_scene(0, 20)[0], np.full((20, 4), 9))
        path.with_suffix(".labels").write_text("1\n2\n" * 10)
    content = read(tmp_path / "scans")
    assert (len(content.classes), "Label 0" in str(content.problems)) == (8, False)
    (tmp_path / "las/classes.txt").write_text("".join(f"class {number}\n" for number in range(300)))
    (problem,) = read(tmp_path / "las").problems
    assert "300 classes" in problem.message


def test_classes_of_maps_merged_ignored_and_negative_labels() -> None:
    code = PointCode((10, 40, -1), ignored=(0,), merged=((252, 10), (60, 40), (99, 7)))
    assert label_classes(np.array([252, 10, 60, 40, 0, 99, -1, -5]), code).tolist() == [0, 0, 1, 1, 255, 255, 255, 255]
    assert label_classes(np.array([5, 3]), MaskCode((3, 5))).tolist() == [1, 0]
    for labels, known, unknown in (([10, 11], code, 11), ([1, 0], MaskCode((1, 2)), 0), ([3, 4], MaskCode((3, 5)), 4)):
        with pytest.raises(Unfit, match=f"label {unknown}"):
            label_classes(np.array(labels), known)
