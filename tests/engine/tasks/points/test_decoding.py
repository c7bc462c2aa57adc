"""Point clouds in PCD files, tables, KITTI scans and S3DIS rooms, in folders of any depth."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData, PlyElement

from engine.contract.problems import errors
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.reading import Unfit
from engine.data.formats.format import Confidence, Content
from engine.data.formats.tree import Tree
from engine.data.inspection.inspector import inspect
from engine.data.randomness import RandomStreams
from engine.tasks.points.classes import label_classes
from engine.tasks.points.decoding import las, pcd, ply, tables, velodyne
from engine.tasks.points.decoding.clouds import count_labels, is_cloud, is_upright, read_cloud, read_head
from engine.tasks.points.decoding.fields import find_fields
from engine.tasks.points.formats import FORMAT, PointSplit
from engine.tasks.points.samples import PointBlocks
from engine.tasks.points.semantic_kitti import find_kitti_classes
from tests.support.clouds import (
    compress_lzf,
    make_clouds,
    make_scene,
    write_las,
    write_pcd,
    write_ply,
    write_room,
    write_scan,
    write_table,
)
from tests.support.images import write_noise

COLORS = np.array([[200, 100, 50], [0, 255, 1], [17, 18, 19]], np.uint32)


def read(folder: Path) -> Content:
    tree = Tree(str(folder))
    (detection,) = FORMAT.detect(tree)
    return FORMAT.read(tree, detection, "points")


def names(content: Content, folder: Path) -> dict[str, list[str]]:
    return {
        split: [Path(path).relative_to(folder).as_posix() for path in points.files]
        for split, points in content.splits.items()
    }


def messages(content: Content) -> str:
    return " ".join(map(str, content.problems))


WRITERS: dict[str, Callable[[Path, np.ndarray, np.ndarray], None]] = {
    "a.las": write_las,
    "a.ply": lambda path, places, classes: write_ply(path, places, label=classes),
    "a.xyz": write_table,
    "ascii.pcd": lambda path, places, classes: write_pcd(path, places, "ascii", label=classes),
    "binary.pcd": lambda path, places, classes: write_pcd(path, places, "binary", label=classes),
    "velodyne/a.bin": lambda path, places, classes: write_scan(path.parents[1], path.stem, places, classes),
}


@pytest.mark.parametrize("name", WRITERS)
def test_labels_that_are_not_requested_are_zeros(tmp_path: Path, name: str) -> None:
    places, classes = make_scene(0, 60)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    WRITERS[name](path, places, classes)
    assert classes.any()
    assert not read_cloud(str(path), (), with_labels=False).labels.any()


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    places, classes = make_scene(0, 60)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    WRITERS[name](path, places, classes)
    at_once = read_cloud(str(path), ())
    for module in (las, pcd, ply, tables, velodyne):
        monkeypatch.setattr(module, "CHUNK_POINTS", 7)
    in_parts = read_cloud(str(path), ())
    assert in_parts.rows.tolist() == at_once.rows.tolist() == [*range(60)]
    np.testing.assert_array_equal(in_parts.labels, at_once.labels)
    np.testing.assert_array_equal(in_parts.positions, at_once.positions)
    np.testing.assert_allclose(in_parts.positions, places - (places.min(0) + places.max(0)) / 2, atol=2e-3)
    assert [each.tolist() for each in count_labels(str(path))] == [[0, 1], [30, 30]]


@pytest.mark.parametrize("data", ["ascii", "binary", "binary_compressed"])
@pytest.mark.parametrize("is_float", [True, False])
def test_pcd_gives_positions_colors_and_labels(tmp_path: Path, data: str, is_float: bool) -> None:
    places, classes = make_scene(0, 300)
    colors = np.tile(COLORS, (100, 1))
    packed = (colors[:, 0] << 16 | colors[:, 1] << 8 | colors[:, 2]).astype("<u4")
    columns = {
        **({"rgb": packed.view("<f4")} if is_float else {"RGB": packed}),
        "intensity": np.arange(300, dtype=np.float32),
        "label": classes.astype("<u4"),
    }
    path = tmp_path / "a.pcd"
    write_pcd(path, places, data, **columns)
    assert read_head(str(path)) == (300, ("red", "green", "blue", "intensity"), True)
    cloud = read_cloud(str(path), ("red", "green", "blue", "intensity"))
    np.testing.assert_allclose(np.ptp(cloud.positions, 0), np.ptp(places, 0), rtol=1e-6)
    assert cloud.features[:, :3].astype(int).tolist() == colors.tolist()
    assert cloud.features[:, 3].tolist() == list(range(300))
    assert cloud.labels.tolist() == classes.tolist()
    write_pcd(path, places, data, rgb=0 * packed, **dict(zip(("red", "green", "blue"), colors.T, strict=True)))
    assert read_head(str(path)).features == ("red", "green", "blue")
    assert read_cloud(str(path), ("red", "green", "blue"), with_labels=False).features.tolist() == colors.tolist()


@pytest.mark.parametrize("data", ["ascii", "binary", "binary_compressed"])
def test_pcd_may_have_rows_and_repeated_fields(tmp_path: Path, data: str) -> None:
    types = [("x", "<f8"), ("normal", "<f4", 3), ("y", "<f4"), ("z", "<f4"), ("rgba", "<u4"), ("label", "u1")]
    points = np.zeros(6, types)
    for number, name in enumerate(("x", "y", "z")):
        points[name] = np.arange(6) ** 2 * (number + 1)
    points["x"] += 1e8  # which float32 would round to multiples of 8
    points["y"][3] = np.nan  # a point without a position
    points["normal"], points["rgba"], points["label"] = 9.0, 0xFF_10_20_30 + np.arange(6), np.arange(6) % 2
    if data == "ascii":
        content = "".join(f"{r[0]} 9 9 9 {r[2]} {r[3]} {r[4]} {r[5]}\n" for r in points.tolist()).encode()
    elif data == "binary":
        content = points.tobytes() + b"more bytes than points" * 2
    else:
        raw = b"".join(points[name[0]].tobytes() for name in types)
        content = np.array([len(compress_lzf(raw)), len(raw)], "<u4").tobytes() + compress_lzf(raw)
    header = "# a comment\nFIELDS x normal y z rgba label\nSIZE 8 4 4 4 4 1\nTYPE F F F F U U\nCOUNT 1 3 1 1 1 1\nWIDTH 3\nHEIGHT 2\n"
    path = tmp_path / "a.pcd"
    path.write_bytes(f"{header}DATA {data}\n".encode() + content)
    cloud, rows = read_cloud(str(path), ("red", "green", "blue")), [0, 1, 2, 4, 5]
    assert cloud.rows.tolist() == rows
    assert cloud.positions.tolist() == [[axis * (row**2 - 12.5) for axis in (1, 2, 3)] for row in rows]
    assert cloud.features.tolist() == [[16, 32, 48 + row] for row in rows]
    assert cloud.labels.tolist() == [row % 2 for row in rows]
    for wrong_header, reason in (
        (header.replace("COUNT 1 3 1", "COUNT 1 3 2"), "COUNT other than 1"),
        (header.replace("HEIGHT 2", "HEIGHT 900"), "truncated|number of points"),
    ):
        path.write_bytes(f"{wrong_header}DATA {data}\n".encode() + content)
        with pytest.raises(Unfit, match=reason):
            read_cloud(str(path), ())
    path.write_text("COLUMNS x y z\nSIZE 4 4 4\nTYPE F F F\nPOINTS 2\nDATA ascii\n1 2 3\n\n4 5 6")
    assert read_cloud(str(path), (), with_labels=False).rows.tolist() == [0, 1]


def test_pcd_may_repeat_names_of_padding(tmp_path: Path) -> None:
    header = "FIELDS x _ y z _\nSIZE 4 2 4 4 1\nTYPE F U F F U\nCOUNT 1 1 1 1 3\nPOINTS 2\nDATA binary\n"
    types = [("x", "<f4"), ("a", "<u2"), ("y", "<f4"), ("z", "<f4"), ("b", "u1", 3)]
    points = np.array([(1, 7, 2, 3, 7), (5, 7, 6, 9, 7)], types)
    (tmp_path / "a.pcd").write_bytes(header.encode() + points.tobytes())
    cloud = read_cloud(str(tmp_path / "a.pcd"), (), with_labels=False)
    assert cloud.positions.tolist() == [[-2, -2, -3], [2, 2, 3]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it is empty"),
        ("# another comment\nply\n", "it is not a PCD file"),
        ("# .PCD v0.7\n", "it is truncated"),
        ("FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nDATA asc", "it is truncated"),
        (f"VERSION 0.7\n# {'x' * 70_000}\nDATA ascii\n", "its header has more than 65,536 bytes"),
        ("FIELDS x y z\nSIZE 4 4 4\nTYPE F F\nDATA ascii\n", "differ in length"),
        ("FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nDATA base64\n", "another DATA than ascii"),
        ("FIELDS x y z\nSIZE 4 4 1\nTYPE F F F\nDATA ascii\n", "its field z is of the unknown type F1"),
    ],
)
def test_invalid_pcd_header_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "a.pcd").write_text(content)
    with pytest.raises(Unfit, match=reason):
        read_head(str(tmp_path / "a.pcd"))


def test_points_without_values_in_parts_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CHUNK_POINTS", 2)
    path = tmp_path / "a.xyz"
    path.write_text("x y z intensity label\n1 2 3 nan 0\nnan 2 3 5 1\n5 6 7 7 nan\n7 8 9 1 1\nnan 1 1 1 0\n")
    cloud = read_cloud(str(path), ("intensity",))
    assert (cloud.rows.tolist(), cloud.labels.tolist()) == ([0, 2, 3], [0, -1, 1])
    assert (cloud.features.tolist(), cloud.positions[:, 0].tolist()) == ([[0], [7], [1]], [-3, 1, 3])
    for text, with_labels, reason in (("x y z\nnan 1 2\n", False, "no points"), ("x y z\n1 2 3\n", True, "no label")):
        path.write_text(text)
        with pytest.raises(Unfit, match=f"has {reason}|have {reason}"):
            read_cloud(str(path), (), with_labels=with_labels)
    assert [is_upright(name) for name in ("a.las", "a.LAZ", "a.bin", "a.ply")] == [True, True, True, False]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("X Y Z R red g Intensity scalar_intensity", {"red": "red", "green": "g", "intensity": "Intensity"}),
        ("x X y Y z diffuse_Blue scalar_Intensity category class", {"blue": "diffuse_Blue", "intensity": "scalar_Intensity", "label": "class"}),
    ],
)  # fmt: skip
def test_fields_are_found_by_their_names(names: str, expected: dict[str, str]) -> None:
    axes = {axis: axis.upper() if names.startswith("X") else axis for axis in "xyz"}
    assert find_fields(names.split()) == axes | expected


def test_ply_may_have_other_elements_and_byte_orders(tmp_path: Path) -> None:
    camera = np.ones(9, [("x", ">f4"), ("y", ">f4"), ("z", ">f4")])
    # Float32 would round x to multiples of 8.
    vertex = np.array(
        [(1e8 + 1, 2, 3, 4), (1e8 + 5, 6, 9, 7)], [("x", ">f8"), ("y", ">f4"), ("z", ">f4"), ("label", ">i2")]
    )
    for is_text in (False, True):
        faces = np.array([(np.zeros(int(is_text), np.int32),)] * 200, [("vertex_indices", object)])
        named = ((camera, "camera"), (vertex, "vertex"), (faces, "face"))
        elements = [PlyElement.describe(each, name) for each, name in named]
        path = tmp_path / f"{is_text}.ply"
        PlyData(elements, text=is_text, byte_order="=" if is_text else ">").write(path)
        assert read_head(str(path)) == (2, (), True)
        cloud = read_cloud(str(path), ())
        assert (cloud.positions.tolist(), cloud.labels.tolist()) == ([[-2, -2, -3], [2, 2, 3]], [4, 7])
        path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"end_header") + 11])
        with pytest.raises(Unfit, match="truncated"):
            read_head(str(path))
    properties = "".join(f"property float {axis}\n" for axis in "xyz")  # of digits, which take two bytes each
    path.write_text(f"ply\nformat ascii 1.0\nelement vertex 500\n{properties}end_header\n" + 500 * "1 2 3\n")
    assert read_head(str(path)).points == 500


def test_lines_that_begin_with_a_slash_are_no_table(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("/1 2 3 4\n/5 6 7 8\n")
    with pytest.raises(Unfit, match="numbers"):
        tables.read_table(str(path))


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("element vertex 1|property float x|property int y|property float z|property int label", None),
        ("property int early|element vertex 1|property float x|property int y|property float z|property int label", None),
        ("element vertex 1|property float x|property float y", "its points have no x, y and z"),
        ("element vertex one", "its header gives counts that are not numbers"),
        (f"element vertex {'9' * 5000}", "its header gives counts that are not numbers"),
    ],
)  # fmt: skip
def test_ply_header_is_read_or_refused(tmp_path: Path, lines: str, expected: str | None, line_end: str) -> None:
    path = tmp_path / "a.ply"
    header = ["ply", "format ascii 1.0", *lines.split("|"), "end_header", "1 2 3 4", ""]
    path.write_bytes(line_end.join(header).encode())
    if expected is None:
        assert read_head(str(path)) == (1, (), True)
        return
    with pytest.raises(Unfit, match=expected):
        read_head(str(path))


@pytest.mark.parametrize(
    ("comment_bytes", "remaining_bytes", "reason"),
    [(0, 40, "it is truncated"), (0, 108, "it is truncated"), (70_000, None, "its header has more than 65,536 bytes")],
)
def test_ply_without_end_of_header_names_the_reason(
    tmp_path: Path, comment_bytes: int, remaining_bytes: int | None, reason: str
) -> None:
    path = tmp_path / "a.ply"
    lines = ["ply", "format ascii 1.0", f"comment {'x' * comment_bytes}", "element vertex 1"]
    header = "\n".join([*lines, *(f"property float {axis}" for axis in "xyz"), "end_header", "1 2 3", ""])
    path.write_bytes(header.encode()[:remaining_bytes])
    with pytest.raises(Unfit, match=reason):
        read_head(str(path))


@pytest.mark.parametrize("ending", ["ply", "las", "xyz", "mesh"])
def test_empty_and_foreign_files_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    reasons = {
        "ply": "it is not a PLY file",
        "mesh": "it is not a PLY file",
        "las": "it is not a LAS file",
        "xyz": "it is not a table of points",
    }
    for content, reason in ((b"", "it is empty"), (b"\0other" * 100, reasons[ending])):
        path.write_bytes(content)
        with pytest.raises(Unfit, match=reason):
            read_head(str(path))


@pytest.mark.parametrize(
    ("remaining_bytes", "reason"),
    [(-1, "header announces more points"), (-60, "header announces more points"), (100, "it is truncated$")],
)
def test_truncated_las_is_refused_by_its_header(tmp_path: Path, remaining_bytes: int, reason: str) -> None:
    path = tmp_path / "a.las"
    write_las(path, *make_scene(0, 50))
    path.write_bytes(path.read_bytes()[:remaining_bytes])
    with pytest.raises(Unfit, match=reason):
        read_head(str(path))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_las_with_impossible_counts_is_refused(tmp_path: Path, is_streamed: bool) -> None:
    path = tmp_path / "a.laz"
    write_las(path, *make_scene(0, 50))
    intact = bytearray(path.read_bytes())
    (points_offset,) = struct.unpack_from("<I", intact, 96)
    (chunk_table,) = struct.unpack_from("<q", intact, points_offset)
    if is_streamed:  # the position of the chunk table is at the end
        struct.pack_into("<q", intact, points_offset, -1)
        intact += struct.pack("<q", chunk_table)
    path.write_bytes(intact)
    assert read_head(str(path)).points == 50
    for position in (100, chunk_table + 4):  # the numbers of records before the points, and of chunks
        damaged = intact.copy()
        struct.pack_into("<I", damaged, position, 1000)
        path.write_bytes(damaged)
        with pytest.raises(Unfit, match="its header announces more points than there are"):
            read_head(str(path))


def test_semantic_kitti_is_recognized_by_paths_and_labels(tmp_path: Path) -> None:
    files = [str(tmp_path / "Sequences/00/Velodyne/0.bin")]
    default = find_kitti_classes(str(tmp_path), files, (0, 10, 40))
    assert default is not None
    assert (len(default.names), default.values[0]) == (19, 10)
    for paths, labels in (
        (files, (0, 10)),
        (files, (10, 40, 3)),
        ([*files, str(tmp_path / "0.bin")], (10, 40)),
        (["Velodyne/0.bin"], (10, 40)),
        ([str(tmp_path / "Sequences/a/Velodyne/0.bin")], (10, 40)),
    ):
        assert find_kitti_classes(str(tmp_path), paths, labels) is None
    (tmp_path / "semantic-kitti.yaml").write_text(
        "labels:\n  1: tree\n  2: wall\nlearning_map:\n  1: 1\n  2: 2\nlearning_map_inv:\n  1: 1\n  2: 2\nlearning_ignore:\n  1: False\n  2: False\n"
    )
    found = find_kitti_classes(f"{tmp_path}/Sequences/", files, (1,))
    assert found is not None
    assert (found.names, found.values) == (("tree", "wall"), (1, 2))
    text = (tmp_path / "semantic-kitti.yaml").read_text().replace("tree", "bush")
    (tmp_path / "Sequences").mkdir()
    (tmp_path / "Sequences/semantic-kitti.yaml").write_text(text)
    found = find_kitti_classes(f"{tmp_path}/Sequences/", files, (1,))
    assert found is not None
    assert found.names == ("bush", "wall")


@pytest.mark.parametrize("data", ["ascii", "binary", "binary_compressed"])
def test_damaged_pcd_is_refused(tmp_path: Path, data: str) -> None:
    places, classes = make_scene(0, 200)
    path = tmp_path / "a.pcd"
    write_pcd(path, places, data, label=classes)
    content = path.read_bytes()
    for length in (len(content) * 2 // 3, content.rindex(b"\n", 0, -1) + 1 if data == "ascii" else len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(Unfit, match=r"truncated|damaged"):
            read_cloud(str(path), ())
    path.write_bytes(content.replace(b"POINTS 200", b"POINTS many"))
    with pytest.raises(Unfit, match="POINTS"):
        read_head(str(path))
    path.write_bytes(content.replace(b"FIELDS x", b"FIELDS w"))
    with pytest.raises(Unfit, match="no x, y and z"):
        read_head(str(path))


TABLES: dict[str, Callable[[Path, np.ndarray, np.ndarray, np.ndarray], None]] = {
    "xyz rgb label": write_table,
    "comma and header": lambda path, places, colors, classes: write_table(
        path, classes, places, colors, header='"Label","X","Y","Z","R","G","B"', delimiter=","
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("ending", ["xyz", "txt", "csv", "asc"])
def test_table_gives_columns(tmp_path: Path, name: str, ending: str) -> None:
    features = ("red", "green", "blue")
    places, classes = make_scene(0, 300)
    colors = np.tile(COLORS, (100, 1))
    for split in ("train", "val"):
        TABLES[name](tmp_path / split / f"a.{ending}", places, colors, classes)
    (tmp_path / "val/0.xyz").write_text("no numbers\n")
    content = read(tmp_path)
    assert not errors(content.problems)
    split = content.splits["train"]
    assert isinstance(split, PointSplit)
    assert (split.features, content.classes) == (features, ("class 0", "class 1"))
    cloud = read_cloud(split.files[0], features)
    np.testing.assert_allclose(np.ptp(cloud.positions, 0), np.ptp(places, 0), rtol=1e-5)
    assert cloud.labels.tolist() == classes.tolist()
    assert cloud.features.tolist() == colors.tolist()
    guess = f"2 tables have no names of columns (a.{ending}); they are read as x, y, z, red, green, blue, label."
    is_guessed = name == "xyz rgb label"
    assert ("no names of columns" in messages(content), guess in messages(content)) == (is_guessed, is_guessed)
    assert read_head(split.files[0]).points == 300


@pytest.mark.parametrize(
    ("text", "columns", "points"),
    [
        ('# by me\nx;y;z;"a, b";label\n1;2;3;"4, 5";6\n', ("x", "y", "z", "", "label"), 1),
        ("1 2 3 0\n# one\n\n//two\n4 5 6 1\n", ("x", "y", "z", "label"), 2),
        ("x,y,z,\n1,2,3,\n", ("x", "y", "z"), 1),
        ("1.5 2.5 3.5\n" * 9 + "4.5 5.5 6.5\r\n", ("x", "y", "z"), 10),
        ("3\n1 2 3 0\n1 2 3 0 9\n1 2 3 7\n", ("x", "y", "z", "label"), 3),
        ("1.5 2 3 255 0 7\n1.5 2 3 8 9 10\n", ("x", "y", "z", "red", "green", "blue"), 2),
        ("1.5 2 3 255 0 7 0.5 1\n1.5 2 3 8 9 10 0.25 2\n", ("x", "y", "z", "red", "green", "blue", "intensity", "label"), 2),
        ("1.5 2 3 900 255 0 7 1\n1.5 2 3 70.5 8 9 10 2\n", ("x", "y", "z", "intensity", "red", "green", "blue", "label"), 2),
        ("1.5 2 3 90 255 0 7 1\n1.5 2 3 70 8 9 10 2\n", ("x", "y", "z", "intensity", "red", "green", "blue", "label"), 2),
        ("1.5 2 3 255 0 7 0.5 0.25 1\n", ("x", "y", "z", "red", "green", "blue", "", "", "label"), 1),
        ("1.5 2 3 0.5 1", ("x", "y", "z", "intensity", "label"), 1),
        ("1.5 2 3 -1\n1.5 2 3 nan\n", ("x", "y", "z", "label"), 2),
        ("1.5 2 3 -2\n", ("x", "y", "z", "intensity"), 1),
        ("".join(f"1.5 2 3 {number}\n" for number in range(64)), ("x", "y", "z", "label"), 64),
        ("".join(f"1.5 2 3 {number}\n" for number in range(65)), ("x", "y", "z", "intensity"), 65),
        ("\ufeffx y z label\n1 2 3 0\n", ("x", "y", "z", "label"), 1),
        ("1 2 3 0\nabout it\n", ("x", "y", "z", "label"), 2),
        ("# one\nabout it\n", "line 2 holds neither numbers nor the names of columns", 0),
        ("1.5 2 3 0.5 -0.5 0.25 1\n", ("x", "y", "z", "", "", "", "label"), 1),
        ("//X Y Z R G B Scalar_Classification\n1\n1 2 3 4 5 6 1\n", ("x", "y", "z", "red", "green", "blue", "label"), 1),
        ("x y z x\n1 2 3 4\n", ("x", "y", "z", ""), 1),
        ("x y z label\n1 2 3\n", "it names 4 columns, but line 2 has 3", 0),
        ("1 2\n", "line 1 has 2 columns; x, y and z are needed", 0),
        ("# nothing\n", "it holds no points", 0),
    ],
)  # fmt: skip
def test_layout_of_table_is_recognized(tmp_path: Path, text: str, columns: tuple[str, ...] | str, points: int) -> None:
    path = tmp_path / "a.xyz"
    path.write_text(text)
    if isinstance(columns, str):
        with pytest.raises(Unfit, match=columns):
            tables.read_table(str(path))
        return
    found = tables.read_table(str(path))
    assert (found.columns, found.is_guessed) == (columns, "x" not in text.lower() and len(columns) > 3)
    assert read_head(str(path)).points == points


def test_damaged_line_of_table_costs_one_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, classes = make_scene(0, 300)
    path = tmp_path / "a.xyz"
    write_table(path, places, classes)
    lines = path.read_text().splitlines()
    lines[100] = "1.5 2\x105.0 0 1"
    path.write_text("\n".join([*lines[:200], "", *lines[200:]]))
    cloud = read_cloud(str(path), ())
    assert cloud.rows.tolist() == [row for row in range(300) if row != 100]
    assert cloud.labels.tolist() == np.delete(classes, 100).tolist()
    for row in range(7, 300, 7):
        lines[row] = "x"
    path.write_text("\n".join(["x y z label", *lines]))
    with pytest.raises(Unfit, match="row 8"):
        read_cloud(str(path), ())
    monkeypatch.setattr(tables, "CHUNK_POINTS", 4)
    for damaged in (1, 2):
        path.write_text("1 2 3 0\n" * 10 + "?\n" * damaged + "1 2 3 1\n")
        if damaged == 1:
            assert read_cloud(str(path), ()).rows.tolist() == [*range(10), 11]
    with pytest.raises(Unfit, match="row 11"):
        read_cloud(str(path), ())


def test_semantic3d_takes_labels_from_second_file(tmp_path: Path) -> None:
    places, classes = make_scene(0, 300)
    labels = classes.astype(int) * 7 + 1  # the first and the last class
    labels[:30] = 0
    for split in ("train", "val"):
        path = tmp_path / split / "station1_xyz_intensity_rgb.txt"
        write_table(path, places, places[:, 0] * 900, np.tile(COLORS, (100, 1)))
        path.with_suffix(".labels").write_text("".join(f"{label}\n" for label in labels))
    content = read(tmp_path)
    assert (content.classes[0], content.classes[7], len(content.classes)) == ("man-made terrain", "cars", 8)
    assert "Label 0 (10%" in messages(content)
    split = content.splits["train"]
    assert split.features == ("red", "green", "blue", "intensity")
    assert read_cloud(split.files[0], ("intensity",)).labels.tolist() == labels.tolist()
    assert content.code is not None
    assert label_classes(np.arange(9), content.code).tolist() == [255, *range(8)]
    assert FORMAT.detect(Tree(str(tmp_path)))[0].confidence is Confidence.CERTAIN
    for text, reason in (
        ("1\n" * 299, "fewer labels"),
        ("1\n" * 301, "more labels"),
        ("1.5\n" * 300, "something else"),
    ):
        Path(split.files[0]).with_suffix(".labels").write_text(text)
        with pytest.raises(Unfit, match=reason):
            read_cloud(split.files[0], ())


def test_rooms_take_labels_from_objects(tmp_path: Path) -> None:
    places, _ = make_scene(0, 300)
    for room in ("Area_1/office_1", "Area_1/office_2", "Area_5/hallway_1"):
        parts = {
            "ceiling_1": places[:30],
            "chair_1": places[30:100],
            "floor_1": places[100:200],
            "stairs_1": places[200:250],
            "lamp_2": places[250:],
        }
        write_room(tmp_path / room, parts)
    content = read(tmp_path)
    assert names(content, tmp_path)[""] == [
        "Area_1/office_1/office_1.txt", "Area_1/office_2/office_2.txt", "Area_5/hallway_1/hallway_1.txt"
    ]  # fmt: skip
    assert content.classes[:3] == ("ceiling", "floor", "wall")
    assert "3 objects are of no class" in messages(content)
    assert "office_1/Annotations/lamp_2.txt" in messages(content)
    cloud = read_cloud(content.splits[""].files[0], ("red",))
    assert content.code is not None
    counts = np.bincount(label_classes(cloud.labels, content.code), minlength=256)
    assert (counts[0], counts[1], counts[8], counts[12], counts[255]) == (30, 100, 70, 50, 50)
    unlabeled = read_cloud(content.splits[""].files[0], (), with_labels=False)
    np.testing.assert_allclose(unlabeled.positions, places - (places.min(0) + places.max(0)) / 2, atol=1e-4)
    assert not is_cloud(str(tmp_path / "Area_1/office_1/Annotations/chair_1.txt"))
    assert not is_cloud(str(tmp_path / "gone.txt"))


def test_semantic_kitti_merges_labels_and_holds_out_08(tmp_path: Path) -> None:
    raw = np.array([10, 252, 40, 60, 0, 71], np.uint32)
    for sequence, splits in (("00", {""}), ("01", {""}), ("08", {"train", "val"})):
        places, _ = make_scene(0, 60)
        write_scan(tmp_path / "sequences" / sequence, "000000", places, np.tile(raw, 10))
        assert read(tmp_path).splits.keys() == splits
    places, _ = make_scene(1, 60)
    write_scan(tmp_path / "sequences/11", "000000", places, None)
    content = read(tmp_path)
    assert names(content, tmp_path) == {
        "train": ["sequences/00/velodyne/000000.bin", "sequences/01/velodyne/000000.bin"],
        "val": ["sequences/08/velodyne/000000.bin"],
    }
    assert (content.classes[0], content.classes[8], len(content.classes)) == ("car", "road", 19)
    assert "Label 0 (17%" in messages(content)
    assert "1 of 4 files is without labels" in messages(content)
    labels, counts = count_labels(content.splits["val"].files[0])
    assert content.code is not None
    assert label_classes(labels, content.code).tolist() == [255, 0, 8, 8, 15, 0]
    assert counts.tolist() == [10] * 6


def test_semantic_kitti_yaml_of_folder_is_followed(tmp_path: Path) -> None:
    for sequence in ("00", "01"):
        write_scan(tmp_path / "sequences" / sequence, "000000", make_scene(0, 40)[0], np.tile([0, 1, 2, 3], 10))
    (tmp_path / "semantic-kitti.yaml").write_text(
        'name: "mine"\nlabels: \n  0 : "nothing"\n  1 : "tree"\n  2: "bush"\n  3: "wall"  # of stone\n'
        "learning_map:\n  0 : 0\n  1 : 1\n  2 : 1\n  3 : 2\nlearning_map_inv: # back\n  0: 0\n  1: 1\n  2: 3\n"
        "learning_ignore: # not learned\n  0: True\n  1: False\n  2: False\nsplit:\n  train:\n    - 0\n"
    )
    content = read(tmp_path)
    assert content.classes == ("tree", "wall")
    assert content.code is not None
    assert label_classes(np.arange(4), content.code).tolist() == [255, 0, 0, 1]


def test_scans_are_recognized_by_plausible_points(tmp_path: Path) -> None:
    write_scan(tmp_path, "0", make_scene(0, 40)[0], np.ones(40))
    path = str(tmp_path / "velodyne/0.bin")
    assert is_cloud(path)
    assert read_cloud(path, ("intensity",)).features[:, 0] == pytest.approx(np.linspace(0, 1, 40))
    (tmp_path / "other").mkdir()
    other = tmp_path / "other/0.bin"
    for column, value, expected in (
        (0, 9_999, True),
        (2, 10_001, False),
        (1, -10_001, False),
        (3, 10_001, True),
        (3, np.inf, False),
        (1, np.nan, False),
    ):
        points = np.zeros((2, 4), "<f4")
        points[1, column] = value
        other.write_bytes(points.tobytes())
        assert is_cloud(str(other)) == expected
    assert not read_head(str(other)).has_labels  # those in the folder "labels" are of another folder's scans
    other.with_suffix(".label").write_bytes(bytes(8))
    assert read_head(str(other)) == (2, ("intensity",), True)
    other.write_bytes(b"")
    assert not is_cloud(str(other))
    other.rename(other.with_suffix(".pcd.bin"))
    with pytest.raises(Unfit, match="nuScenes"):
        read_head(str(other.with_suffix(".pcd.bin")))


def test_scans_with_other_labels_are_numbered(tmp_path: Path) -> None:
    write_scan(tmp_path / "plain", "0", make_scene(0, 40)[0], np.tile([3, 5], 20))
    write_scan(tmp_path / "plain", "1", make_scene(1, 40)[0], np.tile([3, 5], 20))
    write_scan(tmp_path / "kitti/sequences/00", "0", make_scene(0, 40)[0], np.tile([10, 5], 20))
    write_scan(tmp_path / "one/train", "0", make_scene(0, 40)[0], np.tile([0, 1], 20))
    assert read(tmp_path / "plain").classes == ("class 3", "class 5")
    assert read(tmp_path / "kitti").classes == ("class 5", "class 10")
    assert read(tmp_path / "one").classes == ("class 0", "class 1")
    path = tmp_path / "plain/labels/0.label"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(Unfit, match=r"40 points, but 0\.label has 39 labels"):
        read_cloud(str(tmp_path / "plain/velodyne/0.bin"), ())


def test_clouds_in_subfolders_keep_their_split(tmp_path: Path) -> None:
    make_clouds(tmp_path / "a/site", {"train/north": 1, "train/south/deep": 2, "val": 1}, 40)
    assert names(read(tmp_path / "a"), tmp_path / "a") == {
        "train": ["site/train/north/00.ply", "site/train/south/deep/00.ply", "site/train/south/deep/01.ply"],
        "val": ["site/val/00.ply"],
    }
    make_clouds(tmp_path / "b", {"north": 1, "south/deep": 2}, 40)
    assert [len(each) for each in names(read(tmp_path / "b"), tmp_path / "b").values()] == [3]
    make_clouds(tmp_path / "c", {"train": 1, "val": 1, "extra": 2}, 40)
    content = read(tmp_path / "c")
    assert {split: len(each.files) for split, each in content.splits.items()} == {"train": 1, "val": 1}
    assert "2 clouds are in no folder of a split" in messages(content)


def test_clouds_without_labels_are_left_out_and_named(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 2, "val": 1}, 40)
    write_ply(tmp_path / "train/bare.ply", make_scene(0, 40)[0])
    content = read(tmp_path)
    assert len(content.splits["train"].files) == 2
    assert "1 of 4 files is without labels (bare.ply)" in messages(content)


def test_other_texts_are_no_clouds(tmp_path: Path) -> None:
    write_noise(tmp_path / "yolo/images/a.png", seed=0)
    write_noise(tmp_path / "values/a.png", seed=0)
    (tmp_path / "yolo/labels").mkdir()
    (tmp_path / "yolo/labels/a.txt").write_text("0 0.5 0.5 0.25 0.25\n1 0.25 0.5 0.25 0.5\n")
    (tmp_path / "values/boxes.txt").write_text("1.5 2.5 3.5 4\n" * 40)
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes/labels.csv").write_text("filename,xmin,ymin,label\na.png,1,2,cat\n")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/model.bin").write_bytes(bytes(160))
    for name in ("yolo", "values", "boxes", "weights"):
        assert FORMAT.detect(Tree(str(tmp_path / name))) == []


def test_detection_is_certain_by_labels_only(tmp_path: Path) -> None:
    make_clouds(tmp_path / "ply", {"train": 2}, 40)
    write_ply(tmp_path / "bare/a.ply", make_scene(0, 40)[0])
    write_table(tmp_path / "guessed/a.txt", *make_scene(0, 40))
    write_table(tmp_path / "xyz/a.xyz", *make_scene(0, 40))
    (tmp_path / "bare/march.txt").write_text("Recorded in March\n")
    detections = {name: FORMAT.detect(Tree(str(tmp_path / name)))[0] for name in ("ply", "bare", "guessed", "xyz")}
    assert detections["bare"].evidence == ("1 file of points (PLY)",)
    assert {name: found.confidence for name, found in detections.items()} == {
        "ply": Confidence.CERTAIN,
        "bare": Confidence.LIKELY,
        "guessed": Confidence.WEAK,
        "xyz": Confidence.LIKELY,
    }
    (problem,) = errors(read(tmp_path / "bare").problems)
    assert "have no labels" in problem.message
    write_noise(tmp_path / "bare/b.png", seed=0)
    (detection,) = FORMAT.detect(Tree(str(tmp_path / "bare")))
    assert (detection.confidence, detection.evidence) == (Confidence.WEAK, ("1 file of points (PLY)",))
    write_table(tmp_path / "ply/b.xyz", *make_scene(0, 40))
    (detection,) = FORMAT.detect(Tree(str(tmp_path / "ply")))
    assert detection.evidence == ("3 files of points (PLY, XYZ)", "labels of points")
    (detection,) = FORMAT.detect(Tree(str(tmp_path / "guessed")))
    assert (detection.evidence[1:], detection.against) == (("labels of points",), ("columns without names",))


def test_text_that_is_no_table_is_named(tmp_path: Path) -> None:
    for number in range(3):
        places, classes = make_scene(number, 100)
        write_table(tmp_path / f"b{number}.txt", places, classes, header="x y z label")
    (tmp_path / "about.txt").write_text("Scanned in May\n")
    content = read(tmp_path)
    assert len(content.splits[""].files) == 3
    assert "1 of 4 files is no point clouds (about.txt)" in messages(content)
    for number in range(9):  # more than are opened to recognize the folder
        (tmp_path / f"a{number}.txt").write_text("Scanned in May\n")
    assert "10 of 13 files are no point clouds" in messages(read(tmp_path))


def write_file_type(folder: Path, ending: str, seed: int) -> Path:
    """Write a point cloud of 400 points with the labels 0 and 1. `ending` determines the file type."""
    places, classes = make_scene(seed, 400)
    path = folder / f"{seed}.{ending}"
    if ending == "pcd":
        write_pcd(path, places, "binary_compressed", label=classes)
    elif ending == "bin":
        write_scan(folder, str(seed), places, classes)
        path = folder / f"velodyne/{seed}.bin"
    else:
        write_table(path, places, classes, header="x,y,z,label", delimiter=",")
    return path


@pytest.mark.parametrize("ending", ["pcd", "bin", "xyz", "csv"])
def test_clouds_of_every_type_are_inspected_and_loaded(tmp_path: Path, ending: str) -> None:
    for seed in range(4):
        write_file_type(tmp_path / ("val" if seed == 3 else "train"), ending, seed)
    report = inspect(str(tmp_path), val_fraction=0.2, seed=0, progress=lambda done, total: None, kinds=("points",))
    assert (report.kind, report.certain, report.unreadable_count) == ("points", True, 0)
    assert [split.total for split in report.splits] == [3, 1]
    assert report.splits[0].shares == {"class 0": 0.5, "class 1": 0.5}
    assert len(report.examples) == 3
    splits = open_splits(str(tmp_path), val_fraction=0.2, seed=0, kinds=("points",))
    assert isinstance(splits.train, PointBlocks)
    splits.train.streams = RandomStreams(0)
    targets = np.concatenate([splits.train.load(index, 0)[1].numpy() for index in range(len(splits.train))])
    assert np.bincount(targets, minlength=256)[[0, 1]].tolist() == [600, 600]


@pytest.mark.parametrize("ending", ["pcd", "bin", "xyz", "csv"])
def test_damaged_clouds_raise_reasons_only(tmp_path: Path, ending: str) -> None:
    path = write_file_type(tmp_path, ending, 0)
    content = path.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(content[: int(random.integers(1, len(content) + 1))])
        for at in random.integers(0, len(damaged), int(random.integers(0, 6))).tolist():
            damaged[at] = int(random.integers(0, 256))
        path.write_bytes(damaged)
        try:
            cloud = read_cloud(str(path), ())
        except Unfit:
            continue
        assert np.isfinite(cloud.positions).all()
