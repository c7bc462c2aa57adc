"""The banner: one message, and what can be done about it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QPushButton, QToolButton
from pytestqt.qtbot import QtBot

from engine.system.plain_text import MOST_SHOWN
from gui.widgets.banner import Banner, QuestionBar


def test_banner_hides_without_text(styled: QApplication, qtbot: QtBot) -> None:
    banner = Banner(name="Message")
    qtbot.addWidget(banner)
    assert banner.isHidden()
    banner.say("The disk is full.", "error")
    assert not banner.isHidden()
    assert (banner.accessibleName(), banner.label.accessibleName()) == ("Message", "")  # the text is its own name
    banner.say("")
    assert banner.isHidden()


def test_banner_wraps_and_shortens_text(styled: QApplication, qtbot: QtBot) -> None:
    banner = Banner()
    qtbot.addWidget(banner)
    banner.resize(300, 40)
    banner.say("word " * 60)
    assert banner.heightForWidth(300) > 3 * banner.fontMetrics().height()
    banner.say("x" * 100_000)
    assert len(banner.text()) <= MOST_SHOWN


def test_banner_close_button(styled: QApplication, qtbot: QtBot) -> None:
    banner = Banner(close="Dismiss the message")
    qtbot.addWidget(banner)
    banner.say("Done.", "ok")
    cross = banner.findChild(QToolButton)
    assert cross.accessibleName() == "Dismiss the message"
    with qtbot.waitSignal(banner.closed):
        cross.click()
    assert banner.isHidden()


def test_banner_button_titles(styled: QApplication, qtbot: QtBot) -> None:
    first, second = QPushButton("First"), QPushButton("Second")
    banner = Banner(first, second)
    qtbot.addWidget(banner)
    banner.say("Delete it?", "warning", "", "Cancel")
    assert first.isHidden()
    assert (second.text(), second.accessibleDescription()) == ("Cancel", "Delete it?")


def test_question_bar_escape_presses_no(styled: QApplication, qtbot: QtBot) -> None:
    question = QuestionBar("Deleting runs")
    qtbot.addWidget(question)
    question.say("Delete it?", "warning", "Delete", "Cancel")
    with qtbot.waitSignal(question.no.clicked):
        qtbot.keyClick(question, Qt.Key.Key_Escape)
