"""Banners, legends, file dialogs, and labels with wrapped text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPointF, QPropertyAnimation, Qt
from PySide6.QtGui import QColor, QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QPushButton, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.images import LegendEntry
from engine.contract.job import FIELDS
from engine.system import paths
from engine.system.plain_text import MAX_SHOWN_CHARS
from gui.style import icons
from gui.widgets import file_dialogs
from gui.widgets.banner import Banner, QuestionBar
from gui.widgets.editors import (
    ChoiceEditor,
    Editor,
    FloatEditor,
    IntEditor,
    ListEditor,
    PathEditor,
    TextEditor,
    fill_combo_box,
)
from gui.widgets.flash import Flash
from gui.widgets.labels import WrappingLabel, insert_break_points
from gui.widgets.layouts import vbox
from gui.widgets.legend import SWATCH, Legend
from tests.support.painted import draw_icon
from tests.support.widgets import ShowWidget, request_context_menu, scroll


@pytest.mark.parametrize(
    ("make", "before"),
    [(lambda: ChoiceEditor([("a", "A", ""), ("b", "B", "")]), "a"), (lambda: IntEditor(FIELDS["epochs"]), 5)],
)
def test_wheel_changes_only_a_focused_editor(
    make: Callable[[], Editor], before: object, styled: QApplication, show_widget: ShowWidget, qtbot: QtBot
) -> None:
    form = QWidget()
    other, editor = QPushButton("Other"), make()
    form.setLayout(vbox(other, editor))
    show_widget(form)
    editor.set_value(before)
    for target, focused in ((other, other), (editor, editor.control)):
        target.setFocus()
        qtbot.waitUntil(focused.hasFocus)
        assert scroll(editor.control, QPointF(5, 5), -1) == (target is editor)
        assert (editor.value() != before) == (target is editor)


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (TextEditor, {" a, b ": "a, b", "": ""}),
        (lambda: ListEditor(str), {"a,, b ": ("a", "b"), " ": ()}),
        (lambda: ListEditor(int), {"30, 60,": (30, 60), "": (), " 30, x ": "30, x"}),
        (FloatEditor, {"1e-3": 0.001, " much ": "much", "": ""}),
        (lambda: FloatEditor(optional=True), {"2": 2.0, "much": "much", " ": None}),
    ],
    ids=["text", "texts", "integers", "number", "optional number"],
)
def test_editors_return_invalid_text_as_typed(
    make: Callable[[], TextEditor], texts: dict[str, object], styled: QApplication, qtbot: QtBot
) -> None:
    editor = make()
    qtbot.addWidget(editor)
    for text, value in texts.items():
        editor.line.setText(text)
        assert editor.value() == value
        if isinstance(value, tuple):
            editor.set_value(value)
            assert editor.value() == value


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (FloatEditor, (0.0123456789, 5, "fast", None)),
        (lambda: IntEditor(FIELDS["image_size"]), (64, None)),
        (lambda: IntEditor(FIELDS["epochs"]), (3,)),
        (lambda: ChoiceEditor([("a", "A", ""), ("b", "B", "")]), ("b", "unknown")),
        (lambda: ListEditor(int), ((), (3, 4))),
    ],
)
def test_editors_return_what_was_set(make: Callable[[], Editor], values: tuple[object, ...], qtbot: QtBot) -> None:
    editor = make()
    qtbot.addWidget(editor)
    for value in values:
        editor.set_value(value)
        assert (editor.value() or None) == (value or None)


def test_choices_keep_or_reset_the_selection_and_mark_the_others(styled: QApplication, qtbot: QtBot) -> None:
    editor = ChoiceEditor([("a", "A", ""), ("b", "B", "help"), ("c", "C", "")])
    qtbot.addWidget(editor)
    editor.set_value("b")
    with qtbot.assertNotEmitted(editor.edited):
        editor.set_choices([("c", "C", ""), ("b", "Bee", "help"), ("a", "A", "")])
        assert (editor.value(), editor.box.currentText()) == ("b", "Bee")
        editor.reset_choices([("a", "A", ""), ("b", "B", "help"), ("c", "C", "")], "c")
        assert editor.value() == "c"
        editor.reset_choices([("a", "A", ""), ("b", "B", "help"), ("c", "C", "")])
        assert editor.value() == "a"
    editor.set_marks({"a": "x", "b": "y", "c": "z"}, {"c"})
    model = editor.box.model()
    assert [editor.box.itemText(row) for row in range(3)] == ["A", "B – y", "C – z"]
    flags = [model.flags(model.index(row, 0)) for row in range(3)]
    assert [bool(flag & Qt.ItemFlag.ItemIsEnabled) for flag in flags] == [True, True, False]
    tips = [editor.box.itemData(row, Qt.ItemDataRole.ToolTipRole) for row in range(3)]
    assert tips == [None, "help", None]
    fill_combo_box(editor.box, [("One", 1), ("Two", 2)], 2)
    fill_combo_box(editor.box, [("Zero", 0), ("One", 1), ("Two", 2)], editor.box.currentData())
    assert editor.box.currentText() == "Two"
    fill_combo_box(editor.box, [("Zero", 0), ("One", 1)], 2)
    assert editor.box.currentText() == "Zero"


def test_banner_hides_without_text(styled: QApplication, qtbot: QtBot) -> None:
    banner = Banner(name="Message")
    qtbot.addWidget(banner)
    assert banner.isHidden()
    banner.show_message("The disk is full.", "error")
    assert not banner.isHidden()
    assert (banner.accessibleName(), banner.label.accessibleName()) == ("Message", "")  # the text is its own name
    banner.show_message("")
    assert banner.isHidden()


def test_banner_wraps_and_shortens_text(styled: QApplication, qtbot: QtBot) -> None:
    banner = Banner()
    qtbot.addWidget(banner)
    banner.resize(300, 40)
    banner.show_message("word " * 60)
    assert banner.heightForWidth(300) > 3 * banner.fontMetrics().height()
    banner.show_message("x" * 100_000)
    assert len(banner.text()) <= MAX_SHOWN_CHARS


def test_banner_close_button(styled: QApplication, qtbot: QtBot) -> None:
    banner = Banner(close="Dismiss the message")
    qtbot.addWidget(banner)
    banner.show_message("Done.", "ok")
    cross = banner.findChild(QToolButton)
    assert (cross.accessibleName(), cross.icon().isNull()) == ("Dismiss the message", False)
    with qtbot.waitSignal(banner.closed):
        cross.click()
    assert banner.isHidden()


def test_banner_button_titles(styled: QApplication, qtbot: QtBot) -> None:
    first, second = QPushButton("First"), QPushButton("Second")
    banner = Banner(first, second)
    qtbot.addWidget(banner)
    banner.show_message("Delete it?", "warning", "", "Cancel")
    assert first.isHidden()
    assert (second.text(), second.accessibleDescription()) == ("Cancel", "Delete it?")


def test_question_bar_escape_presses_no(styled: QApplication, qtbot: QtBot) -> None:
    question = QuestionBar("Deleting runs")
    qtbot.addWidget(question)
    question.show_message("Delete it?", "warning", "Delete", "Cancel")
    with qtbot.waitSignal(question.no.clicked):
        qtbot.keyClick(question, Qt.Key.Key_Escape)


def test_flash_lets_clicks_through_until_it_has_faded(show_widget: ShowWidget, qtbot: QtBot) -> None:
    button = show_widget(QPushButton("Go"), 80, 30)
    flash = Flash(button)
    button.resize(200, 40)
    assert (flash.geometry(), button.childAt(100, 20)) == (button.rect(), None)
    with qtbot.waitSignal(flash.destroyed):
        flash.findChild(QPropertyAnimation).setCurrentTime(10_000)


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
    label.setSelection(9, len(insert_break_points(NAME)))
    qtbot.keyClick(label, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == NAME
    QGuiApplication.clipboard().clear()
    request_context_menu(label)
    (menu,) = label.findChildren(QMenu)
    (copy,) = menu.actions()
    copy.trigger()
    assert QGuiApplication.clipboard().text() == NAME
    menu.close()


@pytest.mark.parametrize("text", ["", "short words only", "--strategy single"])
def test_breakable_leaves_short_words(text: str) -> None:
    assert insert_break_points(text) == text


@pytest.mark.parametrize("text", [NAME, "x" * 64, "a/b_c-d.e,f;" * 9])
def test_breakable_adds_only_breaks(text: str) -> None:
    pieces = insert_break_points(text).split("\u200b")
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 20


FEW = (LegendEntry("road", ""), LegendEntry("car", "#ff00ff"))
MANY = tuple(LegendEntry(f"a class of number {number}", f"#{number:02x}80ff") for number in range(90))


@pytest.fixture
def legend(show_widget: ShowWidget) -> Legend:
    return show_widget(Legend(), 500, 40)


def test_legend_shows_all_entries(legend: Legend) -> None:
    legend.show_legend(FEW, [1])
    assert legend.visible_entries() == ([0, 1], 0)
    assert legend.accessibleDescription() == "In the images: car"
    assert legend.toolTip().splitlines() == ["road (unchanged)", "car"]
    image = legend.grab().toImage()
    pixels = {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(SWATCH)}
    assert QColor("#ff00ff").name() in pixels
    width = sum(SWATCH + 6 + legend.fontMetrics().horizontalAdvance(entry.name) for entry in FEW) + 16
    assert legend.heightForWidth(width) < legend.heightForWidth(width - 1)
    legend.show_legend(FEW, [0, 1])
    assert legend.grab().toImage() != image  # absent entries are muted
    legend.resize(60, 60)
    legend.show_legend(FEW, [1])
    assert legend.visible_entries() == ([0, 1], 0)


def test_legend_shows_present_entries_that_fit(legend: Legend) -> None:
    legend.show_legend(MANY, [3, 8])
    assert legend.visible_entries() == ([3, 8], 0)
    legend.show_legend(MANY, range(90))
    visible_entries, more = legend.visible_entries()
    assert visible_entries == list(range(len(visible_entries)))
    assert len(visible_entries) + more == 90
    assert 2 < len(visible_entries) < 20
    assert not legend.grab().isNull()
    assert "a class of number 89" in legend.toolTip()


def test_legend_height_is_two_lines_at_most(legend: Legend) -> None:
    legend.show_legend(FEW, [])
    one = legend.heightForWidth(500)
    legend.show_legend(MANY, [])
    assert one < legend.heightForWidth(500) < 3 * one
    assert legend.heightForWidth(500) == legend.heightForWidth(900)


def test_legend_ignores_unknown_indices(legend: Legend) -> None:
    legend.show_legend((), [4])
    assert not legend.isVisible()
    legend.show_legend(FEW, [1, 7, -1])
    assert legend.isVisible()
    assert legend.accessibleDescription() == "In the images: car"


@pytest.mark.parametrize("is_folder", [False, True])
def test_path_editor_browses_from_its_path(show_widget: ShowWidget, tmp_path: Path, is_folder: bool) -> None:
    editor = show_widget(PathEditor("data", folder=is_folder))
    icon = icons.icon("folder" if is_folder else "file", "muted")
    assert draw_icon(editor.browse.icon()) == draw_icon(icon)
    editor.set_value(str(tmp_path))
    dialog = editor.open_browser()
    assert dialog.directory().path() == str(tmp_path)
    dialog.close()


def test_file_dialog_starts_in_the_users_folders(tmp_path: Path) -> None:
    start = file_dialogs._find_existing_folder
    assert start(str(tmp_path / "missing" / "too")) == str(tmp_path)
    assert start(str(paths.sample_dataset() / "train")) == start("") == str(Path.home())
