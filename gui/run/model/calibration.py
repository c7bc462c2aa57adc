"""How far a model's confidences can be believed: a reliability diagram, and what a temperature would change."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.contract.inference.evaluation import Calibration
from gui.format import localised
from gui.run.model.plot import SharePlot, caption
from gui.run.model.words import interval_words
from gui.sources.evaluations import OpenedEvaluation
from gui.style import fills, theme


class CalibrationPage(QWidget):
    """Shows the calibration of an evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self._calibration: Calibration | None = None
        self.error = caption(kind="heading")
        self.plot = SharePlot("Reliability diagram")
        self.plot.setLabel("bottom", "Confidence")
        self.plot.setLabel("left", "Share that is right")
        self.reading = caption(
            "Bars: what share of the predictions with that confidence is right; pale where they are few. On the dashed line "
            "confidences are exactly what they say; below it the model is too sure of itself."
        )
        self.temperature = caption(kind="")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.error)
        column.addWidget(self.plot, 100)
        column.addWidget(self.reading)
        column.addWidget(self.temperature)
        column.addStretch(1)
        self.plot.draws(self._draw)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        self._calibration = calibration = opened.evaluation.calibration
        if calibration is None:
            return
        within = interval_words(calibration.ece)
        self.error.setText(
            f"Expected calibration error {localised(100 * calibration.ece.value, 1)} %"
            + (f" ({within})" if within else "")
        )
        self.temperature.setText(temperature_words(calibration))
        self.plot.setAccessibleDescription(_spoken(calibration))
        self.plot.recolor()

    def _draw(self) -> None:
        calibration = self._calibration
        if calibration is None:
            return
        colors = theme.colors()
        most = max((each.count for each in calibration.bins), default=0)
        for each in calibration.bins:
            if each.count and each.accuracy is not None:
                fill = fills.blend(colors.accent, colors.panel, 0.35 + 0.65 * (each.count / most) ** 0.5)
                bar = pg.BarGraphItem(
                    x0=[each.low], x1=[each.high], height=[each.accuracy], brush=fill, pen=pg.mkPen(colors.accent)
                )
                self.plot.addItem(bar)
        self.plot.diagonal()


def temperature_words(calibration: Calibration) -> str:
    """What dividing logits by the temperature would do, in a sentence."""
    temperature, before, after = calibration.temperature, calibration.ece_before, calibration.ece_after
    if temperature is None or before is None or after is None:
        return "There are too few samples to fit a temperature."
    gain = f"lowers the error from {localised(100 * before, 1)} to {localised(100 * after, 1)} %"
    if after >= before:
        return (
            f"Dividing the logits by a temperature would not help: the best, {localised(temperature, 2)}, leaves the error at "
            f"{localised(100 * after, 1)} %, on samples that it was not fitted on."
        )
    sure = "too sure of itself" if temperature > 1 else "not sure enough"
    return (
        f"The model is {sure}: dividing its logits by a temperature of {localised(temperature, 2)} {gain}, on samples that it was not "
        "fitted on. Predictions stay the same."
    )


def _spoken(calibration: Calibration) -> str:
    parts = [
        f"confidence {localised(each.low, 2)} to {localised(each.high, 2)}: {100 * each.accuracy:.0f} % of {localised(each.count)} right"
        for each in calibration.bins
        if each.accuracy is not None
    ]
    return "; ".join(parts)
