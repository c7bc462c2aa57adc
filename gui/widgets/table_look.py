"""Style of tables: whole rows are selected, every other one is shaded, Tab leaves the table."""

from __future__ import annotations

from PySide6.QtWidgets import QAbstractItemView, QTableView


def apply_table_style(table: QTableView, padding: int = 6, leading: int = 12) -> None:
    """Apply that style to `table`, with `padding` at the sides of cells and `leading` above and below their text."""
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.setAlternatingRowColors(True)
    table.setShowGrid(False)
    table.setTabKeyNavigation(False)
    table.setWordWrap(False)
    table.setStyleSheet(f"QTableView::item {{ padding: 0 {padding}px; }}")
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + leading)
    table.horizontalHeader().setHighlightSections(False)
