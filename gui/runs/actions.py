"""Actions for the selected runs, shared by buttons, menus and shortcuts, and the deletion of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QInputDialog, QMenu, QWidget

from engine.runs.folder import RunFolder, RunSummary
from engine.runs.holding import FolderSize, measure_folder
from gui.actions import HERE, WITHIN, Action, append_key
from gui.format import counted, size
from gui.sources.trash import trash_run
from gui.titles import make_resume_texts, run_title
from gui.translation import tr
from gui.widgets.trash_bar import TrashBar

_CHANGE = tr("Resume with c&hanges…")
_CHANGE_NEW = tr("Train again with c&hanges…")
_FURTHER = tr("&Train further…")
_CHANGE_TIP = tr("Open the run's job in the form first")
_PAUSE = tr("Save and end after the current step and free the devices; Resume continues from there")
_FORK = tr("Open a new run in the form that starts from this run's last checkpoint")


class RunActions(QObject):
    """Actions for the selected runs, and their context menu.

    Signals:
        tag_changed(str, bool): the user has added tags (separated by commas) to the selected runs (True) or removed one
            (False).
    """

    tag_changed = Signal(str, bool)

    def __init__(self, widget: QWidget, page: QWidget) -> None:
        """Create the actions.

        Their shortcuts work while `widget` has the focus, except Undo, which works anywhere in `page`.
        """
        super().__init__(widget)
        self._widget = widget
        self.show = self._create_action("show_run", tr("&Show run"), tr("Open the run on the Train page (Enter)"))
        self.resume = self._create_action("resume_run", *make_resume_texts(has_checkpoint=True), "Ctrl+R")
        self.change = self._create_action("change_run", _CHANGE, _CHANGE_TIP, "Ctrl+Shift+R")
        self.pause = self._create_action("pause_run", tr("&Pause"), _PAUSE, "Ctrl+Shift+P")
        self.fork = self._create_action("fork_run", tr("For&k…"), _FORK, "Ctrl+Shift+K")
        self.compare = self._create_action(
            "compare_runs", tr("&Compare"), tr("Compare the selected runs' curves and jobs"), "Ctrl+Shift+C"
        )
        self.favorite = self._create_action(
            "favorite_runs", tr("&Favorite"), tr("Mark the selected runs as favorites"), "Ctrl+D", on=False
        )
        self.rename = self._create_action("rename_run", tr("Re&name"), tr("Rename the run"), "F2")
        self.folder = self._create_action(
            "open_folder", tr("Open f&older"), tr("Open the run's folder in the file manager")
        )
        trash = tr("Move the selected runs to the trash after a confirmation")
        self.delete = self._create_action("delete_runs", tr("&Delete…"), trash, tr("Delete"))
        self.undo = Action(
            page, "undo_delete", tr("&Undo delete"), tr("Put back the runs deleted last"), "Ctrl+Z", context=WITHIN
        )
        self.undo.set_disabled_reason(tr("Nothing has been deleted"))
        self.set_runs([])

    def set_runs(self, runs: Sequence[RunSummary]) -> None:
        """Enable the actions that apply to the selected `runs`."""
        single_run = runs[0] if len(runs) == 1 else None
        for action in (self.show, self.rename, self.fork):
            action.set_disabled_reason("" if single_run is not None else tr("Select one run"))
        has_checkpoint = single_run is None or single_run.has_checkpoint
        self.resume.set_appearance(*make_resume_texts(has_checkpoint=has_checkpoint))
        self.resume.set_disabled_reason(_find_resume_disabled_reason(single_run))
        if single_run is not None and single_run.state == "completed":
            self.change.set_appearance(_FURTHER, _CHANGE_TIP)
            self.change.set_disabled_reason()
        else:
            self.change.set_appearance(_CHANGE if has_checkpoint else _CHANGE_NEW, _CHANGE_TIP)
            self.change.set_disabled_reason(_find_resume_disabled_reason(single_run))
        self.pause.set_disabled_reason(
            "" if single_run is not None and single_run.state == "running" else tr("Select one running run")
        )
        self.compare.set_disabled_reason(
            "" if len(runs) > 1 else tr("Select two or more runs (Ctrl or Shift with the arrow keys)")
        )
        self.favorite.set_disabled_reason("" if runs else tr("Select the runs to mark"))
        self.favorite.setChecked(bool(runs) and all(run.favorite for run in runs))
        are_active = all(run.state in ACTIVE_STATES for run in runs)
        if runs:
            self.delete.set_disabled_reason(tr("Stop it first") if are_active else "")
        else:
            self.delete.set_disabled_reason(tr("Select the runs to delete"))

    def create_menu(self, runs: Sequence[RunSummary], known_tags: Sequence[str]) -> QMenu:
        """Create a context menu for `runs`, which offers all known tags."""
        menu = QMenu(self._widget)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addActions([self.show, self.folder])
        menu.addSeparator()
        menu.addActions([self.resume, self.change, self.pause, self.fork])
        menu.addSeparator()
        menu.addAction(self.compare)
        menu.addSeparator()
        menu.addActions([self.favorite, self.rename])
        tags = menu.addMenu(tr("&Tags"))
        tags.setEnabled(bool(runs))
        for tag in known_tags:
            action = tags.addAction(tag.replace("&", "&&"))
            action.setCheckable(True)
            action.setChecked(all(tag in run.tags for run in runs))
            action.toggled.connect(lambda on, tag=tag: self.tag_changed.emit(tag, on))
        if known_tags:
            tags.addSeparator()
        tags.addAction(tr("&New tag…"), self._ask_for_tag)
        menu.addSeparator()
        menu.addActions([self.delete, self.undo])
        return menu

    def _ask_for_tag(self) -> None:
        """Ask for a new tag in a dialog, and emit `tag_changed` with it."""
        dialog = QInputDialog(self._widget)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle(tr("New tag"))
        dialog.setLabelText(tr("Tag for the selected runs"))
        dialog.textValueSelected.connect(lambda text: self.tag_changed.emit(text, True))
        dialog.show()

    def _create_action(self, name: str, text: str, tip: str, *keys: str, on: bool | None = None) -> Action:
        return Action(self._widget, name, text, tip, *keys, context=HERE, on=on)


def _find_resume_disabled_reason(run: RunSummary | None) -> str:
    """Return the reason why `run`, the only selected run, can't be resumed, or "" if it can.

    `run` is None if no run or several runs are selected.
    """
    if run is None:
        return tr("Select one run that was paused, stopped or interrupted, failed, or could not be saved")
    if run.state in ACTIVE_STATES:
        return tr("It is still running")
    if run.state == "completed":
        return append_key(tr("It is complete: train it further"), "change_run")
    return ""


ACTIVE_STATES = ("starting", "waiting", "running")


class DeletingBar(TrashBar):
    """Banner that asks for confirmation before it moves runs to the trash. It is hidden until `ask` is called."""

    def __init__(self) -> None:
        super().__init__(tr("Deleting runs"))
        self._runs: list[RunSummary] = []  # runs that will be deleted if the user confirms it

    def ask(self, runs: Sequence[RunSummary]) -> None:
        """Ask whether to delete `runs`, once their size is known. Active runs are left out.

        While other runs are being deleted or put back, do nothing.
        """
        if self.is_busy or not runs:
            return
        self._runs = [run for run in runs if run.state not in ACTIVE_STATES]
        if self._runs:
            self.show_message(
                tr("Move {runs} to the trash? Calculating its size…").format(runs=_describe_runs(self._runs)),
                "warning",
                "",  # hides the button that confirms
                tr("Cancel"),
            )
            folders = [Path(run.folder) for run in self._runs]
            active = len(runs) - len(self._runs)
            self.call_in_background(
                lambda: sum(map(measure_folder, folders), FolderSize()),
                lambda usage: self._ask_for_confirmation(usage, active),
            )
        else:
            text = (
                tr("Can't delete {runs}: it is still running. Stop it first.")
                if len(runs) == 1
                else tr("Can't delete {runs}: they are still running. Stop them first.")
            )
            self.show_note(text.format(runs=_describe_runs(runs)))
        self.no.setFocus()

    def accept(self) -> None:
        """Do what the bar's main button offers: move the requested runs to the trash, or undo the last deletion."""
        if self.is_busy:
            return
        runs, self._runs = self._runs, []
        if runs:
            self.start(_describe_runs(runs), trash_run, [RunFolder(run.folder) for run in runs])
        else:
            self.undo()

    def dismiss(self) -> None:
        """Close the bar without deleting the runs in question."""
        self._runs = []
        super().dismiss()

    def _ask_for_confirmation(self, usage: FolderSize, active: int) -> None:
        """Ask whether to move the runs to the trash, unless the user has cancelled the question.

        `usage` is the disk usage of the runs, and `active` the number of selected runs that can't be deleted.
        """
        if not self._runs:
            return
        sentences = [tr("Move {runs} to the trash?").format(runs=_describe_runs(self._runs))]
        if active:
            stay = tr("{runs} stays.") if active == 1 else tr("{runs} stay.")
            sentences.append(stay.format(runs=counted(active, "active run")))
        taken = size(usage.bytes)
        if usage.checkpoint_bytes:
            taken = tr("{bytes}, including {checkpoint_bytes} of checkpoints").format(
                bytes=taken, checkpoint_bytes=size(usage.checkpoint_bytes)
            )
        takes = (
            tr("It takes {bytes}; emptying the trash frees {freed_bytes}.")
            if len(self._runs) == 1
            else tr("Together they take {bytes}; emptying the trash frees {freed_bytes}.")
        )
        sentences.append(takes.format(bytes=taken, freed_bytes=size(usage.freed_bytes)))
        self.show_message(
            " ".join(sentences),
            "warning",
            tr("Move to trash"),
            tr("Cancel"),
        )


def _describe_runs(runs: Sequence[RunSummary]) -> str:
    return f"“{run_title(runs[0])}”" if len(runs) == 1 else counted(len(runs), "run")
