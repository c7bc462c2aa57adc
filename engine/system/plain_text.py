"""Conversion of external text, which may contain any characters, for screens and spreadsheets."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Any, TextIO

import msgspec
from msgspec import structs

MAX_SHOWN_CHARS = 1000
"""Maximum number of displayed characters. Laying out a label takes 0.01 s for 1,000 characters and 0.1 s for 10,000."""

_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Pattern for characters that control a terminal or the layout.

It matches C0 and C1 controls (ECMA-48) except the tab, line and paragraph separators, bidirectional controls (UAX #9:
embeddings, overrides, isolates), and lone surrogates.
"""
MAX_SHOWN_LINES = 10
"""Maximum number of displayed lines. Laying out a label takes 0.1 s for several hundred lines."""


def escape(text: str) -> str:
    r"""Return `text` on one line without terminal controls.

    Each control character is replaced with its escape sequence in JSON, such as ``\u001b``.
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def make_encodable(text: str) -> str:
    r"""Return `text` with each byte that is not UTF-8 replaced by an escape sequence, such as ``\udcff``.

    Neither JSON nor Qt can represent such bytes (PEP 383).
    """
    return text.encode(errors="backslashreplace").decode()


def shorten(text: str, at_most: int = MAX_SHOWN_CHARS) -> str:
    """Shorten a text to at most `at_most` characters by replacing its middle with an ellipsis.

    The end is kept because it matters most in a path. If there are more than `MAX_SHOWN_LINES` lines, they are joined
    with ↵.
    """
    lines = text.splitlines()
    if len(lines) > MAX_SHOWN_LINES:
        text = "↵".join(lines)
    if len(text) <= at_most:
        return text
    head_length = at_most // 2
    return f"{text[:head_length]}…{text[len(text) - (at_most - head_length - 1) :]}"


def shorten_texts(message: Any) -> Any:
    """Return a copy of a message with `shorten` applied to all its texts, including those in nested objects."""
    match message:
        case str():
            return shorten(message)
        case msgspec.Struct():
            return structs.replace(
                message, **{name: shorten_texts(getattr(message, name)) for name in message.__struct_fields__}
            )
        case tuple():
            return tuple(map(shorten_texts, message))
        case dict():
            return {shorten_texts(key): shorten_texts(value) for key, value in message.items()}
    return message


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of cells that spreadsheets take for formulas.

Source: https://owasp.org/www-community/attacks/CSV_Injection.
"""


class CsvWriter:
    """Writer of rows in the format of RFC 4180. With tabs as `delimiter`, rows can be pasted into spreadsheets."""

    def __init__(self, stream: TextIO, *, delimiter: str = ",", line_end: str = "\r\n") -> None:
        self._writer = csv.writer(stream, delimiter=delimiter, lineterminator=line_end)
        self._quoting_writer = csv.writer(stream, delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_ALL)

    def write_row(self, cells: Iterable[object]) -> None:
        """Write a row. Texts that spreadsheets would take for formulas get an apostrophe in front."""
        safe_cells = [_neutralize_formula(cell) for cell in cells]
        # Where the decimal separator is a comma, spreadsheets take semicolons for the end of a cell without quotes.
        has_separators = any(isinstance(cell, str) and (";" in cell or "\t" in cell) for cell in safe_cells)
        (self._quoting_writer if has_separators else self._writer).writerow(safe_cells)


def _neutralize_formula(cell: object) -> object:
    """Return the content of a cell, with an apostrophe in front if a spreadsheet would take it for a formula.

    Numbers are returned unchanged, including those given as text.
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
