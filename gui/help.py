"""Help window with the user guide: pages from `resources/docs`, with search and links."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt
from PySide6.QtCore import QByteArray, QSignalBlocker, Qt, QUrl
from PySide6.QtGui import (
    QColor,
    QFontDatabase,
    QImage,
    QKeyEvent,
    QKeySequence,
    QResizeEvent,
    QShortcut,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
)
from PySide6.QtWidgets import (
    QDialog,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QTextBrowser,
    QTextEdit,
    QToolButton,
    QWidget,
)

from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled, tool_button
from gui.widgets.labels import muted_label
from gui.widgets.layouts import hbox, resize_with_text, vbox

CONTENTS = "index.md"
WIDEST = 84
"""Maximum line length in average characters, for readability."""
_STYLE = """
p, li, td, th { line-height: 130%; }
p { margin-top: 0; margin-bottom: 8px; }
h1 { margin-top: 0; } h2, h3, h4 { margin-top: 18px; margin-bottom: 13px; }
a { text-decoration: none; }
li { margin-bottom: 4px; }
code, pre { font-family: '$code'; font-size: ${size}pt; background: $raised; }
pre { margin-top: 0; margin-bottom: 12px; }
table { border-collapse: collapse; border: 1px solid $border; margin-top: 4px; margin-bottom: 10px; }
td, th { border: 1px solid $border; text-align: left; }
"""
_LINK = re.compile(r"\]\(([\w-]+\.md)\)")
_FILE = Qt.ItemDataRole.UserRole


@cache
def folder() -> Path:
    return Path(str(files("resources").joinpath("docs")))


@cache
def list_pages() -> dict[str, str]:
    """Return the title of each page by file name: the contents page first, then the pages to which it links."""
    contents = folder().joinpath(CONTENTS).read_text(encoding="utf-8")
    names = dict.fromkeys([CONTENTS, *_LINK.findall(contents)])
    return {name: _read_page(name).partition("\n")[0].removeprefix("# ") for name in names}


def _read_page(name: str) -> str:
    return folder().joinpath(name).read_text(encoding="utf-8")


class HelpWindow(QDialog):
    """Non-modal window with the user guide. Escape closes it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setWindowTitle(tr("Help – Footplate"))
        styled(self, "panel")
        resize_with_text(self, 1040, 740)
        self.page = ""
        """File name of the current page."""
        self._documents: dict[str, QTextDocument] = {}  # for the search, by file name
        self.search = QLineEdit(clearButtonEnabled=True)
        self.search.setPlaceholderText(tr("Search all pages…"))
        self.search.setAccessibleName(tr("Search help"))
        self.search.setToolTip(tr("Enter and Shift+Enter go to the next and the previous match (Ctrl+F)"))
        self.search.textChanged.connect(self._search)
        self.no_match = muted_label(word_wrap=True)
        self.no_match.hide()
        self.list = styled(QListWidget(), name=tr("Pages of help"))
        self.list.setSpacing(3)
        self.list.currentItemChanged.connect(self._on_page_chosen)
        self.browser = Browser()
        self.browser.setAccessibleName(tr("Page of help"))
        self.browser.setSearchPaths([str(folder())])
        self.browser.sourceChanged.connect(self._on_page_loaded)
        self.back = self._create_button(tr("Back"), QKeySequence(QKeySequence.StandardKey.Back))
        self.back.clicked.connect(self.browser.backward)
        self.browser.backwardAvailable.connect(self.back.setEnabled)
        self.forward = self._create_button(tr("Forward"), QKeySequence(QKeySequence.StandardKey.Forward))
        self.forward.clicked.connect(self.browser.forward)
        self.browser.forwardAvailable.connect(self.forward.setEnabled)
        QShortcut(QKeySequence(QKeySequence.StandardKey.Find), self).activated.connect(self._go_to_search)
        theme.notifier.changed.connect(self.recolor)
        self._lay_out()
        self._show_list(dict.fromkeys(list_pages(), 0))  # without numbers of matches
        self.open_page(CONTENTS)

    def open_page(self, name: str) -> None:
        self.browser.setSource(QUrl(name))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._go_to_next_match(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
        else:
            super().keyPressEvent(event)

    def _lay_out(self) -> None:
        for widget in (self.search, self.no_match, self.list):
            theme.scale_with_text(widget.setFixedWidth, 260)
        side = vbox(self.search, self.no_match, self.list, margins=(0, 0, 0, 12))
        row = hbox(self.back, self.forward, 1)
        text = vbox(row, (self.browser, 1))
        self.setLayout(hbox(side, (text, 1), spacing=12, margins=(12, 12, 0, 0)))

    def _create_button(self, text: str, keys: QKeySequence) -> QToolButton:
        """Create a disabled button that displays `text`, and name its shortcut `keys` in its tool tip."""
        button = tool_button(text=text, tip=f"{text} ({keys.toString(QKeySequence.SequenceFormat.NativeText)})")
        button.setShortcut(keys)
        button.setEnabled(False)
        return button

    # The pages

    def _show_list(self, counts: dict[str, int]) -> None:
        """List the pages in `counts` with their numbers of matches, which are 0 while no text is searched."""
        with QSignalBlocker(self.list):
            self.list.clear()
            for name, count in counts.items():
                item = QListWidgetItem(f"{list_pages()[name]} ({count})" if count else list_pages()[name])
                item.setData(_FILE, name)
                self.list.addItem(item)
            self._select_page()

    def _select_page(self) -> None:
        """Select the current page in the list, or nothing if it isn't listed."""
        rows = [row for row in range(self.list.count()) if self.list.item(row).data(_FILE) == self.page]
        self.list.setCurrentRow(rows[0] if rows else -1)

    def _on_page_chosen(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            self.open_page(item.data(_FILE))
            self._go_to_next_match(1)

    def _on_page_loaded(self, url: QUrl) -> None:
        """Select the page that the browser shows in the list, and highlight its matches."""
        self.page = url.fileName()
        with QSignalBlocker(self.list):
            self._select_page()
        self._highlight()

    def recolor(self) -> None:
        """Reload the page in the colors of the theme, without changing the scroll position."""
        scroll_position = self.browser.verticalScrollBar().value()
        self.browser.reload()
        self.browser.verticalScrollBar().setValue(scroll_position)
        self._highlight()

    # The search

    def _go_to_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()

    def _search(self) -> None:
        """List the pages that contain the searched text, and go to the first match. Without a text, list all pages."""
        text = self.search.text().strip()
        if text:
            counts = {name: len(find_matches(self._load_document(name), text)) for name in list_pages()}
            listed = {name: count for name, count in counts.items() if count}
        else:
            listed = dict.fromkeys(list_pages(), 0)
        self.no_match.setVisible(not listed)
        self.no_match.setText(tr("No page mentions “{text}”.").format(text=text))
        self._show_list(listed)
        has_match = bool(text) and bool(listed)
        if has_match and self.page not in listed:
            self.open_page(next(iter(listed)))
        self._highlight()
        if has_match:
            self._go_to(find_matches(self.browser.document(), text)[0])

    def _go_to_next_match(self, direction: int) -> None:
        """Go to the next match (`direction` 1) or the previous one (-1), which may be on another page."""
        text = self.search.text().strip()
        names = [self.list.item(row).data(_FILE) for row in range(self.list.count())]
        if not text or not names:
            return
        cursor = self.browser.textCursor()
        match_cursors = find_matches(self.browser.document(), text)
        following = [each for each in match_cursors if (each.position() - cursor.position()) * direction > 0]
        if not following:
            row = names.index(self.page) if self.page in names else -direction  # an unlisted page: open the first one
            self.open_page(names[(row + direction) % len(names)])
            following = find_matches(self.browser.document(), text)  # not empty: only pages with matches are listed
        self._go_to(following[0] if direction > 0 else following[-1])

    def _go_to(self, match: QTextCursor) -> None:
        """Place the cursor after a match, and scroll to the match and some context."""
        self.browser.setTextCursor(match)
        top = self.browser.cursorRect(match).top()
        if not 0 < top < self.browser.viewport().height() - 60:
            bar = self.browser.verticalScrollBar()
            bar.setValue(bar.value() + top - self.browser.viewport().height() // 3)

    def _highlight(self) -> None:
        """Highlight all matches on the current page."""
        text = self.search.text().strip()
        highlights = []
        for cursor in find_matches(self.browser.document(), text) if text else ():
            highlight = QTextEdit.ExtraSelection()
            highlight.cursor = cursor
            highlight.format = QTextCharFormat()
            highlight.format.setBackground(QColor(theme.colors().warning))
            highlight.format.setForeground(QColor(theme.colors().panel))
            highlights.append(highlight)
        self.browser.setExtraSelections(highlights)

    def _load_document(self, name: str) -> QTextDocument:
        """Return the plain-text document of the page in the file `name`. Documents are cached."""
        if name not in self._documents:
            self._documents[name] = QTextDocument(self)
            self._documents[name].setMarkdown(_read_page(name))
        return self._documents[name]


def find_matches(document: QTextDocument, text: str) -> list[QTextCursor]:
    """Return a cursor for each occurrence of `text` in `document`, ignoring case."""
    cursors = []
    cursor = document.find(text)
    while not cursor.isNull():
        cursors.append(cursor)
        cursor = document.find(text, cursor)
    return cursors


class Browser(QTextBrowser):
    """Browser for pages of the guide. Links to websites open in the desktop's browser."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setFrameShape(QTextBrowser.Shape.NoFrame)
        self.setOpenExternalLinks(True)
        font = self.font()
        font.setPointSizeF(font.pointSizeF() * 1.1)
        self.setFont(font)

    def doSetSource(
        self, url: QUrl | str, /, type: QTextDocument.ResourceType = QTextDocument.ResourceType.UnknownResource
    ) -> None:
        """Load a page as an HTML resource, because `loadResource` converts the page from Markdown to HTML.

        By the suffix of the file, Qt would load it as Markdown.
        """
        super().doSetSource(url, QTextDocument.ResourceType.HtmlResource)
        # Qt doesn't update the scroll bars while it lays out a long page.
        self.document().documentLayout().documentSizeChanged.emit(self.document().size())

    def loadResource(self, type: int, name: QUrl | str, /) -> object:
        """Load the resource at `name`, depending on its `type`.

        A page is returned as HTML, and its style sheet is set. An image is scaled down to the width of a line. Other
        resources are returned unchanged.
        """
        loaded = super().loadResource(type, name)
        if not isinstance(loaded, QByteArray):
            return loaded
        if type == QTextDocument.ResourceType.HtmlResource.value:
            self.document().setDefaultStyleSheet(self._make_style_sheet())
            return convert_to_html(bytes(loaded.data()).decode())
        if type == QTextDocument.ResourceType.ImageResource.value:
            return self._scale_to_line(QImage.fromData(loaded))
        return loaded

    def _scale_to_line(self, image: QImage) -> QImage:
        """Return `image`, scaled down if it is wider than a line of text. High-resolution screens get more pixels."""
        ratio = self.devicePixelRatioF()
        width = min(image.width(), self._max_line_width - 2 * round(self.document().documentMargin()))
        if width * ratio < image.width():
            image = image.scaledToWidth(round(width * ratio), Qt.TransformationMode.SmoothTransformation)
        image.setDevicePixelRatio(image.width() / max(1, width))
        return image

    @property
    def _max_line_width(self) -> int:
        return self.fontMetrics().averageCharWidth() * WIDEST

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Limit the line length, and center the lines in a wide window."""
        width = self.contentsRect().width() - self.verticalScrollBar().sizeHint().width()
        margin = max(16, (width - self._max_line_width) // 2)
        self.setViewportMargins(margin, 0, margin, 0)
        super().resizeEvent(event)

    def _make_style_sheet(self) -> str:
        """Return the style sheet of pages in the colors of the theme."""
        colors, code = theme.colors(), QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        return Template(_STYLE).substitute(
            border=colors.border, raised=colors.raised, code=code.family(), size=self.font().pointSizeF() * 0.9
        )


def convert_to_html(markdown: str) -> str:
    """Convert a page of the guide from Markdown to HTML.

    The anchor of a heading consists of its words in lower case, joined by hyphens.
    """
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(markdown)
    for token, following in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", re.sub(r"[^\w]+", "-", following.content.lower()))
        elif token.type == "table_open":
            # Not 100%, since Qt rounds the widths of columns up.
            token.attrs = {"border": "1", "cellpadding": "6", "cellspacing": "0", "width": "99%"}
        elif token.type == "fence":
            token.content = token.content.rstrip()
    return str(parser.renderer.render(tokens, parser.options, {}))
