"""Formatting of sizes, durations, counts and exit codes, for the window, the terminal and messages."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Sequence

NOT_KNOWN = "–"
BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB")
_NAMED = 2


def size(count: float | None, unit: str = "", *, decimal: bool = False) -> str:
    """Format a number of bytes in binary units ("44.9 MiB"), as NVIDIA's tools do. Return a dash if it is None or NaN.

    `unit` is one of `BINARY_UNITS`, such as "GiB". By default, it depends on the size. A fixed unit is useful for
    numbers that are compared with others, or that change while they are displayed. If `decimal` is True, the result is
    in the corresponding decimal unit ("47.1 MB").
    """
    if count is None or math.isnan(count):
        return f"{NOT_KNOWN} {unit}".rstrip()
    units, base = (_DECIMAL_UNITS, 1000) if decimal else (BINARY_UNITS, 1024)
    fitting = (power for power in range(len(units)) if round(count / base**power, 1) < base)
    power = BINARY_UNITS.index(unit) if unit else next(fitting, len(units) - 1)
    decimals = 1 if power else 0  # bytes are integers
    return f"{count / base**power:.{decimals}f} {units[power]}"


def duration(seconds: float | None) -> str:
    """Format a duration as "8 s", "3:12 min" or "2:05:40 h". Return a dash if it is None."""
    if seconds is None:
        return NOT_KNOWN
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60}:{total % 60:02} min"
    return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02} h"


def speed(images_per_second: float) -> str:
    """Format a speed, as in "1,840 images/s" or, below 10, with two digits, as in "0.31 images/s"."""
    if images_per_second >= 9.95:  # would be rounded to 10
        return f"{images_per_second:,.0f} images/s"
    return f"{images_per_second:#.2g} images/s"


def counted(count: int, noun: str) -> str:
    """Format a count and its noun, which is given in the singular: "1 run", "3,000 runs", "2 classes"."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun: "runs", "classes", "microbatches"."""
    return noun + ("es" if noun.endswith(("s", "tch")) else "s")


def with_unit(number: str, unit: str) -> str:
    """Append a unit to a formatted number, as in "215 W", or "38%" without a space."""
    return f"{number}%" if unit == "%" else f"{number} {unit}".rstrip()


def percent(fraction: float) -> str:
    """Return a fraction in 0..1 as a rounded percentage, such as "38%"."""
    return f"{100 * fraction:.0f}%"


def metric_value(value: float, *, percent: bool, decimals: int = 1, sign: str = "") -> str:
    """Format the value of a metric.

    If `percent` is True, `value` is a fraction, and the result is a percentage with `decimals` decimal places.
    Otherwise, the result has at least four significant digits. With the `sign` "+", positive values have a sign, too.
    """
    if percent:
        return f"{100 * value:{sign}.{decimals}f}%"
    has_four_digits = abs(value) >= 999.5  # as an integer, which avoids an exponent
    return f"{value:{sign},.0f}" if has_four_digits else f"{value:{sign}#.4g}"


def listed(names: Iterable[str], word: str = "and", most: int | None = None) -> str:
    """Join names as "a, b and c", with `word` before the last one. There must be at least one name.

    If there are more than `most` names, the text ends with "and 3 more".
    """
    all_names = list(names)
    if most is not None and len(all_names) > most:
        all_names[most:] = [f"{len(all_names) - most:,} more"]
    *others, last = all_names
    return f"{', '.join(others)} {word} {last}" if others else last


def shorten_list(names: Sequence[str]) -> str:
    """Join one or two names as "a and b".

    Of more names, give the first one and the number of others: "a and 2 more".
    """
    if len(names) > _NAMED:
        return f"{names[0]} and {len(names) - 1} more"
    return " and ".join(names)


def describe_exit(exit_code: int) -> str:
    """Describe how a process has exited: "was killed by SIGKILL (signal 9)", "exited with code 3"."""
    return f"was killed by {_describe_signal(-exit_code)}" if exit_code < 0 else f"exited with code {exit_code}"


def _describe_signal(number: int) -> str:
    """Return the name of a signal, such as "SIGTERM (signal 15)" or "signal 40", and for SIGKILL its likely cause."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
    cause = "; if nobody sent it, the system was out of memory" if number == 9 else ""
    return f"{name} (signal {number}){cause}"
