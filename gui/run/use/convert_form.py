"""Form for a conversion: formats, options and target folder."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QPushButton, QVBoxLayout, QWidget

from engine.checks.conversion_checks import conversion_problems, out_problems, takes_any_size
from engine.contract.catalogue import load_catalogue
from engine.contract.inference.conversion import ConvertOrder, OnnxOptions, Target
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.runs.folder import RunFolder
from gui.actions import Action, bind
from gui.run.model_choice import CheckpointEditor, form_grid
from gui.translation import tr
from gui.widgets.editors import BoolEditor, PathEditor
from gui.widgets.labels import ProblemLabel, caption
from gui.widgets.layouts import hbox, vbox
from gui.widgets.scroll_panel import scroll_column

INTRODUCTION = tr(
    "Writes the model into files for other programs, with a model card, a script that runs without Footplate, and an example. "
    "Each file is compared with the model."
)
_TARGETS: tuple[tuple[Target, str, str], ...] = (
    (
        "onnx",
        "ONNX",
        tr("For ONNX Runtime, TensorRT, OpenVINO and most other programs, on servers, phones and in browsers"),
    ),
    ("safetensors", "safetensors", tr("The weights with their configuration, for timm, torchvision and plain PyTorch")),
)


class ConvertForm(QWidget):
    """Form for a conversion.

    Signals:
        submitted(object): the ConvertOrder to execute.
    """

    submitted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self._job: Job | None = None
        self.checkpoint = CheckpointEditor()
        self.targets = {target: QCheckBox(title) for target, title, _ in _TARGETS}
        self.targets["onnx"].setChecked(True)
        self.preprocessing = _switch("normalizes images itself", is_on=True)
        self.dynamic_size = _switch("accepts any image size")
        self.int8 = _switch("also 8-bit, calibrated on training images")
        self.packed = _switch("pack everything into one zip file")
        self.out = PathEditor("a folder for the files", folder=True)
        self.problems = ProblemLabel()
        self.act = Action(self, "convert", tr("Convert"), tr("Writes the files and compares them with the model"))
        self.start = bind(QPushButton(), self.act)
        self.start.setObjectName("primary")
        self._lay_out()
        self.act.on_trigger(self._submit)
        self.checkpoint.refreshed.connect(self._validate)
        for box in self.targets.values():
            box.toggled.connect(self._validate)
        for editor in (self.preprocessing, self.dynamic_size, self.int8, self.packed):
            editor.edited.connect(self._validate)

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Fill the form for the model of `run`, which trained `job`."""
        self._run, self._job = run, job
        self.checkpoint.show_run(run)
        self.out.set_value("")
        if job is not None:
            has_any_size = takes_any_size(job, load_catalogue())
            self.dynamic_size.setEnabled(has_any_size)
            self.dynamic_size.set_value(self.dynamic_size.value() and has_any_size)
        self._validate()

    def order(self) -> ConvertOrder | None:
        """Return the order, None without a run or a format."""
        chosen = tuple(target for target, box in self.targets.items() if box.isChecked())
        if self._run is None or not chosen:
            return None
        return ConvertOrder(
            run=str(self._run.path.absolute()),
            checkpoint=self.checkpoint.value(),
            to=chosen,
            out=str(self._target_path(chosen)),
            packed=self.packed.value(),
            onnx=OnnxOptions(
                preprocessing=self.preprocessing.value(),
                dynamic_size=self.dynamic_size.value(),
                int8=self.int8.value(),
            ),
        )

    def _target_path(self, chosen: tuple[Target, ...]) -> Path:
        """Return a new folder or zip file in the named folder, by default in the run's."""
        assert self._run is not None
        folder = self.out.value()
        parent = Path(folder).expanduser() if folder else self._run.path / "exports"
        suffix = ".zip" if self.packed.value() else ""
        return parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{'-'.join(chosen)}{suffix}"

    def _validate(self) -> None:
        """Show the problems of the order."""
        order = self.order()
        found: list[Problem] = []
        if order is not None and self._job is not None:
            catalogue = load_catalogue()
            found = [each for to in order.to for each in conversion_problems(self._job, to, order.onnx, catalogue)]
        self.problems.show_problems(tuple(dict.fromkeys(found)))
        for editor in (self.preprocessing, self.int8):
            editor.setEnabled(self.targets["onnx"].isChecked())
        blocker = "" if self.checkpoint.found else tr("The run has no checkpoint yet")
        blocker = blocker or ("" if order is not None else tr("Choose a format"))
        self.act.allow(blocker or (tr("Fix the marked problems first") if errors(found) else ""))

    def _submit(self) -> None:
        order = self.order()
        if order is None:
            return
        problems = out_problems(order.out, packed=order.packed)
        if problems:
            self.problems.show_problems(tuple(problems))
        else:
            self.submitted.emit(order)

    def _lay_out(self) -> None:
        formats = QVBoxLayout()
        formats.setSpacing(2)
        for target, title, purpose in _TARGETS:
            box = self.targets[target]
            box.setAccessibleName(tr("Convert to {title}").format(title=title))
            box.setAccessibleDescription(purpose)
            formats.addWidget(box)
            description = caption(purpose)
            description.setIndent(24)
            formats.addWidget(description)
            formats.addSpacing(6)
        self.out.line.setPlaceholderText("exports in the run's folder")
        inside = QWidget()
        inside.setMaximumWidth(680)
        form = form_grid(
            (tr("Checkpoint"), tr("Checkpoint to convert"), self.checkpoint),
            (tr("ONNX file"), tr("The ONNX file normalizes images"), self.preprocessing),
            ("", "", self.dynamic_size),
            ("", "", self.int8),
            (tr("Archive"), tr("Pack everything into one zip file"), self.packed),
            (tr("Write to"), tr("Folder for the files"), self.out),
        )
        start = hbox(self.start, 1)
        inside.setLayout(vbox(caption(INTRODUCTION), formats, form, self.problems, start, 1, spacing=10))
        self.setLayout(vbox(scroll_column(inside)))


def _switch(text: str, *, is_on: bool = False) -> BoolEditor:
    editor = BoolEditor()
    editor.box.setText(text)
    editor.box.setAccessibleName(text)
    editor.set_value(is_on)
    return editor
