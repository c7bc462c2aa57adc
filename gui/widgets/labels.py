"""Labels and problem lists that several pages use. Only `RichLabel` interprets rich text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import (
    QAction,
    QContextMenuEvent,
    QGuiApplication,
    QHelpEvent,
    QIcon,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QLabel,
    QMenu,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QToolTip,
    QWidget,
)

from engine.contract.problems import Problem
from engine.system.plain_text import shorten
from gui.style import icons, theme
from gui.translation import tr
from gui.widgets.layouts import FlowLayout, hbox, with_layout


def muted_label(text: str = "", *, word_wrap: bool = False) -> QLabel:
    """Create a label in the muted color."""
    label = QLabel(text, wordWrap=word_wrap)
    label.setObjectName("muted")
    return label


def heading_label(text: str = "") -> QLabel:
    label = QLabel(text)
    label.setObjectName("heading")
    return label


def caption(text: str = "", style: str = "muted") -> QLabel:
    """Create a label with word wrap, in a style of the style sheet."""
    label = QLabel(text, wordWrap=True)
    label.setObjectName(style)
    return label


def field_label(text: str, field: QWidget) -> QLabel:
    """Create a muted label whose mnemonic key focuses `field`."""
    label = muted_label(text)
    label.setBuddy(field)
    return label


def labeled(text: str, control: QWidget, *after: QWidget, spacing: int = 6) -> QWidget:
    """Create a row of a muted label, `control`, and the widgets `after` it.

    The label's mnemonic key focuses `control`.
    """
    if not control.accessibleName():
        control.setAccessibleName(text.replace("&", ""))
    return with_layout(hbox(field_label(text, control), control, *after, spacing=spacing))


class ElidedLabel(QLabel):
    """Single line of text, elided at its end if it doesn't fit."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def minimumSizeHint(self) -> QSize:
        return QSize(20, super().minimumSizeHint().height())

    def event(self, event: QEvent) -> bool:
        """Show elided text in full as a tool tip, unless the tool tip of the label or of its parent contains it."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip and not self.toolTip():
            text, parent = self.text(), self.parentWidget()
            is_elided = self.fontMetrics().horizontalAdvance(text) > self.width()
            if is_elided and (parent is None or text not in parent.toolTip()):
                QToolTip.showText(event.globalPos(), text, self)
                return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        elided = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.contentsRect().width())
        self.style().drawItemText(
            painter,
            self.contentsRect(),
            self.alignment(),
            self.palette(),
            self.isEnabled(),
            elided,
            self.foregroundRole(),
        )


class IconLabel(QLabel):
    """Icon as high as a line of text, which follows the color scheme. `spoken` is its accessible name."""

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
        self.setPixmap(self._icon.pixmap(QSize(1, 1) * theme.scale_pixels(16), self.devicePixelRatioF()))


class Span(NamedTuple):
    """Plain text in one style, as a part of a `RichLabel`."""

    text: str
    bold: bool = False
    color: str = ""


class RichLabel(QLabel):
    """Label with word wrap that builds its markup from spans. All text is escaped."""

    def __init__(self) -> None:
        super().__init__(wordWrap=True)
        self.setTextFormat(Qt.TextFormat.RichText)

    def show_spans(self, spans: Iterable[Span]) -> None:
        markup = "".join(map(_format_span, spans))
        if markup != self.text():
            self.setText(markup)


def _format_span(span: Span) -> str:
    """Return a span as markup, with its text escaped."""
    text = escape(span.text)
    if span.color:
        text = f'<span style="color:{escape(span.color)}">{text}</span>'
    return f"<b>{text}</b>" if span.bold else text


_MARGIN = 16


class EmptyState(QScrollArea):
    """Muted message in the center of its area, with word wrap and a scroll bar if necessary."""

    def __init__(self, text: str = "") -> None:
        super().__init__(widgetResizable=True)
        self._label = muted_label(text, word_wrap=True)
        self._label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._label.setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
        self.setObjectName("panel")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidget(self._label)

    def text(self) -> str:
        return self._label.text()

    def setText(self, text: str) -> None:
        self._label.setText(text)


_BREAK = "\u200b"
_LONGEST = 20
"""Maximum length in characters of a word, or of a piece between separators, without line breaks."""


class WrappingLabel(QLabel):
    """Label for plain text that also wraps within long words such as file names, which QLabel would clip.

    Long words get invisible break points, which are removed when text is copied.
    """

    def __init__(self, text: str = "", name: str = "") -> None:
        """Create a label. The style sheet refers to its object name `name`."""
        super().__init__(wordWrap=True)
        self._text = ""
        self.setObjectName(name)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.setText(text)

    def setText(self, text: str) -> None:
        """Show a text with break points. Screen readers get the text without them."""
        self._text = text
        broken = insert_break_points(text)
        super().setText(broken)
        self.setAccessibleName(text if broken != text else "")

    def text(self) -> str:
        return self._text

    def selectedText(self) -> str:
        return super().selectedText().replace(_BREAK, "")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and self.hasSelectedText():
            self._copy()
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer to copy the selected text without break points, in place of Qt's menu, which would copy them."""
        if not self.hasSelectedText():
            event.ignore()
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = QAction(tr("&Copy"), menu)
        copy.triggered.connect(self._copy)
        menu.addAction(copy)
        menu.popup(event.globalPos())

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.selectedText())


