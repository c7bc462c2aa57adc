"""Image folders with boxes, in all formats."""

from __future__ import annotations

from pathlib import Path

from engine.data.formats.registry import recognize
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.splits import RecognizedDataset
from tests.support import boxed
from tests.support.boxed import NONE, SPLITS, TWO, DrawnImage, text

Rows = dict[str, list[tuple[str, tuple[float, ...], bool]]]


def recognize_folder(folder: Path, *formats: str) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=formats or ("boxes",))


def list_rows(recognized: RecognizedDataset, split: object) -> Rows:
    """Return the class, the edges and the `ignored` flag of each box, by file stem of the image."""
    assert isinstance(split, BoxSplit)
    found: Rows = {}
    for place, path in enumerate(split.files):
        assert Path(path).is_file()
        of = split.rows_of(place)
        found[Path(path).stem] = [
            (recognized.classes[label], tuple(round(edge, 3) for edge in box), ignored)
            for label, box, ignored in zip(
                split.labels[of].tolist(), split.boxes[of].tolist(), split.ignored[of].tolist(), strict=True
            )
        ]
    return found


def list_drawn_rows(images: dict[str, DrawnImage]) -> Rows:
    return {
        stem: [(each.name, tuple(map(float, each[:4])), False) for each in drawn.rectangles]
        for stem, drawn in images.items()
    }


def test_image_of_unknown_size_has_no_boxes(tmp_path: Path) -> None:
    root = boxed.kitti(tmp_path, SPLITS)
    (root / "training/image_2/b.png").write_bytes(b"no image")
    recognized = recognize_folder(root)
    assert list_rows(recognized, recognized.train) == list_drawn_rows({"a": TWO, "b": NONE})


def test_arcgis_classes_beyond_measure_are_not_used(tmp_path: Path) -> None:
    root = boxed.arcgis_kitti(tmp_path / "arcgis", dict.fromkeys("abcd", TWO))
    text(root / "esri_model_definition.emd", '{"Classes": [{"Value": 1e999, "Name": "cat"}]}')
    assert recognize_folder(root).classes == ("2", "5")
