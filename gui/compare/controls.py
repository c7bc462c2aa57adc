"""How the curves of compared runs are shown, and what can be saved of them."""

from __future__ import annotations

from PySide6.QtWidgets import QMenu, QPushButton, QToolButton

from gui.actions import Action, bind
from gui.compare.compared_run import Over
from gui.compare.curves import CompareCurves
from gui.widgets.curve_controls import CurveControls
from gui.widgets.menu_button import make_menu_button

_OVER: tuple[tuple[str, Over], ...] = (("Steps", "step"), ("Epochs", "epoch"), ("Time", "time"))


class CompareControls(CurveControls):
    """Acts on the curves that it is given. `whole` and `save` are for whoever makes it to place.

    Attributes: acts - what can be saved: curves, table and image.
    """

    def __init__(self, curves: CompareCurves) -> None:
        super().__init__(_OVER, of=" of the compared runs")
        self.axis_chosen.connect(curves.set_over)
        self.smoothed.connect(curves.set_smoothing)
        self.log_toggled.connect(curves.set_log)
        tip = "Zooms out to the whole runs (Home)"
        self._show_whole = Action(self, "show_whole_runs", "Show whole runs", tip)
        self._show_whole.on_trigger(curves.group.follow)
        self.whole = bind(QPushButton(), self._show_whole)
        curves.group.following_changed.connect(self._follow)
        self._follow(True)
        self.acts = {
            "curves": Action(self, "save_curves", "&Curves as CSV …"),
            "table": Action(self, "save_table", "&Table as CSV …"),
            "image": Action(self, "save_image", "&Image as PNG …"),
        }
        self.save = self._save_button()

    def _save_button(self) -> QToolButton:
        button = QToolButton()
        button.setText("Save")
        button.setAccessibleName("Save the comparison")
        make_menu_button(button)
        menu = QMenu(button)
        menu.addActions(list(self.acts.values()))
        button.setMenu(menu)
        return button

    def _follow(self, following: bool) -> None:
        self._show_whole.allow("The whole runs are shown" if following else "")
