"""Display texts for numbers, quantities and times."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

from PySide6.QtCore import QDateTime, QLocale

from engine.system import format as plain
from engine.system.format import BINARY_UNITS, NOT_KNOWN
from gui.translation import tr

if TYPE_CHECKING:
    from engine.gpus.quantities import Quantity

_JOULES_PER_KWH = 3_600_000
_FIGURE_SPACE = "\u2007"
"""Space as wide as a digit, which keeps numbers aligned."""


@dataclass
class _Style:
    """Number format.

    It consists of a locale (None for the format of files), a translation table for comma and point, and the choice
    between decimal and binary units.
    """

    locale: QLocale | None = None
    separators: Mapping[int, str] = field(default_factory=dict)
    decimal: bool = False


_style = _Style()


def use_locale(locale: QLocale) -> None:
    """Use the number and date formats of `locale`. The language remains English."""
    is_plain = locale.language() == QLocale.Language.C
    _style.locale = None if is_plain else locale
    _style.separators = {} if is_plain else {ord(","): locale.groupSeparator(), ord("."): locale.decimalPoint()}


def use_decimal_units(decimal: bool) -> None:
    """Display sizes in decimal units (GB) or in binary units (GiB)."""
    _style.decimal = decimal


def locale() -> QLocale:
    """Return the locale with the current number format, for Qt's editors."""
    return _style.locale or QLocale.c()


@contextmanager
def as_in_files() -> Iterator[None]:
    """Format numbers and dates within this context in the fixed format of saved files."""
    previous = locale()
    use_locale(QLocale.c())
    try:
        yield
    finally:
        use_locale(previous)


def _localized(number: str) -> str:
    """Convert a number in Python's format, such as "1,234.5", to the desktop's number format."""
    return number.translate(_style.separators)


def localized(value: float, digits: int = 0) -> str:
    """Format a number, as in "12,345", or "1,234.5" with one digit."""
    return _localized(f"{value:,.{digits}f}")


def millions(count: int) -> str:
    """Format a number of parameters, as in "25.6 M"."""
    return f"{localized(count / 1e6, 1)} M" if count >= 1e5 else localized(count)


def speed(images_per_second: float) -> str:
    """Format a training speed in the desktop's number format, as in "1,840 images/s"."""
    return _localized(plain.speed(images_per_second))


def significant(value: float, digits: int = 6) -> str:
    """Format `value` with this number of significant digits, as in "0.0012" or "3e-05"."""
    return _localized(f"{value:.{digits}g}")


def metric_value(value: float, *, percent: bool, decimals: int = 1) -> str:
    """Format a metric: as a percentage with `decimals` if `percent`, otherwise with four significant digits."""
    return _localized(plain.metric_value(value, percent=percent, decimals=decimals))


def number_in(text: str) -> float:
    """Parse a number in the desktop's or Python's format. Raises ValueError for other texts."""
    try:
        return float(text)
    except ValueError:
        return float(text.replace(locale().decimalPoint(), "."))


def counted(number: int, noun: str) -> str:
    """Format `number` with the singular `noun` or its plural, as in "1 run" or "3,000 runs"."""
    digits, _, inflected_noun = plain.counted(number, noun).partition(" ")
    return f"{_localized(digits)} {inflected_noun}"


def size(count: float | None, unit: str = "") -> str:
    """Format `count` bytes in a binary unit ("44.9 MiB"), or in a decimal one ("47.1 MB") if the settings request it.

    The fixed binary `unit` or its decimal counterpart is used unless it is "". None and NaN become a dash.
    """
    return _localized(plain.size(count, unit, decimal=_style.decimal))


def format_quantity(quantity: Quantity, value: float | None) -> str:
    """Format an NVML quantity in its base unit, as in "41.2 GiB" or "215 W", or return a dash for None."""
    return size(value, quantity.unit) if quantity.unit in BINARY_UNITS else _localized(quantity.write(value))


