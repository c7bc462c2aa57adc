"""The one way in which the window writes bytes."""

from __future__ import annotations

import math

NOT_KNOWN = "–"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float | None, unit: str = "") -> str:
    """ "812 B", "44.9 MiB": bytes in binary units, as memory is sold and NVIDIA's tools count; a dash where unknown.

    Numbers that stand beside one another, or change as one looks, are given the same `unit`.
    """
    if count is None or math.isnan(count):
        return f"{NOT_KNOWN} {unit}".rstrip()
    fitting = (power for power in range(len(_UNITS)) if round(count / 1024**power, 1) < 1024)
    power = _UNITS.index(unit) if unit else next(fitting, len(_UNITS) - 1)
    return f"{count / 1024**power:.{1 if power else 0}f} {_UNITS[power]}"


def size_of(used: float | None, total: float | None) -> str:
    """ "41.2 of 140.4 GiB"."""
    return size(used, "GiB") if total is None else f"{size(used, 'GiB').removesuffix(' GiB')} of {size(total, 'GiB')}"
