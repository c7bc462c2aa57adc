"""Plot of a run's validation curves for its model card."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from engine.contract.events import Validation
from engine.inference.trained_model import TrainedModel

CURVES = "curves.png"
MIN_POINTS = 3
"""Fewest validations for a plot."""
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48
_COLORS = ("#1f77b4", "#d62728")


def write_curves(path: Path, model: TrainedModel) -> bool:
    """Plot the task's first metric and the validation loss by epoch, each with its own scale.

    Returns False if the run has too few validations. Raises OSError.
    """
    validations = [event for event in model.run.events() if isinstance(event, Validation)]
    measures = model.objective.entry.metrics
    plotted = list(dict.fromkeys((measures[0], measures[-1])))
    if len(validations) < MIN_POINTS:
        return False
    image = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(13)
    right, bottom = _WIDTH - _MARGIN, _HEIGHT - _MARGIN
    draw.rectangle((_MARGIN, _MARGIN, right, bottom), outline="#999999")
    first, last = validations[0].epoch, validations[-1].epoch
    draw.text((_MARGIN, bottom + 8), f"epoch {first}", "black", font)
    draw.text((right, bottom + 8), f"{last}", "black", font, anchor="ra")
    for column, (measure, color) in enumerate(zip(plotted, _COLORS, strict=False)):
        points = [(each.epoch, each.measures[measure.id]) for each in validations if measure.id in each.measures]
        if not points:
            continue
        lowest, highest = min(value for _, value in points), max(value for _, value in points)
        scale = (highest - lowest) or 1.0
        line = [
            (
                _MARGIN + (right - _MARGIN) * (epoch - first) / max(1, last - first),
                bottom - (bottom - _MARGIN) * (value - lowest) / scale,
            )
            for epoch, value in points
        ]
        draw.line(line, color, 2)
        at, anchor = (_MARGIN, "ls") if column == 0 else (right, "rs")
        draw.text((at, _MARGIN - 8), f"{measure.title}: {lowest:.4g} to {highest:.4g}", color, font, anchor=anchor)
    image.save(path)
    return True
