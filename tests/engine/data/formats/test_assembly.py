"""Datasets assembled from the content that a format has read. They report unusable classes and missing samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.contract.problems import errors
from engine.data.files import Files, make_files
from engine.data.formats.format import Content, Format
from engine.data.formats.shared.assembly import MAX_LETTERS, assemble
from engine.data.formats.shared.instances import InstanceSplit
from engine.data.splits import FileSplit, LabelSplit, RecognizedDataset, dataset_warning

FORM = Format("form", "Form", (), "", lambda tree: ())


def assemble_dataset(
    kind: str, splits: dict[str, Any], classes: tuple[str, ...], val_fraction: float = 0.2
) -> RecognizedDataset:
    content = Content(classes, splits, [dataset_warning("Odd.")])
    return assemble(content, kind, "/data", FORM, val_fraction=val_fraction, seed=0)


def make_class_split(*labels: int) -> FileSplit:
    return FileSplit(make_files(f"/data/{n}.png" for n in range(len(labels))), np.array(labels, np.int64), Files.of())


def make_label_split(*rows: tuple[bool, ...]) -> LabelSplit:
    return LabelSplit([f"/data/{n}.png" for n in range(len(rows))], np.array(rows, bool).reshape(len(rows), -1))


@pytest.mark.parametrize(
    ("classes", "usable"),
    [
        (("a" * MAX_LETTERS, "b"), True),
        (("a" * (MAX_LETTERS + 1), "b"), False),
        (tuple(map(str, range(10**5))), True),
        (("a", *map(str, range(10**5))), False),
    ],
)
def test_assemble_limits_class_names(classes: tuple[str, ...], usable: bool) -> None:
    found = assemble_dataset("classes", {"train": make_class_split(0, 1), "val": make_class_split(0, 1)}, classes)
    assert (bool(errors(found.problems)), found.train is not None) == (not usable, usable)
    assert found.problems[0].message == "Odd."


@pytest.mark.parametrize(
    ("train", "val", "test", "severities"),
    [
        ((0, 1), (0, 1), (), []),
        ((0, 1), (0,), (), ["warning"]),
        ((0, 1), (0, 1, 3), (), ["error"]),
        ((0, 1), (0, 1), (3,), ["warning"]),
        ((0, 0), (0,), (), ["error"]),
        ((0, 1, 0, 1), (2,), (), ["warning", "warning", "error", "error"]),
        ((0, 1), (), (1, 2), ["warning", "warning", "warning"]),
    ],
)
def test_assemble_compares_classes_of_splits(
    train: tuple[int, ...], val: tuple[int, ...], test: tuple[int, ...], severities: list[str]
) -> None:
    splits = {name: make_class_split(*labels) for name, labels in (("train", train), ("val", val), ("test", test))}
    found = assemble_dataset("classes", splits, ("a", "b", "c", "d"))
    assert [problem.severity for problem in found.problems[1:]] == severities


def test_assemble_renumbers_trained_classes() -> None:
    found = assemble_dataset(
        "classes", {"train": make_class_split(3, 1, 3), "test": make_class_split(0, 3, 1)}, ("a", "b", "c", "d")
    )
    train: Any = found.train
    test: Any = found.test
    assert (found.classes, found.val) == (("b", "d"), found.test)
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 0, 1], [1, 0])
    assert list(test.files) == ["/data/1.png", "/data/2.png"]
    untrained = assemble_dataset(
        "classes", {"train": make_class_split(3, 1), "test": make_class_split(0)}, ("a", "b", "c", "d"), 0
    )
    assert untrained.classes == ("a", "b", "c", "d")


def test_assemble_suggests_the_name_in_training() -> None:
    splits = {"train": make_class_split(1, 2, 3), "val": make_class_split(0, 1, 2, 3)}
    found = assemble_dataset("classes", splits, ("CAT", "Cat", "cat", "dog"))
    assert [problem.remedy for problem in errors(found.problems)] == ["Name it Cat as in training."]


def test_assemble_reports_missing_training_samples() -> None:
    split, empty = make_class_split(0, 1), make_class_split()
    messages = [
        assemble_dataset("classes", splits, ("a", "b")).problems[-1].message
        for splits in ({"val": split, "test": split}, {"test": split, "val": empty}, {"train": empty})
    ]
    assert len(assemble_dataset("boxes", {"train": []}, ()).problems) == 2
    assert messages == [
        "There are samples for validation and test, but none for training.",
        "There are samples for test, but none for training.",
        "No sample has an annotation.",
    ]


def test_assemble_reports_missing_labels() -> None:
    split = make_label_split((True, False, False), (True, True, False), (True, False, False))
    found = assemble_dataset("labels", {"train": split, "val": make_label_split((False, True, True))}, ("x", "y", "z"))
    named = [{name for name in "xyz" if f"label {name}," in each.message} for each in found.problems[1:]]
    assert named == [{"z"}, {"x"}]
    ends = [each.message.rpartition(", which ")[2] for each in found.problems[1:]]
    assert ends == ["is never learned.", "is never validated."]
    assert len(assemble_dataset("labels", {"train": split}, ("x", "y", "z"), 0).problems) == 2


@pytest.mark.parametrize(
    ("kind", "classes", "failures"), [("labels", 0, 1), ("instances", 254, 0), ("instances", 255, 1)]
)
def test_assemble_limits_number_of_classes(kind: str, classes: int, failures: int) -> None:
    names = tuple(map(str, range(classes)))
    split = InstanceSplit([], []) if kind == "instances" else make_label_split((), ())
    splits = {"train": split, "val": split} if kind == "labels" else {}
    found = assemble_dataset(kind, splits, names)
    assert len(errors(found.problems)) == failures + (kind == "instances")


def test_assemble_limits_labels_of_the_largest_split() -> None:
    names = tuple(map(str, range(1 << 16)))
    few = LabelSplit(["a.png"], np.ones((1, len(names)), bool))
    found = assemble_dataset("labels", {"train": few, "test": few}, names)
    assert not errors(found.problems)
    for count, failures in ((1 << 13, 0), ((1 << 13) + 1, 1)):
        many = LabelSplit(range(count), np.zeros((count, 0), bool))  # type: ignore[arg-type]
        with_many = Content(names, {"train": few, "val": few, "test": many})
        assert len(errors(assemble(with_many, "labels", "", FORM, val_fraction=0.2, seed=0).problems)) == failures
