"""Task of a folder that the user has just chosen."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QObject

from engine.contract.catalogue import Catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.system import paths
from gui.form.field_row import FieldRow
from gui.form.recipes import RecipeFollower


def sample_job() -> Job:
    """Return a job on the sample dataset."""
    return Job(dataset=str(paths.sample_dataset()))


class TaskDetection(QObject):
    """Chooses the task for a new folder by what lies there, as `footplate train FOLDER` does, until the user chooses
    one. What comes with a job stays as it is.
    """

    def __init__(
        self, rows: Mapping[str, FieldRow], catalogue: Catalogue, recipes: RecipeFollower, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._rows, self.catalogue, self._recipes = rows, catalogue, recipes
        self._open = False
        rows["dataset"].edited.connect(self._folder_edited)
        rows["task"].edited.connect(self._task_edited)

    def follow(self, report: DatasetReport) -> bool:
        """Whether `report` has led to another task, for which the folder is to be looked through again."""
        task = self.catalogue.task_of(report.other) if self._open and report.other else None
        if task is None:
            return False
        self._rows["task"].set_value(task.id)
        self._rows["task"].set_note("Detected from the folder")
        return True

    def _folder_edited(self) -> None:
        self._rows["task"].set_note("")
        self._open = not (self._recipes.is_loading or self._recipes.paused)

    def _task_edited(self) -> None:
        self._rows["task"].set_note("")
        self._open = False
