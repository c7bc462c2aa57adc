"""Colours that can be read and told apart, in both schemes."""

from __future__ import annotations

from itertools import combinations

import pytest
import shiboken6
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from engine.contract.devices import CPU
from gui.main_window import MainWindow
from gui.style import theme
from gui.style.theme import DARK, LIGHT, Colors


def luminance(color: str) -> float:
    """Relative luminance after WCAG 2.1."""
    channels = [
        channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in QColor(color).getRgbF()[:3]
    ]
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_that_texts_stand_out_from_all_that_they_are_written_on(scheme: Colors) -> None:
    for text in (scheme.text, scheme.muted, scheme.ok, scheme.warning, scheme.error):
        for ground in (scheme.panel, scheme.raised):
            assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast(scheme.accent_text, scheme.accent) >= 4.5
    assert contrast(scheme.accent, scheme.panel) >= 3


@pytest.mark.parametrize(
    ("scheme", "wheel"), [(LIGHT, theme._DEVICES_LIGHT), (DARK, theme._DEVICES_DARK)], ids=["light", "dark"]
)
def test_that_devices_differ_from_each_other_and_from_the_ground(scheme: Colors, wheel: tuple[str, ...]) -> None:
    for color in wheel:
        assert contrast(color, scheme.panel) >= 3, color
    for one, other in combinations(wheel, 2):
        assert one != other


def test_that_a_device_keeps_its_colour_when_others_appear(styled: QApplication) -> None:
    first = theme.device_color("GPU-colour-a")
    theme.register_devices(["GPU-colour-b", "GPU-colour-a"])
    assert theme.device_color("GPU-colour-a") == first
    assert theme.device_color("GPU-colour-b") != first


def test_that_devices_of_one_colour_are_told_apart_by_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theme, "_order", {})
    keys = [f"GPU-{number}" for number in range(16)]
    theme.register_devices(keys)
    looks = {(theme.device_color(key), theme.device_is_dashed(key)) for key in [*keys, CPU, f"ws2/{CPU}"]}
    assert len(looks) == 18
    assert not any(theme.device_is_dashed(key) for key in [*keys[:8], CPU])


def test_that_the_whole_program_changes_with_the_desktop(
    styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = QLabel("text")
    qtbot.addWidget(label)
    label.show()
    monkeypatch.setattr(theme, "is_dark", lambda: True)
    with qtbot.waitSignal(theme.notifier.changed):
        theme._repaint(styled)
    assert theme.colors() is DARK
    assert styled.palette().window().color() == QColor(DARK.window)
    monkeypatch.undo()
    theme._repaint(styled)
    assert styled.palette().window().color() == QColor(theme.colors().window)


def test_that_a_window_that_is_gone_no_longer_follows_the_desktop(styled: QApplication, qtbot: QtBot) -> None:
    window = MainWindow()
    with qtbot.waitSignal(window.completed, timeout=20_000):
        window.show()
    window.close()
    shiboken6.delete(window)
    with qtbot.captureExceptions() as caught:
        theme._repaint(styled)
    assert caught == []
