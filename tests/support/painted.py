"""Shapes and texts that a widget paints, with the names of their colors."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from PySide6.QtCore import QBuffer, QEvent, QIODevice, QObject, QPoint
from PySide6.QtGui import QIcon, QImage, QPainter, QPaintEvent, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QAbstractItemView, QAbstractScrollArea, QGraphicsView, QLabel, QLineEdit, QWidget

from gui.style import theme

MAX_TEXTS, MAX_COLORS = 12, 8
"""Maximum number of texts and of colors to list for a widget."""
_ELEMENT = re.compile(
    r"<g (?P<state>[^>]*)>|<text (?P<style>[^>]*)>(?P<text>[^<]*)|<(?P<shape>path|rect|ellipse|poly\w+|image)\b"
)
_COLOR = re.compile(r'\b(fill|stroke)="([^"]*)"')


class PaintedRegions(QObject):
    """Event filter that records the regions that a widget paints."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.found: list[QRegion] = []
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        if isinstance(event, QPaintEvent):
            self.found.append(event.region())
        return False


def draw_icon(icon: QIcon) -> QImage:
    """Return the image of an icon, 16 pixels wide and high."""
    return icon.pixmap(16).toImage()


def is_custom_painted(widget: QWidget) -> bool:
    """Return True if a class of `gui` paints the widget or its cells, or if the widget shows a scene of items.

    Labels and line edits are excluded, because their texts describe them completely.
    """
    if isinstance(widget, QLabel | QLineEdit):
        return False
    if isinstance(widget, QAbstractItemView):
        return type(widget.itemDelegate()).__module__.startswith("gui.")
    kinds = [kind for kind in type(widget).__mro__ if kind.__module__.startswith("gui.")]
    return isinstance(widget, QGraphicsView) or any("paintEvent" in vars(kind) for kind in kinds)


def describe_painting(widget: QWidget) -> str:
    """Return the texts that a widget paints, in order, and the number of its shapes by color.

    For a view of plots, return only the colors, because the texts of the ticks depend on the font.
    """
    names = {color: name for name, color in reversed(asdict(theme.colors()).items())}
    texts: list[str] = []
    shapes: Counter[str] = Counter()
    fill = stroke = "none"
    for element in _ELEMENT.finditer(_paint_to_svg(widget)):
        colors = dict(_COLOR.findall(element["state"] or element["style"] or ""))
        if element["state"] is not None:
            fill, stroke = colors.get("fill", fill), colors.get("stroke", stroke)
        elif element["shape"]:
            shapes[" on ".join(names.get(each, each) for each in (stroke, fill) if each != "none")] += 1
        elif text := " ".join(html.unescape(element["text"]).split()):
            color = colors.get("fill", fill)
            texts.append(f"“{text}” {names.get(color, color)}" if "…" not in text else names.get(color, color))
    if isinstance(widget, QGraphicsView):
        return ", ".join(sorted({*(text.rpartition(" ")[2] for text in texts), *filter(None, shapes)}))
    drawn = [f"{count} {colors}" for colors, count in shapes.most_common(MAX_COLORS) if colors]
    return ", ".join([*texts[:MAX_TEXTS], *sorted(drawn)])


def _paint_to_svg(widget: QWidget) -> str:
    """Paint a widget without its background and its children to an SVG image. Return the SVG document."""
    buffer, generator = QBuffer(), QSvgGenerator()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator.setOutputDevice(buffer)
    target = widget.viewport() if isinstance(widget, QAbstractScrollArea) else widget
    generator.setSize(target.size())
    generator.setResolution(target.logicalDpiX())
    painter = QPainter(generator)
    target.render(painter, QPoint(), QRegion(), QWidget.RenderFlag(0))
    painter.end()
    return bytes(buffer.data().data()).decode()


def list_paintings(page: QWidget) -> Iterator[str]:
    """Yield a line with the painted texts and colors of each visible widget for which `is_custom_painted` is True."""
    for widget in page.findChildren(QWidget):
        if widget.isVisible() and is_custom_painted(widget) and (found := describe_painting(widget)):
            yield f"{type(widget).__name__} “{' '.join(widget.accessibleName().split())}” paints {found}"
