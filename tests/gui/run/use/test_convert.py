"""Form for a conversion, and its result, without a model."""

from __future__ import annotations

from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from engine.contract.inference.conversion import (
    ComparedFile,
    ConversionResult,
    ConvertRequest,
    Difference,
    NextCommand,
    OnnxOptions,
    WrittenFile,
)
from engine.contract.problems import Problem
from gui.run.use.convert import ConvertForm, ConvertResult
from tests.gui.sources.written_runs import job, write_run
from tests.support.widgets import ShowWidget, find_button, join_visible_texts

SEGMENTATION = {"task": "segmentation", "model": "fcn_resnet50"}


def test_convert_form_requests_the_chosen_settings(show_widget: ShowWidget, tmp_path: Path, qtbot: QtBot) -> None:
    form, run = show_widget(ConvertForm(), 700, 700), write_run(8)
    (run.checkpoints / "best.pt").write_bytes(b"weights")
    form.show_run(run, job(**SEGMENTATION))
    assert form.dynamic_size.isEnabled()
    assert not form.build_request().onnx.dynamic_size
    form.dynamic_size.set_value(True)
    form.targets["safetensors"].setChecked(True)
    request = form.build_request()
    assert request == ConvertRequest(
        run=str(run.path), checkpoint="best", to=("onnx", "safetensors"), out=request.out,
        onnx=OnnxOptions(dynamic_size=True),
    )  # fmt: skip
    assert (Path(request.out).parent, Path(request.out).suffix) == (run.path / "exports", "")
    assert request.out.endswith("-onnx-safetensors")
    form.preprocessing.set_value(False)
    form.int8.set_value(True)
    form.packed.set_value(True)
    form.out.set_value(str(tmp_path))
    form.show_run(run, job())  # whose model takes images of one size
    assert form.out.value() == ""
    assert not form.dynamic_size.isEnabled()
    form.out.set_value("~/models")
    request = form.build_request()
    assert (Path(request.out).parent, Path(request.out).suffix) == (Path.home() / "models", ".zip")
    assert (request.packed, request.onnx) == (True, OnnxOptions(preprocessing=False, int8=True))
    for run_job, can_have_any_size in ((job(), False), (job(**SEGMENTATION), True)):
        form.targets["onnx"].setChecked(False)
        form.show_run(run, run_job)
        editors = (form.preprocessing, form.int8, form.dynamic_size)
        assert [editor.isEnabled() for editor in editors] == [False, False, False]
        form.targets["onnx"].setChecked(True)
        assert [editor.isEnabled() for editor in editors] == [True, True, can_have_any_size]


def test_convert_form_shows_problems_of_all_formats(show_widget: ShowWidget, tmp_path: Path, qtbot: QtBot) -> None:
    form, run = show_widget(ConvertForm(), 700, 700), write_run(8)
    (run.checkpoints / "best.pt").write_bytes(b"weights")
    form.show_run(run, job(model="my_model.py"))
    qtbot.waitUntil(lambda: form.submit_action.disabled_reason == "")
    texts = []
    for formats in (("onnx",), ("safetensors",), ("onnx", "safetensors")):
        for target, box in form.targets.items():
            box.setChecked(target in formats)
        texts.append(set(form.problems.text().splitlines()))
    for box in form.targets.values():
        box.setChecked(False)
    assert form.submit_action.disabled_reason == "Choose a format"
    form.targets["onnx"].setChecked(True)
    assert texts[0]
    assert texts[1]
    assert texts[2] == texts[0] | texts[1]
    form.show_run(run, job(task="detection", model="fcos_resnet50_fpn"))
    form.targets["safetensors"].setChecked(False)
    for is_int8 in (True, False):
        form.int8.box.click()
        assert ("int8" in form.problems.text()) is is_int8
    form.show_run(run, job())
    for file, is_packed in ((tmp_path / "plain", False), (tmp_path / "zipped", True)):
        file.touch()
        form.packed.set_value(is_packed)
        form.out.set_value(str(file / "model.zip" if is_packed else file))
        with qtbot.assertNotEmitted(form.submitted):
            form.submit_action.trigger()
            qtbot.waitUntil(lambda file=file: str(file) in form.problems.text())


