"""Next steps after a run, and advice about it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QPushButton, QToolButton, QWidget

from engine.checks.weights_checks import weights_choices
from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS
from engine.contract.problems import Choice
from engine.runs.folder import RunFolder
from engine.runs.metrics import format_measure
from engine.system.format import listed
from gui.format import localized, metric_value, size
from gui.run.curves.time_spent import TimeSpentView
from gui.sources.run_data import RunData
from gui.sources.run_status import FAILED_LABELS, RunStatus
from gui.style import icons, theme
from gui.titles import describe_job_changes
from gui.translation import tr
from gui.widgets.buttons import create_fold_button, push_button, tool_button
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import WrappingLabel
from gui.widgets.layouts import hbox, vbox

_CLASS_METRICS = ("F1", "IoU", "Recall")
"""Metrics for ranking classes, in order of preference."""

ROW_SPACING = 4
"""Space between the rows of next steps in pixels."""
_ADVICE_HEIGHT = 44
"""Minimum height of advice in pixels, which suffices for two lines of text. It is scaled with the text size."""


class NextSteps(QWidget):
    """Two rows of buttons for a run that has ended. Buttons that use the model are hidden if it has no checkpoint.

    Signals:
        trial_requested(): the user wants to run the model on an image.
        mistakes_requested(): the user wants to see samples that the model gets wrong.
        conversion_requested(): the user wants to convert the model.
        export_requested(): the user wants to export the run.

    Attributes:
        code: Python code that loads the best or last checkpoint, or "" if there is none. A button copies it.
    """

    trial_requested = Signal()
    mistakes_requested = Signal()
    conversion_requested = Signal()
    export_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._folder = ""
        self.code = ""
        self.trial = push_button(
            tr("Try it on an image"), self.trial_requested, tip=tr("Predict for files that you choose or drop")
        )
        self.mistakes = push_button(
            tr("See its mistakes"),
            self.mistakes_requested,
            tip=tr("Evaluate the model and show the worst samples first"),
        )
        self.conversion = push_button(
            tr("Export the model"), self.conversion_requested, tip=tr("Convert the model to ONNX or safetensors")
        )
        self.copy = _create_icon_button(
            "copy", tr("Copy loading code"), tr("Copy the PyTorch code that loads the best checkpoint")
        )
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.code))
        self.export = _create_icon_button(
            "export",
            tr("Export the run"),
            tr("Save a zip file for bug reports with the job, logs and machine information, without checkpoints"),
        )
        self.export.clicked.connect(self.export_requested)
        self.open = _create_icon_button("folder", tr("Open folder"), tr("Open the run's folder in the file manager"))
        self.open.clicked.connect(lambda: reveal(Path(self._folder)))
        files = hbox(self.conversion, 1, self.copy, self.export, self.open, spacing=2)
        self.setLayout(vbox(hbox(1, self.trial, self.mistakes, spacing=6), files, spacing=ROW_SPACING))

    def show_run(self, run: RunFolder, data: RunData) -> None:
        """Offer the next steps after a run that has ended."""
        self._folder = str(run.path)
        for button in (self.trial, self.mistakes, self.conversion):
            button.setVisible(bool(data.checkpoints))
        self.code = _make_loading_code(run, data)
        self.copy.setVisible(bool(self.code))
        self.copy.setToolTip(tr("Copy loading code:\n{code}").format(code=self.code))


def describe_worst_class(data: RunData) -> str:
    """Describe the class with the lowest metric at the best epoch, or at the last epoch if the best one is unknown.

    Returns "" if no class is worse than the others, or if the metrics are unknown.
    """
    validations = data.validation_details.classes
    if not validations or data.plan is None:
        return ""
    best_epoch = data.finished.best_epoch if data.finished is not None else None
    metrics = next((each for each in reversed(validations) if each.epoch == best_epoch), validations[-1])
    title = next((name for name in (*_CLASS_METRICS, *metrics.measures) if name in metrics.measures), "")
    values = metrics.measures.get(title)
    if values is None or len(values) != len(data.plan.classes):
        return ""
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() == finite.max():
        return ""
    index = int(np.nanargmin(values))
    return tr("worst class: {name} ({metric} {value}%)").format(
        name=data.plan.classes[index], metric=title, value=localized(100 * values[index], 1)
    )


def _make_loading_code(run: RunFolder, data: RunData) -> str:
    """Return Python code that loads the best or last checkpoint, or "" if there is none."""
    saved = data.checkpoints.get("best") or data.checkpoints.get("last")
    if saved is None:
        return ""
    checkpoint = PurePosixPath(saved.path).stem
    return f"from engine.inference import Run\n\nmodel = Run({str(run.path)!r}).load({checkpoint!r}).module"


def _create_icon_button(icon: str, name: str, tip: str) -> QToolButton:
    """Create a button with an icon and an accessible name. `tip` is its tool tip and its accessible description."""
    button = tool_button(icon=icons.icon(icon, "text"), style="flat", name=name, description=tip, tip=tip)
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button


def describe_result(run: RunFolder, data: RunData) -> str:
    """Return a text with the best metrics, checkpoints and traceback of an ended run."""
    finished, facts = data.finished, []
    if finished is not None and finished.best:
        facts.append(_format_metrics(finished.best, data))
    if data.checkpoints:
        files = [f"{Path(saved.path).name} ({size(saved.bytes)})" for _, saved in sorted(data.checkpoints.items())]
        facts.append(tr("{files} in {folder}").format(files=listed(files), folder=run.checkpoints))
    if data.failure is not None and data.failure.traceback_file:
        facts.append(tr("Full traceback: {file}").format(file=run.path / data.failure.traceback_file))
    if not data.checkpoints:
        facts.append(tr("No checkpoint was saved"))
    return " · ".join(facts)


def _format_metrics(metrics: dict[str, float], data: RunData) -> str:
    """Format the metrics, given by id, in a line with their titles and units."""
    task = data.started.job.task if data.started is not None else ""
    return ", ".join(format_measure(task, name, value, metric_value) for name, value in metrics.items())


class _Advice(NamedTuple):
    """Advice and the settings that it suggests.

    The settings are for continuing this run if `continues_run` is True, otherwise for a new run.
    """

    sentence: str
    choices: tuple[Choice, ...] = ()
    continues_run: bool = False


class VerdictCard(QFrame):
    """Card with the most important advice after a run (see `_find_advice`).

    It is hidden while the run is active or if there is no advice.

    Signals:
        requested(dict, bool): the user wants to apply these values, by job field. The bool is True if the same run
            should be trained further.
    """

    requested = Signal(object, bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._advice: _Advice | None = None
        self.sentence = WrappingLabel("", "heading")
        self.buttons: list[QPushButton] = []
        self._row = hbox((self.sentence, 1), margins=(10, 3, 6, 3))
        self.setLayout(self._row)
        self.hide()

    def show_data(self, data: RunData) -> None:
        """Show the advice that follows from the end of the run's last execution, or hide the card if there is none."""
        advice = _find_advice(data)
        if advice == self._advice:
            return
        self._advice = advice
        for button in self.buttons:
            self._row.removeWidget(button)
            button.deleteLater()
        self.buttons = [self._add_button(choice, advice.continues_run) for choice in advice.choices] if advice else []
        if advice is not None:
            self.sentence.setText(advice.sentence)
        self.setVisible(advice is not None)

    def _add_button(self, choice: Choice, continues_run: bool) -> QPushButton:
        """Add and return a button that puts the settings of `choice` into the form.

        If `continues_run` is True, they are for training this run further, otherwise for a new run.
        """
        button = push_button(choice.title, lambda: self.requested.emit(choice.values, continues_run))
        tip = (
            tr("Put this run into the form to train it further: {values}")
            if continues_run
            else tr("Put a new run into the form: {values}")
        )
        button.setToolTip(tip.format(values=describe_job_changes(choice.values)))
        button.setAccessibleDescription(button.toolTip())
        self._row.addWidget(button)
        return button


