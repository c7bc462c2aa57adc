"""How tables look and behave: whole rows are chosen, every other one is shaded, Tab goes on to the next control."""

from __future__ import annotations

from PySide6.QtWidgets import QAbstractItemView, QTableView


def look_calm(table: QTableView, padding: int = 6, leading: int = 12) -> None:
    """Gives `table` that look, with `padding` pixels at the sides of a cell and rows `leading` pixels higher than
    their text.
    """
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
