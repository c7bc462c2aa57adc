"""Where the time of a run's steps goes, as one stacked bar over its legend."""

from __future__ import annotations

from typing import NamedTuple, get_args

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetrics, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.contract.events import Part, TimeSpent
from gui.format import localised
from gui.style import fills, theme

ORDER: tuple[Part, ...] = get_args(Part)
TITLES: dict[Part, str] = {
    "data": "Data wait",
    "transfer": "To the device",
    "augment": "Augment",
    "forward": "Forward",
    "backward": "Backward",
    "communication": "Communication",
    "optimizer": "Optimizer",
    "logging": "Logging",
    "other": "Other",
}
MEANINGS: dict[Part, str] = {
    "data": "Waiting for the next batch of images",
    "transfer": "Copying images to the device",
    "augment": "Augmenting and normalising images on the device",
    "forward": "The model's forward pass and the loss",
    "backward": "The backward pass",
    "communication": "Reducing gradients, sending activations and waiting for other ranks, not overlapped with compute",
    "optimizer": "The optimizer's step",
    "logging": "Logging metrics",
    "other": "Unattributed",
}
UNSEEN = 0.0005
"""A share of the step below which a part is left away, as it would read 0.0 %."""

BAR, LINE, GAP = 18, 20, 6
SWATCH, PAD = 13, 12


class _Entry(NamedTuple):
    """An item of the legend; the last, without a part, is the whole step."""

    part: Part | None
    rect: QRectF


def milliseconds(seconds: float) -> str:
    """ "0.42 ms", "31.5 ms" or "1,204 ms"."""
    value = 1000 * seconds
    return (
        f"{localised(value, 2)} ms"
        if value < 10
        else f"{localised(value, 1)} ms"
        if value < 100
        else f"{localised(value)} ms"
    )


