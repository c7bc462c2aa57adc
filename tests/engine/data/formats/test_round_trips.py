"""Round trips of every format in every variant. The written dataset must be recognized and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.data.formats.format import Confidence
from engine.data.formats.registry import Reading, find_readings
from engine.data.formats.tree import Tree
from tests.support.dataset_formats import WRITERS, Writer
from tests.support.dataset_formats.annotations import (
    list_true_annotations,
    measure_areas,
    measure_true_areas,
    read_annotations,
    read_splits,
    recognize_folder,
)
from tests.support.dataset_formats.truth import CLASSES, TRUTH

EVERYDAY = 5
"""Number of variants of each format that the daily suite tests. The others are marked long."""
CASES = [
    pytest.param(writer, variant, id=f"{writer.name}-{variant}", marks=[pytest.mark.long] * (number >= EVERYDAY))
    for writer in WRITERS
    for number, variant in enumerate((*writer.variants, *writer.named_apart))
]


@pytest.mark.parametrize(("writer", "variant"), CASES)
def test_registry_reads_the_ground_truth_without_hints(tmp_path: Path, writer: Writer, variant: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    writer.write(TRUTH, folder, variant)
    best = find_readings(str(folder))[0]
    written = best.kind
    assert (best.format.id, written) == (writer.name, writer.kinds.get(variant, writer.kind))
    likely = variant in writer.likely
    assert best.detection.confidence is (Confidence.LIKELY if likely else Confidence.CERTAIN)
    assert best.detection.against == ()
    for kind in best.detection.kinds:
        check_problems(
            best, folder, kind, writer.warnings.get(variant), has_splits=variant not in writer.without_splits
        )
        found = recognize_folder(folder, kind)
        assert found is not None
        assert (found.format, found.kind) == (best.name, kind)
        truth = list_expected_annotations(writer, variant, written, kind)
        assert read_annotations(found, folder) == truth
        if variant not in writer.without_splits:
            splits = {image.name: image.split for image in TRUTH.images if image.name in truth}
            assert read_splits(found, folder) == splits
        if writer.expect is None and kind != "masks":
            assert found.classes == CLASSES
        if writer.expect is None and kind == "instances" and variant not in writer.holes:
            assert measure_areas(found, folder) == measure_true_areas(TRUTH)


def check_problems(best: Reading, folder: Path, kind: str, phrase: str | None, *, has_splits: bool) -> None:
    """Read a dataset folder in the format and with the detection of `best`, and check the splits and the warnings.

    `kind` is the kind of annotations to read. There must be a validation or test split only if `has_splits`. All
    warnings must contain `phrase`. If `phrase` is None, there must be no warnings.
    """
    content = best.format.read(Tree(str(folder)), best.detection, kind)
    assert (not {"val", "test"}.isdisjoint(content.splits)) == has_splits
    others = [problem.message for problem in content.problems if phrase is None or phrase not in problem.message]
    assert (others, bool(content.problems)) == ([], phrase is not None)


def list_expected_annotations(writer: Writer, variant: str, written: str, kind: str) -> dict[str, Any]:
    """Return the annotation of each image that must be read, by the image's name.

    Args:
        writer: Writer of the dataset.
        variant: Variant of the format. Some variants can't contain images without annotations.
        written: Kind of annotations in the dataset.
        kind: Kind of annotations that is read. If it is "labels" and `written` is "classes", each image has one label.
    """
    if (written, kind) == ("classes", "labels"):
        return {image.name: frozenset(image.tags[:1]) for image in TRUTH.images}
    truth = list_true_annotations(TRUTH, kind, writer.expect)
    return {name: truth[name] for name in truth if truth[name] or variant not in writer.without_empty}
