"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from engine.system.plain_text import escaped


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with columns set flush left, two spaces apart."""
    rows = [tuple(map(escaped, row)) for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows])
    return [line.rstrip() for line in lines]
