"""Help: the user's guide in a window of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QPoint, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QImage, QKeySequence, QTextCursor, QTextDocument
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from gui import help as helping
from gui.help import HelpWindow, pages
from gui.main_window import MainWindow
from gui.style import theme
from tests.gui.test_app_names import spoken_name


@pytest.fixture
def window(styled: QApplication, qtbot: QtBot) -> HelpWindow:
    made = HelpWindow()
    qtbot.addWidget(made)
    made.show()
    qtbot.waitExposed(made)
    return made


def listed(window: HelpWindow) -> list[str]:
    return [window.list.item(row).text() for row in range(window.list.count())]


def click_link(window: HelpWindow, qtbot: QtBot, text: str) -> None:
    """Clicks into the middle of the first place where the page says `text`."""
    cursor = window.browser.document().find(text)
    middle = QTextCursor(window.browser.document())
    middle.setPosition((cursor.selectionStart() + cursor.selectionEnd()) // 2)
    window.browser.setTextCursor(middle)
    at = window.browser.cursorRect(middle).center() + QPoint(1, 0)
    qtbot.mouseClick(window.browser.viewport(), Qt.MouseButton.LeftButton, pos=at)


def selected(window: HelpWindow) -> str:
    return window.browser.textCursor().selectedText()


def test_that_f1_opens_it_and_escape_or_the_window_closes_it(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    main = open_window()
    qtbot.waitActive(main)
    assert main.help is None
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


def test_that_nothing_of_it_is_imported_before(qapp: QApplication) -> None:
    told = "import gui.main_window, gui.workspace, sys; sys.exit('gui.help' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0


def test_that_every_control_has_a_name(window: HelpWindow) -> None:
    stops = [each for each in window.findChildren(QWidget) if each.focusPolicy() & Qt.FocusPolicy.TabFocus]
    assert len(stops) >= 4
    assert [type(each).__name__ for each in stops if not spoken_name(each).strip()] == []


@pytest.mark.parametrize("name", list(pages()))
def test_that_a_page_is_shown_with_its_title(window: HelpWindow, name: str) -> None:
    window.open_page(name)
    assert window.browser.document().begin().text() == pages()[name]
    assert window.list.currentItem().text() == pages()[name]
    assert "`" not in window.browser.toPlainText().replace("```", "")
    assert window.browser.horizontalScrollBar().maximum() == 0


def test_that_pictures_are_shown_whole_and_as_wide_as_the_text_at_most(window: HelpWindow) -> None:
    window.open_page("window.md")
    picture = window.browser.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl("images/window.png"))
    assert isinstance(picture, QImage)
    assert not picture.isNull()
    assert picture.deviceIndependentSize().width() <= window.browser.viewport().width()


def test_that_links_lead_to_pages_and_back(window: HelpWindow, qtbot: QtBot) -> None:
    assert not window.back.isEnabled()
    click_link(window, qtbot, "Strategies")
    qtbot.waitUntil(lambda: window.page == "strategies.md")
    assert window.list.currentItem().text() == "Strategies"
    window.back.click()
    assert window.page == "index.md"
    assert window.list.currentItem().text() == pages()["index.md"]
    window.forward.click()
    assert window.page == "strategies.md"


def test_that_a_link_to_a_heading_goes_there(window: HelpWindow) -> None:
    window.open_page("contributing.md")
    window.browser.setSource(QUrl("contributing.md#adding-a-model"))
    top = window.browser.cursorForPosition(QPoint(5, 25))
    assert "Adding a model" in (top.block().text(), top.block().next().text())
    assert window.browser.verticalScrollBar().value() > 0


def test_that_other_links_open_outside(window: HelpWindow, qtbot: QtBot, tmp_path: Path) -> None:
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


def test_that_all_pages_are_listed(window: HelpWindow) -> None:
    assert listed(window)[0] == "Footplate: the user's guide"
    assert len(listed(window)) == len(list(helping.folder().glob("*.md")))


def test_that_the_list_opens_pages(window: HelpWindow, qtbot: QtBot) -> None:
    window.list.setFocus()
    qtbot.keyClick(window.list, Qt.Key.Key_Down)
    assert window.page == "window.md"


def test_that_a_search_finds_words_on_all_pages(window: HelpWindow, qtbot: QtBot) -> None:
    window.list.setFocus()
    qtbot.keySequence(window, QKeySequence(QKeySequence.StandardKey.Find))
    assert window.search.hasFocus()
    qtbot.keyClicks(window.search, "zb1p")
    assert listed(window) == ["Strategies (1)"]
    assert window.page == "strategies.md"
    assert selected(window) == "ZB1P"
    assert window.browser.viewport().rect().contains(window.browser.cursorRect().center())
    assert [each.cursor.selectedText() for each in window.browser.extraSelections()] == ["ZB1P"]
    window.search.clear()
    assert listed(window) == list(pages().values())
    assert window.browser.extraSelections() == []


def test_that_what_no_page_says_is_told(window: HelpWindow, qtbot: QtBot) -> None:
    qtbot.keyClicks(window.search, "<b>wombat")
    assert window.found.isVisible()
    assert window.found.text() == "No page mentions “<b>wombat”."
    assert listed(window) == []
    qtbot.keyClick(window.search, Qt.Key.Key_Return)
    window.search.clear()
    assert not window.found.isVisible()


def test_that_enter_goes_through_all_matches_of_all_pages(window: HelpWindow, qtbot: QtBot) -> None:
    qtbot.keyClicks(window.search, "pipeline")
    counts = {name: len(helping.matches(window._document(name), "pipeline")) for name in pages()}
    counts = {name: count for name, count in counts.items() if count}
    assert len(counts) > 2
    seen = []
    for _ in range(sum(counts.values())):
        seen.append((window.page, window.browser.textCursor().position()))
        assert selected(window).lower() == "pipeline"
        qtbot.keyClick(window.search, Qt.Key.Key_Return)
    assert [page for page, _ in seen] == [name for name, count in counts.items() for _ in range(count)]
    assert len(set(seen)) == len(seen)
    assert (window.page, window.browser.textCursor().position()) == seen[0]
    for place in reversed(seen):
        qtbot.keyClick(window.search, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
        assert (window.page, window.browser.textCursor().position()) == place


@pytest.mark.parametrize("width", [700, 1280, 2560])
def test_that_lines_are_short_enough_to_read(window: HelpWindow, qtbot: QtBot, width: int) -> None:
    window.resize(width, 800)
    window.open_page("speed.md")
    letters = window.browser.viewport().width() / window.browser.fontMetrics().averageCharWidth()
    assert letters <= helping.WIDEST + 1
    assert width == 700 or letters > helping.WIDEST - 2
    assert window.browser.horizontalScrollBar().maximum() == 0


def test_that_it_follows_light_and_dark(window: HelpWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    window.open_page("tasks.md")
    window.browser.verticalScrollBar().setValue(300)

    def colours() -> set[str]:
        block, found = window.browser.document().begin(), set()
        while block.isValid():
            found |= {each.charFormat().background().color().name() for each in helping._fragments(block)}
            block = block.next()
        return found

    before = colours()
    monkeypatch.setattr(theme, "colors", lambda: theme.DARK)
    theme.notifier.changed.emit()
    assert theme.DARK.raised in colours()
    assert theme.DARK.raised not in before
    assert window.browser.verticalScrollBar().value() == 300
