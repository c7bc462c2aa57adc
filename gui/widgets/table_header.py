"""The header cells of a table whose columns are a fixed list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from PySide6.QtCore import Qt

LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class HeaderColumn(Protocol):
    """A column with a `title`, aligned right if it holds a `number`; `help` is the header's tool tip, "" for none."""

    @property
    def title(self) -> str: ...
    @property
    def number(self) -> bool: ...
    @property
    def help(self) -> str: ...


def header_data(columns: Sequence[HeaderColumn], section: int, orientation: Qt.Orientation, role: int) -> Any:
    """What an item model answers to `headerData` for the horizontal header over `columns`; None for all else."""
    if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(columns):
        return None
    column = columns[section]
    if role == Qt.ItemDataRole.DisplayRole:
        return column.title
    if role == Qt.ItemDataRole.ToolTipRole:
        return column.help or None
    if role == Qt.ItemDataRole.TextAlignmentRole:
        return RIGHT if column.number else LEFT
    return None