def percent(share: float) -> str:
    """ "46 %" or "2.4 %"."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{localised(100 * share, 1)} %"


def part_words(spent: TimeSpent, part: Part) -> str:
    """ "Forward 3.10 ms, 38 % of each step"."""
    seconds = spent.parts.get(part, 0.0)
    return f"{TITLES[part]} {milliseconds(seconds)}, {percent(_share(spent, part))} of each step"


def describe(spent: TimeSpent) -> str:
    """The bar in words, the largest part first."""
    parts = sorted((p for p in ORDER if _share(spent, p) >= UNSEEN), key=lambda p: -spent.parts[p])
    return f"A step takes {milliseconds(spent.step_s)}. " + ". ".join(part_words(spent, part) for part in parts) + "."


class TimeBar(QWidget):
    """A piece for each part, as long as its share; each with a pattern and a place of its own, so that colour alone
    never tells. What has been seen of a run stays in the legend, so that nothing jumps.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._spent: TimeSpent | None = None
        self._seen: set[Part] = set()
        self._pointed: Part | None = None
        self.setAccessibleName("Time of a step")
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def restart(self) -> None:
        """Another run is to be shown."""
        self._spent, self._seen, self._pointed = None, set(), None

    def show_time(self, spent: TimeSpent) -> None:
        if spent is self._spent:
            return
        self._spent = spent
        self._seen |= {part for part in ORDER if _share(spent, part) >= UNSEEN}
        self.setAccessibleDescription(describe(spent))
        self._fit()
        self.update()

    def piece(self, part: Part) -> QRectF:
        """Where that part's piece of the bar is drawn."""
        before = sum(_share(self._spent, other) for other in ORDER[: ORDER.index(part)]) if self._spent else 0.0
        share = _share(self._spent, part) if self._spent else 0.0
        return QRectF(before * self.width(), 0, share * self.width(), BAR)

    def entries(self) -> list[_Entry]:
        """The legend in columns, and where each item of it is drawn."""
        advance = QFontMetrics(theme.tabular(self.font())).horizontalAdvance
        slow = self._spent is not None and self._spent.step_s >= 1
        figures = SWATCH + 6 + 8 + advance("00,000 ms  0.0 %" if slow else "00.0 ms  0.0 %")
        parts = [*(part for part in ORDER if part in self._seen), None]
        needed = [figures + advance(_title(part)) for part in parts]
        widths: list[int] = []
        for columns in range(len(parts), 0, -1):  # as many as there is room for
            widths = [max(needed[column::columns]) for column in range(columns)]
            if sum(widths) + PAD * (columns - 1) <= self.width():
                break
        entries = []
        for number, part in enumerate(parts):
            row, column = divmod(number, len(widths))
            left = sum(widths[:column]) + PAD * column
            entries.append(_Entry(part, QRectF(left, BAR + GAP + row * LINE, widths[column], LINE)))
        return entries

    def part_at(self, where: QPoint) -> Part | None:
        """The part whose piece or whose item of the legend is under that point."""
        at = QPointF(where)
        pieces = (part for part in ORDER if self.piece(part).contains(at))
        return next(pieces, None) or next((entry.part for entry in self.entries() if entry.rect.contains(at)), None)

    def sizeHint(self) -> QSize:
        return QSize(320, int(self.entries()[-1].rect.bottom()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self.part_at(event.position().toPoint()))
        if self._spent is not None and self._pointed is not None:
            text = f"{part_words(self._spent, self._pointed)}\n{MEANINGS[self._pointed]}"
            QToolTip.showText(event.globalPosition().toPoint(), text, self)
        else:
            QToolTip.hideText()

    def leaveEvent(self, event: QEvent) -> None:
        self._point(None)
        QToolTip.hideText()
        super().leaveEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._spent is None:
            return
        scheme = theme.colors()
        painter = QPainter(self)
        painter.setFont(theme.tabular(self.font()))
        painter.fillRect(QRectF(0, 0, self.width(), BAR), QColor(scheme.raised))
        for part in ORDER:
            piece = self.piece(part)
            _fill(painter, piece, part)
            if piece.width() > 3:  # a line between neighbours
                painter.fillRect(QRectF(piece.right() - 1, 0, 1, BAR), QColor(scheme.panel))
        for entry in self.entries():
            self._draw_entry(painter, self._spent, entry)
        if self._pointed is not None:
            painter.setPen(QPen(QColor(scheme.text), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.piece(self._pointed).adjusted(1, 1, -1, -1))

    def _draw_entry(self, painter: QPainter, spent: TimeSpent, entry: _Entry) -> None:
        scheme = theme.colors()
        rect, middle = entry.rect, Qt.AlignmentFlag.AlignVCenter
        figures = milliseconds(spent.step_s)
        if entry.part is not None:
            swatch = QRectF(rect.left(), rect.top() + (LINE - SWATCH) / 2, SWATCH, SWATCH)
            _fill(painter, swatch, entry.part)
            painter.setPen(QColor(scheme.border))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(swatch)
            figures = f"{milliseconds(spent.parts.get(entry.part, 0.0))}  {percent(_share(spent, entry.part))}"
        painter.setPen(QColor(scheme.text if entry.part and entry.part == self._pointed else scheme.muted))
        painter.drawText(rect.adjusted(SWATCH + 6, 0, 0, 0), middle, _title(entry.part))
        painter.setPen(QColor(scheme.text))
        painter.drawText(rect, middle | Qt.AlignmentFlag.AlignRight, figures)

    def _point(self, part: Part | None) -> None:
        if part != self._pointed:
            self._pointed = part
            self.update()

    def _fit(self) -> None:
        height = self.sizeHint().height()
        if height != self.height():
            self.setFixedHeight(height)


def _title(part: Part | None) -> str:
    return TITLES[part] if part is not None else "Step"


def _fill(painter: QPainter, rect: QRectF, part: Part) -> None:
    ground, pattern = fills.part_fill(part)
    painter.fillRect(rect, ground)
    if pattern.style() != Qt.BrushStyle.NoBrush:
        painter.fillRect(rect, QBrush(pattern))


def _share(spent: TimeSpent, part: Part) -> float:
    return spent.parts.get(part, 0.0) / spent.step_s if spent.step_s > 0 else 0.0
