"""Dialog that submits the job in the form to SLURM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QFormLayout, QLineEdit, QPlainTextEdit, QPushButton, QSpinBox, QWidget

from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.contract.slurm import SlurmOptions, script_problems
from engine.runs.folder import RunFolder
from engine.runs.slurm import submit_new
from engine.system.decode_errors import NOT_DECODED
from engine.system.slurm import SlurmFailed
from gui.sources.background import Background, in_background
from gui.sources.launcher import make_creation_problem, with_absolute_paths
from gui.sources.settings import Settings
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.editors import indent_text
from gui.widgets.labels import ProblemLabel
from gui.widgets.layouts import hbox, resize_with_text, vbox

_KEY = "slurm"
_SETUP = tr("Lines before the run, as\nmodule load cuda")
_TEXTS = {
    "partition": (tr("&Partition"), tr("site default")),
    "account": (tr("&Account"), tr("your default")),
    "time": (tr("&Time limit"), tr("partition default, e.g. 8:00:00")),
    "host": (tr("SLURM's &host (ssh)"), tr("this machine")),
}
"""Title of each text field, and the meaning of an empty field."""
_NUMBERS = {
    "nodes": (tr("&Nodes"), 1, 1000, ""),
    "gpus_per_node": (tr("&GPUs per node"), 0, 64, tr("none (CPU worker)")),
    "cpus_per_task": (tr("&CPUs per node"), 0, 4096, tr("site default")),
}
"""Title, minimum and maximum of each number field, and the meaning of the minimum."""


class SlurmDialog(QDialog):
    """Non-modal dialog with SLURM's options, and the script that results from them. The options are saved.

    Signals:
        submitted(RunFolder): SLURM has accepted this run.
    """

    submitted = Signal(object)

    def __init__(self, get_job: Callable[[], Job | None], settings: Settings, parent: QWidget) -> None:
        """Create the dialog. `get_job` returns the job in the form, or None if it is invalid."""
        super().__init__(parent)
        self._get_job, self._settings = get_job, settings
        self._submitting: Background | None = None  # call that submits the script
        self.setWindowTitle(tr("Submit to SLURM"))
        styled(self, "panel")
        resize_with_text(self, 940, 480)
        self.texts = {name: QLineEdit(placeholderText=hint) for name, (_title, hint) in _TEXTS.items()}
        self.numbers = {name: indent_text(QSpinBox()) for name in _NUMBERS}
        self.setup = QPlainTextEdit(placeholderText=_SETUP, tabChangesFocus=True)
        self.script = styled(
            QPlainTextEdit(tabChangesFocus=True, lineWrapMode=QPlainTextEdit.LineWrapMode.NoWrap),
            "code",
            name=tr("Script"),
        )
        self.problem = ProblemLabel()
        self.discard = push_button(tr("Discard &edits"), self._discard)
        self.submit = push_button(tr("&Submit"), self._submit)
        self._lay_out()
        self._restore_options()
        for edit in self.texts.values():
            edit.textChanged.connect(self._update_script)
        for spin in self.numbers.values():
            spin.valueChanged.connect(self._update_script)
        self.setup.textChanged.connect(self._update_script)
        self.script.textChanged.connect(self._validate)

    def options(self) -> SlurmOptions:
        """Return the entered options, even if they are invalid."""
        texts = {name: edit.text().strip() for name, edit in self.texts.items()}
        numbers = {name: spin.value() for name, spin in self.numbers.items()}
        setup = tuple(line for line in self.setup.toPlainText().splitlines() if line.strip())
        return SlurmOptions(**texts, **numbers, setup=setup)  # type: ignore[arg-type]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._update_script()  # the job may have changed

    def close_work(self) -> None:
        """Wait until a submission that is in progress has finished."""
        if self._submitting is not None:
            self._submitting.finish()

    def _lay_out(self) -> None:
        form = QFormLayout()
        for name, (title, _hint) in _TEXTS.items():
            form.addRow(title, self.texts[name])
        for name, (title, minimum, maximum, special) in _NUMBERS.items():
            self.numbers[name].setRange(minimum, maximum)
            self.numbers[name].setSpecialValueText(special)
            form.addRow(title, self.numbers[name])
        form.addRow(tr("Set&up"), self.setup)
        buttons = hbox((self.problem, 1), 0, spacing=10)
        for button in (self.discard, self.submit, cancel := QPushButton(tr("Close"))):
            button.setAutoDefault(False)
            buttons.addWidget(button)
        cancel.clicked.connect(self.close)
        above = hbox((form, 2), (self.script, 3), spacing=10)
        self.setLayout(vbox((above, 1), buttons, spacing=10, margins=(14, 12, 14, 14)))

    def _restore_options(self) -> None:
        """Fill the fields with the options that were used last."""
        try:
            saved = msgspec.json.decode(self._settings.text(_KEY, "{}"), type=SlurmOptions)
        except NOT_DECODED:
            saved = SlurmOptions()
        for name, edit in self.texts.items():
            edit.setText(getattr(saved, name))
        for name, spin in self.numbers.items():
            spin.setValue(getattr(saved, name))
        self.setup.setPlainText("\n".join(saved.setup))

    def _update_script(self) -> None:
        """Show the script that results from the options, unless the user has edited the script."""
        job = self._get_job()
        if not self.script.document().isModified() and job is not None:
            self.script.setPlainText(self.options().create_script(job.name or Path(job.model.name).stem))
        self._validate()

    def _discard(self) -> None:
        """Replace the edited script with the one that results from the options."""
        self.script.document().setModified(False)
        self._update_script()

    def _validate(self) -> None:
        """Show the problems with the options and the script.

        The Submit button is enabled if there are no errors, and the Discard button if the script has been edited.
        """
        self.discard.setEnabled(self.script.document().isModified())
        self._show_problems([*self.options().problems(), *script_problems(self.script.toPlainText())])

    def _show_problems(self, problems: list[Problem]) -> None:
        self.problem.show_problems(tuple(problems))
        self.submit.setEnabled(not errors(problems) and self._submitting is None)

    def _submit(self) -> None:
        """Save the options, and submit the job with the edited script on a worker thread."""
        job, options, script = self._get_job(), self.options(), self.script.toPlainText()
        if job is None:
            self._on_submitted([Problem("", tr("The form has errors."), tr("Fix them first."))])
            return
        self._settings.set(_KEY, msgspec.json.encode(options).decode())
        self._submitting = in_background(
            lambda: _submit_job(job, options, script), self, self._on_submitted, self._on_failed
        )
        self.submit.setEnabled(False)

    def _on_submitted(self, outcome: RunFolder | list[Problem]) -> None:
        """Close the dialog and emit the submitted run, or show the problems that prevented the submission."""
        self._submitting = None
        if isinstance(outcome, list):
            self._show_problems(outcome)
            self.submit.setEnabled(True)
            return
        self.script.document().setModified(False)
        self._validate()
        self.close()
        self.submitted.emit(outcome)

    def _on_failed(self, error: Exception) -> None:
        """Show that an unexpected error has prevented the submission, and raise the error, so that it is logged."""
        self._on_submitted([Problem("", tr("The run couldn't be submitted."), tr("See the window's log for details."))])
        raise error


def _submit_job(job: Job, options: SlurmOptions, script: str) -> RunFolder | list[Problem]:
    """Submit `job` to SLURM with the batch script `script`. Return the new run, or the problems that prevent this."""
    slurm_job = options.create_job(with_absolute_paths(job))
    if blockers := errors(problems(slurm_job, load_catalogue())):
        return blockers
    try:
        return submit_new(slurm_job, script, options.host)
    except SlurmFailed as error:
        return [Problem("", str(error))]
    except OSError as error:
        return [make_creation_problem(error)]
