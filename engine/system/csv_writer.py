"""The one way in which tables leave Footplate: as CSV that a spreadsheet computes nothing of."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TextIO

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of cells that spreadsheets take for formulas:
https://owasp.org/www-community/attacks/CSV_Injection."""


class CsvWriter:
    """Writes rows as RFC 4180 has them; with tabs as `delimiter` as spreadsheets paste them."""

    def __init__(self, stream: TextIO, *, delimiter: str = ",", line_end: str = "\r\n") -> None:
        self._writer = csv.writer(stream, delimiter=delimiter, lineterminator=line_end)

    def row(self, cells: Iterable[object]) -> None:
        self._writer.writerow(map(_inert, cells))


def _inert(cell: object) -> object:
    """`cell` with an apostrophe before a text that would be a formula; numbers, written ones too, stay what they
    are.
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
