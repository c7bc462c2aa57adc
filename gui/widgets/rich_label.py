"""Label with rich text; all other labels are plain by the application's style sheet."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel


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
