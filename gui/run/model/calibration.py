"""Calibration of a model: a reliability diagram, and the effect of a temperature."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtWidgets import QWidget

from engine.contract.inference.evaluation import Calibration
from gui.format import localised
from gui.run.model.evaluation_format import format_interval
from gui.run.model.plot import UnitPlot
from gui.sources.evaluations import OpenedEvaluation
from gui.style import fills, theme
from gui.translation import tr
from gui.widgets.labels import caption
from gui.widgets.layouts import vbox


class CalibrationPage(QWidget):
    """Reliability diagram with the calibration error and the best temperature."""

    def __init__(self) -> None:
        super().__init__()
        self._calibration: Calibration | None = None
        self.error = caption(style="heading")
        self.plot = UnitPlot(tr("Reliability diagram"))
        self.plot.setLabel("bottom", tr("Confidence"))
        self.plot.setLabel("left", tr("Accuracy"))
        self.explanation = caption(
            tr(
                "Bars: accuracy of the predictions with that confidence, paler for fewer predictions. The dashed line is perfect "
                "calibration; below it the model is overconfident."
            )
        )
        self.temperature = caption(style="")
        self.setLayout(vbox(self.error, (self.plot, 100), self.explanation, self.temperature, 1))
        self.plot.set_drawing(self._draw)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        self._calibration = calibration = opened.evaluation.calibration
        if calibration is None:
            return
        interval = format_interval(calibration.ece)
        self.error.setText(
            f"Expected calibration error {localised(100 * calibration.ece.value, 1)} %"
            + (f" ({interval})" if interval else "")
        )
        self.temperature.setText(describe_temperature(calibration))
        self.plot.setAccessibleDescription(_describe_bins(calibration))
        self.plot.recolor()

    def _draw(self) -> None:
        calibration = self._calibration
        if calibration is None:
            return
        colors = theme.colors()
        max_count = max((each.count for each in calibration.bins), default=0)
        for each in calibration.bins:
            if each.count and each.accuracy is not None:
                fill = fills.blend(colors.accent, colors.panel, 0.35 + 0.65 * (each.count / max_count) ** 0.5)
                bar = pg.BarGraphItem(
                    x0=[each.low], x1=[each.high], height=[each.accuracy], brush=fill, pen=pg.mkPen(colors.accent)
                )
                self.plot.addItem(bar)
        self.plot.draw_diagonal()


def describe_temperature(calibration: Calibration) -> str:
    """Describe the effect of dividing the logits by the best temperature."""
    temperature, before, after = calibration.temperature, calibration.ece_before, calibration.ece_after
    if temperature is None or before is None or after is None:
        return tr("There are too few samples to fit a temperature.")
    gain = f"lowers the error from {localised(100 * before, 1)} to {localised(100 * after, 1)} %"
    if after >= before:
        return (
            f"Dividing the logits by a temperature wouldn't help: the best one, {localised(temperature, 2)}, leaves the error at "
            f"{localised(100 * after, 1)} % on held-out samples."
        )
    verdict = "overconfident" if temperature > 1 else "underconfident"
    return tr(
        "The model is {verdict}: dividing its logits by a temperature of {temperature} {gain} on held-out "
        "samples. Predictions stay the same."
    ).format(verdict=verdict, temperature=localised(temperature, 2), gain=gain)


def _describe_bins(calibration: Calibration) -> str:
    parts = [
        f"confidence {localised(each.low, 2)} to {localised(each.high, 2)}: {100 * each.accuracy:.0f} % of {localised(each.count)} correct"
        for each in calibration.bins
        if each.accuracy is not None
    ]
    return "; ".join(parts)
