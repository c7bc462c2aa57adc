"""Check of the source: the window renders text as HTML only if all its parts are escaped."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import (
    QApplication,
    QInputDialog,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QMessageBox,
    QToolTip,
    QWidget,
)
from pytestqt.qtbot import QtBot

import gui
from gui.widgets.labels import RichLabel, Span
from tests.attacks.hostile_names import NAMES, set_trap
from tests.gui.conftest import OFFSCREEN_NOISE
from tests.gui.conftest import styled as styled  # noqa: PLC0414  (a fixture)

pytestmark = [pytest.mark.attacks, pytest.mark.qt_log_ignore(OFFSCREEN_NOISE)]

IMAGE = NAMES["image"]


def a_label() -> QWidget:
    return QLabel(IMAGE, wordWrap=True)


def a_box() -> QWidget:
    box = QMessageBox(QMessageBox.Icon.Warning, IMAGE, IMAGE)
    box.setInformativeText(IMAGE)
    return box


def a_question() -> QWidget:
    dialog = QInputDialog()
    dialog.setLabelText(IMAGE)
    return dialog


def a_rich_label() -> QWidget:
    label = RichLabel()
    label.show_spans([Span(IMAGE), Span(IMAGE, bold=True), Span(IMAGE, color=f'#ff0000">{IMAGE}')])
    return label


def with_a_tip() -> QWidget:
    widget = QWidget()
    widget.setToolTip(IMAGE)
    return widget


@pytest.mark.parametrize("make", [a_label, a_box, a_question, a_rich_label, with_a_tip])
def test_label_does_not_interpret_names(
    make: Callable[[], QWidget], styled: QApplication, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with set_trap(tmp_path) as sprung:
        widget = make()
        qtbot.addWidget(widget)
        widget.show()
        widget.grab()
        if widget.toolTip():
            QToolTip.showText(QPoint(5, 5), widget.toolTip(), widget)
            qtbot.waitUntil(QToolTip.isVisible)
            QToolTip.hideText()
        assert not sprung.exists()


def test_cell_tip_does_not_interpret_names(
    styled: QApplication, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = QListWidget()
    qtbot.addWidget(cells)
    item = QListWidgetItem(IMAGE)
    item.setToolTip(IMAGE)
    cells.addItem(item)
    with set_trap(tmp_path) as sprung:
        cells.show()
        cells.grab()
        QToolTip.showText(QPoint(5, 5), item.toolTip(), cells.viewport())
        qtbot.waitUntil(QToolTip.isVisible)
        QToolTip.hideText()
        assert not sprung.exists()


RICH = {
    "appendHtml", "insertHtml", "setHtml", "setMarkdown", "setDefaultStyleSheet", "setOpenExternalLinks", "setWhatsThis",
    "QTextDocument", "QTextBrowser", "QTextEdit", "QErrorMessage", "QWhatsThis", "QGraphicsTextItem",
    "TextItem", "LabelItem", "addLegend", "LegendItem", "RichText", "AutoText", "MarkdownText",
}  # fmt: skip
"""Names from Qt and pyqtgraph that render rich text, or that may detect and render it automatically."""
TITLED = {"setLabel", "setTitle"}
"""Methods of pyqtgraph that render their argument as HTML."""
ALLOWED = {"gui/widgets/labels.py", "gui/plots/themed.py", "gui/help.py"}
"""Modules that may use rich text: two that escape their texts, and the help, which renders only `resources/docs`."""


def is_literal(text: ast.AST) -> bool:
    """Return True if `text` is a literal in the source, or a call of `tr` with a literal."""
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Name) and text.func.id == "tr":
        return all(isinstance(argument, ast.Constant) for argument in text.args)
    return isinstance(text, ast.Constant)


def find_rich_texts(tree: ast.AST, plots: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in RICH:
                yield f"line {node.lineno}: {name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            texts = [*node.args, *(keyword.value for keyword in node.keywords)]
            if plots and node.func.attr in TITLED and not all(map(is_literal, texts)):
                yield f"line {node.lineno}: {node.func.attr} of what is not written there"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "QStaticText":
            yield f"line {node.lineno}: QStaticText, which guesses (gui.plots.view_box.lay_out_text does not)"


def test_gui_code_enables_no_rich_text() -> None:
    root = Path(gui.__file__).parents[1]
    texts = {}
    for path in sorted((root / "gui").rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        if name not in ALLOWED | {"gui/plots/view_box.py"}:
            texts[name] = list(find_rich_texts(ast.parse(text), "pyqtgraph" in text))
    assert {name: lines for name, lines in texts.items() if lines} == {}
    assert len(texts) > 150
