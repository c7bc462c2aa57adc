"""Color schemes: contrast of texts, and distinguishable colors."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QCheckBox, QLabel, QPlainTextEdit, QPushButton, QTableWidget, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.devices import CPU
from gui.main_window import MainWindow
from gui.style import theme
from gui.style.theme import DARK, LIGHT, Colors
from gui.widgets.buttons import styled as with_style
from gui.widgets.layouts import vbox
from tests.support.contrast import MIN_RATIO, compute_contrast
from tests.support.widgets import ShowWidget


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_have_enough_contrast(scheme: Colors) -> None:
    for text in (scheme.text, scheme.muted, scheme.ok, scheme.warning, scheme.error):
        for ground in (scheme.window, scheme.panel, scheme.raised):
            assert compute_contrast(text, ground) >= MIN_RATIO, (text, ground)
    assert compute_contrast(scheme.accent_text, scheme.accent) >= MIN_RATIO
    for ground in (scheme.panel, scheme.raised):  # headings of the settings, and buttons that are held down
        assert compute_contrast(scheme.accent, ground) >= MIN_RATIO


@pytest.mark.parametrize(
    ("scheme", "wheel"), [(LIGHT, theme._DEVICES_LIGHT), (DARK, theme._DEVICES_DARK)], ids=["light", "dark"]
)
def test_device_colors_are_distinct(scheme: Colors, wheel: tuple[str, ...]) -> None:
    for color in wheel:
        assert compute_contrast(color, scheme.panel) >= 3, color
    for one, other in combinations(wheel, 2):
        assert one != other


def test_device_keeps_its_color(styled: QApplication) -> None:
    first = theme.device_color("GPU-color-a")
    theme.register_devices(["GPU-color-b", "GPU-color-a"])
    assert theme.device_color("GPU-color-a") == first
    assert theme.device_color("GPU-color-b") != first


def test_devices_of_one_color_differ_in_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theme, "_color_indices", {})
    keys = [f"GPU-{number}" for number in range(16)]
    theme.register_devices(keys)
    styles = {(theme.device_color(key), theme.device_is_dashed(key)) for key in [*keys, CPU, f"ws2:{CPU}"]}
    assert len(styles) == 18
    assert not any(theme.device_is_dashed(key) for key in [*keys[:8], CPU])
    assert not theme.device_is_dashed("GPU-16")
    assert theme.device_color("GPU-16") == theme.device_color(keys[0])


def test_theme_follows_the_desktop(
    show_widget: ShowWidget, styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = QLabel("text")
    show_widget(label)
    monkeypatch.setattr(theme, "is_dark", lambda: True)
    with qtbot.waitSignal(theme.notifier.changed):
        styled.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert theme.colors() is DARK
    assert styled.palette().window().color() == QColor(DARK.window)
    monkeypatch.undo()
    theme._repaint(styled)
    assert styled.palette().window().color() == QColor(theme.colors().window)


@pytest.mark.parametrize(
    ("desktop", "expected"),
    [(Qt.ColorScheme.Light, LIGHT), (Qt.ColorScheme.Dark, DARK), (Qt.ColorScheme.Unknown, DARK)],
)
def test_desktop_without_a_scheme_has_that_of_its_palette(
    styled: QApplication, monkeypatch: pytest.MonkeyPatch, desktop: Qt.ColorScheme, expected: Colors
) -> None:
    hints = SimpleNamespace(colorScheme=lambda: desktop)
    monkeypatch.setattr(QGuiApplication, "styleHints", lambda *_: hints)
    monkeypatch.setattr(QGuiApplication, "palette", lambda *_: theme.palette(DARK))
    theme._first_palette_is_dark.cache_clear()
    assert theme.colors() is expected
    theme._first_palette_is_dark.cache_clear()


def test_sizes_follow_the_desktops_font(styled: QApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    assert theme.scale_pixels(100) == 100
    font = QFont(styled.font())
    font.setPointSizeF(1.25 * font.pointSizeF())
    monkeypatch.setattr(theme, "_chosen", theme._Choices())
    styled.setFont(font)
    for _ in range(2):
        theme.initialize(styled, "system", 200)
        assert styled.font().pointSizeF() == 2 * font.pointSizeF()
        assert styled.font().featureValue(QFont.Tag("tnum")) == 1
        assert theme.scale_pixels(100) == 250
    monkeypatch.undo()
    theme._repaint(styled)


@pytest.mark.usefixtures("normal_text", "styled")
def test_scaled_sizes_follow_the_text_size(qtbot: QtBot) -> None:
    label = QLabel()
    qtbot.addWidget(label)
    theme.scale_with_text(label.setFixedWidth, 40)
    normal = QApplication.font().pointSizeF()
    widths = []
    for percent in (100, 200, 100):
        theme.choose("system", percent)
        widths.append(label.width())
        sheet, points = theme.style_sheet(LIGHT), normal * percent / 100
        assert f"width: {14 * percent // 100}px; height: {14 * percent // 100}px" in sheet
        assert f"min-height: {16 * percent // 100 + 4}px;" in sheet
        for name, factor in (("title", 1.2), ("welcome", 1.7)):
            assert f"QLabel#{name} {{ font-weight: 600; font-size: {factor * points:.1f}pt; }}" in sheet
        with qtbot.assertNotEmitted(theme.notifier.changed):
            theme.choose("system", percent)
    assert widths == [40, 80, 40]


@pytest.mark.usefixtures("normal_text", "styled")
def test_code_has_one_width_and_the_size_of_other_texts(show_widget: ShowWidget) -> None:
    widgets = [show_widget(with_style(kind(), "code")) for kind in (QPlainTextEdit, QLabel)]
    for percent in (100, 200, 100):
        theme.choose("system", percent)
        for widget in widgets:
            metrics = widget.fontMetrics()
            assert metrics.horizontalAdvance("iii") == metrics.horizontalAdvance("MMM")
            assert widget.font().pointSizeF() == QApplication.font().pointSizeF()


def test_label_changes_its_kind(show_widget: ShowWidget) -> None:
    label = show_widget(QLabel("text"))
    for kind, color in (("error", theme.colors().error), ("ok", theme.colors().ok), ("", theme.colors().text)):
        theme.set_kind(label, kind)
        assert label.palette().windowText().color() == QColor(color)


def test_closed_window_ignores_the_theme(styled: QApplication, qtbot: QtBot) -> None:
    window = MainWindow()
    with qtbot.waitSignal(window.completed):
        window.show()
    window.close()
    shiboken6.delete(window)
    with qtbot.captureExceptions() as caught:
        theme._repaint(styled)
    assert caught == []


def test_focus_does_not_move_contents_of_tables(show_widget: ShowWidget, styled: QApplication, qtbot: QtBot) -> None:
    page, table, button = QWidget(), QTableWidget(3, 2), QPushButton("Other")
    page.setLayout(vbox(button, table))
    show_widget(page)
    geometries = set()
    for focused in (button, table):
        focused.setFocus()
        qtbot.waitUntil(focused.hasFocus)
        geometries.add((table.frameWidth(), table.viewport().geometry().getRect()))
    assert len(geometries) == 1
    assert geometries.pop()[0] == 2  # width of the focus ring


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_check_mark_differs_from_its_ground(show_widget: ShowWidget, scheme: Colors) -> None:
    box = QCheckBox(checked=True, styleSheet=theme.style_sheet(scheme))  # type: ignore[call-overload]
    drawn = show_widget(box).grab().toImage()
    colors = {drawn.pixelColor(x, y).name() for x in range(drawn.width()) for y in range(drawn.height())}
    assert {scheme.accent, scheme.accent_text} <= colors


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_palette_has_readable_and_muted_texts(scheme: Colors) -> None:
    role, disabled = QPalette.ColorRole, QPalette.ColorGroup.Disabled
    palette = theme.palette(scheme)
    for text, ground in (
        (role.WindowText, role.Window),
        (role.Text, role.Base),
        (role.Text, role.AlternateBase),
        (role.ButtonText, role.Button),
        (role.ToolTipText, role.ToolTipBase),
        (role.HighlightedText, role.Highlight),
        (role.Link, role.Base),
        (role.BrightText, role.Base),
        (role.PlaceholderText, role.Base),
    ):
        assert compute_contrast(palette.color(text), palette.color(ground)) >= MIN_RATIO, text
    muted = palette.color(role.PlaceholderText)
    assert compute_contrast(muted, palette.color(role.Base)) < compute_contrast(
        palette.color(role.Text), palette.color(role.Base)
    )
    assert all(palette.color(disabled, each) == muted for each in (role.WindowText, role.Text, role.ButtonText))
    assert palette.color(role.Base) == QColor(scheme.panel) != palette.color(role.Window)
    assert palette.color(role.BrightText) == QColor(scheme.error)
