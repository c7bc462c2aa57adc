"""Texts for bytes, durations and counts."""

from __future__ import annotations

import pytest

from engine.system.format import counted, describe_exit, duration, listed, metric_value, shorten_list, size, speed


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


def test_size_with_fixed_or_decimal_unit() -> None:
    assert size(512 << 20, "GiB") == "0.5 GiB"
    assert [size(count, decimal=True) for count in (999, 999_960, 47_093_555)] == ["999 B", "1.0 MB", "47.1 MB"]
    assert size(None, "GiB") == "– GiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1:00 min"),
        (192, "3:12 min"),
        (3599, "59:59 min"),
        (3600, "1:00:00 h"),
        (3723, "1:02:03 h"),
        (-1, "0 s"),
        (59.6, "1:00 min"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counted() -> None:
    assert [counted(count, "run") for count in (0, 1, 3000)] == ["0 runs", "1 run", "3,000 runs"]


@pytest.mark.parametrize(
    ("rate", "text"), [(0.3149, "0.31"), (1.0, "1.0"), (9.949, "9.9"), (9.96, "10"), (1840.4, "1,840")]
)
def test_speed(rate: float, text: str) -> None:
    assert speed(rate) == f"{text} images/s"


@pytest.mark.parametrize(
    ("names", "text"), [("a", "a"), ("ab", "a or b"), ("abc", "a, b or c"), ("abcde", "a, b, c or 2 more")]
)
def test_listed(names: str, text: str) -> None:
    assert listed(names, "or", most=3) == text


@pytest.mark.parametrize(("code", "start"), [(0, "exited with code 0"), (3, "exited with code 3"), (-15, "was killed by SIGTERM (signal 15)"), (-9, "was killed by SIGKILL (signal 9); "), (-99, "was killed by signal 99")])  # fmt: skip
def test_exit_words(code: int, start: str) -> None:
    text = describe_exit(code)
    assert text.startswith(start)
    assert (text == start) == (code != -9)


@pytest.mark.parametrize(
    ("names", "text"), [((), ""), (("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c", "d"), "a and 3 more")]
)
def test_in_short(names: tuple[str, ...], text: str) -> None:
    assert shorten_list(names) == text


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (0.9337, True, "93.4%"),
        (1.0, True, "100.0%"),
        (0.2, False, "0.2000"),
        (12.3456, False, "12.35"),
        (999.96, False, "1,000"),
        (12345.6, False, "12,346"),
        (-999.96, False, "-1,000"),
        (-0.00001, False, "-1.000e-05"),
        (float("nan"), False, "nan"),
    ],
)
def test_metric_value(value: float, percent: bool, text: str) -> None:
    assert metric_value(value, percent=percent) == text


def test_metric_value_with_sign_and_decimals() -> None:
    assert metric_value(0.01234, percent=True, decimals=2, sign="+") == "+1.23%"
    assert [metric_value(value, percent=False, sign="+") for value in (0.5, 5000)] == ["+0.5000", "+5,000"]