def insert_break_points(text: str) -> str:
    """Insert invisible break points into long words: after separators, and anywhere in long sections between these."""
    return re.sub(rf"\S{{{_LONGEST + 1},}}", lambda match: _break_word(match[0]), text)


def _break_word(word: str) -> str:
    """Insert break points after the separators in `word`, and between all characters of long pieces."""
    pieces = re.findall(r"[^/\\_.,;-]*[/\\_.,;-]|[^/\\_.,;-]+", word)
    return _BREAK.join(piece if len(piece) <= _LONGEST else _BREAK.join(piece) for piece in pieces)


class ProblemLabel(QWidget):
    """List of problems, each with an icon (because color alone isn't accessible) and a button for each remedy.

    Signals:
        chosen(Choice): the user has pressed the button of a remedy.
    """

    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 1, 0, 3)
        self._grid.setHorizontalSpacing(5)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(1, 1)
        self._problems: tuple[Problem, ...] = ()
        self._lines: list[QWidget] = []  # widgets of all problems
        self.hide()

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        if problems != self._problems:
            self._problems = problems
            self._rebuild()

    def text(self) -> str:
        return "\n".join(map(str, self._problems))

    def _rebuild(self) -> None:
        """Recreate the icon, text and buttons of each problem. Hide the list if there are none."""
        for line in self._lines:
            self._grid.removeWidget(line)
            line.deleteLater()
        self._lines = []
        for problem in self._problems:
            icon_label = IconLabel(problem.severity, problem.severity, problem.severity.capitalize())
            text = WrappingLabel(shorten(problem.message if problem.choices else str(problem)), problem.severity)
            text.setToolTip(str(problem) if problem.choices else "")
            text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)  # remedies may be commands
            row = len(self._lines)
            self._grid.addWidget(icon_label, row, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(text, row, 1)
            self._lines += [icon_label, text]
            if problem.choices:
                self._lines.append(self._create_buttons(problem))
                self._grid.addWidget(self._lines[-1], row + 1, 1)
        self.setVisible(bool(self._problems))

    def _create_buttons(self, problem: Problem) -> QWidget:
        """Create the buttons for a problem's remedies, in as many rows as necessary."""
        holder = QWidget()
        flow = FlowLayout(holder, spacing=6)
        for choice in problem.choices:
            button = QPushButton(choice.title)
            button.setAccessibleDescription(str(problem))
            button.clicked.connect(lambda _on=False, choice=choice: self.chosen.emit(choice))
            flow.addWidget(button)
        return holder
