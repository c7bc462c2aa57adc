"""The one label that draws rich text; all others draw their text as it is (the application's style sheet)."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel


class Span(NamedTuple):
    """A piece of text that looks one way; whatever stands in `text` is shown as it is."""

    text: str
    bold: bool = False
    color: str = ""


class RichLabel(QLabel):
    """Shows spans one after the other. Only from them is its markup made, so that no name can bring its own."""

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
