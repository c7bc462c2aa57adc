"""Texts for bytes, durations and counts."""

from __future__ import annotations

import pytest

from engine.system.format import counted, duration, in_short, size


@pytest.mark.parametrize(
    ("count", "text"),
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
def test_size_uses_largest_fitting_unit(count: float | None, text: str) -> None:
    assert size(count) == text


def test_size_with_fixed_unit() -> None:
    assert size(512 << 20, "GiB") == "0.5 GiB"
    assert size(None, "GiB") == "– GiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.4, "0 s"), (59, "59 s"), (60, "1:00 min"), (192, "3:12 min"), (3723, "1:02:03 h"), (-1, "0 s")],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counted() -> None:
    assert [counted(count, "run") for count in (0, 1, 3000)] == ["0 runs", "1 run", "3,000 runs"]


@pytest.mark.parametrize(
    ("names", "text"), [((), ""), (("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c", "d"), "a and 3 more")]
)
def test_in_short(names: tuple[str, ...], text: str) -> None:
    assert in_short(names) == text
