"""Hugging Face datasets: metadata files next to images, and Parquet files."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.data.datasets.open_splits import open_splits
from engine.data.formats.huggingface import FORMAT
from engine.data.formats.registry import recognize
from engine.data.formats.shared.parquet import iterate_rows as rows_in
from engine.data.formats.shared.parquet import open_parquet, read_features
from engine.data.formats.tree import Tree
from engine.data.splits import FileSplit
from engine.system.regular_files import UnusableFile
from tests.support.dataset_formats import huggingface
from tests.support.dataset_formats.archives import encode_png
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import list_annotations_by_split, read_once

needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder Footplate's cache folder, and return it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FOOTPLATE_CACHE", str(folder))
    return folder


def test_huggingface_captions_are_no_classes(tmp_path: Path) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / "train" / f"{image.name}.png")
    rows = "".join(f"{image.name}.png,an image called {image.name}\n" for image in TRUTH.images)
    (tmp_path / "train" / "metadata.csv").write_text("file_name,text\n" + rows)
    assert FORMAT.detect(Tree(str(tmp_path))) == []


@pytest.mark.parametrize("name", ["train/metadata.parquet", "data/train-00000-of-00001.parquet"])
def test_huggingface_without_pyarrow_tells_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("engine.data.formats.huggingface.parquet.is_installed", lambda: False)
    TRUTH.images[0].save(tmp_path / "train/a.png")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"PAR1")
    (found,) = FORMAT.detect(Tree(str(tmp_path)))
    assert (found.kinds, found.evidence) == ((), (f"{name} and 0 more Parquet files",))
    assert 'pip install "footplate[huggingface]"' in found.remedy
    found_in = recognize(str(tmp_path), val_fraction=0.2, seed=0)
    assert any("footplate[huggingface]" in problem.remedy for problem in found_in.problems)


@needs_pyarrow
def test_huggingface_unpacks_images_once(tmp_path: Path, cache: Path) -> None:
    huggingface.write(TRUTH, tmp_path, "parquet")
    read_once(FORMAT, tmp_path, "classes")
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*.png")}
    read_once(FORMAT, tmp_path, "classes")
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.png")} == written
    assert len(written) == len(TRUTH.images)
    splits = open_splits(str(tmp_path), val_fraction=0.2, seed=0)
    assert (len(splits.train), len(splits.val)) == (4, 2)


@needs_pyarrow
def test_huggingface_draws_the_same_split_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write_rows(tmp_path / "data/train.parquet", [make_row(number, label=number % 2) for number in range(24)])
    held_out = []
    for name in ("one", "other"):
        monkeypatch.setenv("FOOTPLATE_CACHE", str(tmp_path_factory.mktemp(name) / "deep" / name))
        found = recognize(str(tmp_path), val_fraction=0.3, seed=3)
        assert isinstance(found.val, FileSplit)
        held_out.append([Path(path).name for path in found.val.files])
    assert held_out[0] == held_out[1]
    assert len(held_out[0]) == 8


@needs_pyarrow
@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("timestamp[ns]", 1, "1970-01-01 00:00:00.000000001"),
        ("timestamp[us]", 1 << 59, "20237-04-25 "),
        ("time64[ns]", 1, "00:00:00.000000001"),
    ],
)
def test_times_that_python_has_no_type_for_are_text(tmp_path: Path, kind: str, value: int, text: str) -> None:
    from pyarrow import array, parquet, table

    path = tmp_path / "metadata.parquet"
    parquet.write_table(table({"file_name": ["a.png"], "time": array([value], kind)}), path)
    (row,) = rows_in(str(path))
    assert row["file_name"] == "a.png"
    assert row["time"].startswith(text)


@needs_pyarrow
def test_a_parquet_file_with_text_that_is_not_utf_8_is_unusable(tmp_path: Path) -> None:
    from pyarrow import array, parquet, table

    parquet.write_table(table({"file_name": array([b"\xff"]).view("string")}), tmp_path / "metadata.parquet")
    with pytest.raises(UnusableFile, match="has a column that can't be read"):
        list(rows_in(str(tmp_path / "metadata.parquet")))


@needs_pyarrow
def test_a_damaged_parquet_file_is_unusable(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    write_rows(path, [make_row(0, label="sea")])
    path.write_bytes(b"PAR1" + b"\xff" * 12 + path.read_bytes()[16:])  # the header of the first page
    with pytest.raises(UnusableFile, match=r"not a readable Parquet file \(Couldn't deserialize thrift"):
        list(rows_in(str(path)))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(rows_in(str(path)))


@needs_pyarrow
def test_huggingface_reports_rows_without_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = encode_png(TRUTH.images[0])
    images = [image, None, b"", image + b"x"]
    monkeypatch.setattr("engine.data.formats.huggingface.MAX_IMAGE_BYTES", len(image))
    rows = [{"image": {"bytes": content, "path": None}, "label": f"class {n}"} for n, content in enumerate(images)]
    write_rows(tmp_path / "train.parquet", rows)
    found = read_once(FORMAT, tmp_path, "classes")
    assert list_annotations_by_split(found) == {"train": {"0000000": "class 0"}}
    assert (
        "3 rows without an image: train.parquet, row 2, train.parquet, row 3, train.parquet, row 4."
        in found.problems[0].message
    )


@needs_pyarrow
def test_huggingface_reads_images_in_large_columns(tmp_path: Path) -> None:
    from pyarrow import array, parquet, table

    columns = {"image": array([encode_png(TRUTH.images[0])], "large_binary"), "label": ["x"]}
    parquet.write_table(table(columns), tmp_path / "train.parquet")
    assert list_annotations_by_split(read_once(FORMAT, tmp_path, "classes")) == {"train": {"0000000": "x"}}


def make_row(number: int, **cells: Any) -> dict[str, Any]:
    """Return a table row with the image `number`.png in the column "image". `cells` are the other columns."""
    return {"image": {"bytes": encode_png(TRUTH.images[number % 6]), "path": f"{number}.png"}, **cells}


def write_rows(path: Path, rows: Sequence[dict[str, Any]], features: str = "{}") -> None:
    """Write `rows` to a Parquet file. `features` is the JSON that Hugging Face `datasets` stores about the columns."""
    from pyarrow import Table, parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(Table.from_pylist(rows).replace_schema_metadata({"huggingface": features}), path)


CLASS = {"_type": "ClassLabel", "names": ["ant", "bee", "cow"]}
AB = {"bbox": [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 20.0, 30.0]], "category": [2, 10]}
README = """---
dataset_info:
- features:
  - {name: kind, dtype: {class_label: {names: {'0': p, '10': r, '2': q}}}}
