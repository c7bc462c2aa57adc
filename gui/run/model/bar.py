"""Above an evaluation: which one is looked at, and what can be done with it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QPushButton, QToolButton, QWidget

from engine.contract.inference.evaluation import EVALUATION_FILE
from engine.runs.evaluations import KeptEvaluation
from gui.actions import Action, bind
from gui.run.model.csv_tables import ClassesCsv, MatrixCsv, MetricsCsv, SamplesCsv
from gui.run.model.words import evaluation_title
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.export import ExportError, Table, write_csv
from gui.widgets.editors import ChoiceEditor
from gui.widgets.file_dialogs import choose_target
from gui.widgets.menu_button import make_menu_button


class EvaluationBar(QWidget):
    """Signals:
    chosen(object): another KeptEvaluation is to be shown.
    new_wanted(), delete_wanted(object): another evaluation is to be made; that one is to be deleted.
    message(str, str): in plain words, what came of saving; "info" or "warning".
    """

    chosen = Signal(object)
    new_wanted = Signal()
    delete_wanted = Signal(object)
    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, KeptEvaluation] = {}
        self._opened: OpenedEvaluation | None = None
        self.list = ChoiceEditor([])
        self.list.control.setAccessibleName("Evaluation")
        self.new = Action(self, "new_evaluation", "Evaluate …", "Measures the model on another split or folder")
        self.delete = Action(self, "delete_evaluation", "Delete", "Moves the evaluation to the trash")
        self.delete.on_trigger(self._delete)
        self.new.on_trigger(self.new_wanted.emit)
        label = QLabel("Evaluation")
        label.setObjectName("muted")
        label.setBuddy(self.list.control)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(label)
        row.addWidget(self.list, 1)
        row.addWidget(bind(QPushButton(), self.new, "Evaluate again"))
        row.addWidget(self._save_button())
        row.addWidget(bind(QPushButton(), self.delete, "Delete the evaluation"))
        self.list.edited.connect(self._choose)

    def show_list(self, evaluations: Sequence[KeptEvaluation], chosen: str = "") -> None:
        """Offers `evaluations`; the one whose folder's name is `chosen` is told as such, else the one that was, else
        the first.
        """
        before = self.list.box.currentData()
        self._kept = {kept.folder.name: kept for kept in evaluations}
        with QSignalBlocker(self.list):
            self.list.box.clear()
            self.list.set_choices(
                [(name, evaluation_title(kept.evaluation), str(kept.folder)) for name, kept in self._kept.items()]
            )
            wanted = next((name for name in (chosen, before) if name in self._kept), None)
            self.list.box.setCurrentIndex(0 if wanted is None else self.list.box.findData(wanted))
        self._choose()

    def show_opened(self, opened: OpenedEvaluation | None) -> None:
        """What is on screen, and can be saved."""
        self._opened = opened
        self.menu.setEnabled(opened is not None)
        if opened is not None:
            evaluation = opened.evaluation
            self._tables["classes"].allow("" if evaluation.per_class else "It has no metrics of classes")
            self._tables["confusion"].allow("" if evaluation.confusion else "It has no confusion matrix")

    def current(self) -> KeptEvaluation | None:
        return self._kept.get(self.list.value())

    def _choose(self) -> None:
        kept = self.current()
        if kept is not None:
            self.list.box.setToolTip(f"{evaluation_title(kept.evaluation)}\n{kept.folder}")
            self.chosen.emit(kept)

    def _delete(self) -> None:
        kept = self.current()
        if kept is not None:
            self.delete_wanted.emit(kept)

    # Saving

    def save_csv(self, kind: Callable[[OpenedEvaluation], Table], path: Path) -> None:
        """Writes a table of the evaluation on screen."""
        if self._opened is not None:
            self._write(partial(write_csv, path, kind(self._opened)))

    def save_json(self, path: Path) -> None:
        """Writes the evaluation on screen, but for its samples."""
        if self._opened is not None:
            self._write(partial(_copy, self._opened.kept.folder / EVALUATION_FILE, path))

    def _write(self, write: Callable[[], Path]) -> None:
        in_background(
            write,
            self,
            lambda path: self.message.emit(f"The evaluation was saved to {path}.", "info"),
            lambda error: self.message.emit(
                str(error) if isinstance(error, ExportError) else describe_error(error), "warning"
            ),
        )

    def _ask(self, name: str, chosen: Callable[[Path], None]) -> None:
        choose_target(self, "Save the evaluation", f"footplate-{time.strftime('%Y-%m-%d-%H%M%S')}-{name}", chosen)

    def _save_button(self) -> QToolButton:
        button = QToolButton()
        button.setText("Save")
        button.setAccessibleName("Save the evaluation")
        button.setToolTip("Saves the evaluation as CSV or JSON")
        make_menu_button(button)
        self.menu = QMenu(button)
        self._tables: dict[str, Action] = {}
        tables: tuple[tuple[str, str, Callable[[OpenedEvaluation], Table]], ...] = (
            ("metrics", "Metrics as CSV …", MetricsCsv),
            ("classes", "Metrics per class as CSV …", ClassesCsv),
            ("confusion", "Confusion matrix as CSV …", MatrixCsv),
            ("samples", "Samples as CSV …", SamplesCsv),
        )
        for name, text, kind in tables:
            action = Action(self, f"save_evaluation_{name}", text)
            action.on_trigger(partial(self._ask, f"{name}.csv", partial(self.save_csv, kind)))
            self.menu.addAction(action)
            self._tables[name] = action
        whole = Action(self, "save_evaluation_json", "Everything but samples as JSON …")
        whole.on_trigger(lambda: self._ask("evaluation.json", self.save_json))
        self.menu.addAction(whole)
        button.setMenu(self.menu)
        return button


def _copy(source: Path, target: Path) -> Path:
    """Copies a file whole or not at all. Raises OSError."""
    beside = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target
