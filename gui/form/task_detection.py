"""The task, and with it the model, of a folder that the user has just chosen."""

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
    """A job that trains at once on whatever the machine has."""
    return Job(dataset=str(paths.sample_dataset()), model="mnist_cnn")


class TaskDetection(QObject):
    """Chooses the task for a new folder by what lies there, as `footplate train FOLDER` does, until the user chooses
    one.

    The sample's model, which is one for the sample alone, gives way to the task's with the first folder of the user's
    own. What comes with a job stays as it is.
    """

    def __init__(
        self, rows: Mapping[str, FieldRow], catalogue: Catalogue, recipes: RecipeFollower, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._rows, self.catalogue, self._recipes, self._sample = rows, catalogue, recipes, sample_job()
        self._folder = rows["dataset"].value()
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
        before, self._folder = self._folder, self._rows["dataset"].value()
        self._rows["task"].set_note("")
        self._open = not (self._recipes.is_loading or self._recipes.paused)
        if self._open and before == self._sample.dataset and self._rows["model"].value() == self._sample.model:
            task = self.catalogue.task(self._rows["task"].value())
            if task is not None:
                self._rows["model"].set_value(task.model)

    def _task_edited(self) -> None:
        self._rows["task"].set_note("")
        self._open = False
