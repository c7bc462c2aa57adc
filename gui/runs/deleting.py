"""Confirmation before runs are moved to the trash, with the space that this frees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtWidgets import QWidget

from engine.runs.folder import RunFolder, RunSummary
from engine.runs.holding import Holding, holding
from gui.format import counted, size
from gui.sources.trash import trash_run
from gui.titles import run_title
from gui.translation import tr
from gui.widgets.trash_bar import TrashBar

ACTIVE_STATES = ("starting", "waiting", "running")


class DeletingBar(TrashBar):
    """Banner that asks before runs go to the trash. Hidden until `ask`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Deleting runs"), parent)
        self._runs: list[RunSummary] = []

    def ask(self, runs: Sequence[RunSummary]) -> None:
        """Ask whether to delete `runs`, except active ones."""
        if self.is_busy or not runs:
            return
        self._runs = [run for run in runs if run.state not in ACTIVE_STATES]
        if self._runs:
            self.say(
                tr("Move {runs} to the trash? Calculating its size…").format(runs=_title(self._runs)),
                "warning",
                "",
                tr("Cancel"),
            )
            folders = [Path(run.folder) for run in self._runs]
            active = len(runs) - len(self._runs)
            self.work(lambda: sum(map(holding, folders), Holding()), lambda held: self._confirm(held, active))
        else:
            it, them = ("it is", "it") if len(runs) == 1 else ("they are", "them")
            self.say(
                tr("Can't delete {runs}: {it} still running. Stop {them} first.").format(
                    runs=_title(runs), it=it, them=them
                ),
                "info",
                "",
                tr("Close"),
            )
        self.no.setFocus()

    def accept(self) -> None:
        if self.is_busy:
            return
        runs, self._runs = self._runs, []
        if runs:
            self.start(_title(runs), trash_run, [RunFolder(run.folder) for run in runs])
        else:
            self.undo()

    def dismiss(self) -> None:
        self._runs = []
        super().dismiss()

    def _confirm(self, held: Holding, active: int) -> None:
        """Show the question, unless the user has cancelled it."""
        if not self._runs:
            return
        takes = tr("It takes") if len(self._runs) == 1 else tr("Together they take")
        checkpoints = f", including {size(held.checkpoint_bytes)} of checkpoints" if held.checkpoint_bytes else ""
        excluded = f" {counted(active, 'active run')} {'stays' if active == 1 else 'stay'}." if active else ""
        self.say(
            tr(
                "Move {runs} to the trash?{excluded} {takes} {bytes}{checkpoints}; "
                "emptying the trash frees {freed_bytes}."
            ).format(
                runs=_title(self._runs),
                excluded=excluded,
                takes=takes,
                bytes=size(held.bytes),
                checkpoints=checkpoints,
                freed_bytes=size(held.freed_bytes),
            ),
            "warning",
            tr("Move to trash"),
            tr("Cancel"),
        )


def _title(runs: Sequence[RunSummary]) -> str:
    return f"“{run_title(runs[0])}”" if len(runs) == 1 else counted(len(runs), "run")
