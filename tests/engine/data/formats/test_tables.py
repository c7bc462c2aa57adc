"""Tables in text and JSON files: rows, column names, and the columns that hold labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.data.formats.shared import label_columns
from engine.data.formats.shared.label_columns import (
    find_file_column,
    find_label_columns,
    has_only_measures,
    parse_split,
    profile_columns,
    split_labels,
)
from engine.data.formats.shared.tables import Table, find_tables, open_table, warn_about_cut_lines
from engine.data.formats.tree import Tree


def table(folder: Path, name: str, text: str, *, head: bool = False) -> Table | None:
    (folder / name).write_text(text)
    return open_table(str(folder / name), head=head)


def csv(folder: Path, text: str) -> Table:
    found = table(folder, "a.csv", text)
    assert found is not None
    return found


def records(*entries: object) -> str:
    return json.dumps(entries)


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("a.tsv", "file\tlabels\na.png\t1\t2\n", ["file labels", "a.png 1,2"]),
        ("a.csv", "file|label\n\na.png|x, y|\n", ["file label", "a.png x, y"]),
        ("a.csv", "\nfile;x\na.png;cat\n", ["file x", "a.png cat"]),
        ("a.csv", "a.png,cat\nb.png,dog\n", ["file labels", "a.png cat", "b.png dog"]),
        ("a.csv", "a.png,train,x\nb.png,val,y\n", ["file column 1 column 2", "a.png train x", "b.png val y"]),
        ("a.csv", "train,a.png,x\nval,b.png,y\n", ["split file labels", "train a.png x", "val b.png y"]),
        ("a.csv", "a.png,0,2\nb.png,1,3\nc.png,0", ["file column 1 column 2", "a.png 0 2", "b.png 1 3"]),
        ("a.csv", "file,x\na.png,1.0\nb.png,0.0\nc.png,1", ["file x", "a.png 1.0", "b.png 0.0", "c.png 1"]),
        ("a.csv", "file,x\na.png,cat\nb.png,dog\nc.png,ca", ["file x", "a.png cat", "b.png dog"]),
        ("a.csv", "file,x\na.png,cat\nb.png,cats\nc.png,cat", ["file x", "a.png cat", "b.png cats"]),
        ("a.txt", "a.png 1 0\n\nb.png 0 1\n", ["file 0 1", "a.png 1 0", "b.png 0 1"]),
        ("a.txt", "my a.png 1 0\nb.png 0 1\n", ["file 0 1", "my a.png 1 0", "b.png 0 1"]),
        ("a.txt", "a.png 1 0\nb.png 0\n", ["file labels", "a.png 1 0", "b.png 0"]),
        ("a.txt", "2\nx y\na.png 1 0\nb.png 0 1\n", ["file x y", "a.png 1 0", "b.png 0 1"]),
        ("a.txt", "2\nx y\na.png 1 0\nb.png 0\n", ["file x y", "a.png 1 0", "b.png 0 "]),
        ("a.txt", "image x y\na.png 1 0\nb.png 0 1\n", ["file x y", "a.png 1 0", "b.png 0 1"]),
        ("a.txt", "# x\n# y\na.png 1 0\nb.png 0 1\n", ["file 0 1", "a.png 1 0", "b.png 0 1"]),
        ("a.txt", "a.png 1\n" * 1000 + "the end\n", ["file labels", *["a.png 1"] * 1000]),
        ("a.txt", "2\nx\na.png 1 0\nb.png 0 1\n", ["file 0 1", "a.png 1 0", "b.png 0 1"]),
        ("a.ndjson", '{"file": "a.png"}\n', ["file", "a.png"]),
        ("a.json", records({"file": "a.png"}, {"label": "x", "file": "b.png"}), ["file label", "a.png ", "b.png x"]),
        ("a.json", records({"file": "a.png", "is": {"x": 1, "y": False}}), ["file x y", "a.png 1 0"]),
        ("a.json", records({"file": "a.png", "is": {"x": "1", "y": 2}, "n": None}), ["file is n", "a.png  "]),
        ("a.json", '{"labels": [["a.png", 3], ["b.png"], ["c.png", 4]]}', ["file labels", "a.png 3", "c.png 4"]),
        ("a.json", '{\n "a.png": 3, "version": 7, "b.png": 4}', ["file labels", "a.png 3", "b.png 4"]),
        ("a.jsonl", '{"file": "a.png"}\n{torn\n\n{"file": "b.png"}\n', ["file", "a.png", "", "b.png"]),
    ],
)
def test_open_table_reads_rows_below_the_head(tmp_path: Path, name: str, text: str, rows: list[str]) -> None:
    found = table(tmp_path, name, text)
    assert found is not None
    assert [" ".join(found.head), *map(" ".join, found.rows())] == rows


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", records({"file_name": "a.png", "label": "x", "bbox": [1, 2, 3, 4]})),
        ("a.json", records({"id": 1, "name": "x"})),
        ("a.json", '{"labels": 3}'),
        ("a.json", '{"labels": [["a.png", 3]], "version": 7}'),
        ("a.json", '{"version": 7, "a.png": 3}'),
        ("a.jsonl", 'torn\n{"file": "a.png"}'),
        ("a.txt", "a.png\nb.png\n"),
        ("a.txt", "5\n"),
        ("a.csv", ",,\n"),
    ],
)
@pytest.mark.parametrize("head", [False, True])
def test_open_table_leaves_other_content_alone(tmp_path: Path, name: str, text: str, head: bool) -> None:
    assert table(tmp_path, name, text, head=head) is None


def test_head_of_a_table_ends_with_a_complete_line_or_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "file,label\na.png,cat\nb.png,dog\n"
    for length, rows in ((25, 1), (len(text), 2)):
        monkeypatch.setattr("engine.data.formats.shared.tables.HEAD_BYTES", length)
        found = table(tmp_path, "a.csv", text, head=True)
        assert found is not None
        assert list(found.rows()) == [["a.png", "cat"], ["b.png", "dog"]][:rows]
    complete = table(tmp_path, "a.json", records(*[{"file": "a.png", "label": "cat"}] * 9), head=True)
    assert complete is not None
    assert len(list(complete.rows())) == 9


def test_find_tables_searches_two_levels(tmp_path: Path) -> None:
    for name in ("a.csv", "x/b.tsv", "x/y/c.jsonl", "x/y/z/d.csv", "Sample_Submission.csv", "x/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for number in range(201):  # one too many for tables
        (tmp_path / f"{number}.txt").touch()
    assert list(find_tables(Tree(str(tmp_path)))) == [("", "a.csv"), ("x", "b.tsv"), ("x/y", "c.jsonl")]
    (tmp_path / "0.txt").unlink()
    assert len(list(find_tables(Tree(str(tmp_path)), (".txt",)))) == 200


def test_each_truncated_table_is_reported(tmp_path: Path) -> None:
    last_lines = {"a.csv": "b.pn", "b.csv": "b.png,cat", "c.csv": "c.p"}
    tables = [table(tmp_path, name, f"file,x\na.png,cat\n{line}") for name, line in last_lines.items()]
    problems = warn_about_cut_lines(Tree(str(tmp_path)), [each for each in tables if each is not None])
    found = [[text for text in ("a.csv", "b.pn.", "c.csv", "c.p.") if text in each.message] for each in problems]
    assert found == [["a.csv", "b.pn."], ["c.csv", "c.p."]]


# Columns


def test_profile_counts_cells_and_blanks(tmp_path: Path) -> None:
    found = profile_columns(csv(tmp_path, "file,label\na.png,x\nb.png,\nc.png,x\nd.png,y\n"))
    assert [(dict(each.cells), each.blank, each.rows) for each in found] == [
        ({f"{name}.png": 1 for name in "abcd"}, 0, 4),
        ({"x": 2, "y": 1}, 1, 4),
    ]
    flags = profile_columns(csv(tmp_path, "file,sea,sky\na.png,-1,-1\nb.png,-1,1\n"))
    assert [each.is_flags for each in flags] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("name,path,label\na.png,x/a.png,cat\n", 1),
        ("path,name,label\nx/a.png,a.png,cat\n", 0),
        ("image,mask,label\na.png,m.png,cat\n", None),
        ("label,image_id,id\ncat,a,3\n", 2),
        ("label,size\ncat,3\n", None),
        ("file,note,label\na.png,,cat\n", 0),
        ("label,shown\ncat,a.png\ndog,\n", 1),
    ],
)
def test_file_column_is_found_by_cells_or_name(tmp_path: Path, text: str, column: int | None) -> None:
    assert find_file_column(csv(tmp_path, text)) == column


def lines(head: str, *cells: str) -> str:
    return "\n".join([head, *(f"{number}.png,{cell}" for number, cell in enumerate(cells)), ""])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (lines("file,tags", '"a,b"', "a"), [(None, 1, ",")]),
        (lines("file,tags", "a;b", "a", "c"), [(None, 1, ";")]),
        (lines("file,tags", "a|b", "a", "c"), [(None, 1, "|")]),
        (lines("file,tags", '"a,b"', "a", '"c,d"'), [(None, 1, "")]),
        (lines("file,label", "cat", "b.png"), [(None, 1, "")]),
        (lines("file,kfold,x_1,id", "1,3,7", "2,4,8", "1,3,7"), []),
        (lines("file,is_valid,label", "maybe,x", "no,y"), [(None, 2, "")]),
        (lines("file,site", *(f"s{number}" for number in range(20))), []),
        (lines("file,tags", "['a', 'b']", "['a']"), [(None, 1, "[")]),
        (lines("file,set,label", "blue,x", "red,y"), [(None, 2, "")]),
        (lines("file,set,label", "train,x", "test,y"), [(1, 2, "")]),
        (lines("file,label,class_id", "cat,0", "dog,1", ","), [(None, 1, "")]),
        (lines("file,label,class_id", "cat,0", "dog,1", "cat,1"), [(None, 1, ""), (None, 2, "")]),
        (lines("file,site", *(f"s{number % 20}" for number in range(24))), []),
        (lines("file,site", *(f"s{number % 12}" for number in range(24))), [(None, 1, "")]),
        (lines("file,width,height", "3,x", "4,y"), []),
        (lines("file,is_valid,sea,sky", "1,1,0", "0,0,1"), [(1, (2, 3), "")]),
        ("a.png,1,0\nb.png,0,1\n", [(None, (1, 2), "")]),
        ("index,file,age\n0,a.png,3\n1,b.png,4\n", [(None, 2, "")]),
    ],
)
def test_label_columns_are_found_by_name_and_cells(
    tmp_path: Path, text: str, found: list[tuple[int | None, int | tuple[int, ...], str]]
) -> None:
    each = csv(tmp_path, text)
    assert [
        (label.split, label.flag_columns or label.listed, label.mark)
        for label in find_label_columns(each, profile_columns(each))
    ] == found


@pytest.mark.parametrize(("classes", "count"), [(2, 1), (3, 0)])
def test_labels_have_few_different_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int, count: int
) -> None:
    monkeypatch.setattr(label_columns, "MAX_DISTINCT", 3)
    blank, *labeled = (f"{number}.png,{f'c{number % classes}' if number else ''}" for number in range(9))
    each = csv(tmp_path, "\n".join(["file,label", blank, *labeled]))
    assert len(find_label_columns(each, profile_columns(each))) == count


@pytest.mark.parametrize(
    ("cells", "count"),
    [
        ([[1, 2, 3, 4], [5], [1]], 1),
        ([[1, 2, 3, 4], [5, 6, 7, 8]], 0),
        ([[0, 1, 1], [1, 0, 0]], 0),
        ([[1, 2, 3, 4]], 1),
        ([[1, 2], [2, 1], [1, 3]], 1),
        ([[number, 100 + number] for number in range(6)], 0),
    ],
)
def test_lists_of_numbers_may_be_labels(tmp_path: Path, cells: list[list[int]], count: int) -> None:
    each = table(tmp_path, "a.json", json.dumps({f"{number}.png": cell for number, cell in enumerate(cells)}))
    assert each is not None
    assert len(find_label_columns(each, profile_columns(each))) == count


@pytest.mark.parametrize(("cells", "has_only"), [(("0.5,", "0.25,"), True), (("0.5,x", "0.25,"), False)])
def test_has_only_measures_passes_over_blank_columns(tmp_path: Path, cells: tuple[str, ...], has_only: bool) -> None:
    each = csv(tmp_path, lines("file,score,note", *cells))
    assert has_only_measures(each, profile_columns(each)) == has_only


@pytest.mark.parametrize(
    ("column", "cell", "split"),
    [
        ("split", "Validation", "val"),
        ("is_train", "1.0", "train"),
        ("is_train", "no", "val"),
        ("is_test", "TRUE", "test"),
        ("is_test", "0", "train"),
        ("is_valid", "yes", "val"),
        ("is_valid", "False", "train"),
    ],
)
def test_split_in_cell_depends_on_the_column(column: str, cell: str, split: str) -> None:
    assert parse_split(column, cell) == split


@pytest.mark.parametrize(
    ("cell", "mark", "labels"),
    [
        ("a;b; a;", ";", ("a", "b")),
        ("[a, 'b']", "[", ("a", "b")),
        ("['a', 2]", "[", ("a", "2")),
        ("a  b", " ", ("a", "b")),
        ("a b", "", ("a b",)),
        ("", "", ()),
    ],
)
def test_split_labels_returns_each_label_once(cell: str, mark: str, labels: tuple[str, ...]) -> None:
    assert split_labels(cell, mark) == labels
