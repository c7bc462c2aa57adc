"""Legend of the compared runs, whose check boxes show and hide them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QPointF, QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPen, QPixmap, QResizeEvent
from PySide6.QtWidgets import QCheckBox, QFrame, QToolButton, QWidget

from gui.compare.compared_run import ComparedRun
from gui.style import theme
from gui.titles import model_title, strategy_title
from gui.translation import tr
from gui.widgets.buttons import tool_button
from gui.widgets.layouts import FlowLayout, hbox, scroll_panel, vbox

_SWATCH = QSize(22, 10)
_MAX_LENGTH = 44
"""Maximum length of a title in characters."""
_MAX_ROWS = 3
"""Maximum number of visible rows of check boxes."""


class Legend(QWidget):
    """Legend with a check box for each run, in the color of its line.

    Signals:
        changed(): `checked` has changed.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[int, QCheckBox] = {}  # by index among the compared runs
        self.setAccessibleName(tr("Runs compared"))
        self._inside = QWidget()
        self._flow = FlowLayout(self._inside, spacing=12, line_spacing=2)
        self._scroll = scroll_panel(self._inside)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self.all = _create_link(tr("All"), tr("Show all runs"), partial(self._set_all_checked, True))
        self.none = _create_link(tr("None"), tr("Hide all runs"), partial(self._set_all_checked, False))
        self.setLayout(hbox((self._scroll, 1), vbox(hbox(self.all, self.none, spacing=10), 1)))
        theme.notifier.changed.connect(self.recolor)

    @property
    def checked(self) -> set[int]:
        """Indices of the checked runs among the compared runs."""
        return {series for series, box in self.boxes.items() if box.isChecked()}

    def clear(self) -> None:
        """Remove the boxes of all runs."""
        for box in self.boxes.values():
            self._flow.removeWidget(box)
            box.deleteLater()
        self.boxes.clear()
        self._fit_height()

    def add_run(self, run: ComparedRun) -> None:
        """Add a checked box for a run. If the run is in the legend, its state doesn't change."""
        if run.series in self.boxes:
            return
        box = self.boxes[run.series] = QCheckBox(_shorten(run.title))
        box.setChecked(True)
        box.setIconSize(_SWATCH)
        box.setIcon(draw_swatch(run.series))
        summary = run.summary
        box.setToolTip(
            "\n".join((run.title, f"{model_title(summary.model)}, {strategy_title(summary.strategy)}", summary.folder))
        )
        box.setAccessibleName(tr("Show run {title}").format(title=run.title))
        box.toggled.connect(lambda _on: self.changed.emit())
        self._flow.addWidget(box)
        box.show()  # the layout ignores hidden boxes
        self._fit_height()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_height()

    def _fit_height(self) -> None:
        """Fit the height to the rows of boxes, up to `_MAX_ROWS` rows. More rows can be scrolled."""
        line = next((box.sizeHint().height() for box in self.boxes.values()), 0)
        needed = self._flow.heightForWidth(max(1, self._scroll.viewport().width()))
        self._scroll.setFixedHeight(max(self.all.sizeHint().height(), min(needed, _MAX_ROWS * (line + 2))))

    def _set_all_checked(self, is_checked: bool) -> None:
        """Check or uncheck all boxes, and emit `changed` once."""
        for box in self.boxes.values():
            with QSignalBlocker(box):
                box.setChecked(is_checked)
        self.changed.emit()

    def recolor(self) -> None:
        for series, box in self.boxes.items():
            box.setIcon(draw_swatch(series))


def draw_swatch(series: int) -> QIcon:
    """Return an icon of a line in the style and color of the run with the index `series` in the comparison."""
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


def _shorten(title: str) -> str:
    """Return the text of a check box for a title: shortened, and without mnemonic keys."""
    text = title if len(title) <= _MAX_LENGTH else f"{title[: _MAX_LENGTH - 1]}…"
    return text.replace("&", "&&")


def _create_link(text: str, name: str, act: Callable[[], None]) -> QToolButton:
    return tool_button(act, text=text, style="link", name=name, tip=name)
