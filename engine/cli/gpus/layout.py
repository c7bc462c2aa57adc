"""Text in columns, for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

UNKNOWN = "–"
_GAP = "  "
_EIGHTHS = " ▏▎▍▌▋▊▉"

Tone = Literal["plain", "head", "dim", "warning"]


class Line(NamedTuple):
    """One line of text, and how it is meant; its words say the same."""

    text: str
    tone: Tone = "plain"


class Column(NamedTuple):
    """Cells of a table, one a row: None is not known, "" does not apply. `shares` of a whole, 0 to 1, draw bars."""

    title: str
    cells: Sequence[str | None]
    shares: Sequence[float | None] = ()
    left: bool = False


def aligned(columns: Sequence[Column], bar: int = 0) -> list[str]:
    """The head and the rows of a table; columns of which no cell is known are left out. Bars are `bar` wide, if any."""
    told = [column for column in columns if any(column.cells)]
    written = [_written(column, bar) for column in told]
    return [_GAP.join(cells).rstrip() for cells in zip(*written, strict=True)]


def table_width(columns: Sequence[Column], bar: int = 0) -> int:
    return max((len(line) for line in aligned(columns, bar)), default=0)


def shortened(text: str, width: int) -> str:
    """`text`, cut at `width` with a mark."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _written(column: Column, bar: int) -> list[str]:
    """The head and the cells of `column`, all equally wide."""
    texts = [UNKNOWN if cell is None else cell for cell in column.cells]
    if column.left:
        width = max(len(text) for text in [column.title, *texts])
        return [text.ljust(width) for text in [column.title, *texts]]
    if column.shares and bar:
        inner = max(len(text) for text in texts)
        cells = [f"{_bar(share, bar)} {text.rjust(inner)}" for text, share in zip(texts, column.shares, strict=True)]
        width = max(len(column.title), len(cells[0]))
        return [column.title.ljust(width), *(cell.rjust(width) for cell in cells)]
    width = max(len(text) for text in [column.title, *texts])
    return [text.rjust(width) for text in [column.title, *texts]]


def _bar(share: float | None, length: int) -> str:
    """A bar in eighths of a character on a dotted ground; blank where the share is not known."""
    if share is None:
        return " " * length
    eighths = round(min(1.0, max(0.0, share)) * length * 8)
    whole, part = divmod(eighths, 8)
    filled = "█" * whole + (_EIGHTHS[part] if part else "")
    return filled + "·" * (length - len(filled))
