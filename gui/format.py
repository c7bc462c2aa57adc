"""The one way in which the window writes the numbers of devices and times of day."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PySide6.QtCore import QDateTime, QLocale

from engine.system import format as plain
from engine.system.format import NOT_KNOWN

if TYPE_CHECKING:
    from engine.gpus.quantities import Quantity

_JOULES_PER_KWH = 3_600_000
_FIGURE_SPACE = "\u2007"
"""As wide as a digit, so that a number keeps its place as it gains and loses digits."""
_DECIMAL = {"B": "B", "KiB": "kB", "MiB": "MB", "GiB": "GB", "TiB": "TB"}


@dataclass
class _Style:
    """How the desktop writes numbers and dates; None for as files and terminals have them. `marks` translates a
    number's comma and point.
    """

    locale: QLocale | None = None
    marks: Mapping[int, str] = field(default_factory=dict)
    decimal: bool = False


_style = _Style()


def use_locale(locale: QLocale) -> None:
    """Writes numbers and dates as `locale` does from now on; the language stays English."""
    plain_one = locale.language() == QLocale.Language.C
    _style.locale = None if plain_one else locale
    _style.marks = {} if plain_one else {ord(","): locale.groupSeparator(), ord("."): locale.decimalPoint()}


def use_decimal_units(decimal: bool) -> None:
    """Writes sizes in GB of 1,000,000,000 bytes from now on, or in GiB again."""
    _style.decimal = decimal


def locale() -> QLocale:
    """For editors of Qt's own."""
    return _style.locale or QLocale.c()


@contextmanager
def as_in_files() -> Iterator[None]:
    """Numbers and dates are written meanwhile as files have them, whatever the desktop."""
    of_window = locale()
    use_locale(QLocale.c())
    try:
        yield
    finally:
        use_locale(of_window)


def _localised(number: str) -> str:
    """A number as Python writes it, such as "1,234.5", as the desktop does."""
    return number.translate(_style.marks)


def localised(value: float, digits: int = 0) -> str:
    """ "12,345", or "1,234.5" with one digit, as the desktop groups and separates them."""
    return _localised(f"{value:,.{digits}f}")


def significant(value: float, digits: int = 6) -> str:
    """ "0.0012", "3e-05": `value` rounded to that many significant digits."""
    return _localised(f"{value:.{digits}g}")


def number_in(text: str) -> float:
    """The number that `text` is, written as the desktop does or as Python reads it; raises ValueError where it is
    none.
    """
    try:
        return float(text)
    except ValueError:
        return float(text.replace(locale().decimalPoint(), "."))


def counted(number: int, noun: str) -> str:
    """ "1 run", "3,000 runs"."""
    written, _, rest = plain.counted(number, noun).partition(" ")
    return f"{_localised(written)} {rest}"


def size(count: float | None, unit: str = "") -> str:
    """ "44.9 MiB", or "47.1 MB" where the user prefers decimal units; see `engine.system.format.size`."""
    if not _style.decimal or count is None or math.isnan(count):
        return _localised(plain.size(count, unit))
    units = list(_DECIMAL)
    fitting = (power for power in range(len(units)) if round(count / 1000**power, 1) < 1000)
    power = units.index(unit) if unit else next(fitting, len(units) - 1)
    return _localised(f"{count / 1000**power:.{1 if power else 0}f} {_DECIMAL[units[power]]}")


def measured(quantity: Quantity, value: float | None) -> str:
    """A quantity of NVML's in its basic unit, in words: "41.2 GiB", "215 W"."""
    return size(value, quantity.unit) if quantity.unit in _DECIMAL else _localised(quantity.write(value))


def size_of(used: float | None, total: float | None) -> str:
    """ "41.2 of 140.4 GiB"."""
    return size(used, "GiB") if total is None else f"{size(used, 'GiB').rpartition(' ')[0]} of {size(total, 'GiB')}"


def known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def number(value: float | None, digits: int = 0, width: int = 0) -> str:
    """`value` rounded, padded on the left to `width` figures; a dash where it is not known."""
    text = _localised(f"{value:.{digits}f}") if value is not None and known(value) else NOT_KNOWN
    return text.rjust(width, _FIGURE_SPACE)


def percent(value: float | None, width: int = 0) -> str:
    return f"{number(value, width=width)} %"


def share(used: float | None, total: float | None) -> str:
    """ "40 %", as wide as "100 %"."""
    return percent(100 * used / total if used is not None and total else None, 3)


def watts(value: float | None, limit: float | None = None, width: int = 0) -> str:
    return f"{number(value, width=width)} W" + (f" of {limit:.0f} W" if limit is not None else "")


def celsius(value: float | None, width: int = 0) -> str:
    return f"{number(value, width=width)} °C"


def energy(joules: float) -> str:
    """ "41.2 kJ" for what takes minutes, "1.24 kWh" for what takes hours."""
    if joules < _JOULES_PER_KWH / 10:
        return f"{localised(joules / 1000, 1)} kJ"
    return f"{localised(joules / _JOULES_PER_KWH, 2)} kWh"


def throughput(bytes_per_s: float) -> str:
    """ "1.20 GB/s": decimal, as links are rated."""
    return f"{localised(bytes_per_s / 1e9, 2)} GB/s"


def clock(seconds: float, now: float | None = None) -> str:
    """Seconds since the epoch as the time of day: "14:02:31", with the date where that is not today: "21 Nov
    14:02:31".
    """
    at, today = time.localtime(seconds), time.localtime(now)
    if _style.locale is not None and at[:3] != today[:3]:
        return _written(seconds)
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%d %b %H:%M:%S", at)


def moment(seconds: float) -> str:
    """Seconds since the epoch as "2026-11-21 14:05"."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if _style.locale is None else _written(seconds)


def _written(seconds: float) -> str:
    """A date and a time as the desktop writes them in short."""
    assert _style.locale is not None
    return _style.locale.toString(QDateTime.fromSecsSinceEpoch(int(seconds)), QLocale.FormatType.ShortFormat)


def lately(seconds: float) -> str:
    """Seconds since the epoch as "14:05" where that is today, else as "2026-11-20"."""
    day, now = time.localtime(seconds), time.localtime()
    if _style.locale is not None:
        at, short = QDateTime.fromSecsSinceEpoch(int(seconds)), QLocale.FormatType.ShortFormat
        return _style.locale.toString(at.time() if day[:3] == now[:3] else at.date(), short)
    return time.strftime("%H:%M" if day[:3] == now[:3] else "%Y-%m-%d", day)
