"""Contrast ratio of text and background as defined in WCAG 2.1."""

from __future__ import annotations

from PySide6.QtGui import QColor

MIN_RATIO = 4.5
"""Minimum contrast ratio of text for level AA of WCAG."""


def compute_luminance(color: str | QColor) -> float:
    """Compute the relative luminance, from 0 for black to 1 for white."""
    given = QColor(color)
    channels = [
        channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (given.redF(), given.greenF(), given.blueF())
    ]
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]


def compute_contrast(first: str | QColor, second: str | QColor) -> float:
    """Compute the contrast ratio of two colors, from 1 for equal colors to 21 for black on white."""
    dark, light = sorted((compute_luminance(first), compute_luminance(second)))
    return (light + 0.05) / (dark + 0.05)
