"""Tables for terminals, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.bar import Bar
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from engine.system.format import NOT_KNOWN
from engine.system.plain_text import escape

GAP = 2
MIN_NAME_WIDTH = 12
MIN_BAR_WIDTH, MAX_BAR_WIDTH = 4, 12
MIN_COLUMNS = 3


class Column(NamedTuple):
    """Column of a table in the terminal.

    Attributes:
        cells: Text for each row, None if it is unknown, or "" if it is not applicable.
        fractions: Fraction from 0 to 1 for each row, drawn as a bar, or an empty sequence for no bars.
        is_name: True if the cells are names. These are left-aligned, and cropped if space is short.
    """

    title: str
    cells: Sequence[str | None]
    fractions: Sequence[float | None] = ()
    is_name: bool = False

    @property
    def texts(self) -> list[Text]:
        return [format_line(NOT_KNOWN if cell is None else cell) for cell in self.cells]

    def width(self, *, cropped: bool) -> int:
        """Return the width in characters. Long names are cropped if `cropped` is True."""
        longest = max(cell_len(self.title), *(text.cell_len for text in self.texts))
        return min(MIN_NAME_WIDTH, longest) if cropped and self.is_name else longest


def format_line(text: str, style: str = "") -> Text:
    """Format `text` as a single line that is cropped if it is too long. Control characters are escaped."""
    return Text(escape(text), style, no_wrap=True, overflow="ellipsis")


def create_table(columns: Sequence[Column], width: int) -> Table:
    """Return a table of all columns with a known cell, at most `width` characters wide.

    If the space is not sufficient, names are cropped, then bars are dropped, and then the last columns except names.
    """
    visible = [column for column in columns if any(column.cells)]
    while _compute_width(visible, cropped=True) > width and len(visible) > MIN_COLUMNS:
        del visible[max(index for index, column in enumerate(visible) if not column.is_name)]
    bar_count = max(1, sum(bool(column.fractions) for column in visible))
    free_width_per_bar = (width - _compute_width(visible, cropped=False)) // bar_count
    bar_width = min(MAX_BAR_WIDTH, max(MIN_BAR_WIDTH, free_width_per_bar - GAP))
    has_bars = _compute_width(visible, cropped=True) + bar_count * (bar_width + GAP) <= width
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    rows: list[list[Bar | Text]] = [[] for _ in visible[0].cells]
    for column in visible:
        title = column.title
        if column.fractions and has_bars:
            grid.add_column(title, width=max(bar_width, len(title)))
            title = ""  # the title is above the bars, not above the texts next to them
            for row, fraction in zip(rows, column.fractions, strict=True):
                row.append(Text() if fraction is None else Bar(1, 0, fraction, bgcolor="bright_black"))
        min_width = column.width(cropped=True)
        grid.add_column(
            title, justify="left" if column.is_name else "right", min_width=min_width, no_wrap=not column.is_name
        )
        for row, text in zip(rows, column.texts, strict=True):
            row.append(text)
    for row in rows:
        grid.add_row(*row)
    return grid


def create_tables(columns: Sequence[Column], width: int) -> Iterator[Table]:
    """Yield the columns in as many tables as necessary, each at most `width` characters wide.

    Each table begins with the first column. Other columns are left out if all of their cells are empty.
    """
    head, *others = columns
    block = [head]
    for column in others:
        if not any(column.cells):
            continue
        if len(block) > 1 and _compute_width([*block, column], cropped=True) > width:
            yield create_table(block, width)
            block = [head]
        block.append(column)
    yield create_table(block, width)


def _compute_width(columns: Sequence[Column], *, cropped: bool) -> int:
    """Return the width of a table without bars, in characters. Names are cropped if `cropped` is True."""
    return sum(column.width(cropped=cropped) for column in columns) + GAP * (len(columns) - 1)
