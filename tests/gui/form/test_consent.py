"""Consent to run a model file. It must apply only to the content that the user has seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from engine.checks.disk import model_file_sha256
from engine.runs.consent import has_consent
from gui.form import consent
from gui.form.consent import PREVIEW_BYTES, ConsentBar
from gui.sources.background import Background
from tests.support.widgets import HoldCalls, find_button, join_visible_texts

AFTER = "import os\n"


def test_consent_to_a_changed_file_asks_again(model_file: Path, qtbot: QtBot) -> None:
    before = model_file.read_text()
    bar = ConsentBar()
    qtbot.addWidget(bar)
    bar.ask(str(model_file), model_file_sha256(str(model_file)), agreed=False)
    assert f"Run this file? {model_file.name} is" in join_visible_texts(bar)
    find_button(bar, "Show the model file").click()
    text = bar.findChild(QPlainTextEdit)
    qtbot.waitUntil(lambda: text.toPlainText() == before)
    qtbot.keyClicks(text, "# harmless")
    assert text.toPlainText() == before
    model_file.write_text(AFTER)
    with qtbot.assertNotEmitted(bar.allowed):
        find_button(bar, "Allow this model file").click()
        qtbot.waitUntil(lambda: "has just changed" in join_visible_texts(bar))
    qtbot.waitUntil(lambda: text.toPlainText() == AFTER)
    sha256 = model_file_sha256(str(model_file))
    assert sha256 is not None
    assert not has_consent(str(model_file), sha256)
    with qtbot.waitSignal(bar.allowed) as agreed:
        find_button(bar, "Allow this model file").click()
    assert agreed.args == [sha256]
    assert has_consent(str(model_file), sha256)
    other = model_file.with_name("other.py")
    other.write_text("pass\n")
    find_button(bar, "Allow this model file").click()
    bar.ask(str(other), model_file_sha256(str(other)), agreed=False)  # before the consent is saved
    qtbot.waitUntil(lambda: not bar.findChildren(Background))
    assert "other.py" in join_visible_texts(bar)


def test_consent_shows_the_start_of_each_file_and_counts_the_rest(tmp_path: Path, qtbot: QtBot) -> None:
    bar = ConsentBar()
    qtbot.addWidget(bar)
    text = bar.findChild(QPlainTextEdit)
    assert text is not None
    assert text.wordWrapMode() == QTextOption.WrapMode.WrapAnywhere  # otherwise the long line takes seconds
    for name, contents, hidden in (
        ("long.py", "x" * PREVIEW_BYTES + "\nsecond\nthird" + "y" * 3_000_000, "3,000,013 bytes in 3 lines"),
        ("short.py", "pass\n", ""),
        ("ended.py", "x" * PREVIEW_BYTES + "\nsecond\n", "8 bytes in 2 lines"),
        ("single.py", "z" * PREVIEW_BYTES + "y", "1 byte in 1 line."),
    ):
        path = tmp_path / name
        path.write_text(contents)
        bar.ask(str(path), model_file_sha256(str(path)), agreed=False)
        assert text.isHidden()
        find_button(bar, "Show the model file").click()
        qtbot.waitUntil(lambda start=contents[:PREVIEW_BYTES]: text.toPlainText() == start)
        assert bar._hidden_note.isHidden() is not bool(hidden)
        assert hidden in bar._hidden_note.text()
    find_button(bar, "Show the model file").click()
    assert bar._hidden_note.isHidden()
    path.unlink()
    find_button(bar, "Show the model file").click()
    qtbot.waitUntil(lambda: text.toPlainText() == "The file can't be read: No such file or directory.")


def test_consent_ignores_the_late_text_of_an_earlier_file(tmp_path: Path, qtbot: QtBot, hold_calls: HoldCalls) -> None:
    bar = ConsentBar()
    qtbot.addWidget(bar)
    release = hold_calls(consent, "open_regular", lambda path: path.name == "first.py")
    text = bar.findChild(QPlainTextEdit)
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text(name)
        bar.ask(str(tmp_path / name), name, agreed=False)
        find_button(bar, "Show the model file").click()
    qtbot.waitUntil(lambda: text.toPlainText() == "second.py")
    release.set()
    qtbot.waitUntil(lambda: not bar.findChildren(Background))
    assert text.toPlainText() == "second.py"


def test_consent_that_cannot_be_saved_allows_nothing(
    model_file: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOOTPLATE_HOME", str(model_file))
    bar = ConsentBar()
    qtbot.addWidget(bar)
    bar.ask(str(model_file), model_file_sha256(str(model_file)), agreed=False)
    with qtbot.assertNotEmitted(bar.allowed):
        find_button(bar, "Allow this model file").click()
        qtbot.waitUntil(lambda: "Couldn't save your consent" in join_visible_texts(bar))
