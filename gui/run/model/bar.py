"""Bar above an evaluation, and the form for a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget

from engine.contract.inference.evaluation import EVALUATION_FILE, EvaluateRequest
from engine.contract.inference.evaluation import SPLITS as EVALUATION_SPLITS
from engine.runs.evaluations import SavedEvaluation
from engine.runs.folder import RunFolder
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.paths import write_atomically
from gui.actions import Action, bind
from gui.run.classes.table import format_number, make_confusion_rows
from gui.run.model.widgets import evaluation_title, format_sample_classes, list_metrics
from gui.run.model_choice import CheckpointEditor, DevicesEditor, FormGrid
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.export import Rows, save_in_background, write_csv
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.drop_target import FileDropTarget
from gui.widgets.editors import ChoiceEditor, PathEditor
from gui.widgets.file_dialogs import add_timestamp, choose_target
from gui.widgets.labels import caption, field_label, heading_label
from gui.widgets.layouts import create_save_button, hbox, vbox
from gui.widgets.tab_order import order_tabs

_SAVED = tr("The evaluation was saved to {path}.")


class EvaluationBar(QWidget):
    """Bar that selects an evaluation, with commands for it.

    Signals:
        chosen(object): the user has selected this SavedEvaluation.
        evaluate_requested(): the user wants to evaluate the model again.
        delete_requested(object): the user wants to delete this SavedEvaluation.
        message(str, str): the result of saving a file, with the severity "info" or "warning".
    """

    chosen = Signal(object)
    evaluate_requested = Signal()
    delete_requested = Signal(object)
    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._saved: dict[str, SavedEvaluation] = {}  # by folder name
        self._opened: OpenedEvaluation | None = None
        self.list = ChoiceEditor([])
        self.list.control.setAccessibleName(tr("Evaluation"))
        self.new = Action(self, "new_evaluation", tr("Evaluate…"), tr("Measure the model on another split or folder"))
        self.delete = Action(self, "delete_evaluation", tr("Delete"), tr("Move the evaluation to the trash"))
        self.delete.on_trigger(self._delete)
        self.new.on_trigger(self.evaluate_requested.emit)
        self._make_save_actions()
        self.save = create_save_button(
            tr("Save the evaluation"), tr("Save the evaluation as CSV or JSON"), self._save_actions.values()
        )
        self.setLayout(
            hbox(
                field_label(tr("Evaluation"), self.list.control),
                (self.list, 1),
                bind(QPushButton(), self.new, tr("Evaluate again")),
                self.save,
                bind(QPushButton(), self.delete, tr("Delete the evaluation")),
            )
        )
        self.list.edited.connect(self._on_chosen)

    def show_list(self, evaluations: Sequence[SavedEvaluation], chosen: str = "") -> None:
        """List `evaluations` and select the one in the folder `chosen`.

        If that evaluation isn't listed, the selection doesn't change. Without a selection, the first evaluation is
        selected.
        """
        self._saved = {saved.folder.name: saved for saved in evaluations}
        self.list.reset_choices(
            [(name, evaluation_title(saved.evaluation), str(saved.folder)) for name, saved in self._saved.items()],
            chosen if chosen in self._saved else self.list.value(),
        )
        self._on_chosen()

    def show_opened(self, opened: OpenedEvaluation) -> None:
        """Set the visible evaluation, and enable the commands that save the parts it has."""
        self._opened = opened
        evaluation = opened.evaluation
        self._save_actions["classes"].set_disabled_reason("" if evaluation.per_class else tr("No per-class metrics"))
        self._save_actions["confusion"].set_disabled_reason("" if evaluation.confusion else tr("No confusion matrix"))

    def current(self) -> SavedEvaluation | None:
        """Return the selected evaluation, or None if there is none."""
        return self._saved.get(self.list.value())

    def _on_chosen(self) -> None:
        """Emit `chosen` with the evaluation that the user has selected, and show its folder in the tool tip."""
        saved = self.current()
        if saved is not None:
            self.list.box.setToolTip(f"{evaluation_title(saved.evaluation)}\n{saved.folder}")
            self.chosen.emit(saved)

    def _delete(self) -> None:
        saved = self.current()
        if saved is not None:
            self.delete_requested.emit(saved)

    # Saving

    def save_csv(self, make_rows: Callable[[OpenedEvaluation], Rows], path: Path) -> None:
        """Write the rows that `make_rows` creates from the visible evaluation to a CSV file."""
        if self._opened is not None:
            save_in_background(partial(write_csv, path, make_rows(self._opened)), self.message, _SAVED, self)

    def save_json(self, path: Path) -> None:
        """Write the visible evaluation without its samples to a JSON file."""
        if self._opened is not None:
            copy = partial(_copy, self._opened.saved.folder / EVALUATION_FILE, path)
            save_in_background(copy, self.message, _SAVED, self)

    def _choose_file(self, name: str, save: Callable[[Path], None]) -> None:
        """Open a dialog for a file, whose suggested name is `name` and the time, and call `save` with its path."""
        choose_target(self, tr("Save the evaluation"), add_timestamp(name), save)

    def _make_save_actions(self) -> None:
        """Create the actions that save parts of the evaluation as CSV, or the evaluation as JSON."""
        tables: tuple[tuple[str, str, Callable[[OpenedEvaluation], Rows]], ...] = (
            ("metrics", tr("Metrics as CSV…"), make_metric_rows),
            ("classes", tr("Metrics per class as CSV…"), make_class_rows),
            ("confusion", tr("Confusion matrix as CSV…"), make_matrix_rows),
            ("samples", tr("Samples as CSV…"), make_sample_rows),
        )
        self._save_actions: dict[str, Action] = {}
        for name, text, make_rows in tables:
            self._save_actions[name] = action = Action(self, f"save_evaluation_{name}", text)
            action.on_trigger(partial(self._choose_file, f"{name}.csv", partial(self.save_csv, make_rows)))
        self._save_actions["json"] = action = Action(
            self, "save_evaluation_json", tr("Everything except samples as JSON…")
        )
        action.on_trigger(lambda: self._choose_file("evaluation.json", self.save_json))


def _copy(source: Path, target: Path) -> Path:
    """Copy a file atomically and return the path of the copy. Raises OSError."""
    write_atomically(target, read_file(source, MAX_RESULT_BYTES))
    return target


def make_metric_rows(opened: OpenedEvaluation) -> Iterator[list[str]]:
    """Yield CSV rows with the metrics and their intervals, as fractions from 0 to 1. Missing intervals are empty."""
    yield ["metric", "value", "low", "high"]
    for entry, each in list_metrics(opened.evaluation):
        yield [entry.title, *map(format_number, (each.value, each.low, each.high))]


def make_class_rows(opened: OpenedEvaluation) -> Iterator[list[str]]:
    """Yield CSV rows with the metrics of each class and their intervals. Unknown values are empty."""
    columns = opened.evaluation.per_class
    yield ["class", *(f"{title}{end}" for title in columns for end in ("", " low", " high"))]
    for number, name in enumerate(opened.evaluation.classes):
        cells = [name]
        for intervals in columns.values():
            interval = intervals[number] if number < len(intervals) else None
            numbers = (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
            cells += map(format_number, numbers)
        yield cells


def make_matrix_rows(opened: OpenedEvaluation) -> Iterator[list[str]]:
    """Yield CSV rows of the confusion matrix."""
    return make_confusion_rows(opened.evaluation.classes, opened.evaluation.confusion)


def make_sample_rows(opened: OpenedEvaluation) -> Iterator[list[str]]:
    """Yield CSV rows with the samples, in the order of the split. Unknown values are empty."""
    samples, classes = opened.samples, opened.evaluation.classes
    yield ["path", "split", "true", "predicted", "confidence", "correct", "loss"]
    for row, path in enumerate(samples.paths):
        names = [format_sample_classes(classes, column, row) for column in (samples.true, samples.predicted)]
        columns = (samples.confidence, samples.correct, samples.losses)
        numbers = [format_number(None if column is None else float(column[row])) for column in columns]
        yield [path, samples.splits[row], *names, *numbers]


AUTOMATIC = "auto"
SPLITS: tuple[tuple[str, str, str], ...] = (
    (
        AUTOMATIC,
        tr("automatic"),
        tr("Validation split of the run's dataset; test split of another folder if it has one"),
    ),
    ("val", tr("validation"), ""),
    ("test", tr("test"), ""),
    ("train", tr("training"), tr("Show how far the model memorized its training data")),
    ("all", tr("all samples"), ""),
)
INTRODUCTION = tr(
    "Measures the model on a split of its dataset or of another folder, with 95% intervals, and shows its errors."
)


class EvaluateForm(QWidget):
    """Form for a new evaluation.

    Signals:
        submitted(object): the user wants to execute this EvaluateRequest.
        closed(): the user wants to return to the results.
    """

    submitted = Signal(object)
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.drop_target = FileDropTarget(self, tr("Drop a folder to evaluate the model on it"))
        self._run: RunFolder | None = None
        self.heading = heading_label(tr("Evaluate the model"))
        self.checkpoint = CheckpointEditor()
        self.folder = PathEditor(tr("dataset folder"), folder=True, placeholder=tr("the run's dataset"))
        self.folder.line.setToolTip(tr("Leave empty for the run's dataset, or drop a folder here"))
        self.split = ChoiceEditor(list(SPLITS))
        self.devices = DevicesEditor(tr("Evaluate"))
        self.submit_action = Action(self, "evaluate", tr("Evaluate"), tr("Measure the model"))
        self.start = styled(bind(QPushButton(), self.submit_action), "primary")
        self.cancel = push_button(tr("Back to the results"), self.closed)
        self._lay_out()
        self.submit_action.on_trigger(self._submit)
        self.checkpoint.refreshed.connect(self._update_action)
        self.devices.edited.connect(self._update_action)
        self.devices.rebuilt.connect(self._order_tabs)
        self.drop_target.dropped.connect(lambda paths: self.folder.set_value(paths[0]))

    def show_run(self, run: RunFolder, devices: tuple[str, ...], dataset: str) -> None:
        """Fill in the form for `run`, with the devices and the dataset name of its job."""
        self._run = run
        self.folder.set_value("")
        self.folder.line.setPlaceholderText(tr("the run's: {dataset}").format(dataset=dataset))
        self.split.set_value(AUTOMATIC)
        self.devices.show_devices(devices)
        self.checkpoint.show_run(run)

    def set_has_results(self, has_results: bool) -> None:
        """Show the button that returns to the results if `has_results` is True, otherwise hide it."""
        self.cancel.setVisible(has_results)

    def build_request(self) -> EvaluateRequest | None:
        """Return the requested evaluation, or None if there is no run or no device is selected."""
        if self._run is None or not self.devices.value():
            return None
        split, folder = self.split.value(), self.folder.value()
        return EvaluateRequest(
            run=str(self._run.path.absolute()),
            checkpoint=self.checkpoint.value(),
            devices=self.devices.value(),
            dataset=str(Path(folder).expanduser()) if folder else "",
            split=next((each for each in EVALUATION_SPLITS if each == split), None),  # None is the automatic choice
        )

    def _submit(self) -> None:
        request = self.build_request()
        if request is not None:
            self.submitted.emit(request)

    def _update_action(self) -> None:
        """Enable the Evaluate button if there is a checkpoint and a device is selected."""
        problem = "" if self.checkpoint.has_checkpoint else tr("The run has no checkpoint yet")
        self.submit_action.set_disabled_reason(problem or ("" if self.devices.value() else tr("Choose a device")))

    def _order_tabs(self) -> None:
        order_tabs(self, (self.checkpoint, self.folder, self.split, self.devices, self.start, self.cancel))

    def _lay_out(self) -> None:
        form = FormGrid(
            (tr("Checkpoint"), tr("Checkpoint to evaluate"), self.checkpoint),
            (tr("Dataset"), tr("Dataset to evaluate on"), self.folder),
            (tr("Split"), tr("Split to evaluate on"), self.split),
            (
                "",
                "",
                caption(
                    tr("Automatic: validation split of the run's dataset; test split of another folder if it has one.")
                ),
            ),
            (tr("Devices"), "", self.devices),
        )
        inside = QWidget()
        theme.scale_with_text(inside.setMaximumWidth, 560)
        buttons = hbox(self.start, self.cancel, 1)
        inside.setLayout(vbox(self.heading, caption(INTRODUCTION), form, buttons, spacing=12))
        self.setLayout(vbox(1, hbox(1, (inside, 100), 1), 2))
