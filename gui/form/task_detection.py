"""Task of a folder that the user has just chosen."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QObject

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.system import paths
from gui.form.environment import JobEnvironment
from gui.form.field_row import FieldRow
from gui.form.recipes import RecipeFollower
from gui.translation import tr


def sample_job() -> Job:
    """Return a job on the sample dataset."""
    return Job.from_fields(dataset=str(paths.sample_dataset()))


class TaskDetection(QObject):
    """Sets the task by the contents of a new folder, as `footplate train FOLDER` does, until the user chooses one.

    The task of a loaded job stays.
    """

    def __init__(
        self, rows: Mapping[str, FieldRow], environment: JobEnvironment, recipes: RecipeFollower, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._rows, self._environment, self._recipes = rows, environment, recipes
        self._is_active = False
        rows["dataset"].edited.connect(self._on_folder_edited)
        rows["task"].edited.connect(self._on_task_edited)

    def follow(self, report: DatasetReport) -> bool:
        """Set the task that `report` suggests; return True if the folder has to be inspected again for it."""
        task = self._environment.catalogue.task_of(report.other) if self._is_active and report.other else None
        if task is None:
            return False
        self._rows["task"].set_value(task.id)
        self._rows["task"].set_note(tr("Detected from the folder"))
        return True

    def _on_folder_edited(self) -> None:
        self._rows["task"].set_note("")
        self._is_active = not (self._recipes.is_loading or self._recipes.paused)

    def _on_task_edited(self) -> None:
        self._rows["task"].set_note("")
        self._is_active = False