class OpenedUrls(QObject):
    """Handler that collects the URLs which the program opens."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    @Slot(QUrl)
    def take(self, url: QUrl) -> None:
        self.paths.append(url.toLocalFile())


def test_convert_result_shows_files_comparison_and_commands(
    show_widget: ShowWidget, tmp_path: Path, qtbot: QtBot
) -> None:
    result, file = show_widget(ConvertResult(), 900, 700), tmp_path / "conversion.json"
    compared = ComparedFile(
        name="model.onnx", runtime="ONNX Runtime", compared_on="validation", samples=20, milliseconds=1.5,
        torch_milliseconds=2.5, measures={"top1": 0.8125}, torch_measures={"top1": 0.8375},
        differences=tuple(Difference(batch_size=n, difference=d, largest_output=1.0) for n, d in ((1, 1e-4), (2, 3e-4), (4, 2e-4))),
    )  # fmt: skip
    unknown = ComparedFile(name="model.pt", runtime="PyTorch", compared_on="random", differences=())
    converted = ConversionResult(
        run_id="a-run", task="classification", model="resnet18", checkpoint="best.pt", checkpoint_sha256="", classes=("a", "b"),
        out=str(tmp_path / "model.zip"), created_at=0.0, seconds=3.0,
        files=(WrittenFile(name="model.onnx", what="The model", size_bytes=3 << 20, sha256=""),), compared=(compared, unknown),
        next_commands=tuple(NextCommand(purpose=f"purpose {n}", command=f"command {n}") for n in (1, 2)),
        problems=(Problem("", "It is large.", severity="warning"),),
    )  # fmt: skip
    displayed: list[list[str]] = []
    for version in (
        converted,
        msgspec.structs.replace(converted, out=str(tmp_path), next_commands=converted.next_commands[1:]),
    ):
        file.write_bytes(msgspec.json.encode(version))
        result.show_file(str(file))
        qtbot.waitUntil(lambda version=version: version.out in result.heading.text().split())
        qtbot.waitUntil(lambda version=version: len(copy_buttons(result)) == len(version.next_commands))
        displayed.append(copy_buttons(result))
        assert result.problems.text() == "It is large."
    assert [[name.partition(": ")[2] for name in names] for names in displayed] == [
        ["purpose 1", "purpose 2"],
        ["purpose 2"],
    ]
    find_button(result, displayed[1][0]).click()
    assert QGuiApplication.clipboard().text() == "command 2"
    assert result.files.texts() == [["model.onnx: The model", "3.0 MiB"]]
    assert result.compared.texts() == [["model.onnx", "0.0003", "1.5 ms", "2.5 ms"], ["model.pt", "", "", ""]]
    assert [result.compared.horizontalHeaderItem(column).text() for column in (2, 3)] == [
        "Time per image",
        "Model in PyTorch",
    ]
    assert result.metrics.text() == (
        "model.onnx on 20 validation samples: Top-1 accuracy 81.2% (model: Top-1 accuracy 83.8%)."
    )


def copy_buttons(result: ConvertResult) -> list[str]:
    return [each.accessibleName() for each in result.findChildren(QAbstractButton) if ": " in each.accessibleName()]


def test_convert_result_opens_its_folder_and_explains_damage(
    show_widget: ShowWidget, tmp_path: Path, qtbot: QtBot
) -> None:
    result, file, handler = show_widget(ConvertResult(), 900, 700), tmp_path / "conversion.json", OpenedUrls()
    QDesktopServices.setUrlHandler("file", handler, "take")
    try:
        for out in (str(tmp_path / "model.zip"), str(tmp_path / "folder")):
            file.write_bytes(
                msgspec.json.encode(
                    ConversionResult(
                        run_id="", task="classification", model="resnet18", checkpoint="best.pt", checkpoint_sha256="", classes=(),
                        out=out, created_at=0.0, seconds=3.0, files=(),
                    )
                )
            )  # fmt: skip
            result.show_file(str(file))
            qtbot.waitUntil(lambda out=out: out in result.heading.text())
            result.open.trigger()
    finally:
        QDesktopServices.unsetUrlHandler("file")
    assert handler.paths == [str(tmp_path), str(tmp_path / "folder")]
    file.write_text("{")
    result.show_file(str(file))
    qtbot.waitUntil(lambda: "conversion.json" in join_visible_texts(result))
