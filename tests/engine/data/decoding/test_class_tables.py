"""Tables of class names for gray values and for colors, in their common forms."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from engine.data.decoding.class_tables import find_tables
from engine.data.decoding.masks import read_names_by_value
from engine.data.splits import MaskCode
from engine.system.regular_files import UnusableFile

COLORED = [("void", 0x000000), ("road", 0x800000), ("tree", 0x008000)]
NUMBERED = [("void", 0), ("road", 7), ("tree", 255)]
BY_COLOR = {
    "class_dict.csv": "name,r,g,b\nvoid,0,0,0\nroad,128,0,0\ntree,0,128,0\n",
    "class_dict_seg.csv": "name, r, g, b\nvoid, 0, 0, 0\nroad, 128, 0, 0\ntree, 0, 128, 0\n",
    "classes.csv": "blue;green;red;id;class\n0;0;0;0;void\n0;0;128;1;road\n0;128;0;2;tree\n",
    "labelmap.csv": "void,0,0,0\nroad,128,0,0\ntree,0,128,0\n",
    "colormap.csv": "label,color\nvoid,#000000\nroad,#800000\ntree,#008000\n",
    "labels.csv": "id,name,color\n0,void,#000000\n1,road,#800000\n2,tree,#008000\n",
    "label_colors.txt": "0 0 0\tvoid\n128 0 0\troad\n0 128 0\ttree\n",
    "labelmap.txt": "# label:color_rgb:parts:actions\nvoid:0,0,0::\nroad:128,0,0::\ntree:0,128,0::\n",
    "classes.txt": "void 0 0 0\nroad 128 0 0\ntree 0 128 0\n",
    "colormap.json": json.dumps({"void": [0, 0, 0], "road": [128, 0, 0], "tree": [0, 128, 0]}),
    "classes.json": json.dumps({"categories": [{"name": name, "color": f"#{color:06x}"} for name, color in COLORED]}),
    "config.json": json.dumps(
        {
            "labels": [
                {"name": "a--b", "readable": n, "color": [c >> 16, c >> 8 & 255, c & 255, 255]} for n, c in COLORED
            ]
        }
    ),
    "class_names.csv": "3,void,0,0,0\n4,road,128,0,0\n5,tree,0,128,0\n",
    "label_colors.csv": "void,0,0,0\nroad,128,0,0\ntree,0,128,0\n",
}
BY_VALUE = {
    "_classes.csv": "Pixel Value, Class\n0, void\n7, road\n255, tree\n",
    "classes.csv": "value,name\n0,void\n7,road\n255,tree\n",
    "class_dict.csv": "value,name,r\n0,void,1\n7,road,2\n255,tree,3\n",
    "class_names.csv": "void,0\nroad,7\ntree,255\n",
    "labels.csv": "label\tname\n0\tvoid\n7\troad\n255\ttree\n",
    "labels.txt": "0: void\n7: road\n255: tree\n",
    "classes.json": json.dumps({"void": 0, "road": 7, "tree": 255}),
    "labels.json": json.dumps({"0": "void", "7": "road", "255": "tree"}),
    "esri_model_definition.emd": json.dumps(
        {"Classes": [{"Value": value, "Name": name} for name, value in reversed(NUMBERED)]}
    ),
    "label_colors.csv": "class,label\n0,void\n7,road\n255,tree\n",
}


@pytest.mark.parametrize("name", BY_COLOR)
def test_find_tables_reads_names_of_colors(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BY_COLOR[name])
    (table,) = find_tables(str(tmp_path))
    assert (list(zip(table.names, table.values, strict=True)), table.colors) == (COLORED, True)


@pytest.mark.parametrize("name", BY_VALUE)
def test_find_tables_reads_names_of_values(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BY_VALUE[name])
    (table,) = find_tables(str(tmp_path))
    assert (list(zip(table.names, table.values, strict=True)), table.colors) == (NUMBERED, False)


LONG = "1" * 5000
"""More digits than Python converts to a number."""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", f"{LONG} cat\n2 dog\n"),
        ("label_colors.txt", f"cat {LONG} 0 0\ndog 0 0 1\n"),
        ("classes.csv", f"{LONG},cat\n2,dog\n3,owl\n"),
        ("classes.json", json.dumps({LONG: "cat", "2": "dog"})),
        ("labels.json", json.dumps({"cat": 10**30, "dog": 1})),
    ],
)
def test_find_tables_reads_no_number_beyond_64_bits(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert all(abs(value) < 1 << 63 for table in find_tables(str(tmp_path)) for value in table.values)


@pytest.mark.parametrize("mark", [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")])
@pytest.mark.parametrize("name", ["class_dict.csv", "labelmap.txt", "colormap.json"])
def test_find_tables_decodes_byte_order_marks(tmp_path: Path, name: str, mark: tuple[bytes, str]) -> None:
    (tmp_path / name).write_bytes(mark[0] + BY_COLOR[name].encode(mark[1]))
    (table,) = find_tables(str(tmp_path))
    assert table.names == ("void", "road", "tree")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "filename,label\na.jpg,cat\nb.jpg,dog\n"),
        ("labels.csv", "a.jpg,0\nb.jpg,1\n"),
        ("_classes.csv", "filename,cat,dog\na.jpg,0,1\nb.jpg,1,0\n"),
        ("labels.json", json.dumps({"images": [{"id": 1}], "annotations": []})),
        ("config.json", json.dumps({"lr": 1, "epochs": 3})),
        ("classes.json", "{ no json"),
        ("class_dict.csv", "name,r,g,b\nvoid,0,0,300\nroad,1,2,-1\n"),
    ],
)
def test_find_tables_passes_over_other_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert find_tables(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("third", "numbered"),
    [("road", ("static (1)", "static (2)", "road")), ("static (1)", ("static (2)", "static (3)", "static (1)"))],
)
def test_find_tables_numbers_equal_names(tmp_path: Path, third: str, numbered: tuple[str, ...]) -> None:
    (tmp_path / "classes.txt").write_text(f"static\nstatic\n{third}\n")
    (table,) = find_tables(str(tmp_path))
    assert table.names == numbered


def test_find_tables_prefers_definitions_and_skips_large_files(tmp_path: Path) -> None:
    texts = {"classes.json": BY_VALUE["classes.json"], "classes.csv": BY_VALUE["classes.csv"]}
    for name, text in (texts | {"classes.txt": "a\nb\n"}).items():
        (tmp_path / name).write_text(text.ljust(1 << 20))
    (tmp_path / "esri_model_definition.emd").write_text(BY_VALUE["esri_model_definition.emd"])
    tables = ["esri_model_definition.emd", "classes.txt", "classes.csv", "classes.json"]
    assert [table.file for table in find_tables(str(tmp_path))] == tables
    for name, text in texts.items():
        (tmp_path / name).write_text(text.ljust((1 << 20) + 1))
    assert [table.file for table in find_tables(str(tmp_path))] == tables[:2]


def test_find_tables_refuses_lists_with_too_many_lines(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("\n" * 100_001)
    with pytest.raises(UnusableFile, match="100,001 lines, too many for class names"):
        find_tables(str(tmp_path))


def test_names_by_value_takes_lists_and_values(tmp_path: Path) -> None:
    assert read_names_by_value(str(tmp_path)) is None
    (tmp_path / "class_dict.csv").write_text(BY_COLOR["class_dict.csv"])
    assert read_names_by_value(str(tmp_path)) is None
    (tmp_path / "classes.json").write_text(BY_VALUE["classes.json"])
    meaning = read_names_by_value(str(tmp_path))
    assert meaning is not None
    assert meaning.classes == ("void", "road", "tree")
    (tmp_path / "classes.txt").write_text("sky\nroad\n")
    meaning = read_names_by_value(str(tmp_path))
    assert meaning is not None
    assert (meaning.classes, meaning.code) == (("sky", "road"), MaskCode((0, 1), ignored=(255,)))
    (tmp_path / "classes.txt").write_text("".join(f"class {number}\n" for number in range(256)))
    assert (meaning := read_names_by_value(str(tmp_path))) is not None
    assert "256 classes; masks and clouds support at most 255" in meaning.failure


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("labelmap.txt", "void:0,0,0::\nby hand\nroad:128,0,0::\n", ["void", "road"]),
        ("classes.txt", "void 0 0 0\nroad\n", ["void 0 0 0", "road"]),
        ("label_colors.txt", "void\nroad\n", []),
        ("label_colors.txt", "0 0 0 void\n0 0 0 other\n1 1 1 road\n", ["void", "road"]),
        ("labelmap.txt", "void:0,0,0::\nby hand\n", []),
        ("classes.txt", "# names\nsky\n\nroad\n", ["sky", "road"]),
        ("classes.txt", "sky\n", []),
        ("classes.txt", "0 a\n0 b\n", ["0 a", "0 b"]),
        ("classes.csv", "klasse,nummer\nvoid,0\nroad,7\n", ["void", "road"]),
        ("classes.csv", "klasse,nummer\nvoid,0\nroad\nroof,7\n", []),
        ("classes.csv", "value,name\n0,\n7,road\n", ["value 0", "road"]),
        ("class_names.csv", "cat,pet,0\ndog,pet,1\n", []),
        ("classes.json", '{"void": 0, "road": [1, 2, 3]}', []),
        ("classes.json", '{"void": 0}', []),
        ("classes.json", '{"void": 0, "road": 0}', []),
        ("classes.json", '{"0": "#000000", "1": "#ff0000"}', ["0", "1"]),
        ("classes.json", '[{"id": 1}, {"id": 2}]', []),
        ("classes.json", '{"void": [0, 0, 0], "road": [255, 1, 2]}', ["void", "road"]),
        ("esri_model_definition.emd", '{"Classes": []}', []),
        ("esri_model_definition.emd", '{"Classes": [{"Value": 2}]}', []),
        ("classes.csv", "value,name\n-1,void\n7,road\n", ["void", "road"]),
        ("classes.csv", "name,value\nvoid,0\nroad\n", []),
        ("classes.json", '{"void": true, "road": 5}', []),
        ("classes.json", '{"void": [0, 0, 0], "road": [1, 2, 3], "tree": "?"}', []),
        ("classes.json", '{"void": [0, 0], "road": [1, 2]}', []),
        ("esri_model_definition.emd", '{"Classes": [{"Value": 2, "Name": "b"}, {"Value": 1, "Name": "a"}]}',
         ["background", "a", "b"]),
    ],
)  # fmt: skip
def test_find_tables_needs_an_entry_in_each_line(tmp_path: Path, name: str, text: str, names: list[str]) -> None:
    (tmp_path / name).write_text(text)
    assert [name for table in find_tables(str(tmp_path)) for name in table.names] == names
