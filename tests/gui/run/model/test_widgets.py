"""Texts about evaluations in the model view."""

from __future__ import annotations

import pytest

from gui.run.model.widgets import format_classes


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((), "nothing"),
        ((1,), "birch"),
        ((2, 0), "cedar, ash"),
        ((1, 1), "birch × 2"),
        ((0, 2, 0, 0, 2), "ash × 3, cedar × 2"),
        ((3,), "none of them"),
        ((-1, 1), "none of them, birch"),
    ],
)
def test_format_classes_counts_repeated_ones(indices: tuple[int, ...], text: str) -> None:
    assert format_classes(("ash", "birch", "cedar"), indices, "nothing") == text
