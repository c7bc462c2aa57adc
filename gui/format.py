"""The one way in which the window writes the numbers of devices and times of day."""

from __future__ import annotations

import math
import time

from engine.system.format import NOT_KNOWN, size

_JOULES_PER_KWH = 3_600_000
_FIGURE_SPACE = "\u2007"
"""As wide as a digit, so that a number keeps its place as it gains and loses digits."""


def size_of(used: float | None, total: float | None) -> str:
    """ "41.2 of 140.4 GiB"."""
    return size(used, "GiB") if total is None else f"{size(used, 'GiB').removesuffix(' GiB')} of {size(total, 'GiB')}"


def known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def number(value: float | None, digits: int = 0, width: int = 0) -> str:
    """`value` rounded, padded on the left to `width` figures; a dash where it is not known."""
    text = f"{value:.{digits}f}" if value is not None and known(value) else NOT_KNOWN
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
    return f"{joules / 1000:,.1f} kJ" if joules < _JOULES_PER_KWH / 10 else f"{joules / _JOULES_PER_KWH:,.2f} kWh"


def throughput(bytes_per_s: float) -> str:
    """ "1.20 GB/s": decimal, as links are rated."""
    return f"{bytes_per_s / 1e9:,.2f} GB/s"


def clock(seconds: float, now: float | None = None) -> str:
    """Seconds since the epoch as the time of day: "14:02:31", with the date where that is not today: "21 Nov 14:02:31"."""
    at, today = time.localtime(seconds), time.localtime(now)
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%d %b %H:%M:%S", at)


def moment(seconds: float) -> str:
    """Seconds since the epoch as "2026-11-21 14:05"."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def lately(seconds: float) -> str:
    """Seconds since the epoch as "14:05" where that is today, else as "2026-11-20"."""
    day, now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M" if day[:3] == now[:3] else "%Y-%m-%d", day)
