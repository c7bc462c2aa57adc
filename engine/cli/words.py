"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.plain_text import escaped

_KIB = 1024
_NAMED = 2


def duration(seconds: float | None) -> str:
    """1:02:03, 3:12 or 7 s; "–" where it is not known."""
    if seconds is None:
        return "–"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def size(count: int | None) -> str:
    """Bytes in binary units; "–" where they are not known."""
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _KIB:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KIB
    return f"{value:.1f} TiB"


def in_short(names: Sequence[str]) -> str:
    """ "a", "a and b", and of more the first with how many there are besides."""
    if len(names) > _NAMED:
        return f"{names[0]} and {len(names) - 1} more"
    return " and ".join(names)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with columns set flush left, two spaces apart."""
    rows = [tuple(map(escaped, row)) for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows])
    return [line.rstrip() for line in lines]
