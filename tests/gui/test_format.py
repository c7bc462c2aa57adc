"""Bytes as the window writes them, wherever they stand."""

from __future__ import annotations

import pytest

from gui.format import size, size_of


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3_250_586, "3.1 MiB"),
        (150 << 20, "150.0 MiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (8 << 30, "8.0 GiB"),
        (3000 << 40, "3000.0 TiB"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_that_bytes_are_written_in_the_largest_unit_that_fits(count: float | None, said: str) -> None:
    assert size(count) == said


def test_that_numbers_side_by_side_have_one_unit() -> None:
    assert size(512 << 20, "GiB") == "0.5 GiB"
    assert size(None, "GiB") == "– GiB"
    assert size_of(41 << 30, 141 << 30) == "41.0 of 141.0 GiB"
    assert size_of(None, 141 << 30) == "– of 141.0 GiB"
    assert size_of(41 << 30, None) == "41.0 GiB"
