"""Into which files a model is converted, each with what it is for and what speaks against it."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from engine.checks.conversion_checks import conversion_problems, out_problems, takes_any_size
from engine.contract.catalogue import load_catalogue
from engine.contract.inference.conversion import ConvertOrder, OnnxOptions, Target
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.runs.folder import RunFolder
from gui.actions import Action, bind
from gui.run.model.plot import caption
from gui.run.model_choice import CheckpointEditor, form_grid
from gui.widgets.editors import BoolEditor, PathEditor
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.scroll_panel import scroll_column

INTRODUCTION = (
    "Writes the model into files that other programs run, with a model card, a script that needs no Footplate, and an example. "
    "Every file is opened again and compared with the model before it is called done."
)
_TARGETS: tuple[tuple[Target, str, str], ...] = (
    (
        "onnx",
        "ONNX",
        "For ONNX Runtime, TensorRT, OpenVINO and most other programs, on servers, phones and in browsers",
    ),
    ("safetensors", "safetensors", "The weights with their configuration, for timm, torchvision and plain PyTorch"),
)


class ConvertForm(QWidget):
    """Signals: wanted(object) - this ConvertOrder is to be done."""

    wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self._job: Job | None = None
        self.checkpoint = CheckpointEditor()
        self.targets = {target: QCheckBox(title) for target, title, _ in _TARGETS}
        self.targets["onnx"].setChecked(True)
        self.preprocessing = _switch("takes plain images and normalizes them itself", on=True)
        self.dynamic_size = _switch("takes images of any size")
        self.int8 = _switch("also in 8 bits, calibrated on training images")
        self.packed = _switch("packs everything into one zip file, to hand over")
        self.out = PathEditor("a folder for the files", folder=True)
        self.problems = ProblemLabel()
        self.act = Action(self, "convert", "Convert", "Writes the files and compares them with the model")
        self.start = bind(QPushButton(), self.act)
        self.start.setObjectName("primary")
        self._lay_out()
        self.act.on_trigger(self._order)
        self.checkpoint.looked.connect(self._judge)
        for box in self.targets.values():
            box.toggled.connect(self._judge)
        for editor in (self.preprocessing, self.dynamic_size, self.int8, self.packed):
            editor.edited.connect(self._judge)

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Asks for a conversion of the model of `run`, which trained `job`."""
        self._run, self._job = run, job
        self.checkpoint.show_run(run)
        self.out.set_value("")
        if job is not None:
            any_size = takes_any_size(job, load_catalogue())
            self.dynamic_size.setEnabled(any_size)
            self.dynamic_size.set_value(self.dynamic_size.value() and any_size)
        self._judge()

    def order(self) -> ConvertOrder | None:
        """What is asked for; None without a run or a format."""
        chosen = tuple(target for target, box in self.targets.items() if box.isChecked())
        if self._run is None or not chosen:
            return None
        return ConvertOrder(
            run=str(self._run.path.absolute()),
            checkpoint=self.checkpoint.value(),
            to=chosen,
            out=str(self._target(chosen)),
            packed=self.packed.value(),
            onnx=OnnxOptions(
                preprocessing=self.preprocessing.value(),
                dynamic_size=self.dynamic_size.value(),
                int8=self.int8.value(),
            ),
        )

    def _target(self, chosen: tuple[Target, ...]) -> Path:
        """A new folder, or zip file, in the folder that is named, or in the run's own."""
        assert self._run is not None
        named = self.out.value()
        within = Path(named).expanduser() if named else self._run.path / "exports"
        ending = ".zip" if self.packed.value() else ""
        return within / f"{time.strftime('%Y%m%d-%H%M%S')}-{'-'.join(chosen)}{ending}"

    def _judge(self) -> None:
        """Says what speaks against what is asked for."""
        order = self.order()
        found: list[Problem] = []
        if order is not None and self._job is not None:
            catalogue = load_catalogue()
            found = [each for to in order.to for each in conversion_problems(self._job, to, order.onnx, catalogue)]
        self.problems.show_problems(tuple(dict.fromkeys(found)))
        for editor in (self.preprocessing, self.int8):
            editor.setEnabled(self.targets["onnx"].isChecked())
        why = "" if self.checkpoint.found else "The run has no checkpoint yet"
        why = why or ("" if order is not None else "Choose a format")
        self.act.allow(why or ("Fix what is marked first" if errors(found) else ""))

    def _order(self) -> None:
        order = self.order()
        if order is None:
            return
        wrong = out_problems(order.out, packed=order.packed)
        if wrong:
            self.problems.show_problems(tuple(wrong))
        else:
            self.wanted.emit(order)

    def _lay_out(self) -> None:
        formats = QVBoxLayout()
        formats.setSpacing(2)
        for target, title, purpose in _TARGETS:
            box = self.targets[target]
            box.setAccessibleName(f"Convert to {title}")
            box.setAccessibleDescription(purpose)
            formats.addWidget(box)
            line = caption(purpose)
            line.setIndent(24)
            formats.addWidget(line)
            formats.addSpacing(6)
        start = QHBoxLayout()
        start.addWidget(self.start)
        start.addStretch(1)
        self.out.line.setPlaceholderText("the run's own folder, under exports")
        inside = QWidget()
        inside.setMaximumWidth(680)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(10)
        column.addWidget(caption(INTRODUCTION))
        column.addLayout(formats)
        column.addLayout(
            form_grid(
                ("Checkpoint", "Checkpoint to convert", self.checkpoint),
                ("ONNX file", "The ONNX file takes plain images", self.preprocessing),
                ("", "", self.dynamic_size),
                ("", "", self.int8),
                ("Hand over", "Pack everything into one zip file", self.packed),
                ("Write to", "Folder for the files", self.out),
            )
        )
        column.addWidget(self.problems)
        column.addLayout(start)
        column.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll_column(inside))


def _switch(text: str, *, on: bool = False) -> BoolEditor:
    editor = BoolEditor()
    editor.box.setText(text)
    editor.box.setAccessibleName(text)
    editor.set_value(on)
    return editor
