"""Commands for job files, recent datasets, and run folders in any location."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication

from engine.contract.command import single_process_problem, torchrun_lines, torchrun_text
from engine.contract.job import Job, load_job, save_job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder, RunSummary
from engine.system.decode_errors import NOT_DECODED
from gui.context import AppContext
from gui.sources.background import describe_error, in_background, reraise
from gui.sources.settings import Settings
from gui.titles import run_title
from gui.translation import tr
from gui.widgets.file_dialogs import choose_path, choose_target

_ERRORS = tr("Fix the errors in the form first")


class JobFiles(QObject):
    """Commands that clear the form, open and save jobs, copy torchrun commands, and open run folders.

    Signals:
        cleared(): the form has been reset to a new job.
    """

    cleared = Signal()

    def __init__(self, context: AppContext) -> None:
        super().__init__(context.window)
        self._context, self._panel = context, context.job_panel
        window, acts = context.window, context.actions
        acts.new_job.on_trigger(self.show_new_job)
        acts.clear_form.on_trigger(self.clear)
        acts.open_job.on_trigger(lambda: choose_path(window, tr("Open a job"), self.open_job))
        acts.save_job.on_trigger(lambda: choose_target(window, tr("Save the job"), "job.toml", self.save_job))
        acts.copy_torchrun.on_trigger(self.copy_torchrun)
        acts.open_run.on_trigger(lambda: choose_path(window, tr("Open a run folder"), self.open_run, folder=True))
        # Folders are checked in the background. A check that ends late must not replace a run that was requested later.
        self._last_request = self._displayed_request = 0  # numbers of requests to open a run folder
        self._panel.changed.connect(self._update_actions)
        self._update_actions()

    def show_new_job(self) -> None:
        """Show the form of the new job with the user's input."""
        self._context.show_form()
        self._panel.form.focus_field("dataset")

    def clear(self) -> None:
        """Reset the form to a new job, except for the selected devices, show it, and emit `cleared`."""
        self._panel.show_new(Job())
        self._panel.form.validate()
        self._context.show_form()
        self.cleared.emit()
        self._panel.form.focus_field("dataset")

    def open_job(self, path: str) -> None:
        """Read the job in a file in the background, and put it into the form, or show why it can't be used."""
        in_background(lambda: load_job(Path(path)), self, self._on_job_read, reraise)

    def save_job(self, path: Path) -> None:
        """Save the job in the form as a file, and show the result."""
        job = self._panel.form.job
        if job is None:
            self._context.show_message(f"{_ERRORS}.")
            return
        try:
            save_job(job, path)
        except OSError as error:
            self._context.show_message(tr("Couldn't save the job: {error}.").format(error=describe_error(error)))
        else:
            self._context.show_message(tr("Saved the job as {path}.").format(path=path), "info")

    def copy_torchrun(self) -> None:
        """Copy the torchrun commands that start the job, one for each machine, to the clipboard."""
        job = self._panel.form.job
        if job is not None:
            in_background(lambda: torchrun_lines(job), self, self._copy_commands, reraise)

    def open_run(self, path: str) -> None:
        """Show the run in a folder anywhere on disk, or a message if it isn't a run folder.

        The folder is checked in the background. If a run that was requested later is already visible, it stays.
        """
        run = RunFolder(path)
        self._last_request += 1
        done = partial(self._on_folder_checked, run, self._last_request)
        in_background(partial(_is_run_folder, run), self, done, reraise)

    def _copy_commands(self, result: tuple[dict[str, str], list[Problem]]) -> None:
        """Copy torchrun commands, or report the problems that prevent them.

        `result` contains the commands by machine, and the problems.
        """
        commands, problems = result
        if commands:
            QGuiApplication.clipboard().setText(torchrun_text(commands))
        else:
            self._context.show_message(" ".join([tr("Couldn't copy the job for torchrun."), *map(str, problems)]))

    def _on_folder_checked(self, run: RunFolder, request: int, is_run: bool) -> None:
        """Show `run` if `is_run`, otherwise report that it isn't a run folder.

        `request` is the number of the request to open it. If a run with a higher number is already shown, `run` isn't.
        """
        if is_run and request > self._displayed_request:
            self._displayed_request = request
            self._context.show_run(run)
        elif not is_run:
            text = tr("{path} is not a run folder. Choose one that contains job.toml and events.jsonl.").format(
                path=run.path
            )
            self._context.show_message(text)

    def _on_job_read(self, result: tuple[Job | None, list[Problem]]) -> None:
        """Put the job of a file into the form and select its devices, or report why it can't be used."""
        job, problems = result
        if job is None:
            self._context.show_message(" ".join([tr("Couldn't open the job."), *map(str, problems)]))
            return
        self._panel.set_job(job)
        self._panel.form.validate()
        self._context.show_form()
        self._panel.devices_requested.emit(job.parallel.devices)

    def _update_actions(self) -> None:
        """Enable the actions that need a valid job."""
        acts, job = self._context.actions, self._panel.form.job
        for action in (acts.save_job, acts.copy_command, acts.submit):
            action.set_disabled_reason("" if job is not None else _ERRORS)
        problem = single_process_problem(job) if job is not None else _ERRORS
        acts.copy_torchrun.set_disabled_reason(str(problem or ""))


def _is_run_folder(run: RunFolder) -> bool:
    return run.job_file.is_file() and run.events_file.is_file()


MAX_DATASETS = 10
_KEY = "recent_datasets"


class RecentDatasets:
    """Saved list of the dataset folders that were used most recently, newest first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read_folders(self) -> list[str]:
        """Return the saved folders, or [] if the saved list is damaged."""
        try:
            return msgspec.json.decode(self._settings.text(_KEY, "[]"), type=list[str])
        except NOT_DECODED:
            return []

    def add(self, folder: str) -> None:
        """Add a folder at the start of the list, or move it there, and save the list."""
        folders = self.read_folders()
        if folder and folders[:1] != [folder]:
            folders = [folder, *(each for each in folders if each != folder)][:MAX_DATASETS]
            self._settings.set(_KEY, msgspec.json.encode(folders).decode())

    def forget(self) -> None:
        self._settings.forget(_KEY)


def list_datasets(runs: Sequence[RunSummary], recent: Sequence[str]) -> list[str]:
    """Return all known datasets: the recent ones, then the datasets of the runs, newest first."""
    return list(dict.fromkeys([*recent, *(run.dataset for run in runs if run.dataset)]))


def make_folder_titles(folders: Sequence[str]) -> dict[str, str]:
    """Return the name of each folder. If several have the same name, the name of their parent folder is added."""
    names = [Path(folder).name for folder in folders]
    return {
        folder: name if names.count(name) == 1 else f"{name} ({Path(folder).parent.name})"
        for folder, name in zip(folders, names, strict=True)
    }


def format_run(run: RunSummary) -> str:
    """Return a menu text with the title and the state of a run."""
    return f"{run_title(run)} · {run.state}"