- features:
  - {name: kind, dtype: {class_label: {names: [x, y]}}}
  - {name: size, dtype: {class_label: {names: [s, m]}}}
---
"""


@needs_pyarrow
@pytest.mark.parametrize(
    ("files", "features", "variants", "expected"),
    [
        (
            {"train": [make_row(1, tags=[2, 1, -1]), make_row(2, tags=[0, -1]), make_row(3, tags=None)]},
            {"tags": [CLASS]},
            {"": "labels"},
            (("ant", "bee", "cow"), {"train": {"1": {"bee", "cow"}, "2": {"ant"}, "3": set()}}),
        ),
        (
            {"day/train/a": [make_row(1, a=1, b=2)], "day/val/a": [make_row(2, a=0, b=1)], "night/a": [make_row(3, objects=AB)]},
            {"a": CLASS, "b": {"feature": CLASS}},
            {"day/a": "classes labels", "day/b": "classes labels", "night/xywh": "boxes", "night/xyxy": "boxes"},
            (("ant", "bee", "cow"), {"train": {"1": "bee"}, "val": {"2": "ant"}}),
        ),
        (
            {"x/a": [make_row(1, objects={"bbox": [[5.0, 6.0, 2.0, 3.0]] * 2, "category": [10, 2]})]},
            {},
            {"": "boxes"},
            (("2", "10"), {"": {"1": [("10", (5, 6, 7, 9)), ("2", (5, 6, 7, 9))]}}),
        ),
        ({"a": [make_row(1, target=True, label=10), make_row(2, target=False, label=2)]}, {}, {"": "classes labels"}, (("2", "10"), {"": {"1": "10", "2": "2"}})),
        ({"a": [make_row(1, label=True), make_row(2, label=False)]}, {}, {"": "classes labels"}, (("0", "1"), {"": {"1": "1", "2": "0"}})),
        ({"a": [{"image": make_row(1)["image"]["bytes"], "label": "x"}]}, {}, {"": "classes labels"}, (("x",), {"": {"0000000": "x"}})),
        ({"a": [make_row(1, objects={"name": ["y"]}, label={"y": 1}, category="x")]}, {}, {"": "classes labels"}, (("x",), {"": {"1": "x"}})),
        ({"a": [make_row(1, label=1, other=make_row(2)["image"])]}, {}, {}, ()),
        (
            {"a": [make_row(1, kind=2, size=0), make_row(2, kind=1, size=1)], "README.md": README},
            {},
            {"kind": "classes labels", "size": "classes labels"},
            (("p", "q", "r"), {"": {"1": "r", "2": "q"}}),
        ),
        ({"a": [make_row(1, kind=1)], "README.md": README}, {"kind": CLASS}, {"": "classes labels"}, (("ant", "bee", "cow"), {"": {"1": "bee"}})),
        ({"data/metadata": [{"file_name": "a.png"}], "data/train": [make_row(1, label="x")]}, {}, {"": "classes labels"}, (("x",), {"train": {"1": "x"}})),
    ],
    ids=["old_lists", "variants", "boxes", "numbers", "flags", "bytes", "structs", "two_images", "readme", "both", "metadata"],
)  # fmt: skip
def test_huggingface_reads_columns_of_parquet_files(
    tmp_path: Path, files: dict[str, Any], features: dict[str, Any], variants: dict[str, str], expected: Any
) -> None:
    for path, rows in files.items():
        if isinstance(rows, str):
            (tmp_path / path).write_text(rows)
        else:
            write_rows(tmp_path / f"{path}.parquet", rows, json.dumps({"info": {"features": features}}))
    tree = Tree(str(tmp_path))
    found = FORMAT.detect(tree)
    assert {each.variant: " ".join(each.kinds) for each in found} == variants
    for detection in found[:1]:
        content = FORMAT.read(tree, detection, detection.kinds[0])
        assert (content.classes, list_annotations_by_split(content), content.problems) == (*expected, [])


@needs_pyarrow
@pytest.mark.parametrize("feature", [[{"category": CLASS}], {"feature": {"category": CLASS}}, {"category": CLASS}])
def test_huggingface_names_the_classes_of_boxes(tmp_path: Path, feature: Any) -> None:
    box = [5.0, 6.0, 2.0, 3.0]
    rows = [make_row(1, objects={"bbox": [box] * 4, "category": [1, 3, -2]}), make_row(2, objects={"bbox": [box]})]
    write_rows(tmp_path / "a.parquet", rows, json.dumps({"info": {"features": {"objects": feature}}}))
    found = read_once(FORMAT, tmp_path)
    assert (found.classes, len(found.problems)) == (("ant", "bee", "cow", "-2", "3", "object"), 1)


@needs_pyarrow
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_huggingface_reads_boxes_of_metadata(tmp_path: Path, ending: str) -> None:
    def objects(*boxes: Any) -> Any:
        return [{"bbox": box, "category": label} for *box, label in boxes]

    for folder, left in (("train", 1.0), ("valid", 2.0)):
        TRUTH.images[0].save(tmp_path / "deep" / folder / "0.png")
        usable = objects((left, 30.0, 90.0, 50.0, 2), (9.0, 9.0, 20.0, 20.0, 0))
        unusable = objects((5.0, 6.0, float("nan"), 8.0, 0), (1.0, 2.0, 3.0, 0), (1.0, 2.0, 3.0, 4.0, None))
        rows = [{"file_name": "0.png", "objects": [*usable, *unusable]}, {"file_name": f"{folder}.png", "objects": []}]
        write_metadata(tmp_path / "deep" / folder / f"metadata.{ending}", rows)
    names = README.replace("kind", "objects").replace("'2': q", "'1': q")
    (tmp_path / "ReadMe.md").write_text(names)
    found = read_once(FORMAT, tmp_path)
    assert found.classes == ("p", "q", "r")
    assert {split: [(image.path, image.boxes) for image in images] for split, images in found.splits.items()} == {
        split: [(str(tmp_path / f"deep/{folder}/0.png"), [(left, 30, 90, 50, 2, False), (9, 9, 20, 20, 0, False)])]
        for split, folder, left in (("train", "train", 1), ("val", "valid", 2))
    }
    messages = [problem.message for problem in found.problems]
    assert ["6 boxes" in messages[0], messages[1].endswith(": train.png, valid.png.")] == [True, True]


def write_parquet(folder: Path, features: str = "{}") -> None:
    """Write a Parquet file with an image of the class "sea". `features` is the JSON about its columns."""
    write_rows(folder / "train.parquet", [{"image": {**make_row(0)["image"], "path": None}, "label": " sea"}], features)


def write_metadata(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    if path.suffix == ".parquet":
        write_rows(path, rows)
    else:
        path.write_text("\n{torn\n\n3\n".join(map(json.dumps, rows)))


@needs_pyarrow
@pytest.mark.parametrize(
    "features",
    [
        "null",
        "[1]",
        '{"label": []}',
        '{"label": {"_type": "ClassLabel", "names": 5}}',
        '{"label": [5]}',
        '{"label": 5}',
        '{"label": {"feature": null}}',
        "[" * 100_000,
    ],
)
def test_huggingface_ignores_unusable_features(tmp_path: Path, features: str) -> None:
    for number, text in enumerate((f'{{"info": {{"features": {features}}}}}', f'{{"info": {features}}}')):
        (tmp_path / str(number)).mkdir()
        write_parquet(tmp_path / str(number), text)
        assert list_annotations_by_split(read_once(FORMAT, tmp_path / str(number), "classes")) == {
            "train": {"0000000": "sea"}
        }


@needs_pyarrow
@pytest.mark.parametrize(
    "feature",
    [
        "&a {name: label, dtype: [*a]}",
        "{name: label, dtype: {class_label: {names: {²: cat, '0': dog}}}}",
        "{name: label, dtype: {class_label: {names: [[a]]}}}",
        "[" * 1000,
    ],
)
def test_huggingface_ignores_unusable_readme(tmp_path: Path, feature: str) -> None:
    write_parquet(tmp_path)
    (tmp_path / "README.md").write_text(f"---\ndataset_info:\n  features:\n  - {feature}\n---\n", encoding="utf-8")
    assert list_annotations_by_split(read_once(FORMAT, tmp_path, "classes")) == {"train": {"0000000": "sea"}}


@needs_pyarrow
@pytest.mark.parametrize("text", [b"", b"PAR1 torn", b"{}"])
def test_huggingface_leaves_torn_parquet_to_others(tmp_path: Path, text: bytes) -> None:
    for name in ("train", "metadata"):
        (tmp_path / f"{name}.parquet").write_bytes(text)
    assert FORMAT.detect(Tree(str(tmp_path))) == []


@needs_pyarrow
def test_parquet_gives_cells_and_features_by_column(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    described = {"b": {"_type": "ClassLabel", "names": ["x"]}}
    table = pyarrow.table({"a": [1, 2], "b": ["x", None]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": described}})})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    assert list(rows_in(path, ["b", "a"])) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert read_features(path) == ({"a": "int64", "b": "string"}, described)
    with open_parquet(path), pytest.raises(UnusableFile, match="is odd"), open_parquet(path):
        raise UnusableFile(path, "is odd")