def size_of(used: float | None, total: float | None) -> str:
    """Format a used and a total size, as in "41.2 of 140.4 GiB". If the total is None, format only the used size."""
    used_text = size(used, "GiB")
    if total is None:
        return used_text
    used_number = used_text.rpartition(" ")[0]  # the unit follows the total
    return tr("{used} of {total}").format(used=used_number, total=size(total, "GiB"))


def known(value: float | None) -> TypeGuard[float]:
    """Return True unless `value` is None or NaN."""
    return value is not None and not math.isnan(value)


def number(value: float | None, digits: int = 0, width: int = 0) -> str:
    """Format `value` with `digits` decimals, padded to `width` characters. An unknown value becomes a dash."""
    text = _localized(f"{value:.{digits}f}") if known(value) else NOT_KNOWN
    return text.rjust(width, _FIGURE_SPACE)


def percent(value: float | None, width: int = 0) -> str:
    return f"{number(value, width=width)}%"


def watts(value: float | None) -> str:
    return f"{number(value)} W"


def celsius(value: float | None, width: int = 0) -> str:
    return f"{number(value, width=width)} °C"


def energy(joules: float) -> str:
    """Format an energy, as in "41.2 kJ", or as in "1.24 kWh" from a tenth of a kWh on."""
    if joules < _JOULES_PER_KWH / 10:
        return f"{localized(joules / 1000, 1)} kJ"
    return f"{localized(joules / _JOULES_PER_KWH, 2)} kWh"


def throughput(bytes_per_s: float) -> str:
    """Format a transfer rate, as in "1.20 GB/s". Units are decimal, like the ratings of links."""
    return f"{localized(bytes_per_s / 1e9, 2)} GB/s"


def capitalize(text: str) -> str:
    """Return `text` with its first letter in upper case. Unlike in `str.capitalize`, other letters don't change."""
    return text[:1].upper() + text[1:]


def clock(seconds: float, now: float | None = None) -> str:
    """Format a time (seconds since the epoch), as in "14:02:31", with the date if it isn't the day of `now`.

    `now` is the current time by default.
    """
    local_time = time.localtime(seconds)
    if local_time[:3] == time.localtime(now)[:3]:
        return time.strftime("%H:%M:%S", local_time)
    return time.strftime("%d %b %H:%M:%S", local_time) if _style.locale is None else format_date_and_time(seconds)


def format_date_and_time(seconds: float) -> str:
    """Format a time (seconds since the epoch) in the desktop's short format, or as "2026-11-21 14:05" in files."""
    if _style.locale is None:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    return _style.locale.toString(QDateTime.fromSecsSinceEpoch(int(seconds)), QLocale.FormatType.ShortFormat)


def format_time_or_date(seconds: float) -> str:
    """Format a time (seconds since the epoch), as in "14:05" if it is today, otherwise a date, as in "2026-11-20"."""
    local_time = time.localtime(seconds)
    is_today = local_time[:3] == time.localtime()[:3]
    if _style.locale is None:
        return time.strftime("%H:%M" if is_today else "%Y-%m-%d", local_time)
    moment = QDateTime.fromSecsSinceEpoch(int(seconds))
    return _style.locale.toString(moment.time() if is_today else moment.date(), QLocale.FormatType.ShortFormat)


def format_roughly(seconds: float) -> str:
    """Format a duration approximately, as in "22 s", "12 min", "3.5 h" or "2.1 days"."""
    for unit, length, digits, limit in (("s", 1, 0, 60), ("min", 60, 0, 90), ("h", 3600, 1, 48)):
        if round(seconds / length, digits) < limit:  # rounded, so that 59.8 s are "1 min" rather than "60 s"
            return f"{localized(max(1.0, seconds) / length, digits)} {unit}"
    return tr("{days} days").format(days=localized(seconds / 86400, 1))


def milliseconds(seconds: float) -> str:
    """Format a short duration, as in "0.42 ms", "31.5 ms" or "1,204 ms"."""
    duration_ms = 1000 * seconds
    if duration_ms < 1:
        return f"{localized(duration_ms, 2)} ms"
    return f"{localized(duration_ms, 1 if duration_ms < 100 else 0)} ms"
