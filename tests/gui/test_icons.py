"""Icons. They must follow the current color scheme even if they were created under a different one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib.resources import files

import numpy as np
import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QIcon, QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QApplication, QCheckBox, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from engine.cli.desktop import ICON_SIZES
from gui.style import icons, theme
from gui.style.theme import DARK, LIGHT, Colors
from gui.widgets.labels import IconLabel

SIZE = QSize(32, 32)


class PaintCounter(QWidget):
    """Widget that counts its paint events."""

    count = 0

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802  (Qt's own name)
        self.count += 1


pytestmark = pytest.mark.usefixtures("styled")


@pytest.fixture
def scheme(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(theme, "is_dark", lambda: False)
    return monkeypatch


@pytest.fixture
def repainted(styled: QApplication) -> Iterator[QApplication]:
    """Yield the application, and repaint it in the original color scheme afterwards."""
    yield styled
    theme._repaint(styled)


def list_colors(image: QImage) -> set[str]:
    """Return the colors of all opaque pixels."""
    pixels = (image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height()))
    return {color.name() for color in pixels if color.alpha() == 255}


def draw_icon(icon: QIcon, mode: QIcon.Mode = QIcon.Mode.Normal, state: QIcon.State = QIcon.State.Off) -> QImage:
    return icon.pixmap(SIZE, 1.0, mode, state).toImage()


@pytest.mark.parametrize(("dark", "expected"), [(False, LIGHT), (True, DARK)])
def test_icon_has_the_themes_colors(scheme: pytest.MonkeyPatch, dark: bool, expected: Colors) -> None:
    icon = icons.icon("stop", "error")
    copy = QIcon(icon)
    scheme.setattr(theme, "is_dark", lambda: dark)
    for each in (icon, copy):
        assert list_colors(draw_icon(each)) == {expected.error}
        assert list_colors(draw_icon(each, QIcon.Mode.Selected)) == {expected.accent_text}
    faded = list_colors(draw_icon(icon, QIcon.Mode.Disabled))
    assert expected.error not in faded


def test_checked_button_has_another_icon(scheme: pytest.MonkeyPatch) -> None:
    icon = icons.icon("right", "muted", on="down")
    on = draw_icon(icon, state=QIcon.State.On)
    assert on != draw_icon(icon)
    assert on == draw_icon(icons.icon("down", "muted"))


def test_icon_is_sharp_at_double_density() -> None:
    icon = icons.icon("stop", "error")
    image = icon.pixmap(QSize(16, 16), 2.0)
    assert image.size() == SIZE
    assert image.devicePixelRatio() == 2.0
    assert icon.pixmap(QSize(32, 16), 1.0).size() == QSize(16, 16)
    painted = QImage(SIZE, QImage.Format.Format_ARGB32_Premultiplied)
    painted.setDevicePixelRatio(2.0)
    painted.fill(Qt.GlobalColor.transparent)
    painter = QPainter(painted)
    icon.paint(painter, 0, 0, 16, 16)
    painter.end()
    assert list_colors(painted) == list_colors(draw_icon(icon))


def test_icons_outlive_their_engine() -> None:
    copies = [QIcon(icons.icon("stop", "error")) for _ in range(1000)]
    gc.collect()
    assert all(draw_icon(copy) == draw_icon(copies[0]) for copy in copies[1:])


def test_visible_icons_follow_the_theme(repainted: QApplication, scheme: pytest.MonkeyPatch, qtbot: QtBot) -> None:
    label, button, counter = IconLabel("warning", "warning", "Warning"), QToolButton(), PaintCounter()
    button.setIcon(icons.icon("stop", "error"))
    box = QCheckBox()
    box.setChecked(True)
    for widget in (label, button, box, counter):
        qtbot.addWidget(widget)
        widget.resize(40, 40)
        widget.show()
    theme._repaint(repainted)
    qtbot.waitUntil(lambda: counter.count > 0)
    assert LIGHT.error in list_colors(button.grab().toImage())
    assert LIGHT.warning in list_colors(label.pixmap().toImage())
    assert DARK.accent_text not in list_colors(box.grab().toImage())
    before = counter.count
    scheme.setattr(theme, "is_dark", lambda: True)
    theme._repaint(repainted)
    qtbot.waitUntil(lambda: counter.count > before)
    assert DARK.error in list_colors(button.grab().toImage())
    assert DARK.warning in list_colors(label.pixmap().toImage())
    assert DARK.accent_text in list_colors(box.grab().toImage())
    assert label.accessibleName() == "Warning"
    scheme.undo()


REDRAW = "draw them anew: icons.pixmap('footplate', '#000000', SIZE).save('resources/desktop/icons/SIZE.png')"


def pixels(image: QImage) -> np.ndarray:
    image = image.convertToFormat(QImage.Format.Format_RGBA8888)
    return np.array(image.constBits(), np.uint8).reshape(image.height(), -1).astype(float)


@pytest.mark.parametrize("size", ICON_SIZES)
def test_desktop_icon_matches_the_window(styled: QApplication, size: int) -> None:
    saved = QImage(str(files("resources").joinpath(f"desktop/icons/{size}.png")))
    assert (saved.width(), saved.height()) == (size, size)
    drawn = icons.pixmap("footplate", "#000000", size).toImage()
    assert np.abs(pixels(saved) - pixels(drawn)).mean() < 2, REDRAW
