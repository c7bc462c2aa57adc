"""Tables for terminals, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.bar import Bar
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from engine.system.format import NOT_KNOWN
from engine.system.plain_text import escaped

GAP = 2
SHORTEST_NAME = 12
SHORTEST_BAR, LONGEST_BAR = 4, 12
FEWEST_COLUMNS = 3


class Column(NamedTuple):
    """Cells of a table, one a row: None is not known, "" does not apply. `shares` of a whole, 0 to 1, draw bars. Names
    stand on the left, and are cut where there is no room for them.
    """

    title: str
    cells: Sequence[str | None]
    shares: Sequence[float | None] = ()
    name: bool = False

    @property
    def texts(self) -> list[Text]:
        return [line(NOT_KNOWN if cell is None else cell) for cell in self.cells]

    def width(self, *, cut: bool) -> int:
        longest = max(cell_len(self.title), *(text.cell_len for text in self.texts))
        return min(SHORTEST_NAME, longest) if cut and self.name else longest


def line(text: str, style: str = "") -> Text:
    """`text` on one line, which is cut where it is too long. What a terminal would obey, and a process may well have
    in its name, is shown in place.
    """
    return Text(escaped(text), style, no_wrap=True, overflow="ellipsis")


def table(columns: Sequence[Column], width: int) -> Table:
    """A line for each row, without the columns of which no cell is known. Where `width` is too little for the rest,
    names are cut, then there are no bars, then columns go, the last first and names never.
    """
    shown = [column for column in columns if any(column.cells)]
    while _width(shown, cut=True) > width and len(shown) > FEWEST_COLUMNS:
        del shown[max(index for index, column in enumerate(shown) if not column.name)]
    barred = max(1, sum(bool(column.shares) for column in shown))
    bar = min(LONGEST_BAR, max(SHORTEST_BAR, (width - _width(shown, cut=False)) // barred - GAP))
    bars = _width(shown, cut=True) + barred * (bar + GAP) <= width
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    rows: list[list[Bar | Text]] = [[] for _ in shown[0].cells]
    for column in shown:
        title = column.title
        if column.shares and bars:
            made.add_column(title, width=max(bar, len(title)))
            title = ""
            for row, share in zip(rows, column.shares, strict=True):
                row.append(Text() if share is None else Bar(1, 0, share, bgcolor="bright_black"))
        least = column.width(cut=True)
        made.add_column(title, justify="left" if column.name else "right", min_width=least, no_wrap=not column.name)
        for row, text in zip(rows, column.texts, strict=True):
            row.append(text)
    for row in rows:
        made.add_row(*row)
    return made


def tables(columns: Sequence[Column], width: int) -> Iterator[Table]:
    """All columns of which a cell is known, in as many tables as they need within `width`; each begins with the
    first.
    """
    head, *others = columns
    block = [head]
    for column in others:
        if not any(column.cells):
            continue
        if len(block) > 1 and _width([*block, column], cut=True) > width:
            yield table(block, width)
            block = [head]
        block.append(column)
    yield table(block, width)


def _width(columns: Sequence[Column], *, cut: bool) -> int:
    """Of a table without bars."""
    return sum(column.width(cut=cut) for column in columns) + GAP * (len(columns) - 1)
