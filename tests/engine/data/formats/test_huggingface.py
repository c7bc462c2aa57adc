"""Hugging Face datasets: metadata files next to images, and Parquet files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from engine.data.datasets.open_splits import open_splits
from engine.data.formats.huggingface import FORMAT, _shapes
from engine.data.formats.registry import recognize
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.parquet import features, open_parquet
from engine.data.formats.shared.parquet import rows as rows_in
from engine.data.formats.tree import Tree
from engine.data.splits import FileSplit
from engine.system.regular_files import UnusableFile
from tests.support.dataset_formats import huggingface
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import content_of, names_of

needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty folder as the cache."""
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
    assert found.kinds == ()
    assert name in found.evidence[0]
    assert "pyarrow" in found.remedy


@needs_pyarrow
def test_huggingface_unpacks_images_once(tmp_path: Path, cache: Path) -> None:
    huggingface.write(TRUTH, tmp_path, "parquet")
    content_of(FORMAT, tmp_path, "classes")
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*.png")}
    content_of(FORMAT, tmp_path, "classes")
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.png")} == written
    assert len(written) == len(TRUTH.images)
    splits = open_splits(str(tmp_path), val_fraction=0.2, seed=0)
    assert (len(splits.train), len(splits.val)) == (4, 2)


@needs_pyarrow
def test_huggingface_draws_the_same_split_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from pyarrow import Table, parquet

    from tests.support.dataset_formats.archives import encoded

    rows = [
        {"image": {"bytes": encoded(image), "path": f"{number}.png"}, "label": number % 2}
        for number, image in enumerate(TRUTH.images * 4)
    ]
    (tmp_path / "data").mkdir()
    parquet.write_table(Table.from_pylist(rows), tmp_path / "data" / "train.parquet")
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
def test_huggingface_reports_rows_without_an_image(tmp_path: Path) -> None:
    from pyarrow import Table, parquet

    from tests.support.dataset_formats.archives import encoded

    images = [encoded(TRUTH.images[0]), None, b""]
    rows = [{"image": {"bytes": content, "path": None}, "label": f"class {n}"} for n, content in enumerate(images)]
    parquet.write_table(Table.from_pylist(rows), tmp_path / "train.parquet")
    found = content_of(FORMAT, tmp_path, "classes")
    assert names_of(found) == {"train": {"0000000": "class 0"}}
    assert "2 rows without an image" in found.problems[0].message


def test_huggingface_leaves_out_boxes_of_huge_numbers(tmp_path: Path) -> None:
    huggingface.write(TRUTH, tmp_path, "boxes")
    path = tmp_path / "train" / "metadata.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    row["objects"]["bbox"].append([10**400, 1, 2, 3])
    row["objects"]["category"].append("sea")
    path.write_text(json.dumps(row) + "\n")
    found = recognize(str(tmp_path), val_fraction=0.2, seed=0, kinds=("boxes",))
    assert isinstance(found.train, BoxSplit)
    assert len(found.train.boxes) == len(row["objects"]["bbox"]) - 1
    assert any("without four numbers" in problem.message for problem in found.problems)


def write_parquet(folder: Path, features: str = "{}") -> None:
    """Write a Parquet file with an image of the class "sea", and the given JSON about its features."""
    from pyarrow import Table, parquet

    from tests.support.dataset_formats.archives import encoded

    table = Table.from_pylist([{"image": {"bytes": encoded(TRUTH.images[0]), "path": None}, "label": "sea"}])
    parquet.write_table(table.replace_schema_metadata({"huggingface": features}), folder / "train.parquet")


@needs_pyarrow
@pytest.mark.parametrize(
    "features",
    ["null", "[1]", '{"label": []}', '{"label": [5]}', '{"label": 5}', '{"label": {"feature": null}}', "[" * 100_000],
)
def test_huggingface_ignores_unusable_features(tmp_path: Path, features: str) -> None:
    for number, text in enumerate((f'{{"info": {{"features": {features}}}}}', f'{{"info": {features}}}')):
        (tmp_path / str(number)).mkdir()
        write_parquet(tmp_path / str(number), text)
        assert names_of(content_of(FORMAT, tmp_path / str(number), "classes")) == {"train": {"0000000": "sea"}}


@needs_pyarrow
@pytest.mark.parametrize(
    "feature",
    ["&a {name: label, dtype: [*a]}", "{name: label, dtype: {class_label: {names: {²: cat, '0': dog}}}}", "[" * 1000],
)
def test_huggingface_ignores_unusable_readme(tmp_path: Path, feature: str) -> None:
    write_parquet(tmp_path)
    (tmp_path / "README.md").write_text(f"---\ndataset_info:\n  features:\n  - {feature}\n---\n", encoding="utf-8")
    assert names_of(content_of(FORMAT, tmp_path, "classes")) == {"train": {"0000000": "sea"}}


@needs_pyarrow
@pytest.mark.parametrize("text", [b"", b"PAR1 torn", b"{}"])
def test_huggingface_leaves_torn_parquet_to_others(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "train.parquet").write_bytes(text)
    assert FORMAT.detect(Tree(str(tmp_path))) == []


def test_huggingface_without_pyarrow_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train-00000-of-00001.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("engine.data.formats.shared.parquet.is_installed", lambda: False)
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.kinds == ()
    assert 'pip install "footplate[huggingface]"' in detection.remedy
    found = recognize(str(tmp_path), val_fraction=0.2, seed=0)
    assert any("footplate[huggingface]" in problem.remedy for problem in found.problems)


def test_huggingface_boxes_need_four_numbers_and_a_class() -> None:
    faults: list[str] = []
    objects = {"bbox": [[1, 2, 30, 40], [5, 6, 7, 8], [1, 2, 3], [9, 9, 20, 20]], "category": ["cat", None, "cat", 1]}
    shapes = _shapes(objects, ("ant", "bee"), "xyxy", "a.png", faults)
    assert [(shape.name, shape.box) for shape in shapes] == [("cat", (1, 2, 30, 40)), ("bee", (9, 9, 20, 20))]
    assert faults == ["a.png", "a.png"]


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
    assert features(path) == ({"a": "int64", "b": "string"}, described)
    with open_parquet(path), pytest.raises(UnusableFile, match="is odd"), open_parquet(path):
        raise UnusableFile(path, "is odd")
