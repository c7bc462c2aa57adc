"""Fill patterns that distinguish devices and kinds of work without color."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QColor

from engine.contract.devices import is_gpu
from engine.contract.events import Part
from gui.style import theme

LIGHT_SHARE = 0.38
"""Fraction of the device's color in a light fill."""

_HATCHES = (
    Qt.BrushStyle.NoBrush,
    Qt.BrushStyle.BDiagPattern,
    Qt.BrushStyle.Dense6Pattern,
    Qt.BrushStyle.FDiagPattern,
    Qt.BrushStyle.VerPattern,
    Qt.BrushStyle.DiagCrossPattern,
    Qt.BrushStyle.HorPattern,
    Qt.BrushStyle.CrossPattern,
)

_PARTS = {
    "data": Qt.BrushStyle.BDiagPattern,
    "transfer": Qt.BrushStyle.Dense5Pattern,
    "augment": Qt.BrushStyle.VerPattern,
    "forward": Qt.BrushStyle.NoBrush,
    "backward": Qt.BrushStyle.NoBrush,
    "communication": Qt.BrushStyle.DiagCrossPattern,
    "optimizer": Qt.BrushStyle.HorPattern,
    "logging": Qt.BrushStyle.FDiagPattern,
    "other": Qt.BrushStyle.Dense7Pattern,
}
"""Fill patterns for the sections of a training step. Sections without a pattern differ in lightness."""


def blend(front: str, back: str, share: float) -> QColor:
    """Mix two colors. `share` is the fraction of `front`."""
    first, second = QColor(front), QColor(back)

    def mix(first_value: int, second_value: int) -> int:
        return round(share * first_value + (1 - share) * second_value)

    red, green = mix(first.red(), second.red()), mix(first.green(), second.green())
    return QColor(red, green, mix(first.blue(), second.blue()))


def lighten(color: str) -> QColor:
    """Return a light version of `color`, for a fill behind text."""
    return blend(color, theme.colors().panel, LIGHT_SHARE)


def choose_text_color(fill: QColor) -> QColor:
    """Return black or white, whichever contrasts more with `fill` (WCAG 2)."""
    luminance = _compute_luminance(fill)
    contrast_with_black = (luminance + 0.05) / 0.05
    contrast_with_white = 1.05 / (luminance + 0.05)
    return QColor("#000000" if contrast_with_black > contrast_with_white else "#ffffff")


def make_worker_pattern(index: int, device: str) -> QBrush:
    """Return the fill pattern for the CPU worker at `index`. A GPU has none, because its color is unique."""
    style = Qt.BrushStyle.NoBrush if is_gpu(device) else _HATCHES[index % len(_HATCHES)]
    return QBrush(QColor(theme.colors().panel), style)


def make_part_fill(part: Part) -> tuple[QColor, QBrush]:
    """Return background color and fill pattern for a section of a training step.

    Waiting has the warning color. Computation has the accent color: light for the forward pass, full for the backward
    pass.
    """
    scheme = theme.colors()
    colors = {
        "data": scheme.warning,
        "transfer": scheme.warning,
        "communication": scheme.error,
        "augment": scheme.ok,
        "optimizer": scheme.ok,
        "logging": scheme.muted,
        "other": scheme.muted,
    }
    style = _PARTS[part]
    if part == "forward":
        return lighten(scheme.accent), QBrush(style)
    if part == "backward":
        return QColor(scheme.accent), QBrush(style)
    return blend(colors[part], scheme.panel, 0.3), QBrush(blend(colors[part], scheme.panel, 0.85), style)


def _compute_luminance(color: QColor) -> float:
    """Return the relative luminance as defined in WCAG 2, from 0 to 1."""

    def to_linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (to_linear(channel) for channel in (color.redF(), color.greenF(), color.blueF()))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
