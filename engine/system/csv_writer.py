"""CSV output for spreadsheets, in which no cell is a formula."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TextIO

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of cells that spreadsheets take for formulas:
https://owasp.org/www-community/attacks/CSV_Injection.
"""


class CsvWriter:
    """Writer of RFC 4180 rows; with tabs as `delimiter`, rows can be pasted into a spreadsheet."""

    def __init__(self, stream: TextIO, *, delimiter: str = ",", line_end: str = "\r\n") -> None:
        self._writer = csv.writer(stream, delimiter=delimiter, lineterminator=line_end)

    def row(self, cells: Iterable[object]) -> None:
        self._writer.writerow(map(_inert, cells))


def _inert(cell: object) -> object:
    """Return a text that looks like a formula with an apostrophe in front; keep numbers, also written ones."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
