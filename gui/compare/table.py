"""Table of the compared runs."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QTableView

from gui.compare.table_model import CompareModel
from gui.style import theme
from gui.translation import tr

ITEM_PADDING = 6
"""Space in pixels at the sides of a cell's text."""
_MIN_HEIGHT = 120
"""Minimum height in pixels. The sizes in this module, except the padding, are for a text size of 100%."""
_MAX_COLUMN_WIDTH = 260
"""Maximum width of a column that the user hasn't resized, in pixels."""
_LEADING = 10
"""Space in pixels above and below the text of a row."""


class CompareTable(QTableView):
    """Table for a `CompareModel`.

    Columns fit their contents, unless the user has resized them.
    """

    def __init__(self, model: CompareModel) -> None:
        super().__init__()
        self._fitted_widths: dict[int, int] = {}  # by column
        self.setModel(model)
        self.setAccessibleName(tr("Compared runs"))
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setWordWrap(False)
        self.setHorizontalScrollMode(QTableView.ScrollMode.ScrollPerPixel)
        self.horizontalHeader().setHighlightSections(False)
        self.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.verticalHeader().setHighlightSections(False)
        self.setStyleSheet(
            f"QTableView::item {{ padding: 0 {ITEM_PADDING}px; }}"
            "QTableCornerButton::section { background: transparent; border: none; }"
        )
        self.setCornerButtonEnabled(False)
        theme.scale_with_text(self.setMinimumHeight, _MIN_HEIGHT)
        model.modelReset.connect(self._restart_fit)
        model.dataChanged.connect(self._fit)
        self._restart_fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._restart_fit()

    def _restart_fit(self) -> None:
        """Fit the rows and all columns again, including columns that the user has resized."""
        self._fitted_widths = {}
        self.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + _LEADING)
        self._fit()

    def _fit(self) -> None:
        """Fit the columns that the user hasn't resized to their contents, up to a maximum width."""
        for column in range(self.model().columnCount()):
            is_resized_by_user = self.columnWidth(column) != self._fitted_widths.get(column, self.columnWidth(column))
            if not is_resized_by_user:
                # Qt doesn't include the style sheet's padding of items.
                content = max(self.sizeHintForColumn(column), self.horizontalHeader().sectionSizeHint(column))
                self.setColumnWidth(column, min(theme.scale_pixels(_MAX_COLUMN_WIDTH), content + 2 * ITEM_PADDING))
                self._fitted_widths[column] = self.columnWidth(column)
