"""Cards above a run's plots: its result, and the advice after it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QPushButton, QToolButton, QWidget

from engine.checks.weights_checks import weights_choices
from engine.contract.catalogue import PredictionKind, load_catalogue, predictions_of
from engine.contract.events import Planned
from engine.contract.job import FIELDS, TIMM, Job
from engine.contract.problems import Choice
from engine.runs.folder import RunFolder
from engine.runs.metrics import measure_words
from engine.system.format import duration
from gui.format import localised, size
from gui.sources.run_data import RunData
from gui.style import icons
from gui.titles import changes_words
from gui.translation import tr
from gui.widgets.buttons import push_button, styled, tool_button
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import hbox


class ResultCard(QWidget):
    """Result of a run that has ended.

    Signals:
        export_requested(): the user wants to export the run.

    Attributes:
        code: Python that loads the best checkpoint, "" without one.
    """

    export_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = ""
        self.code = ""
        self._text = styled(ElidedLabel(), "muted", name=tr("Result"))
        self.copy = _button(
            "copy", tr("Copy loading code"), tr("Copies the PyTorch code that loads the best checkpoint")
        )
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.code))
        self.export = _button(
            "export",
            tr("Export the run"),
            tr("Saves a zip file for bug reports with the job, logs and machine information, without checkpoints"),
        )
        self.export.clicked.connect(self.export_requested)
        self.open = _button("folder", tr("Open folder"), tr("Opens the run's folder in the file manager"))
        self.open.clicked.connect(lambda: reveal(Path(self._folder)))
        self.setLayout(hbox((self._text, 1), self.copy, self.export, self.open, spacing=2))

    def show_result(self, run: RunFolder, data: RunData) -> None:
        """Show the result of a run that has ended."""
        self._folder = str(run.path)
        facts = _facts(run, data)
        self._text.setText(" · ".join(facts))
        self._text.setToolTip("\n".join(facts))
        self._text.setAccessibleDescription(self._text.text())
        self.code = _code(run, data)
        self.copy.setVisible(bool(self.code))
        self.copy.setToolTip(tr("Copy loading code:\n{code}").format(code=self.code))


def _code(run: RunFolder, data: RunData) -> str:
    saved = data.checkpoints.get("best") or data.checkpoints.get("last")
    if saved is None or data.started is None or data.plan is None:
        return ""
    return loading_code(data.started.job, data.plan, str(run.path / saved.path), saved.kind)


def _button(icon: str, name: str, tip: str) -> QToolButton:
    full_tip = f"{name}: {tip[0].lower()}{tip[1:]}"
    button = tool_button(icon=icons.icon(icon, "text"), style="flat", name=name, description=tip, tip=full_tip)
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button


def _facts(run: RunFolder, data: RunData) -> list[str]:
    finished = data.finished
    facts = (
        [tr("Took {duration}").format(duration=duration(data.seconds(finished)))]
        if finished is not None and finished.seconds
        else []
    )
    if finished is not None and finished.best:
        epoch = f" (epoch {finished.best_epoch})" if finished.best_epoch is not None else ""
        facts.append(f"best {_format_metrics(finished.best, data)}{epoch}")
    if data.checkpoints:
        files = [f"{Path(saved.path).name} ({size(saved.bytes)})" for _, saved in sorted(data.checkpoints.items())]
        facts.append(f"{' and '.join(files)} in {run.checkpoints}")
    if data.failure is not None and data.failure.traceback_file:
        facts.append(f"Full traceback: {run.path / data.failure.traceback_file}")
    if not data.checkpoints:
        facts.append(tr("No checkpoint was saved."))
    return facts


def _format_metrics(metrics: dict[str, float], data: RunData) -> str:
    """Format all metrics with titles and units."""
    task = data.started.job.task if data.started is not None else ""
    return ", ".join(measure_words(task, name, value, localised) for name, value in metrics.items())


_TRANSFORMERS = ("vit_",)
_WITH_AUXILIARY_HEADS = ("googlenet", "inception_v3")
_OTHER_CHANNELS = """
name = next(name for name, part in model.named_modules() if isinstance(part, torch.nn.Conv2d))
old = model.get_submodule(name)
first = torch.nn.Conv2d({channels}, old.out_channels, old.kernel_size, old.stride, old.padding, bias=old.bias is not None)
model.set_submodule(name, first)"""


def loading_code(job: Job, plan: Planned, path: str, kind: str) -> str:
    """Return Python code that builds the model of `job` and loads the checkpoint at `path`.

    Args:
        job: Job of the run.
        plan: Its plan, with classes and channels.
        path: Path of the checkpoint.
        kind: "best" (model state only) or "last" (model state and training state).
    """
    state = f"torch.load({path!r}, weights_only=True)" + ('["model"]' if kind == "last" else "")
    return f"{_build_code(job, plan)}\nmodel.load_state_dict({state})"


def _build_code(job: Job, plan: Planned) -> str:
    """Return code that ends with a `model` as the run built it, without weights."""
    classes, channels = len(plan.classes), plan.channels
    other = "" if channels == 3 else _OTHER_CHANNELS.format(channels=channels)
    entry = load_catalogue().model(job.model.name)
    predicts = predictions_of(entry.task if entry is not None else job.task)
    if job.model_is_file:
        return _from_file(job, classes, channels, other)
    if entry is not None and entry.package:
        return _from_package(job, plan)
    if entry is not None and entry.construction:
        code = entry.construction.format(encoder=job.model.encoder, classes=classes, channels=channels)
        return code if "{channels}" in entry.construction else f"{code}{other}"
    if predicts == "objects":
        return _detector(job, plan, other)
    if entry is not None and entry.encoder:
        arguments = f"{job.model.name!r}, {job.model.encoder!r}, encoder_weights=None, in_channels={channels}, classes={classes}"
        return f"import torch, segmentation_models_pytorch as smp; model = smp.create_model({arguments})"
    return _from_library(job, plan, other, predicts)


def _from_library(job: Job, plan: Planned, other: str, predicts: PredictionKind) -> str:
    """Return code that builds a model of timm or torchvision."""
    classes, channels = len(plan.classes), plan.channels
    if job.model.name.startswith(TIMM):
        arguments = f"{job.model.name!r}, {classes}, {channels}, {plan.image_size}"
        return f"import torch; from engine.models.timm_models import construct; model = construct({arguments})"
    options = ", aux_logits=False" if job.model.name in _WITH_AUXILIARY_HEADS else ""
    if job.model.name.startswith(_TRANSFORMERS):
        options = f", image_size={plan.image_size}"
    if predicts == "pixels":
        options = ", weights_backbone=None"
    call = f"torchvision.models.get_model({job.model.name!r}, num_classes={classes}{options})"
    return f"import torch, torchvision; model = {call}{other}"


def _from_file(job: Job, classes: int, channels: int, other: str) -> str:
    task = load_catalogue().task(job.task)
    if task is not None and task.file:
        contents = f"runpy.run_path({job.model.name!r}).values()"
        is_subclass = "isinstance(each, type) and issubclass(each, CustomTask) and each is not CustomTask"
        return (
            "import torch, runpy; from engine.tasks.custom.interface import CustomTask\n"
            f"own = next(each for each in {contents} if {is_subclass})\nmodel = own().build_model({classes}, {channels})"
        )
    return f'import torch, runpy; model = runpy.run_path({job.model.name!r})["build_model"]({_score_count(job, classes)}){other}'


def _from_package(job: Job, plan: Planned) -> str:
    arguments = f"Job.from_fields(model={job.model.name!r}, options={job.options!r}), {_score_count(job, len(plan.classes))}, {plan.channels}"
    return (
        "import torch; from engine.contract.job import Job; from engine.models.registry import build_foreign\n"
        f"model = build_foreign({arguments})"
    )


def _score_count(job: Job, classes: int) -> int:
    """Return the number of scores that a model from a file or a package returns; detectors score a background, too."""
    entry = load_catalogue().task(job.task)
    if entry is not None and entry.scores is not None:
        return entry.scores
    return classes + 1 if predictions_of(job.task) == "objects" else classes


def _detector(job: Job, plan: Planned, other: str) -> str:
    classes = len(plan.classes) + 1  # with the background
    entry = load_catalogue().model(job.model.name)
    if entry is not None and entry.encoder:
        arguments = f"{job.model.name!r}, {job.model.encoder!r}, {classes}, {plan.channels}, {plan.image_size}"
        return f"import torch; from engine.models.pyramid_detectors import construct; model = construct({arguments})"
    arguments = f"{job.model.name!r}, weights=None, weights_backbone=None, num_classes={classes}"
    return f"import torch, torchvision; model = torchvision.models.get_model({arguments}){other}"


class _Advice(NamedTuple):
    """Advice text and the settings that it offers; `further` is True if they continue the same run."""

    sentence: str
    choices: tuple[Choice, ...] = ()
    further: bool = False


class VerdictCard(QFrame):
    """Advice after a run, hidden until the run has ended and there is any.

    Signals:
        requested(dict, bool): values for fields of the job; True to train the same run further.
    """

    requested = Signal(object, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._advice: _Advice | None = None
        self.sentence = styled(ElidedLabel(), "heading", name=tr("Advice after the run"))
        self.buttons: list[QPushButton] = []
        self._row = hbox((self.sentence, 1), margins=(8, 2, 2, 2))
        self.setLayout(self._row)
        self.hide()

    def show_data(self, data: RunData) -> None:
        """Show the advice after the run's last execution; hide without any."""
        advice = _advice(data)
        if advice == self._advice:
            return
        self._advice = advice
        for button in self.buttons:
            self._row.removeWidget(button)
            button.deleteLater()
        self.buttons = [self._button(choice, advice.further) for choice in advice.choices] if advice else []
        if advice is not None:
            self.sentence.setText(advice.sentence)
            self.sentence.setAccessibleDescription(advice.sentence)
            self.sentence.setToolTip(advice.sentence)
        self.setVisible(advice is not None)

    def _button(self, choice: Choice, further: bool) -> QPushButton:
        button = push_button(choice.title, lambda: self.requested.emit(choice.values, further))
        what = "this run into the form to train it further" if further else "a new run into the form"
        button.setToolTip(tr("Puts {what}: {values}").format(what=what, values=changes_words(choice.values)))
        button.setAccessibleDescription(button.toolTip())
        self._row.addWidget(button)
        return button


def _advice(data: RunData) -> _Advice | None:
    verdict, failure = data.verdict, data.failure
    if verdict is not None:
        further = verdict.code == "falling"
        choice = Choice(tr("Train further") if further else tr("Use these settings"), verdict.changes)
        is_known = bool(verdict.changes) and verdict.changes.keys() <= FIELDS.keys()
        return _Advice(verdict.sentence, (choice,) if is_known else (), further)
    if failure is not None and failure.field == "pretrained" and data.finished is not None and data.started is not None:
        return _Advice(tr("Other ways to train"), weights_choices(data.started.job, load_catalogue()))
    return None
