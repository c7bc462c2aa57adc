"""What can be done with the samples that are marked: saved as a list, or left out of a copy of the dataset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QMenu, QToolButton

from engine.contract.inference.review import Mark, Marked, MarkOrder, decode_marked
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from gui.actions import Action
from gui.format import counted, localised
from gui.run.model.samples.marks import MarkedCsv, marks_of
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.export import write_csv
from gui.sources.inference_child import InferenceChild
from gui.widgets.file_dialogs import choose, choose_target
from gui.widgets.menu_button import make_menu_button

NONE = "Mark samples first, with Space"


class MarkedMenu(QToolButton):
    """Signals: message(str, str) - in plain words, what came of it; "info" or "warning"."""

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._rows: tuple[int, ...] = ()
        self._suggested: Mapping[int, str] = {}
        self.child = InferenceChild("Copying the dataset", self)
        self.save = Action(self, "save_marked", "Save the list as CSV …")
        self.leave_out = Action(self, "copy_without_marked", "Copy the dataset without them …")
        self.correct = Action(self, "copy_corrected", "Copy the dataset with their labels corrected …")
        self.setAccessibleName("Marked samples")
        make_menu_button(self)
        menu = QMenu(self)
        menu.addActions([self.save, self.leave_out, self.correct])
        self.setMenu(menu)
        self.save.on_trigger(self._ask_for_list)
        self.leave_out.on_trigger(partial(self._ask_for_folder, False))
        self.correct.on_trigger(partial(self._ask_for_folder, True))
        self.child.done.connect(self._copied)
        self.child.refused.connect(lambda problems: self.message.emit(" ".join(map(str, problems)), "warning"))
        self.child.failed.connect(lambda text: self.message.emit(text, "warning"))

    def show_marked(self, opened: OpenedEvaluation, rows: set[int], suggested: Mapping[int, str]) -> None:
        """The rows that are marked, and the labels that are `suggested` for rows."""
        self._opened, self._rows, self._suggested = opened, tuple(sorted(rows)), suggested
        self.setText(f"{localised(len(rows))} marked" if rows else "Marked")
        self.setEnabled(bool(rows))
        self.setToolTip("Saves the marked samples, or copies the dataset without them" if rows else NONE)
        corrected = any(row in suggested for row in rows)
        self.correct.allow("" if corrected else "No other labels are suggested for the marked samples")

    def save_list(self, path: Path) -> None:
        """Writes the marked samples as CSV, as `footplate review --marks` reads them."""
        if self._opened is not None:
            table = MarkedCsv(marks_of(self._opened, self._rows, self._suggested))
            in_background(
                partial(write_csv, path, table),
                self,
                lambda written: self.message.emit(
                    f"{counted(len(table.marks), 'marked sample')} saved to {written}.", "info"
                ),
                lambda error: self.message.emit(str(error), "warning"),
            )

    def copy_into(self, folder: Path, correct: bool) -> None:
        """Copies the run's dataset into a new folder in `folder`: without the marked samples, or with those corrected
        that have a suggestion. What comes of it is told.
        """
        opened = self._opened
        if opened is None:
            return
        rows = [row for row in self._rows if row in self._suggested] if correct else self._rows
        marks = marks_of(opened, rows, self._suggested if correct else {})
        run = RunFolder(opened.kept.folder.parents[1])
        in_background(
            partial(_target, run, opened.evaluation.dataset, folder),
            self,
            lambda target: self._start(run, marks, target),
            lambda error: self.message.emit(f"The dataset can't be copied: {describe_error(error)}.", "warning"),
        )

    def close_work(self) -> None:
        """Ends what is being copied, for the end of the window."""
        self.child.close()

    def _start(self, run: RunFolder, marks: tuple[Mark, ...], target: Path | Problem) -> None:
        if isinstance(target, Problem):
            self.message.emit(str(target), "warning")
            return
        self.message.emit(f"Copying the dataset to {target} …", "info")
        self.child.start(MarkOrder(run=str(run.path.absolute()), marks=marks, copy=str(target)))

    def _copied(self, path: str) -> None:
        in_background(
            partial(_marked, Path(path)),
            self,
            lambda done: self.message.emit(_copy_words(done), "info"),
            lambda error: self.message.emit(f"What was copied can't be read: {describe_error(error)}.", "warning"),
        )

    def _ask_for_list(self) -> None:
        name = f"footplate-{time.strftime('%Y-%m-%d-%H%M%S')}-marked.csv"
        choose_target(self, "Save the marked samples", name, self.save_list)

    def _ask_for_folder(self, correct: bool) -> None:
        choose(self, "Put the copy into", "", folder=True, chosen=lambda path: self.copy_into(Path(path), correct))


def _target(run: RunFolder, dataset: str, folder: Path) -> Path | Problem:
    """A new folder in `folder`; a Problem where the samples are not of the run's own dataset."""
    job = run.job()
    own = Path(job.data.dataset).expanduser().resolve() if job is not None else None
    if own != Path(dataset).resolve():
        return Problem("", "Only the run's own dataset can be copied.", "Save the list as CSV instead.")
    target, number = folder / f"{own.name}-cleaned", 1
    while target.exists():
        number += 1
        target = folder / f"{own.name}-cleaned-{number}"
    return target


def _marked(path: Path) -> Marked:
    """What came of it, whose file in a folder of its own is of no use any more."""
    done = decode_marked(path.read_bytes())
    path.unlink()
    path.parent.rmdir()
    return done


def _copy_words(done: Marked) -> str:
    changed = [
        f"{counted(done.removed, 'sample')} left out" if done.removed else "",
        f"{counted(done.relabelled, 'label')} corrected" if done.relabelled else "",
    ]
    said = " and ".join(filter(None, changed)) or "nothing changed"
    return (
        f"The copy {done.copy} has {counted(done.files, 'file')}, with {said}. Choose it as a dataset to train on it."
    )
