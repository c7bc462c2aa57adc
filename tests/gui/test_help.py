"""Help window with the user guide."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QPoint, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QFontDatabase, QImage, QKeySequence, QTextCursor, QTextDocument
from pytestqt.qtbot import QtBot

from gui import help as helping
from gui.help import HelpWindow, list_pages
from gui.style import theme
from tests.support.widgets import OpenWindow, ShowWidget


@pytest.fixture
def window(show_widget: ShowWidget) -> HelpWindow:
    return show_widget(HelpWindow())


def list_titles(window: HelpWindow) -> list[str]:
    return [window.list.item(row).text() for row in range(window.list.count())]


def click_link(window: HelpWindow, qtbot: QtBot, text: str) -> None:
    """Click the first occurrence of `text` on the page."""
    cursor = window.browser.document().find(text)
    middle = QTextCursor(window.browser.document())
    middle.setPosition((cursor.selectionStart() + cursor.selectionEnd()) // 2)
    window.browser.setTextCursor(middle)
    at = window.browser.cursorRect(middle).center() + QPoint(1, 0)
    qtbot.mouseClick(window.browser.viewport(), Qt.MouseButton.LeftButton, pos=at)


def read_selection(window: HelpWindow) -> str:
    return window.browser.textCursor().selectedText()


def test_help_opens_by_f1_and_closes_by_escape(open_window: OpenWindow, qtbot: QtBot) -> None:
    main = open_window()
    qtbot.waitUntil(main.isActiveWindow)
    assert main.help is None  # it is created by its first use
    qtbot.keyClick(main, Qt.Key.Key_F1)
    qtbot.waitUntil(lambda: main.help is not None and main.help.isVisible())
    first = main.help
    assert first is not None
    assert not first.isModal()
    assert first.page == "index.md"
    qtbot.keyClick(first, Qt.Key.Key_Escape)
    assert not first.isVisible()
    main.header.help.click()
    assert main.help is first
    assert first.isVisible()
    main.close()
    assert not first.isVisible()


@pytest.mark.parametrize("name", list(list_pages()))
def test_help_page_has_its_title(window: HelpWindow, name: str) -> None:
    window.open_page(name)
    assert window.browser.document().begin().text() == list_pages()[name]
    assert window.list.currentItem().text() == list_pages()[name]
    assert "`" not in window.browser.toPlainText().replace("```", "")
    assert window.browser.horizontalScrollBar().maximum() == 0


def test_images_fit_the_text_width(window: HelpWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> QImage:
        image = window.browser.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl("images/window.png"))
        assert isinstance(image, QImage)
        return image

    window.open_page("window.md")
    image = load()
    assert not image.isNull()
    assert image.deviceIndependentSize().width() <= window.browser.viewport().width()
    monkeypatch.setattr(window.browser, "devicePixelRatioF", lambda: 1.5)
    sharp = load()
    assert sharp.width() == round(1.5 * image.width())
    assert sharp.deviceIndependentSize().width() == pytest.approx(image.width())


def test_links_open_pages_and_back(window: HelpWindow, qtbot: QtBot) -> None:
    assert not window.back.isEnabled()
    click_link(window, qtbot, "Strategies")
    qtbot.waitUntil(lambda: window.page == "strategies.md")
    assert window.list.currentItem().text() == "Strategies"
    assert window.back.toolTip() == "Back (Alt+Left)"
    qtbot.keySequence(window, QKeySequence(QKeySequence.StandardKey.Back))
    qtbot.waitUntil(lambda: window.page == "index.md")
    assert window.list.currentItem().text() == list_pages()["index.md"]
    window.forward.click()
    assert window.page == "strategies.md"


def test_link_scrolls_to_its_heading(window: HelpWindow) -> None:
    window.open_page("contributing.md")
    window.browser.setSource(QUrl("contributing.md#adding-a-model"))
    top = window.browser.cursorForPosition(QPoint(5, 5))
    assert top.block().text() == "Adding a model"
    assert window.browser.verticalScrollBar().value() > 0


def test_external_links_open_outside(window: HelpWindow, qtbot: QtBot, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n[elsewhere](https://example.org/elsewhere)\n")
    window.browser.setSource(QUrl.fromLocalFile(str(page)))
    opened: list[QUrl] = []

    class Handler(QObject):
        @Slot(QUrl)
        def take(self, url: QUrl) -> None:
            opened.append(url)

    handler = Handler()
    QDesktopServices.setUrlHandler("https", handler, "take")
    click_link(window, qtbot, "elsewhere")
    QDesktopServices.unsetUrlHandler("https")
    assert opened == [QUrl("https://example.org/elsewhere")]
    assert window.browser.source() == QUrl.fromLocalFile(str(page))


def test_all_pages_are_in_the_list(window: HelpWindow) -> None:
    assert list_titles(window)[0] == "Footplate: the user's guide"
    assert len(list_titles(window)) == len(list(helping.folder().glob("*.md")))


def test_list_opens_pages(window: HelpWindow, qtbot: QtBot) -> None:
    window.list.setFocus()
    qtbot.keyClick(window.list, Qt.Key.Key_Down)
    assert window.page == "window.md"
    window.search.setText("pipeline")
    item = window.list.findItems("Strategies", Qt.MatchFlag.MatchStartsWith)[0]
    window.list.setCurrentItem(item)
    assert (window.page, read_selection(window).lower()) == ("strategies.md", "pipeline")
    for _ in range(2):
        assert {each.cursor.selectedText().lower() for each in window.browser.extraSelections()} == {"pipeline"}
        theme.notifier.changed.emit()
    window.search.setText("pipelin")
    assert window.page == "strategies.md", "because it contains a match"


def test_search_covers_all_pages(window: HelpWindow, qtbot: QtBot) -> None:
    window.list.setFocus()
    qtbot.keySequence(window, QKeySequence(QKeySequence.StandardKey.Find))
    assert window.search.hasFocus()
    qtbot.keyClicks(window.search, "zb1p")
    assert list_titles(window) == ["Strategies (1)"]
    assert window.page == "strategies.md"
    assert read_selection(window) == "ZB1P"
    assert 0 < window.browser.cursorRect().top() < window.browser.viewport().height() - 60  # with some context below
    (highlight,) = window.browser.extraSelections()
    brushes = (highlight.format.background(), highlight.format.foreground())
    assert [brush.color().name() for brush in brushes] == [theme.colors().warning, theme.colors().panel]
    assert highlight.cursor.selectedText() == "ZB1P"
    window.search.clear()
    assert list_titles(window) == list(list_pages().values())
    assert window.browser.extraSelections() == []


def test_search_reports_no_matches(window: HelpWindow, qtbot: QtBot) -> None:
    qtbot.keyClicks(window.search, "<b>wombat")
    assert window.no_match.isVisible()
    assert window.no_match.text() == "No page mentions “<b>wombat”."
    assert list_titles(window) == []
    qtbot.keyClick(window.search, Qt.Key.Key_Return)
    window.search.clear()
    assert not window.no_match.isVisible()


def test_return_key_cycles_through_matches(window: HelpWindow, qtbot: QtBot) -> None:
    qtbot.keyClicks(window.search, "pipeline")
    counts: dict[str, int] = {}
    for name in list_pages():
        window.open_page(name)
        if count := window.browser.toPlainText().lower().count("pipeline"):
            counts[name] = count
    assert len(counts) > 2
    assert list_titles(window) == [f"{list_pages()[name]} ({count})" for name, count in counts.items()]
    unlisted = next(name for name in reversed(list_pages()) if name not in counts)
    window.open_page(unlisted)
    qtbot.keyClick(window.search, Qt.Key.Key_Enter)
    positions = []
    for _ in range(sum(counts.values())):
        positions.append((window.page, window.browser.textCursor().position()))
        assert read_selection(window).lower() == "pipeline"
        qtbot.keyClick(window.search, Qt.Key.Key_Return)
    assert [page for page, _ in positions] == [name for name, count in counts.items() for _ in range(count)]
    assert len(set(positions)) == len(positions)
    assert (window.page, window.browser.textCursor().position()) == positions[0]
    for place in reversed(positions):
        qtbot.keyClick(window.search, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
        assert (window.page, window.browser.textCursor().position()) == place
    window.open_page(unlisted)
    qtbot.keyClick(window.search, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert (window.page, window.browser.textCursor().position()) == positions[counts[next(iter(counts))] - 1]


def test_markdown_becomes_html() -> None:
    assert helping.convert_to_html("## The `A` part\n\n```\nx\n```\n\n|a|\n|-|\n|b|\n").replace(">\n", ">") == (
        '<h2 id="the-a-part">The <code>A</code> part</h2><pre><code>x</code></pre>'
        '<table border="1" cellpadding="6" cellspacing="0" width="99%"><thead><tr><th>a</th></tr></thead>'
        "<tbody><tr><td>b</td></tr></tbody></table>"
    )


@pytest.mark.parametrize("width", [700, 1280, 2560])
def test_lines_have_limited_length(window: HelpWindow, qtbot: QtBot, width: int) -> None:
    window.resize(width, 800)
    window.open_page("speed.md")
    letters = window.browser.viewport().width() / window.browser.fontMetrics().averageCharWidth()
    assert letters <= helping.WIDEST + 1
    assert width == 700 or letters > helping.WIDEST - 2
    assert window.browser.horizontalScrollBar().maximum() == 0


def test_help_follows_the_theme(window: HelpWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    window.open_page("tasks.md")
    window.browser.verticalScrollBar().setValue(300)

    def colors() -> set[str]:
        formats = [each.toCharFormat() for each in window.browser.document().allFormats() if each.isCharFormat()]
        font, code = window.browser.font(), QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
        assert font.pointSizeF() == pytest.approx(1.1 * window.font().pointSizeF())
        sizes = {each.fontPointSize() for each in formats if each.fontFamilies() == [code]}
        assert list(sizes) == pytest.approx([0.9 * font.pointSizeF()], abs=0.05)
        return {each.background().color().name() for each in formats}

    before = colors()
    monkeypatch.setattr(theme, "colors", lambda: theme.DARK)
    theme.notifier.changed.emit()
    assert theme.DARK.raised in colors()
    assert theme.DARK.raised not in before
    assert window.browser.verticalScrollBar().value() == 300
