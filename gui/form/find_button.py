"""The way from a field to the page on which a value for it is found by trying the job."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QToolButton

from gui.form.field_row import FieldRow
from gui.style import icons

FOUND = {
    "strategy": "Tries strategies, numbers of devices and settings on the ticked devices, and says which is fastest",
    "batch_size": "Finds the largest batch size that fits and measures the speed of each size",
    "learning_rate": "Finds a learning rate with a short training at a rising rate",
}
"""The fields that have a finder, with what it does."""


class FindButton(QToolButton):
    """A magnifying glass beside the editor of `row`; beside the strategy it says what it does, since it finds more
    than that field.
    """

    def __init__(self, row: FieldRow) -> None:
        super().__init__()
        self.setToolTip(FOUND[row.field.name])
        if row.field.name == "strategy":
            self.setText("Advise …")
            self.setAccessibleName("Advise on the strategy")
        else:
            self.setAccessibleName(f"Find {row.field.label.lower()}")
            self.setIconSize(QSize(14, 14))
            self.setIcon(icons.icon("find", "muted"))
        layout = row.editor.layout()
        assert layout is not None
        layout.addWidget(self)
