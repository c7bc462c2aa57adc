"""Deleting runs: asking first, with what they hold, moving them to the trash, and putting them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.runs.folder import RunFolder, RunSummary
from engine.runs.holding import Holding, holding
from gui.format import counted, size
from gui.sources.background import Background, in_background
from gui.sources.trash import CannotTrash, Trashed, put_back, trash_run
from gui.titles import run_title
from gui.widgets.question_bar import QuestionBar

GOING_ON = ("starting", "waiting", "running")


@dataclass(frozen=True)
class _Outcome:
    """The outcome of moving several runs: those moved, and the problems of the others."""

    moved: tuple[Trashed, ...]
    problems: tuple[str, ...]


class DeletingBar(QuestionBar):
    """One line that asks before runs go to the trash, and then offers to put them back. Hidden until asked to.

    Signals:
        changed(): runs have gone or come back.
        closed(): nothing is asked any more.
    """

    changed = Signal()
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Deleting runs", parent)
        self._runs: list[RunSummary] = []
        self._moved: tuple[Trashed, ...] = ()
        self._held = Holding()
        self._working: Background | None = None
        self.yes.clicked.connect(self._act)
        self.no.clicked.connect(self.dismiss)

    def ask(self, runs: Sequence[RunSummary]) -> None:
        """Asks whether to delete `runs`; those that go on are left out, and that is said."""
        if self._working is not None or not runs:
            return
        self._runs = [run for run in runs if run.state not in GOING_ON]
        if not self._runs:
            stop = (
                "it is still running. Stop it first." if len(runs) == 1 else "they are still running. Stop them first."
            )
            self.say(f"{_named(runs)} can't be deleted: {stop}", "info", "", "Close")
        else:
            self.say(f"Move {_named(self._runs)} to the trash? Calculating space to free …", "warning", "", "Cancel")
            folders = [Path(run.folder) for run in self._runs]
            left_out = len(runs) - len(self._runs)
            self._work(lambda: sum(map(holding, folders), Holding()), lambda held: self._looked(held, left_out))
        self.no.setFocus()

    @property
    def why_no_undo(self) -> str:
        """What keeps the last deletion from being undone, "" where nothing does."""
        return "" if self._moved else "Nothing has been deleted"

    def undo(self) -> None:
        """Puts back what was deleted last, also after the bar has been closed."""
        if self._working is None and self._moved:
            moved = self._moved
            self._runs = []
            self.say("Putting back …", "info", "", "Close")
            self._work(lambda: _put_all_back(moved), self._back)

    def dismiss(self) -> None:
        self._runs = []
        self.hide()
        self.closed.emit()

    def close_work(self) -> None:
        """Waits for what is being moved, for the end of the window."""
        if self._working is not None:
            self._working.finish()

    def _looked(self, held: Holding, left_out: int) -> None:
        if not self._runs:
            return  # it is not asked any more
        self._held = held
        hold = "It takes" if len(self._runs) == 1 else "Together they take"
        of_them = f", including {size(held.checkpoint_bytes)} of checkpoints" if held.checkpoint_bytes else ""
        freed = f"emptying the trash frees {size(held.freed_bytes)}."
        going = (
            f" {counted(left_out, 'run')} {'is' if left_out == 1 else 'are'} still running and will not be moved."
            if left_out
            else ""
        )
        self.say(
            f"Move {_named(self._runs)} to the trash? {hold} {size(held.bytes)}{of_them}; {freed}{going}",
            "warning",
            "Move to trash",
            "Cancel",
        )

    def _act(self) -> None:
        if self._working is not None:
            return
        if not self._runs:
            self.undo()
        else:
            runs = [RunFolder(run.folder) for run in self._runs]
            self.say(f"Moving {_named(self._runs)} to the trash …", "info", "", "Close")
            self._work(lambda: _trash_all(runs), self._gone)
        self.no.setFocus()

    def _gone(self, outcome: _Outcome) -> None:
        self._moved, self._runs = outcome.moved or self._moved, []
        parts = list(outcome.problems)
        if outcome.moved:
            location = "the desktop's trash" if outcome.moved[0].desktop else f"{outcome.moved[0].location.parent}"
            where = f"in {location}. Emptying it frees the disk space."
            parts.insert(0, f"Deleted {counted(len(outcome.moved), 'run')}, now {where}")
        self.say(" ".join(parts), "warning" if outcome.problems else "ok", "Undo" if outcome.moved else "", "Close")
        self.changed.emit()

    def _back(self, outcome: _Outcome) -> None:
        self._moved = ()
        parts = list(outcome.problems)
        if outcome.moved:
            parts.insert(0, f"{counted(len(outcome.moved), 'run')} put back.")
        self.say(" ".join(parts), "warning" if outcome.problems else "ok", "", "Close")
        self.changed.emit()

    def _work(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def finished(result: Any) -> None:
            self._working = None
            done(result)

        def failed(error: Exception) -> None:
            self._working = None
            self.say(f"Could not finish: {error}", "warning", "", "Close")
            raise error

        self._working = in_background(function, self, finished, failed)


def _named(runs: Sequence[RunSummary]) -> str:
    return f"“{run_title(runs[0])}”" if len(runs) == 1 else counted(len(runs), "run")


def _trash_all(runs: Sequence[RunFolder]) -> _Outcome:
    moved, problems = [], []
    for run in runs:
        try:
            moved.append(trash_run(run))
        except CannotTrash as problem:
            problems.append(str(problem))
    return _Outcome(tuple(moved), tuple(problems))


def _put_all_back(things: Sequence[Trashed]) -> _Outcome:
    moved, problems = [], []
    for thing in things:
        try:
            put_back(thing)
            moved.append(thing)
        except CannotTrash as problem:
            problems.append(str(problem))
    return _Outcome(tuple(moved), tuple(problems))
