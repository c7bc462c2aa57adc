"""Form for a conversion, and its result."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QCheckBox, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.checks.conversion_checks import conversion_problems, may_accept_any_size, out_problems
from engine.contract.catalogue import load_catalogue
from engine.contract.inference.conversion import (
    ComparedFile,
    ConversionResult,
    ConvertRequest,
    NextCommand,
    OnnxOptions,
    Target,
    read_converted,
)
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.runs.folder import RunFolder
from engine.runs.metrics import format_measure
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import duration
from engine.system.plain_text import shorten
from gui.actions import Action, bind
from gui.format import localized, metric_value, significant, size
from gui.run.model.widgets import PlainTable
from gui.run.model_choice import CheckpointEditor, FormGrid
from gui.sources.background import describe_error, in_background, reraise
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.editors import BoolEditor, PathEditor
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import ProblemLabel, caption
from gui.widgets.layouts import hbox, make_scroll_area, scroll_column, vbox

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
    """Form for converting a model.

    Signals:
        submitted(object): the user wants to execute this ConvertRequest.
    """

    submitted = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._run: RunFolder | None = None
        self._job: Job | None = None
        self.checkpoint = CheckpointEditor()
        self.targets = {target: QCheckBox(title) for target, title, _ in _TARGETS}
        self.targets["onnx"].setChecked(True)
        self.preprocessing = _create_switch(tr("normalizes images itself"), is_on=True)
        self.dynamic_size = _create_switch(tr("accepts any image size"))
        self.int8 = _create_switch(tr("also 8-bit, calibrated on training images"))
        self.packed = _create_switch(tr("pack everything into one zip file"))
        self.out = PathEditor(tr("a folder for the files"), folder=True)
        self.problems = ProblemLabel()
        self.submit_action = Action(
            self, "convert", tr("Convert"), tr("Write the files and compare them with the model")
        )
        self.start = styled(bind(QPushButton(), self.submit_action), "primary")
        self._lay_out()
        self.submit_action.on_trigger(self._submit)
        self.checkpoint.refreshed.connect(self._validate)
        for box in self.targets.values():
            box.toggled.connect(self._validate)
        for editor in (self.preprocessing, self.dynamic_size, self.int8, self.packed):
            editor.edited.connect(self._validate)

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Fill in the form for the model of `run`, whose job is `job`, or None if it can't be read."""
        self._run, self._job = run, job
        self.checkpoint.show_run(run)
        self.out.set_value("")
        if job is not None:
            self.dynamic_size.set_value(self.dynamic_size.value() and may_accept_any_size(job, load_catalogue()))
        self._validate()

    def build_request(self) -> ConvertRequest | None:
        """Return the requested conversion, or None if there is no run or no format is selected."""
        chosen = tuple(target for target, box in self.targets.items() if box.isChecked())
        if self._run is None or not chosen:
            return None
        return ConvertRequest(
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
        """Return the path of a new folder or zip file for the converted model, named after the formats `chosen`.

        It is in the folder that the user has entered, or else in the run's folder.
        """
        assert self._run is not None
        folder = self.out.value()
        parent = Path(folder).expanduser() if folder else self._run.path / "exports"
        suffix = ".zip" if self.packed.value() else ""
        return parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{'-'.join(chosen)}{suffix}"

    def _validate(self) -> None:
        """Show the problems with the requested conversion, and enable the Convert command if there are no errors.

        Without the format ONNX, its switches are disabled.
        """
        request, catalogue = self.build_request(), load_catalogue()
        problems: list[Problem] = []
        if request is not None and self._job is not None:
            onnx = request.onnx
            problems = [each for to in request.to for each in conversion_problems(self._job, to, onnx, catalogue)]
        self.problems.show_problems(tuple(dict.fromkeys(problems)))  # formats share problems
        is_onnx = self.targets["onnx"].isChecked()
        for editor in (self.preprocessing, self.int8):
            editor.setEnabled(is_onnx)
        self.dynamic_size.setEnabled(is_onnx and (self._job is None or may_accept_any_size(self._job, catalogue)))
        reasons = (
            "" if self.checkpoint.has_checkpoint else tr("The run has no checkpoint yet"),
            "" if request is not None else tr("Choose a format"),
            tr("Fix the marked problems first") if errors(problems) else "",
        )
        self.submit_action.set_disabled_reason(next(filter(None, reasons), ""))

    def _submit(self) -> None:
        """Check on a worker thread if the files can be written, then request the conversion."""
        request = self.build_request()
        if request is not None:
            check = partial(out_problems, request.out, packed=request.packed)
            in_background(check, self, partial(self._submit_checked, request), reraise).wait_briefly()

    def _submit_checked(self, request: ConvertRequest, problems: list[Problem]) -> None:
        """Submit the requested conversion, or show the `problems` with its files."""
        if problems:
            self.problems.show_problems(tuple(problems))
        else:
            self.submitted.emit(request)

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
        self.out.line.setPlaceholderText(tr("exports in the run's folder"))
        inside = QWidget()
        theme.scale_with_text(inside.setMaximumWidth, 680)
        form = FormGrid(
            (tr("Checkpoint"), tr("Checkpoint to convert"), self.checkpoint),
            (tr("ONNX file"), tr("The ONNX file normalizes images"), self.preprocessing),
            ("", "", self.dynamic_size),
            ("", "", self.int8),
            (tr("Archive"), tr("Pack everything into one zip file"), self.packed),
            (tr("Write to"), tr("Folder for the files"), self.out),
        )
        inside.setLayout(vbox(caption(INTRODUCTION), formats, form, self.problems, 1, spacing=10))
        self.setLayout(vbox((scroll_column(inside, centered=False), 1), hbox(self.start, 1)))


def _create_switch(text: str, *, is_on: bool = False) -> BoolEditor:
    """Create a check box with `text`, which is also its accessible name. It is checked if `is_on`."""
    editor = BoolEditor()
    editor.box.setText(text)
    editor.box.setAccessibleName(text)
    editor.set_value(is_on)
    return editor


class ConvertResult(QWidget):
    """View of the result of a conversion.

    Signals:
        more_requested(): the user wants to convert again.
    """

    more_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._out = ""  # folder or zip file
        self.heading = styled(QLabel(wordWrap=True), "heading")
        self.problems = ProblemLabel()
        self.files = PlainTable(tr("Files"), (tr("File"), tr("Size")))
        self.compared = PlainTable(
            tr("Files compared with the model"),
            (tr("File"), tr("Largest difference"), tr("Time per image"), tr("Model in PyTorch")),
        )
        self.metrics = caption()
        self.next = vbox(spacing=10)
        self.open = Action(self, "open_conversion", tr("Open folder"), tr("Open the files' folder in the file manager"))
        self.more = Action(self, "convert_more", tr("Convert again…"), tr("Write other files"))
        self._lay_out()
        self.open.on_trigger(lambda: reveal(Path(self._out).parent if self._out.endswith(".zip") else Path(self._out)))
        self.more.on_trigger(self.more_requested.emit)

    def show_file(self, path: str) -> None:
        """Read the result of a conversion from the file `path` on a worker thread and show it."""
        in_background(partial(_read_conversion, Path(path)), self, self._show_result, self._show_error)

    def _show_result(self, converted: ConversionResult) -> None:
        """Show the files, how they compare with the model, warnings, and commands that use the files."""
        self._out = converted.out
        self.heading.setText(
            shorten(tr("Written in {seconds}: {out}").format(seconds=duration(converted.seconds), out=converted.out))
        )
        self.problems.show_problems(converted.problems)
        self.files.show_rows([(f"{each.name}: {each.what}", size(each.size_bytes)) for each in converted.files])
        self.compared.show_rows([_make_comparison_row(each) for each in converted.compared])
        self.metrics.setText(
            "\n".join(filter(None, (_compare_metrics(converted.task, each) for each in converted.compared)))
        )
        while (item := self.next.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.deleteLater()
        for command in converted.next_commands:
            self.next.addWidget(_CommandLine(command))

    def _show_error(self, error: Exception) -> None:
        self.heading.setText(tr("Couldn't read the result"))
        self.problems.show_problems((Problem("", f"{describe_error(error)}.", tr("Convert again.")),))

    def _lay_out(self) -> None:
        top = hbox((self.heading, 1), *(bind(QPushButton(), action) for action in (self.more, self.open)))
        content = vbox(self.problems, self.files, self.compared, self.metrics, self.next, 1, spacing=10)
        self.setLayout(vbox(top, (make_scroll_area(content), 1)))


class _CommandLine(QWidget):
    """Row with a command, its purpose, and a copy button."""

    def __init__(self, command: NextCommand) -> None:
        super().__init__()
        text = styled(QLabel(command.command, wordWrap=True), "code")
        text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        copy = QPushButton(tr("Copy"))
        copy.setAccessibleName(tr("Copy the command: {purpose}").format(purpose=command.purpose))
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(command.command))
        self.setLayout(vbox(caption(command.purpose), hbox((text, 1), copy), spacing=2))


def _read_conversion(file: Path) -> ConversionResult:
    """Read the result file of a conversion. Raises OSError."""
    try:
        return read_converted(file)
    except NOT_DECODED as error:
        raise OSError(tr("{file} is damaged: {error}").format(file=file, error=error)) from error


def _make_comparison_row(file: ComparedFile) -> tuple[str, ...]:
    """Return the name of a converted file, the largest difference between its and PyTorch's outputs, and both times.

    The times are those per image, of the file and of PyTorch. Unknown values are empty.
    """
    largest = max((output.difference for output in file.differences), default=None)
    return (
        file.name,
        significant(largest, 2) if largest is not None else "",
        *(f"{localized(ms, 1)} ms" if ms is not None else "" for ms in (file.milliseconds, file.torch_milliseconds)),
    )


def _compare_metrics(task: str, file: ComparedFile) -> str:
    """Return a sentence that compares the metrics of a converted file with those of the model.

    Returns "" if the metrics of the file weren't measured. `task` is the id of the task.
    """
    if not file.measures:
        return ""
    pairs = []
    for name, value in file.measures.items():
        torch_text = format_measure(task, name, file.torch_measures[name], metric_value)
        pairs.append(
            tr("{value} (model: {torch_value})").format(
                value=format_measure(task, name, value, metric_value), torch_value=torch_text
            )
        )
    return tr("{name} on {samples} validation samples: {pairs}.").format(
        name=file.name, samples=localized(file.samples), pairs=", ".join(pairs)
    )
