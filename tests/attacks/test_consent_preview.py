"""Programs that try to hide code from the user who is asked for permission to run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QPlainTextEdit
from pytestqt.qtbot import QtBot

from engine.checks.disk import model_file_sha256
from gui.form.consent import PREVIEW_BYTES, ConsentBar
from tests.gui.conftest import OFFSCREEN_NOISE

pytestmark = [pytest.mark.attacks, pytest.mark.qt_log_ignore(OFFSCREEN_NOISE)]


@pytest.fixture
def bar(qapp: QApplication, qtbot: QtBot) -> ConsentBar:
    consent_bar = ConsentBar()
    qtbot.addWidget(consent_bar)
    consent_bar.resize(360, 300)
    return consent_bar


def preview(bar: ConsentBar, program: Path, qtbot: QtBot) -> str:
    """Show the preview of a model file in the bar, and return the displayed text."""
    bar.ask(str(program), model_file_sha256(str(program)), agreed=False)
    bar._show.click()
    qtbot.waitUntil(lambda: bar._text.toPlainText() != "")
    return bar._text.toPlainText()


def test_preview_marks_cut_text(bar: ConsentBar, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    harmless = "# harmless\n" * (PREVIEW_BYTES // 11)
    rest = "#" * (PREVIEW_BYTES - len(harmless)) + "\nimport os\nos.system('true')"
    program.write_text(harmless + rest)
    text = preview(bar, program, qtbot)
    assert len(text) == PREVIEW_BYTES
    assert "os.system" not in text
    assert bar._hidden_note.isVisible()
    left = len(harmless + rest) - PREVIEW_BYTES
    assert f"Not shown: {left} bytes in 3 lines." in bar._hidden_note.text()
    bar._show.click()
    assert not bar._hidden_note.isVisible()


def test_preview_shows_short_program_completely(bar: ConsentBar, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    program.write_text("# harmless\n" * (PREVIEW_BYTES // 11))
    assert preview(bar, program, qtbot) == program.read_text()
    assert not bar._hidden_note.isVisible()


def test_preview_wraps_long_lines(bar: ConsentBar, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    program.write_text("x = 1" + " " * 500 + "; import os")
    preview(bar, program, qtbot)
    assert bar._text.lineWrapMode() == QPlainTextEdit.LineWrapMode.WidgetWidth
    assert bar._text.horizontalScrollBar().maximum() == 0


def test_preview_shows_hidden_characters(bar: ConsentBar, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    program.write_bytes("# \u202e}\u2066if a:\n# comment\rimport os\r\n\x1b[8m\tpass\0\n".encode())
    lines = preview(bar, program, qtbot).split("\n")
    assert lines == ["# \\u202e}\\u2066if a:", "# comment", "import os", "\\u001b[8m\tpass\\u0000", ""]