class AdviceView(QWidget):
    """View of the findings about a run: the cause of its failure, the verdict on its curves, and its bottleneck.

    The plots are below this view. While a run is active, the view reserves the height of a verdict, so that the plots
    don't move when the run ends.

    Attributes:
        more: Button that shows the step times below a verdict or a cause.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cause = WrappingLabel("", "error")
        self.verdict = VerdictCard()
        self.time = TimeSpentView()
        self.more = create_fold_button(
            "fold", tr("Step times"), name=tr("Step times"), tip=tr("Show the parts of each step")
        )
        self.more.toggled.connect(lambda _on: self._update_visible_parts())
        self._findings, self._times = QWidget(), QWidget()
        self._findings.setLayout(hbox((vbox(self.cause, self.verdict, spacing=4), 1), self.more))
        self._times.setLayout(vbox(self.time))
        self.setLayout(vbox(self._findings, self._times, 1, spacing=4))
        theme.notifier.changed.connect(self._reserve_height)
        self._is_height_reserved = False  # True once the run was active: advice that appears must not move the curves
        self.reset()

    def reset(self) -> None:
        """Hide the step times below the advice, and reserve no height, before another run is shown."""
        self._is_height_reserved = False
        self.more.setChecked(False)
        self._reserve_height()

    def show_data(self, data: RunData, status: RunStatus) -> None:
        """Show the cause of failure, the verdict and the bottleneck of the run, each only if it is known.

        From the first time that the run is active, the height for advice remains reserved.
        """
        cause = status.text if status.label in FAILED_LABELS else ""
        self.cause.setText(cause)
        self.cause.setVisible(bool(cause))
        self.verdict.show_data(data)
        self.time.show_data(data, status.active)
        if status.active and not self._is_height_reserved:
            self._is_height_reserved = True
            self._reserve_height()
        self._update_visible_parts()

    def _update_visible_parts(self) -> None:
        """Hide the step times if there is a verdict or a cause, unless the user has opened them."""
        has_finding = not (self.cause.isHidden() and self.verdict.isHidden())
        self._findings.setVisible(has_finding)
        self.more.setVisible(not self.time.isHidden())
        self._times.setVisible(not has_finding or self.more.isChecked())

    def _reserve_height(self) -> None:
        self.setMinimumHeight(theme.scale_pixels(_ADVICE_HEIGHT) if self._is_height_reserved else 0)


def _find_advice(data: RunData) -> _Advice | None:
    """Return the most important advice after a run, or None if there is none.

    In order of importance: resume without a lost GPU, follow the verdict (the engine's judgment of the curves), or use
    other pretrained weights after a failure to load them.
    """
    verdict, failure = data.verdict, data.failure
    # Only the failure of a lost GPU has changes: the job without this GPU. Choices contain its devices as text.
    if failure is not None and failure.changes and data.finished is not None:
        values = {
            name: ",".join(value) if isinstance(value, tuple) else value for name, value in failure.changes.items()
        }
        title, sentence = tr("Resume on the other devices"), tr("The run can resume without the lost GPU")
        if not data.has_checkpoint:
            title, sentence = tr("Train on the other devices"), tr("The run can be trained without the lost GPU")
        return _Advice(sentence, (Choice(title, values),), continues_run=data.has_checkpoint)
    if verdict is not None:
        continues_run = verdict.code == "falling"  # the validation curve was still improving
        choice = Choice(tr("Train further") if continues_run else tr("Use these settings"), verdict.changes)
        is_known = bool(verdict.changes) and verdict.changes.keys() <= FIELDS.keys()
        return _Advice(verdict.sentence, (choice,) if is_known else (), continues_run)
    if failure is not None and failure.field == "pretrained" and data.finished is not None and data.started is not None:
        return _Advice(tr("Other ways to train"), weights_choices(data.started.job, load_catalogue()))
    return None
