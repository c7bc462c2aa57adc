"""Datasets for evaluation: test splits, missing validation splits, and class names that are matched to a model's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.contract.inference.evaluation import ClassMapping
from engine.contract.problems import errors
from engine.data.datasets.open_splits import open_recognized
from engine.data.decoding.outlines import Window
from engine.data.formats.registry import recognize
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.instances import Instance, InstanceSplit
from engine.data.splits import IdxSplit, LabelSplit, MaskCode, RecognizedDataset
from engine.inference.evaluation.class_mapping import map_classes
from tests.support.boxed import ONE, TWO, coco, voc, yolo
from tests.support.clouds import make_clouds
from tests.support.edges import make_edged
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.trained_runs import make_colors, make_labeled

COUNTS = {"train": 3, "val": 2, "test": 4}
BOXED = {"train": {"a": TWO}, "val": {"b": ONE}, "test": {"c": TWO, "d": ONE, "e": TWO, "f": ONE}}


def list_boxed(counts: dict[str, int]) -> dict[str, dict[str, Any]]:
    return {split: BOXED[split] for split in counts}


def write_yolo(folder: Path, counts: dict[str, int]) -> Path:
    """Write a YOLO folder with the splits in `counts`. If "train" is one of them, data.yaml also names a test split."""
    yolo(folder, list_boxed(counts))
    if "train" in counts:
        definition = folder / "data.yaml"
        definition.write_text(definition.read_text() + "test: images/test\n")
    return folder


MAKERS: dict[str, tuple[str, Callable[[Path, dict[str, int]], Any]]] = {
    "imagefolder": ("classes", make_colors),
    "labels": ("labels", make_labeled),
    "masks": ("masks", make_masked),
    "edges": ("edges", make_edged),
    "points": ("points", make_clouds),
    "voc": ("boxes", lambda folder, counts: voc(folder, list_boxed(counts))),
    "coco": ("boxes", lambda folder, counts: coco(folder, list_boxed(counts))),
    "yolo": ("boxes", write_yolo),
    "instances": ("instances", make_outlined),
}


def count_samples(split: Any) -> int:
    return len(split.files)


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("val_fraction", [0.2, 0.0])
def test_folder_gives_test_split(kind: str, val_fraction: float, tmp_path: Path) -> None:
    name, make = MAKERS[kind]
    folder = make(tmp_path / "folder", COUNTS)
    found = recognize(str(folder), val_fraction=val_fraction, seed=0, kinds=(name,))
    assert not errors(found.problems)
    times = 3 if kind == "imagefolder" else 1
    assert [count_samples(each) for each in (found.train, found.val, found.test)] == [
        times * len(BOXED[split]) if name == "boxes" else times * count for split, count in COUNTS.items()
    ]
    opened = open_recognized(found, str(folder))
    assert opened.test is not None
    assert opened.test is not opened.val


@pytest.mark.parametrize("kind", list(MAKERS))
def test_folder_with_only_test_split_opens(kind: str, tmp_path: Path) -> None:
    name, make = MAKERS[kind]
    folder = make(tmp_path / "folder", {"test": 4})
    found = recognize(str(folder), val_fraction=0.0, seed=0, kinds=(name,))
    assert not errors(found.problems), found.problems
    total = sum(count_samples(each) for each in (found.train, found.val, found.test) if each is not None)
    assert total == (12 if kind == "imagefolder" else 4)
    open_recognized(found, str(folder))


def test_masks_are_mapped_by_class_name(tmp_path: Path) -> None:
    masked = recognize(str(make_masked(tmp_path / "masked", COUNTS)), val_fraction=0.0, seed=0, kinds=("masks",))
    mapped, _ = map_classes(masked, ("class 2", "class 7", "class 0"))
    assert mapped.code is not None
    assert masked.code is not None
    assert mapped.code.values[::2] == (2, 0)
    assert mapped.code.values[1] < -(1 << 31)
    assert set(mapped.code.ignored) == {*masked.code.ignored, 1}
    opened: Any = open_recognized(mapped, str(tmp_path / "masked")).test
    original: Any = open_recognized(masked, str(tmp_path / "masked")).test
    plane, expected = opened.class_plane(0), original.class_plane(0)
    assert np.array_equal(plane, np.array([2, 255, 0])[expected.clip(max=2)].astype(np.uint8) | (expected == 255) * 255)


class TwoObjects:
    """Source with six objects in an image: of each of the classes 0 to 2, one valid and one ignored object."""

    instances_found = tuple(
        Instance(Window(0, 0, np.ones((1, 1), bool)), number, ignored)
        for number in range(3)
        for ignored in (False, True)
    )

    def instances(self, _height: int, _width: int) -> list[Instance]:
        return list(self.instances_found)

    def labels(self) -> list[int]:
        return [each.label for each in self.instances_found if not each.ignored]

    def sizes(self) -> list[tuple[int, int]]:
        return [(1, 1)]

    def state(self) -> bytes:
        return b"two"


LABELS = np.array([0, 1, 2, 1, 0])
IGNORED = np.array([False, False, True, True, False])
SPLITS: dict[str, tuple[Any, dict[str, Any], int | None]] = {
    "idx": (IdxSplit("a.idx", LABELS), {"labels": [2, 0, 2], "rows": [0, 2, 4]}, 2),
    "rows": (IdxSplit("a.idx", LABELS, rows=10 - np.arange(5)), {"labels": [2, 0, 2], "rows": [10, 8, 6]}, 2),
    "labels": (
        LabelSplit(["a", "b"], np.array([[True, True, False], [False, True, True]])),
        {"labels": [[False, False, True, False], [True, False, False, False]]},
        2,
    ),
    "boxes": (
        BoxSplit(
            ["a", "b"], np.ones((2, 2), int), np.array([0, 3, 5]), np.eye(5, 4, dtype=np.float32), LABELS, IGNORED
        ),
        {
            "labels": [2, 0, 2],
            "bounds": [0, 2, 3],
            "boxes": np.eye(5, 4)[::2].tolist(),
            "ignored": [False, True, False],
        },
        1,
    ),
    "instances": (InstanceSplit(["a"], [TwoObjects()]), {}, None),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_known_classes_get_the_models_numbers(kind: str) -> None:
    split, expected, ignored = SPLITS[kind]
    for test, count in ((None, 2), (split, 2), (replace(split), 3)):  # a test split may be the validation split
        found = RecognizedDataset("", ("a", "b", "c"), split, split, test=test)
        mapped, mapping = map_classes(found, ("c", "new", "a", "last"))
        assert mapping == ClassMapping(
            missing=("new", "last"), unknown=("b",), ignored=None if ignored is None else count * ignored
        )
        train: Any = mapped.train
        assert {name: getattr(train, name).tolist() for name in expected} == expected
        assert (mapped.classes, mapped.test is mapped.val) == (("c", "new", "a", "last"), test is split)
        if kind == "instances":
            assert [each[1:] for each in train.sources[0].instances(1, 1)] == [(2, False), (0, False), *[(0, True)] * 3]
            assert train.sources[0].labels() == [2, 0]
            other: Any = map_classes(found, ("a", "c"))[0].train
            assert other.sources[0].state() != train.sources[0].state()


@pytest.mark.parametrize(
    ("names", "classes", "values", "colors", "ignored"),
    [
        (("class 5", "class 6"), ("class 6", "class 7", "class 5"), (6, None, 5), (0xE, -1, 0xF), (9,)),
        (("background", "foreground"), ("class 6", "value 5"), (6, 5), (0xE, 0xF), (9,)),
        (("class 5", "class 6"), ("class 6", "wall"), (6, None), (0xE, -1), (9, 5)),
        (("background", "foreground"), ("foreground", "class 5"), (6, None), (0xE, -1), (9, 5)),
    ],
)
def test_values_of_masks_get_the_models_numbers(
    names: tuple[str, ...], classes: tuple[str, ...], values: tuple[int | None, ...], colors: Any, ignored: Any
) -> None:
    code = MaskCode((5, 6), ignored=(9,), palette=(0xF, 0xE))
    mapped, mapping = map_classes(RecognizedDataset("", names, code=code), classes)
    assert mapped.code is not None
    assert mapping.ignored == (None if mapping.unknown else 0)
    assert tuple(value if value > 0 else None for value in mapped.code.values) == values
    assert (mapped.code.palette, mapped.code.ignored) == (colors, ignored)
    mapped, _ = map_classes(RecognizedDataset("", names, code=replace(code, palette=())), classes)
    assert mapped.code is not None
    assert mapped.code.palette == ()
