"""Comparison of the ground truth with datasets that other libraries read or write."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.dataset_formats.annotations import (
    list_true_annotations,
    read_annotations,
    read_splits,
    recognize_folder,
)
from tests.support.dataset_formats.truth import TRUTH

Boxes = dict[str, list[tuple[str, float, float, float, float]]]


def make_marks(library: str) -> list[pytest.MarkDecorator]:
    """Make the pytest marks for long tests that need `library`.

    The marks ignore warnings, and skip the tests if the library isn't installed.
    """
    is_missing = find_spec(library) is None
    return [
        pytest.mark.long,
        pytest.mark.skipif(is_missing, reason=f"needs {library}: pip install footplate[references]"),
        pytest.mark.filterwarnings("ignore"),
    ]


def write_truth(writer: str, variant: str, folder: Path) -> Path:
    """Write the ground truth to a folder with a writer from `dataset_formats` and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    import_module(f"tests.support.dataset_formats.{writer}").write(TRUTH, folder, variant)
    return folder


def list_true_boxes() -> Boxes:
    """Return (class, left, top, right, bottom) of each ground-truth box, by the image's name."""
    return list_true_annotations(TRUTH, "boxes")


def assert_alike(found: Mapping[str, Any], truth: Mapping[str, Any], tolerance: float = 0.0) -> None:
    """Assert that the annotations of all images are equal. Edges of boxes may differ by `tolerance` pixels."""
    assert found.keys() == truth.keys()
    for name, expected in truth.items():
        if tolerance and isinstance(expected, list):
            assert len(found[name]) == len(expected), (name, found[name], expected)
            assert [each[0] for each in found[name]] == [each[0] for each in expected], name
            for one, other in zip(found[name], expected, strict=True):
                assert one[1:] == pytest.approx(other[1:], abs=tolerance), name
        else:
            assert found[name] == expected, (name, found[name], expected)


def check_reading(
    folder: Path,
    format: str,
    kind: str | None = None,
    *,
    truth: Mapping[str, Any] | None = None,
    left_out: Collection[str] = (),
    tolerance: float = 0.0,
    has_splits: bool = True,
) -> None:
    """Check that a folder is recognized and that its annotations equal the truth.

    Args:
        folder: Folder that another library wrote.
        format: Expected id of the format.
        kind: Kind of annotations, or None for the most detailed kind.
        truth: Expected annotations by image, or None for those of the shared ground truth.
        left_out: Images that the library doesn't write.
        tolerance: Permitted difference between edges, in pixels.
        has_splits: True if the library writes the splits of the ground truth.
    """
    found = recognize_folder(folder, kind)
    assert found is not None
    assert found.format.partition(":")[0] == format
    assert found.certain
    expected = {**(list_true_annotations(TRUTH, found.kind) if truth is None else truth)}
    for name in left_out:
        del expected[name]
    assert_alike(read_annotations(found, folder), expected, tolerance)
    if has_splits:
        splits = {image.name: image.split for image in TRUTH.images if image.name in expected}
        assert read_splits(found, folder) == splits
