"""PySide6 6.12 on Python 3.11 dropped a reference to None in many void calls, until a live plot aborted."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.plots.group import PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot
from gui.style import theme

FRAMES = 100


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal from Python 3.12 on")
def test_live_plot_keeps_references_of_none(styled: QApplication, qtbot: QtBot) -> None:
    group = PlotGroup("elapsed")
    plot = LinePlot("Loss", group)
    qtbot.addWidget(plot)
    plot.add_line("train", LineStyle("training", lambda: theme.colors().accent, smooth=True))
    plot.resize(400, 200)
    plot.show()

    def frame(count: int) -> None:
        x = np.arange(float(count))
        plot.set_data("train", x, x)
        group.set_extent(0.0, count - 1.0)
        plot.redraw()
        plot.grab()

    for count in range(2, 10):
        frame(count)
    before = sys.getrefcount(None)
    for count in range(10, 10 + FRAMES):
        frame(count)
    # A faulty release lost some thirty in every frame.
    assert before - sys.getrefcount(None) < FRAMES
