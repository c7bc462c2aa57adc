"""What each setting of the window acts on, at once and again whenever it is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from engine.contract.devices import CPU
from gui import format as window_format
from gui.actions import Actions
from gui.form.panel import JobPanel
from gui.preferences.store import Preferences
from gui.style import theme

if TYPE_CHECKING:
    from gui.workspace import Workspace


class Effects(QObject):
    """Acts on the theme, the units and the form from the beginning, and on the rest once the workspace is there."""

    def __init__(self, preferences: Preferences, acts: Actions, job_panel: JobPanel, parent: QObject) -> None:
        super().__init__(parent)
        self._preferences, self._acts, self._job_panel = preferences, acts, job_panel
        self._workspace: Workspace | None = None
        self._effects: dict[str, Callable[[], None]] = {
            "theme": self._dress,
            "text_percent": self._dress,
            "memory_unit": self._set_units,
            "default_recipe": self._prefer,
        }
        for effect in dict.fromkeys(self._effects.values()):
            effect()
        preferences.changed.connect(self._changed)

    def complete(self, workspace: Workspace) -> None:
        """Takes in the parts that are made after the first paint."""
        self._workspace = workspace
        preferences, bar = self._preferences, workspace.monitor.bar
        later: dict[str, Callable[[], None]] = {
            "runs_every_s": lambda: workspace.run_list.set_interval(preferences.number("runs_every_s")),
            "sample_every_s": lambda: workspace.hosts.local.set_interval(preferences.number("sample_every_s")),
            "history_hours": lambda: workspace.history.keep(3600 * preferences.number("history_hours")),
            "default_devices": self.choose_devices,
        }
        for effect in later.values():
            effect()
        self._effects |= later | {
            "runs_folder": workspace.run_list.change_folder,
            "monitor_compact": lambda: bar.compact.setChecked(bool(preferences.value("monitor_compact"))),
            "monitor_by_load": lambda: bar.load.setChecked(bool(preferences.value("monitor_by_load"))),
        }

    def choose_devices(self) -> None:
        """Chooses the devices that a job begins with, where they are not those of last time."""
        wanted = self._preferences.text("default_devices")
        if self._workspace is None or wanted == "last":
            return
        if wanted == "cpu":
            self._workspace.devices.set_selection((CPU,))
        else:
            self._workspace.devices.choose_all()

    def _changed(self, key: str) -> None:
        effect = self._effects.get(key)
        if effect is not None:
            effect()

    def _dress(self) -> None:
        theme.choose(self._preferences.text("theme"), round(self._preferences.number("text_percent")))
        for scheme in self._acts.schemes:
            scheme.setChecked(scheme.objectName() == f"{self._preferences.text('theme')}_theme")

    def _set_units(self) -> None:
        window_format.use_decimal_units(self._preferences.text("memory_unit") == "decimal")

    def _prefer(self) -> None:
        self._job_panel.environment.default_recipe = self._preferences.text("default_recipe")
        if self._workspace is not None:
            self._job_panel.form.validate()
