"""Default model of the job on screen."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QObject

from engine.checks.default_model import choose_model
from engine.contract.devices import is_gpu
from gui.form.cached_disk import CachedDisk
from gui.form.environment import JobEnvironment
from gui.form.field_row import FieldRow
from gui.form.recipes import RecipeFollower
from gui.translation import tr

_FIELDS = ("model", "encoder")


class ModelFollower(QObject):
    """Keeps model and encoder at the task's best default until the user changes one of them.

    Attributes:
        is_active: The default is followed. A loaded job keeps its model.
        reason: Phrase with the default and why it was chosen; "" for any other model.
    """

    def __init__(
        self,
        rows: Mapping[str, FieldRow],
        environment: JobEnvironment,
        disk: CachedDisk,
        recipes: RecipeFollower,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self.is_active = False
        self.reason = ""
        self._rows, self._environment, self._disk, self._recipes = rows, environment, disk, recipes
        self._is_choosing = False
        for name in _FIELDS:
            rows[name].edited.connect(self._on_edited)
            rows[name].reset.clicked.connect(self._on_reset)

    def follow(self, devices: tuple[str, ...]) -> None:
        """Update the default model of a job on `devices`."""
        catalogue = self._environment.catalogue
        task = catalogue.task(str(self._rows["task"].value()))
        if task is None:
            return
        uses_gpu = any(map(is_gpu, devices))
        if self.is_active:
            model, encoder, reason = choose_model(task, catalogue, self._disk, uses_gpu=uses_gpu)
            if self._disk.unanswered and self._rows["model"].value() in {default.model for default in task.defaults}:
                return  # keep it until the disk answers
        else:  # don't ask a server about weights that the job doesn't use
            best = next((default for default in task.defaults if uses_gpu or not default.gpu), None)
            model, encoder, reason = (best.model, best.encoder, "") if best is not None else ("", "", "")
        self.reason = reason
        self._is_choosing = True
        try:
            for name, value in zip(_FIELDS, (model, encoder or self._rows["encoder"].default), strict=True):
                if not self._recipes.paused and self._rows[name].standard != value:
                    self._rows[name].set_standard(value, tr("Reset to the default"))
                if self.is_active:
                    self._rows[name].set_value(value)
        finally:
            self._is_choosing = False

    def _on_edited(self) -> None:
        if not self._is_choosing:
            self.is_active = False

    def _on_reset(self) -> None:
        """Follow the default again once neither field has a value that the user chose."""
        self.is_active = not (self._recipes.paused or any(self._rows[name].changed for name in _FIELDS))
