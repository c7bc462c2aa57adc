"""Layout of the pages that try something for the form: the cut and the finders."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from gui.widgets.layouts import hbox, vbox
from gui.widgets.scroll_panel import scroll_panel


def lay_out_page(page: QWidget, back: QPushButton, title: QLabel, subtitle: QLabel, *below: QWidget) -> None:
    """Lay out `page`: back button and titles on top, then the widgets `below`; the last one stretches."""
    texts = vbox(title, subtitle, spacing=2)
    head = hbox((back, 0, Qt.AlignmentFlag.AlignTop), (texts, 1), spacing=12)
    page.setLayout(vbox(head, *((widget, int(widget is below[-1])) for widget in below), margins=(14, 10, 14, 10)))


def working_page(what: QLabel, progress: QProgressBar, cancel: QPushButton, name: str) -> QWidget:
    """Return a page with the progress of a trial; `name` is the progress bar's accessible name."""
    progress.setRange(0, 100)
    progress.setFixedSize(320, 14)
    progress.setTextVisible(False)
    progress.setAccessibleName(name)
    return _in_the_middle(what, progress, cancel)


def fault_page(fault: QWidget, again: QPushButton) -> QWidget:
    """Return a page with the failure of a trial and a button to retry."""
    fault.setMaximumWidth(440)
    page = _in_the_middle(again)
    column = page.layout()
    assert isinstance(column, QVBoxLayout)
    row = QHBoxLayout()  # an alignment would leave long sentences too little height
    row.addStretch(1)
    row.addWidget(fault, 100)
    row.addStretch(1)
    column.insertLayout(1, row)
    return scroll_panel(page)


def _in_the_middle(*widgets: QWidget) -> QWidget:
    page = QWidget()
    column = QVBoxLayout(page)
    column.setSpacing(10)
    column.addStretch(1)
    for widget in widgets:
        column.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
    column.addStretch(2)
    return page
