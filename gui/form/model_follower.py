"""Default model of the job on screen."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QObject

from engine.checks.default_model import choose_model
from engine.contract.catalogue import Catalogue
from engine.contract.devices import is_gpu
from gui.form.cached_disk import CachedDisk
from gui.form.field_row import FieldRow
from gui.form.recipes import RecipeFollower

_FIELDS = ("model", "encoder")


class ModelFollower(QObject):
    """Keeps model and encoder at the task's best default until the user changes one of them.

    Attributes:
        is_active: Whether the default is followed. A job that is loaded keeps its model.
        reason: Phrase that names the default and says why it was chosen; "" for any other model.
    """

    def __init__(
        self,
        rows: Mapping[str, FieldRow],
        catalogue: Catalogue,
        disk: CachedDisk,
        recipes: RecipeFollower,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self.catalogue = catalogue
        self.is_active = False
        self.reason = ""
        self._rows, self._disk, self._recipes = rows, disk, recipes
        self._is_choosing = False
        for name in _FIELDS:
            rows[name].edited.connect(self._on_edited)
            rows[name].reset.clicked.connect(self._on_reset)

    def follow(self, devices: tuple[str, ...]) -> None:
        """Update the default model of a job on `devices`."""
        task = self.catalogue.task(str(self._rows["task"].value()))
        if task is None:
            return
        uses_gpu = any(map(is_gpu, devices))
        if self.is_active:
            model, encoder, reason = choose_model(task, self.catalogue, self._disk, uses_gpu=uses_gpu)
            if self._disk.unanswered and self._rows["model"].value() in {default.model for default in task.defaults}:
                return  # it stays until the disk has answered
        else:  # no server is asked about weights that the job doesn't use
            best = next((default for default in task.defaults if uses_gpu or not default.gpu), None)
            model, encoder, reason = (best.model, best.encoder, "") if best is not None else ("", "", "")
        self.reason = reason
        self._is_choosing = True
        for name, value in zip(_FIELDS, (model, encoder or self._rows["encoder"].default), strict=True):
            if not self._recipes.paused and self._rows[name].standard != value:
                self._rows[name].set_standard(value, "Back to the default")
            if self.is_active:
                self._rows[name].set_value(value)
        self._is_choosing = False

    def _on_edited(self) -> None:
        if not self._is_choosing:
            self.is_active = False

    def _on_reset(self) -> None:
        """Follow the default again once neither field has a value that the user chose."""
        self.is_active = not (self._recipes.paused or any(self._rows[name].changed for name in _FIELDS))
