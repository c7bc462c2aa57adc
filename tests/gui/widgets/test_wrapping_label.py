"""Labels wrap within long names."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from gui.widgets.labels import WrappingLabel, breakable

NAME = "train/0123456789abcdef0123456789abcdef/masks/aachen_000001_000019_gtFine_labelIds.png"


@pytest.fixture
def label(styled: QApplication, qtbot: QtBot) -> WrappingLabel:
    created = WrappingLabel(f"The mask {NAME} is empty.", "error")
    created.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    qtbot.addWidget(created)
    created.resize(160, 300)
    created.show()
    return created


def test_wrapping_label_breaks_long_names(label: WrappingLabel, qtbot: QtBot) -> None:
    plain = QLabel(label.text(), wordWrap=True)
    qtbot.addWidget(plain)
    assert label.minimumSizeHint().width() < plain.minimumSizeHint().width()
    assert label.heightForWidth(160) > 3 * label.fontMetrics().height()


def test_wrapping_label_keeps_its_text(label: WrappingLabel) -> None:
    assert label.text() == label.accessibleName() == f"The mask {NAME} is empty."
    label.setText("Short words")
    assert (label.text(), label.accessibleName()) == ("Short words", "")


def test_wrapping_label_copies_names_as_they_are(label: WrappingLabel, qtbot: QtBot) -> None:
    label.setSelection(9, len(breakable(NAME)))
    qtbot.keyClick(label, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == NAME


@pytest.mark.parametrize("text", ["", "short words only", "--strategy single"])
def test_breakable_leaves_short_words(text: str) -> None:
    assert breakable(text) == text


@pytest.mark.parametrize("text", [NAME, "x" * 64, "a/b_c-d.e,f;" * 9])
def test_breakable_adds_only_breaks(text: str) -> None:
    pieces = breakable(text).split("\u200b")
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 20
