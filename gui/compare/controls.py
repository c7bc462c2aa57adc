"""Controls of the curves of compared runs, with their exports."""

from __future__ import annotations

from PySide6.QtWidgets import QPushButton

from gui.actions import Action, bind
from gui.compare.compared_run import Over
from gui.compare.curves import CompareCurves
from gui.translation import tr
from gui.widgets.curve_controls import CurveControls
from gui.widgets.layouts import save_button

_OVER: tuple[tuple[str, Over], ...] = ((tr("Steps"), "step"), (tr("Epochs"), "epoch"), (tr("Time"), "time"))


class CompareControls(CurveControls):
    """Controls of the curves. The page places `show_all` and `save`.

    Attributes:
        acts: Actions that save curves, table and image.
    """

    def __init__(self, curves: CompareCurves) -> None:
        super().__init__(_OVER, of=" of the compared runs")
        self.axis_chosen.connect(curves.set_over)
        self.smoothed.connect(curves.set_smoothing)
        self.log_toggled.connect(curves.set_log)
        self._show_all = Action(self, "show_whole_runs", tr("Show full runs"), tr("Zooms out to the full runs (Home)"))
        self._show_all.on_trigger(curves.group.follow)
        self.show_all = bind(QPushButton(), self._show_all)
        curves.group.following_changed.connect(self._follow)
        self._follow(True)
        self.acts = {
            "curves": Action(self, "save_curves", tr("&Curves as CSV …")),
            "table": Action(self, "save_table", tr("&Table as CSV …")),
            "image": Action(self, "save_image", tr("&Image as PNG …")),
        }
        self.save = save_button(tr("Save the comparison"), tr("Saves curves or table"), self.acts.values())

    def _follow(self, is_following: bool) -> None:
        self._show_all.allow(tr("The full runs are shown") if is_following else "")
