"""Jobs as files, and runs whose folders lie elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from engine.contract.job import Job, load_job, save_job
from engine.contract.problems import Problem
from engine.contract.torchrun import single_process, torchrun_lines, torchrun_text
from engine.runs.folder import RunFolder
from gui.actions import Actions
from gui.form.panel import JobPanel
from gui.sources.background import describe_error, in_background, reraise
from gui.widgets.file_dialogs import choose, choose_target

_ERRORS = "Fix the errors in the form first"


class JobFiles(QObject):
    """Empties the form, fills it from a file, saves it as one and copies it for torchrun; opens a run's folder.

    Signals: run_opened(RunFolder) - it is to be shown; devices_wanted(tuple) - these are to be chosen; form_wanted()
    - the form is to be seen; emptied() - it holds a new job; message(str) - in plain words, what was done or why not.
    """

    run_opened = Signal(object)
    devices_wanted = Signal(object)
    form_wanted = Signal()
    emptied = Signal()
    message = Signal(str)

    def __init__(self, window: QWidget, acts: Actions, job_panel: JobPanel) -> None:
        super().__init__(window)
        self._window, self._acts, self._job_panel = window, acts, job_panel
        acts.new_job.on_trigger(self.empty)
        acts.open_job.on_trigger(lambda: choose(window, "Open a job", "", False, self.open_job))
        acts.save_job.on_trigger(lambda: choose_target(window, "Save the job", "job.toml", self.save_job))
        acts.copy_torchrun.on_trigger(self.copy_torchrun)
        acts.open_run.on_trigger(lambda: choose(window, "Open the folder of a run", "", True, self.open_run))
        job_panel.changed.connect(self._offer)
        self._offer()

    def empty(self) -> None:
        """A new job: nothing chosen but the devices."""
        self._job_panel.show_new(Job())
        self._job_panel.form.validate()
        self.form_wanted.emit()
        self.emptied.emit()
        self._job_panel.form.focus_field("dataset")

    def open_job(self, path: str) -> None:
        """Puts the job of a file into the form; says what is wrong with it where that can't be."""
        in_background(lambda: load_job(Path(path)), self, self._take, reraise)

    def save_job(self, path: Path) -> None:
        job = self._job_panel.form.job
        if job is None:
            self.message.emit(f"{_ERRORS}.")
            return
        try:
            save_job(job, path)
        except OSError as error:
            self.message.emit(f"Could not save the job: {describe_error(error)}.")
        else:
            self.message.emit(f"Saved the job as {path}.")

    def copy_torchrun(self) -> None:
        """Puts the lines that train the job by torchrun on the clipboard."""
        job = self._job_panel.form.job
        if job is not None:
            in_background(lambda: torchrun_lines(job), self, self._copy_lines, reraise)

    def _copy_lines(self, made: tuple[dict[str, str], list[Problem]]) -> None:
        lines, problems = made
        if lines:
            QGuiApplication.clipboard().setText(torchrun_text(lines))
        else:
            self.message.emit("The job can't be copied for torchrun. " + " ".join(map(str, problems)))

    def open_run(self, path: str) -> None:
        """Shows the run of a folder, wherever it lies."""
        run = RunFolder(path)
        is_run = lambda: run.job_file.is_file() and run.events_file.is_file()  # noqa: E731
        in_background(is_run, self, partial(self._on_checked, run), reraise)

    def _on_checked(self, run: RunFolder, is_run: bool) -> None:
        if is_run:
            self.run_opened.emit(run)
        else:
            self.message.emit(f"{run.path} is not a run folder. Choose one that contains job.toml and events.jsonl.")

    def _take(self, read: tuple[Job | None, list[Problem]]) -> None:
        job, problems = read
        if job is None:
            self.message.emit("The job can't be opened. " + " ".join(map(str, problems)))
            return
        self._job_panel.set_job(job)
        self._job_panel.form.validate()
        self.form_wanted.emit()
        self.devices_wanted.emit(job.devices)
        if problems:
            self.message.emit(" ".join(map(str, problems)))

    def _offer(self) -> None:
        self._acts.save_job.allow("" if self._job_panel.form.job is not None else _ERRORS)
        self._acts.copy_command.allow("" if self._job_panel.form.job is not None else _ERRORS)
        self._acts.submit.allow("" if self._job_panel.form.job is not None else _ERRORS)
        single = single_process(self._job_panel.form.job) if self._job_panel.form.job is not None else _ERRORS
        self._acts.copy_torchrun.allow(str(single or ""))
