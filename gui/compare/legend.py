"""Which run has which colour, and which are shown."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPen, QPixmap, QResizeEvent
from PySide6.QtWidgets import QCheckBox, QFrame, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from gui.compare.compared_run import ComparedRun
from gui.style import theme
from gui.titles import model_title, strategy_title
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.scroll_panel import scroll_panel

_SWATCH = QSize(22, 10)
_LONGEST = 44
"""Characters of a run's title that stand in the legend."""
_LINES = 3
"""Lines of check boxes that are in sight at most."""


class Legend(QWidget):
    """A check box for each run, with its line's colour.

    Signals: changed() - `shown` are others.
    """

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.boxes: dict[int, QCheckBox] = {}
        self.setAccessibleName("Runs compared")
        self._inside = QWidget()
        self._flow = FlowLayout(self._inside, spacing=12, line_spacing=2)
        self._scroll = scroll_panel(self._inside)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self.all = _button("All", "Shows all runs", lambda: self._show_all(True))
        self.none = _button("None", "Hides all runs", lambda: self._show_all(False))
        buttons = QVBoxLayout()
        buttons.setSpacing(2)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.all)
        row.addWidget(self.none)
        buttons.addLayout(row)
        buttons.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._scroll, 1)
        layout.addLayout(buttons)
        theme.notifier.changed.connect(self.recolor)

    @property
    def shown(self) -> set[int]:
        """The series of the runs that are checked."""
        return {series for series, box in self.boxes.items() if box.isChecked()}

    def clear(self) -> None:
        for box in self.boxes.values():
            self._flow.removeWidget(box)
            box.deleteLater()
        self.boxes.clear()
        self._fit()

    def add_run(self, run: ComparedRun) -> None:
        """Adds a run, checked; one that is there already keeps its state."""
        if run.series in self.boxes:
            return
        box = self.boxes[run.series] = QCheckBox(_short(run.title))
        box.setChecked(True)
        box.setIconSize(_SWATCH)
        box.setIcon(swatch(run.series))
        summary = run.summary
        box.setToolTip(
            "\n".join((run.title, f"{model_title(summary.model)}, {strategy_title(summary.strategy)}", summary.folder))
        )
        box.setAccessibleName(f"Show run {run.title}")
        box.toggled.connect(lambda _on: self.changed.emit())
        self._flow.addWidget(box)
        box.show()  # a box that is not shown yet takes no room
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Takes as much height as the boxes need, up to some lines; then they are scrolled."""
        line = next((box.sizeHint().height() for box in self.boxes.values()), 0)
        needed = self._flow.heightForWidth(max(1, self._scroll.viewport().width()))
        self._scroll.setFixedHeight(max(self.all.sizeHint().height(), min(needed, _LINES * (line + 2))))

    def _show_all(self, on: bool) -> None:
        for box in self.boxes.values():
            box.blockSignals(True)
            box.setChecked(on)
            box.blockSignals(False)
        self.changed.emit()

    def recolor(self) -> None:
        for series, box in self.boxes.items():
            box.setIcon(swatch(series))


def swatch(series: int) -> QIcon:
    """A piece of the line at `series`."""
    image = QPixmap(_SWATCH * 2)
    image.setDevicePixelRatio(2.0)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    style = Qt.PenStyle.DashLine if theme.series_is_dashed(series) else Qt.PenStyle.SolidLine
    painter.setPen(QPen(QColor(theme.series_color(series)), 3, style, Qt.PenCapStyle.FlatCap))
    middle = _SWATCH.height() / 2
    painter.drawLine(QPointF(0, middle), QPointF(_SWATCH.width(), middle))
    painter.end()
    return QIcon(image)


def _short(title: str) -> str:
    # An ampersand would underline what follows it.
    text = title if len(title) <= _LONGEST else f"{title[: _LONGEST - 1]}…"
    return text.replace("&", "&&")


def _button(text: str, meaning: str, act: Callable[[], None]) -> QToolButton:
    button = QToolButton()
    button.setObjectName("flat")
    button.setText(text)
    button.setToolTip(meaning)
    button.setAccessibleName(meaning)
    button.clicked.connect(act)
    return button
