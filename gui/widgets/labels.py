"""Labels that several pages share. All but rich ones are plain by the application's style sheet."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from gui.style import icons
from gui.widgets.layouts import hbox


def muted_label(text: str = "", *, word_wrap: bool = False) -> QLabel:
    """Return a label in the muted color."""
    label = QLabel(text, wordWrap=word_wrap)
    label.setObjectName("muted")
    return label


def heading_label(text: str = "") -> QLabel:
    """Return a label in the style of headings."""
    label = QLabel(text)
    label.setObjectName("heading")
    return label


def caption(text: str = "", style: str = "muted") -> QLabel:
    """Return a label that wraps, with an object name that the style sheet knows."""
    label = QLabel(text, wordWrap=True)
    label.setObjectName(style)
    return label


def field_label(text: str, field: QWidget) -> QLabel:
    """Return a muted label whose mnemonic leads to `field`."""
    label = muted_label(text)
    label.setBuddy(field)
    return label


def labelled(text: str, control: QWidget, *after: QWidget, spacing: int = 6) -> QWidget:
    """Return a row with a muted label, which is the buddy of `control`, the control, and the widgets after it."""
    together = QWidget()
    together.setLayout(hbox(field_label(text, control), control, *after, spacing=spacing))
    return together


class ElidedLabel(QLabel):
    """Line of text that is elided if it doesn't fit; owners set a tool tip with the full text."""

    def __init__(
        self,
        text: str = "",
        parent: QWidget | None = None,
        *,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
    ) -> None:
        """Create a label; `mode` says where the text is cut, for a path in the middle."""
        super().__init__(text, parent)
        self._mode = mode
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def minimumSizeHint(self) -> QSize:
        return QSize(20, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        elided = self.fontMetrics().elidedText(self.text(), self._mode, self.width())
        self.style().drawItemText(
            painter, self.rect(), self.alignment(), self.palette(), self.isEnabled(), elided, self.foregroundRole()
        )


class IconLabel(QLabel):
    """Icon of 16 pixels that follows the scheme; `spoken` is its accessible name."""

    def __init__(self, name: str = "", color: str = "", spoken: str = "") -> None:
        super().__init__()
        self._icon = QIcon()
        if name:
            self.show_icon(name, color, spoken)

    def show_icon(self, name: str, color: str, spoken: str) -> None:
        self._icon = icons.icon(name, color)
        self.setAccessibleName(spoken)
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self._draw()

    def _draw(self) -> None:
        self.setPixmap(self._icon.pixmap(QSize(16, 16), self.devicePixelRatioF()))


class Span(NamedTuple):
    """Piece of plain text with one style."""

    text: str
    bold: bool = False
    color: str = ""


class RichLabel(QLabel):
    """Label that builds its markup from spans; all text is escaped."""

    def __init__(self, *, wordWrap: bool = False) -> None:  # noqa: N803  (Qt's own)
        super().__init__(wordWrap=wordWrap)
        self.setTextFormat(Qt.TextFormat.RichText)

    def show_spans(self, spans: Iterable[Span]) -> None:
        text = "".join(map(_marked_up, spans))
        if text != self.text():
            self.setText(text)


def _marked_up(span: Span) -> str:
    text = escape(span.text)
    if span.color:
        text = f'<span style="color:{escape(span.color)}">{text}</span>'
    return f"<b>{text}</b>" if span.bold else text
