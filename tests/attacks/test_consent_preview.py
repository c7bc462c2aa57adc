"""A program that hides what it does from the one who is asked whether it may run."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QPlainTextEdit
from pytestqt.qtbot import QtBot

from engine.checks.disk import model_file_sha256
from gui.form.consent import SHOWN_BYTES, ConsentBar
from tests.gui.conftest import OFFSCREEN_NOISE

pytestmark = [pytest.mark.attacks, pytest.mark.qt_log_ignore(OFFSCREEN_NOISE)]


@pytest.fixture
def bar(qapp: QApplication, qtbot: QtBot) -> ConsentBar:
    made = ConsentBar()
    qtbot.addWidget(made)
    made.resize(360, 300)
    return made


def show(bar: ConsentBar, program: Path, qtbot: QtBot) -> str:
    """The text that is shown of `program`."""
    bar.ask(str(program), model_file_sha256(str(program)), agreed=False)
    bar._show.click()
    qtbot.waitUntil(lambda: bar._text.toPlainText() != "")
    return bar._text.toPlainText()


def test_that_a_cut_is_told_with_what_is_left(bar: ConsentBar, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    harmless = "# harmless\n" * (SHOWN_BYTES // 11)
    rest = "#" * (SHOWN_BYTES - len(harmless)) + "\nimport os\nos.system('true')"
    program.write_text(harmless + rest)
    shown = show(bar, program, qtbot)
    assert len(shown) == SHOWN_BYTES
    assert "os.system" not in shown
    assert bar._cut.isVisible()
    left = len(harmless + rest) - SHOWN_BYTES
    assert f"3 lines are left ({left} bytes)" in bar._cut.text()
    bar._show.click()
    assert not bar._cut.isVisible()


def test_that_all_of_a_program_is_shown_without_a_warning(bar: ConsentBar, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    program.write_text("# harmless\n" * (SHOWN_BYTES // 11))
    assert show(bar, program, qtbot) == program.read_text()
    assert not bar._cut.isVisible()


def test_that_nothing_of_a_line_is_out_of_sight(bar: ConsentBar, tmp_path: Path, qtbot: QtBot) -> None:
    program = tmp_path / "net.py"
    program.write_text("x = 1" + " " * 500 + "; import os")
    show(bar, program, qtbot)
    assert bar._text.lineWrapMode() == QPlainTextEdit.LineWrapMode.WidgetWidth
    assert bar._text.horizontalScrollBar().maximum() == 0


def test_that_what_turns_or_hides_text_is_shown_and_python_s_line_ends_end_lines(
    bar: ConsentBar, tmp_path: Path, qtbot: QtBot
) -> None:
    program = tmp_path / "net.py"
    program.write_bytes("# \u202e}\u2066if a:\n# comment\rimport os\r\n\x1b[8m\tpass\0\n".encode())
    lines = show(bar, program, qtbot).split("\n")
    assert lines == ["# \\u202e}\\u2066if a:", "# comment", "import os", "\\u001b[8m\tpass\\u0000", ""]
