"""Fields that follow others until the user sets them.

Format and task follow the folder. The model follows the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from PySide6.QtCore import QObject

from engine.checks.weights_checks import choose_model
from engine.contract.dataset import READ_AS, DatasetReport
from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.system import paths
from gui.dataset import dataset_format
from gui.form.cached_disk import CachedDisk
from gui.form.environment import JobEnvironment
from gui.form.field_row import FieldRow
from gui.form.recipes import RecipeFollower
from gui.format import capitalize
from gui.translation import tr
from gui.widgets.editors import ChoiceEditor

RECOGNIZE = ("", tr("Recognize"), tr("Read the folder by what its files show"))


class FormatChoice(QObject):
    """Controller of the field for the dataset format, which offers the formats that were found in the dataset folder.

    When the user selects another folder, the field is reset to "Recognize".
    """

    def __init__(self, rows: Mapping[str, FieldRow], recipes: RecipeFollower, parent: QObject) -> None:
        super().__init__(parent)
        self._row, self._folder_row, self._recipes = rows["format"], rows["dataset"], recipes
        self._folder = self._folder_row.value()
        self._titles: dict[str, str] = {}
        self._folder_row.edited.connect(self._on_folder_edited)
        self._row.edited.connect(self._on_format_edited)

    def follow(self, report: DatasetReport | None) -> None:
        """Offer the formats in `report` and show the recognized one. Do nothing if `report` is None."""
        if report is None:
            return
        self._titles |= dict(_list_formats(report))
        value = self._row.value()
        if value and report.format.partition(":")[0] == value:  # without the format's variant
            self._titles.setdefault(value, dataset_format.get_format_title(report))
        self._offer()
        is_recognized = bool(report.format) and not value
        self._row.set_note(
            tr("Recognized: {report}").format(report=dataset_format.get_format_title(report)) if is_recognized else ""
        )

    def _offer(self) -> None:
        """Offer "Recognize" and the formats that were found in the folder as choices of the format field."""
        editor = self._row.editor
        assert isinstance(editor, ChoiceEditor)
        editor.set_choices([RECOGNIZE, *((name, title, "") for name, title in self._titles.items())])

    def _on_folder_edited(self) -> None:
        """Forget the formats of the previous folder. The chosen format is reset unless a job is being loaded."""
        if self._folder_row.value() == self._folder:
            return
        self._folder = self._folder_row.value()
        self._titles = {}
        self._row.set_note("")
        if not self._recipes.is_loading:
            self._row.set_value("")
        self._offer()

    def _on_format_edited(self) -> None:
        """Remove the note about the recognized format when the user selects one."""
        if self._row.value():
            self._row.set_note("")


def _list_formats(report: DatasetReport) -> Iterator[tuple[str, str]]:
    """Yield the ids and titles of the formats in the report."""
    if report.format:
        yield report.format, dataset_format.get_format_title(report)
    for reading in report.readings:
        yield reading.format, capitalize(reading.title)
    for problem in report.problems:
        for choice in problem.choices:
            name = choice.values.get("format")
            if name and "task" not in choice.values:  # a format for another task can't be chosen alone
                yield str(name), capitalize(choice.title.removeprefix(READ_AS))


def create_sample_job() -> Job:
    """Return a job for the sample dataset."""
    return Job.from_fields(dataset=str(paths.sample_dataset()))


class TaskDetection(QObject):
    """Updater that sets the task for a new folder, as `footplate train FOLDER` does, until the user sets it.

    The task of a loaded job doesn't change.
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
        """Set the task that fits the annotations in `report`, if the folder has only annotations for another task.

        Returns True if the task has changed, so that the folder must be inspected again.
        """
        if not self._is_active or not report.other:  # the annotations are those of the task, or there are none
            return False
        task = self._environment.catalogue.task_of(report.other)
        if task is None:
            return False
        self._rows["task"].set_value(task.id)
        self._rows["task"].set_note(tr("Detected from the folder"))
        return True

    def _on_folder_edited(self) -> None:
        """Detect the task of a new folder, unless the folder belongs to a job that is being loaded or prefilled."""
        self._rows["task"].set_note("")
        self._is_active = not (self._recipes.is_loading or self._recipes.paused)

    def _on_task_edited(self) -> None:
        """Stop detecting the task, because it was set."""
        self._rows["task"].set_note("")
        self._is_active = False


_MODEL_FIELDS = ("model", "encoder")


class ModelFollower(QObject):
    """Updater that keeps model and encoder at the task's best default until the user changes one of them.

    Attributes:
        is_active: True while the default is followed. A loaded job keeps its model.
        reason: Phrase that names the default and the reason for it, or "" if another model is selected.
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
        self._is_choosing = False  # True while the default is being set
        rows["task"].edited.connect(self._on_task_edited)
        for name in _MODEL_FIELDS:
            rows[name].edited.connect(self._on_edited)
            rows[name].reset.clicked.connect(self._on_reset)

    def select_default(self, devices: tuple[str, ...]) -> None:
        """Select the best default model for a job on `devices`, and follow the default from now on."""
        self.is_active = True
        self.follow(devices)

    def follow(self, devices: tuple[str, ...]) -> None:
        """Find the best default model for a job on `devices`, and select it while the default is followed."""
        catalogue = self._environment.catalogue
        task = catalogue.task(str(self._rows["task"].value()))
        if task is None:
            return
        uses_gpu = any(map(is_gpu, devices))
        if self.is_active:
            model, encoder, reason = choose_model(task, catalogue, self._disk, uses_gpu=uses_gpu)
            if self._disk.unanswered and self._rows["model"].value() in {default.model for default in task.defaults}:
                return  # keep it until the disk answers
        else:  # show the default, but don't ask a server about weights that the job doesn't use
            best = next((default for default in task.defaults if uses_gpu or not default.gpu), None)
            model, encoder, reason = (best.model, best.encoder, "") if best is not None else ("", "", "")
        self.reason = reason
        self._is_choosing = True
        try:
            for name, value in zip(_MODEL_FIELDS, (model, encoder or self._rows["encoder"].default), strict=True):
                # The fields of another run's job (`paused`) are reset to its values.
                if not self._recipes.paused and self._rows[name].standard != value:
                    self._rows[name].set_standard(value, tr("Reset to the default"))
                if self.is_active:
                    self._rows[name].set_value(value)
        finally:
            self._is_choosing = False

    def _on_edited(self) -> None:
        """Stop following the default, because the user has changed the model or the encoder."""
        if not self._is_choosing:
            self.is_active = False

    def _on_task_edited(self) -> None:
        """Follow the default again if the model belongs to another task, except for a prefilled job."""
        if self._recipes.paused:
            return
        catalogue, model = self._environment.catalogue, self._rows["model"].value()
        entry = catalogue.model(model)
        if entry is not None and entry not in catalogue.models_of(str(self._rows["task"].value())):
            self.is_active = True

    def _on_reset(self) -> None:
        """Follow the default again if the user has reset both model and encoder."""
        self.is_active = not (self._recipes.paused or any(self._rows[name].is_changed for name in _MODEL_FIELDS))
