"""Effects of the settings, applied at the start and after each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from engine.contract.devices import CPU
from gui import format as window_format
from gui.context import AppContext
from gui.preferences.store import Preferences
from gui.style import theme

if TYPE_CHECKING:
    from gui.workspace import Workspace


class Effects(QObject):
    """Controller that applies the preferences, at the start and when they change.

    The constructor applies the theme, the units and the form's default recipe. All other preferences are applied by
    `add_workspace`, and whenever they change from then on.
    """

    def __init__(self, preferences: Preferences, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self._preferences, self._context = preferences, context
        self._workspace: Workspace | None = None
        self._effects: dict[str, Callable[[], None]] = {
            "theme": self._apply_theme,
            "text_percent": self._apply_theme,
            "memory_unit": self._set_units,
            "default_recipe": self._set_default_recipe,
        }
        for effect in dict.fromkeys(self._effects.values()):
            effect()
        preferences.changed.connect(self._on_changed)

    def add_workspace(self, workspace: Workspace) -> None:
        """Apply the preferences for the parts of `workspace`, now and whenever they change.

        The workspace is created after the first paint of the window, and therefore later than this controller.
        """
        self._workspace = workspace
        preferences, bar = self._preferences, workspace.monitor.bar
        late_effects: dict[str, Callable[[], None]] = {
            "runs_every_s": lambda: workspace.run_list.set_interval(preferences.number("runs_every_s")),
            "sample_every_s": lambda: workspace.hosts.local.set_interval(preferences.number("sample_every_s")),
            "history_hours": lambda: workspace.history.set_retention(3600 * preferences.number("history_hours")),
            "keep_device_history": lambda: workspace.hosts.set_history(bool(preferences.value("keep_device_history"))),
            "default_devices": self.select_default_devices,
        }
        for effect in late_effects.values():
            effect()
        # The parts have read these settings when they were created.
        self._effects |= late_effects | {
            "runs_folder": workspace.run_list.change_folder,
            "monitor_compact": lambda: bar.compact.setChecked(bool(preferences.value("monitor_compact"))),
            "monitor_by_load": lambda: bar.load.setChecked(bool(preferences.value("monitor_by_load"))),
        }

    def select_default_devices(self) -> None:
        """Select the default devices for new jobs. If the setting is "last", keep the devices of the last session."""
        default = self._preferences.text("default_devices")
        if self._workspace is None or default == "last":
            return
        if default == "cpu":
            self._workspace.devices.set_selection((CPU,))
        else:
            self._workspace.devices.choose_all_gpus()

    def _on_changed(self, key: str) -> None:
        effect = self._effects.get(key)
        if effect is not None:
            effect()

    def _apply_theme(self) -> None:
        """Apply the theme and the text size, and check the menu entry of the theme."""
        name = self._preferences.text("theme")
        theme.choose(name, round(self._preferences.number("text_percent")))
        for scheme in self._context.actions.schemes:
            scheme.setChecked(scheme.objectName() == f"{name}_theme")

    def _set_units(self) -> None:
        window_format.use_decimal_units(self._preferences.text("memory_unit") == "decimal")

    def _set_default_recipe(self) -> None:
        """Set the default recipe of the form. After `add_workspace` has been called, also validate the form with it."""
        self._context.job_panel.environment.default_recipe = self._preferences.text("default_recipe")
        if self._workspace is not None:
            self._context.job_panel.form.validate()
