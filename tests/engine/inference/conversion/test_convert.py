"""Conversion of a run's model. Converted files give the same outputs as the model, without Footplate."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from huggingface_hub import ModelCard
from PIL import Image

from engine.contract.images import Preprocessing
from engine.contract.inference.conversion import (
    CONVERTED_FILE,
    ConversionResult,
    ConvertRequest,
    OnnxOptions,
    read_converted,
)
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.data.datasets.images import ImageSet
from engine.inference.conversion import comparison, onnx_file
from engine.inference.conversion.comparison import ComparisonSamples
from engine.inference.conversion.convert import convert
from engine.inference.conversion.exportable import Exportable
from engine.inference.conversion.failure import CannotConvert, describe_export_failure
from engine.inference.conversion.onnx_file import OnnxSession, collect_metadata, write_int8
from engine.inference.conversion.script import write_example
from engine.inference.trained_model import CannotLoad, load
from engine.runs.folder import RunFolder, create_run
from tests.support.consent import permit_model_file
from tests.support.plain_models import make_trained_model
from tests.support.trained_runs import COUNTING, TrainedRun, make_colors, train_small_model
from tests.support.worker_group import Forker

Trainer = Callable[[str], TrainedRun]


def convert_run(of: TrainedRun, out: Path, *to: str, packed: bool = False, **options: object) -> ConversionResult:
    request = {"run": str(of.run.path), "checkpoint": "last", "to": to, "out": str(out), "packed": packed}
    reported: list[Progress] = []
    result = read_converted(
        convert(msgspec.convert({"type": "convert", **request, "onnx": options}, ConvertRequest), reported.append)
    )
    fractions = [message.fraction for message in reported]
    assert fractions[0] == 0
    assert fractions == sorted(fractions)
    assert reported[-1].what == "Writing the card"
    assert (result.run_id, result.task, result.model, result.checkpoint, result.out) == (
        of.run.run_id,
        of.job.task,
        of.job.model.name,
        "last.pt",
        str(out),
    )
    return result


def test_export_failure_names_the_first_error() -> None:
    error = KeyError("weights")
    error.__context__ = middle = ValueError("No layer 3")
    middle.__context__, middle.__cause__ = error, ValueError("No weights of layer 3")
    assert describe_export_failure(error).message == "The model can't be converted: No weights of layer 3."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("No ONNX function found for <OpOverload(op='aten.a', b)> File \"x.py\", line 3, in f", "ONNX has no operation for aten.a."),
        (
            'File "a.py", line 3, in f\nFile "b.py", line 4, in g\nData-dependent guard',
            "what it computes depends on values in its input (b.py, line 4).",
        ),
        ("Constraints violated (n)!", "it is built for a fixed number of images or a fixed size: Constraints violated (n)!."),
        ('It broke\nFile "a.py", line 3, in f', "It broke (a.py, line 3)."),
    ],
)  # fmt: skip
def test_export_failure_has_a_reason_and_remedy(text: str, message: str) -> None:
    problem = describe_export_failure(RuntimeError(text))
    assert (problem.field, problem.message) == ("model", f"The model can't be converted: {message}")
    assert problem.remedy


@pytest.mark.parametrize("task", ["detection", "point_segmentation", "classification"])
def test_metadata_describes_the_model(task: str) -> None:
    model = make_trained_model(task, torch.nn.Identity(), size=24, points=48)
    bands: dict[str, Any] = {"framing": "crop", "mean": (0.25,), "std": (0.5,), "low": (1.0,), "high": (9.0,)}
    model.preprocessing = Preprocessing(**bands, features=("red",) if task == "point_segmentation" else ())
    model.job = model.job.with_fields(val_crop=0.5)
    for name in ("images", "inputs"):
        export = Exportable(model.module, name, "outputs", {}, torch.Tensor.contiguous)
        metadata = collect_metadata(model, export)
        plain = {
            key: metadata.pop(key)
            for key in ("task", "framing", "run", "model", "checkpoint", "checkpoint_sha256", "made_by")
        }
        assert (plain["task"], plain["framing"], plain["run"], plain["model"]) == (
            task,
            "crop",
            "run",
            model.job.model.name,
        )
        assert (plain["checkpoint"], plain["checkpoint_sha256"]) == ("last.pt", "0")
        expected = {
            "classes": ["a", "b", "c"], "colors": [entry.color for entry in model.objective.legend], "size": 24,
            "resized": model.resized_side, "channels": 3, "mean": [0.25], "std": [0.5], "normalized_in_file": name == "images",
            "low": [1.0], "high": [9.0],
        } | {"detection": {"score_threshold": 0.5}, "point_segmentation": {"points": 48, "features": ["red"]}}.get(task, {})  # fmt: skip
        assert {key: json.loads(value) for key, value in metadata.items()} == expected
    assert model.resized_side == (48 if task == "classification" else 24)


def session(file: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def run_example_script(folder: Path, sample: str) -> str:
    """Run the script predict.py in `folder` on the folder's file `sample`, without Footplate. Return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", str(folder / "predict.py"), str(folder / sample)]
    done = subprocess.run(
        command, cwd=folder.parent, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert not done.stderr
    assert done.returncode == 0
    return done.stdout


def load_by_card(folder: Path) -> Any:
    """Run the code in the model card, and return the model that this code loads."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(code, names)
    return names["model"]


def test_handover_predicts_without_footplate(trained: Trainer, tmp_path: Path) -> None:
    shared = trained("classification")
    shutil.copytree(shared.run.path, tmp_path / "run")
    of = replace(shared, run=RunFolder(tmp_path / "run"))
    target = tmp_path / "model.zip"
    result = convert_run(of, target, "onnx", "safetensors", packed=True, int8=True)
    assert sorted(os.listdir(tmp_path)) == ["model.zip", "run"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with zipfile.ZipFile(target) as archive:
        assert {entry.external_attr >> 16 & 0o777 for entry in archive.infolist()} == {0o600}
        stored = {entry.filename for entry in archive.infolist() if entry.compress_type == zipfile.ZIP_STORED}
        assert {Path(name).suffix for name in stored} == {".onnx", ".safetensors", ".png"}
        archive.extractall(tmp_path)
    folder = tmp_path / "model"
    assert {path.name for path in folder.iterdir()} == {CONVERTED_FILE, *(each.name for each in result.files)}
    for each in result.files:
        assert hashlib.sha256((folder / each.name).read_bytes()).hexdigest() == each.sha256
    (export,) = (of.run.path / "exports").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}-model", export.name)
    assert stat.S_IMODE((export / CONVERTED_FILE).stat().st_mode) == 0o600
    assert read_converted(export / CONVERTED_FILE) == read_converted(folder / CONVERTED_FILE) == result

    exact, rounded = result.compared
    assert (exact.name, rounded.name) == ("model.onnx", "model-int8.onnx")
    assert [each.batch_size for each in exact.differences] == [1, 3]
    assert max(each.difference for each in exact.differences) < 1e-5
    assert exact.samples == 15
    assert exact.measures == pytest.approx(of.measures, abs=1e-5)
    assert exact.torch_measures == pytest.approx(of.measures, abs=1e-5)
    assert 1e-5 < max(each.difference for each in rounded.differences) < 0.1
    sizes = {each.name: each.size_bytes for each in result.files}
    assert sizes["model-int8.onnx"] < sizes["model.onnx"] / 3

    metadata = session(folder / "model.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == list(result.classes) == ["blue", "green", "red"]
    assert (metadata["task"], metadata["size"], metadata["framing"]) == ("classification", "16", "crop")
    with Image.open(folder / "example.png") as image:
        example = np.array(image)
    model = load(of.run, "last")
    likely = model.outputs(model.inputs([example]))[0].softmax(0)
    first = run_example_script(folder, "example.png").splitlines()[1]
    assert first == f"  {result.classes[int(likely.argmax())]}: {100 * float(likely.max()):.1f}%"

    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "image-classification"
    assert card.data.license is None
    assert f"| Top-1 accuracy | {100 * of.measures['top1']:.2f}%" in card.text
    commands = [each.command for each in result.next_commands]
    assert "--maxShapes=images:32x16x16x3" in commands[0]
    assert commands[-1].startswith("hf upload ")
    assert all(command in card.text for command in commands)


@pytest.mark.long
def test_segmentation_converts_with_dynamic_size(trained: Trainer, tmp_path: Path) -> None:
    of = trained("segmentation")
    result = convert_run(of, tmp_path / "out", "onnx", "safetensors", dynamic_size=True, preprocessing=False)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    runtimes = {each.name: each.runtime.split()[0] for each in result.compared}
    assert runtimes == {"model.onnx": "onnxruntime", "model.safetensors": "segmentation_models_pytorch"}
    assert max(one.difference for each in result.compared for one in each.differences) < 1e-4

    theirs = load_by_card(tmp_path / "out")
    given = torch.randn(2, 3, 64, 96)
    (found,) = session(tmp_path / "out" / "model.onnx").run(None, {"inputs": given.numpy()})
    with torch.no_grad():
        assert np.abs(found - theirs(given).numpy()).max() < 1e-4

    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    image.save(tmp_path / "out" / "image.png")
    assert "%" in run_example_script(tmp_path / "out", "image.png")
    with Image.open(tmp_path / "out" / "image-predicted.png") as plane:
        assert plane.size == (30, 20)


@pytest.mark.parametrize(("model", "library"), [("timm:convnextv2_atto", "timm"), ("squeezenet1_1", "torchvision")])
def test_weights_load_in_their_library(
    model: str, library: str, forker: Forker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 32
    of = train_small_model(forker, tmp_path, "classification", model=model, image_size=size, val_crop=0.8)
    result = convert_run(of, tmp_path / "out", "safetensors")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    (compared,) = result.compared
    assert compared.runtime.split()[0] == library
    assert max(each.difference for each in compared.differences) < 1e-5
    assert not result.next_commands
    assert not result.problems
    loaded_model, theirs = load(of.run, "last"), load_by_card(tmp_path / "out")
    given = torch.randn(2, 3, size, size)
    with torch.no_grad():
        assert torch.allclose(theirs(given), loaded_model.module(given), atol=1e-6)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["label_names"] == list(result.classes)
    if library == "timm":
        assert theirs.pretrained_cfg["mean"] == pytest.approx(loaded_model.preprocessing.mean)
        assert tuple(theirs.pretrained_cfg["input_size"]) == (3, size, size)
        assert theirs.pretrained_cfg["crop_pct"] == pytest.approx(0.8)
    else:
        preprocessing = loaded_model.preprocessing
        assert [config[name] for name in ("mean", "std", "image_size", "channels")] == [
            pytest.approx(preprocessing.mean),
            pytest.approx(preprocessing.std),
            size,
            3,
        ]
    Path(of.job.data.dataset).rename(tmp_path / "elsewhere")
    (compared,) = convert_run(of, tmp_path / "random", "safetensors").compared
    assert compared.compared_on == "random"
    monkeypatch.setattr(
        "engine.inference.conversion.convert.make_library_runner",
        lambda _library, _folder: lambda inputs: inputs.new_zeros(len(inputs), len(result.classes)),
    )
    different = convert_run(of, tmp_path / "different", "safetensors")
    assert (different.compared, [each.field for each in different.problems]) == ((), ["dataset", "model"])
    assert f"import {library}" not in (tmp_path / "different/README.md").read_text()


@pytest.mark.long
def test_converted_detector_includes_nms(trained: Trainer, tmp_path: Path) -> None:
    of = trained("detection")
    result = convert_run(of, tmp_path / "out", "onnx")
    (compared,) = result.compared
    assert max(each.difference for each in compared.differences) < 1e-4
    assert compared.measures == pytest.approx(compared.torch_measures, abs=1e-3)
    opened = session(tmp_path / "out" / "model.onnx")
    assert opened.get_outputs()[0].shape[1:] == [100, 6]
    image = Image.fromarray(np.zeros((40, 64, 3), np.uint8))
    image.save(tmp_path / "out" / "image.png")
    assert run_example_script(tmp_path / "out", "image.png").startswith(str(tmp_path))


def test_unsupported_operation_is_named(forker: Forker, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Own(nn.Module):\n"
        "    def __init__(self, classes):\n        super().__init__()\n        self.head = nn.Linear(3, classes)\n\n"
        "    def forward(self, images):\n"
        "        return self.head(torch.special.bessel_j0(images.mean((2, 3)).detach()))\n\n\n"
        "def build_model(num_classes):\n    return Own(num_classes)\n"
    )
    of = train_small_model(
        forker, tmp_path, "classification", model=str(file), model_file_sha256=permit_model_file(file)
    )
    with pytest.raises(CannotLoad) as refused:
        convert_run(of, tmp_path / "out", "onnx")
    (problem,) = refused.value.problems
    assert "bessel_j0" in problem.message
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if "part" in path.name]
    result = convert_run(of, tmp_path / "out", "onnx", "safetensors")
    assert any("bessel_j0" in each.message for each in result.problems)
    assert any(
        "can't tell in advance if a custom model file can be converted" in each.message for each in result.problems
    )
    assert any("its weights load only with the code that builds it" in each.message for each in result.problems)
    assert {each.severity for each in result.problems} == {"warning"}
    assert not result.compared
    assert {each.name for each in result.files} == {"model.safetensors", "config.json", "README.md"}


def test_problems_are_reported_before_the_model_is_loaded(tmp_path: Path) -> None:
    run = create_run(Job.from_fields(task="classification"))
    (tmp_path / "mine").touch()
    request = ConvertRequest(run=str(run.path), to=("onnx",), out=str(tmp_path), onnx=OnnxOptions(opset=3))
    for expected in (["opset", "out"], ["run"]):
        with pytest.raises(CannotLoad) as refused:
            convert(request, print)
        assert [problem.field for problem in refused.value.problems] == expected
        run.job_file.unlink(missing_ok=True)


@pytest.mark.parametrize("is_written", [False, True])
def test_failed_quantization_is_a_warning(
    trained: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    of = trained("classification")
    module, problem = load(of.run, "last").module, Problem("int8", "It can't be quantized.", "Leave it off.")

    class Session:
        """Session of onnxruntime that runs the model itself, and can't open the int8 file."""

        runtime = "onnxruntime 1"

        def __init__(self, path: Path) -> None:
            if "int8" in path.name:
                raise CannotConvert(problem)

        def __call__(self, batch: torch.Tensor) -> torch.Tensor:
            return module(batch)

    def write_onnx(path: Path, *_: object) -> list[Path]:
        path.touch()
        return [path]

    def quantize(path: Path, *_: object) -> None:
        path.touch()
        if not is_written:
            raise CannotConvert(problem)

    for name, replacement in (("OnnxSession", Session), ("write_onnx", write_onnx), ("write_int8", quantize)):
        monkeypatch.setattr(onnx_file, name, replacement)
    monkeypatch.setattr(comparison, "measure_latencies", lambda *_: (1.5, 4.5))
    metrics = comparison.ComparedMetrics(torch={"top1": 0.75}, file={"top1": 0.5}, samples=7)
    monkeypatch.setattr(comparison, "compare_metrics", lambda *_: metrics)
    result = convert_run(of, tmp_path / "out", "onnx", int8=True, preprocessing=False)
    assert [(each.message, each.severity) for each in result.problems] == [(problem.message, "warning")]
    (compared,) = result.compared
    assert (compared.name, compared.milliseconds, compared.torch_milliseconds) == ("model.onnx", 1.5, 4.5)
    assert (compared.measures, compared.torch_measures, compared.samples) == ({"top1": 0.5}, {"top1": 0.75}, 7)
    assert sorted(os.listdir(tmp_path / "out")) == sorted([CONVERTED_FILE, "README.md", "model.onnx", "predict.py"])
    assert not any("int8" in each.command for each in result.next_commands)
    assert abs(time.time() - result.created_at) < 600


def test_onnx_file_that_differs_is_removed_with_its_weights(
    trained: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trained("classification")
    module = load(of.run, "last").module
    session = Mock(runtime="onnxruntime 1", side_effect=lambda batch: module(batch) + 1)

    def write_onnx(path: Path, *_: object) -> list[Path]:
        files = [path, path.with_name(f"{path.name}.data")]
        for file in files:
            file.touch()
        return files

    for name, replacement in (("OnnxSession", lambda _path: session), ("write_onnx", write_onnx)):
        monkeypatch.setattr(onnx_file, name, replacement)
    result = convert_run(of, tmp_path / "out", "onnx", "safetensors", preprocessing=False)
    assert any("outputs differ" in problem.message for problem in result.problems)
    assert [path.name for path in (tmp_path / "out").glob("model*")] == ["model.safetensors"]


def test_unusable_quantization_has_a_reason_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((2, 2), np.float32), "weight")
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in ("inputs", "outputs")
    ]
    node = onnx.helper.make_node("MatMul", ["inputs", "weight"], ["outputs"])
    graph = onnx.helper.make_graph([node], "graph", ends[:1], ends[1:], [weight])
    opsets = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "model.onnx")
    model = make_trained_model("classification", torch.nn.Identity())
    export = Exportable(model.module, "inputs", "outputs", {}, torch.Tensor.contiguous)
    for train, message in (
        (None, "Converting to int8 needs the run's dataset"),
        (Mock(spec=ImageSet), "onnxruntime can't quantize the model: "),
    ):
        samples = ComparisonSamples("validation", torch.zeros(1, 2), None, train)
        with pytest.raises(CannotConvert, match=message) as raised:
            write_int8(tmp_path / "int8.onnx", tmp_path / "model.onnx", model, export, samples)
        assert raised.value.problem.field == "int8"
        assert os.listdir(tmp_path) == ["model.onnx"]
    create_session = Mock(wraps=onnxruntime.InferenceSession)
    with monkeypatch.context() as patched:
        patched.setattr(onnxruntime, "InferenceSession", create_session)
        patched.setattr(torch, "get_num_threads", lambda: 2)
        opened = OnnxSession(tmp_path / "model.onnx")
    assert create_session.call_args.kwargs["sess_options"].intra_op_num_threads == 2
    assert opened(torch.tensor([[1.0, 2]])).tolist() == [[3, 3]]
    assert opened.runtime == f"onnxruntime {onnxruntime.__version__}"
    with pytest.raises(CannotConvert, match=r"can't be run on \[1, 3\] in onnxruntime: "):
        opened(torch.ones(1, 3))
    with pytest.raises(CannotConvert, match="can't be opened in onnxruntime: "):
        OnnxSession(tmp_path / "none.onnx")

    monkeypatch.setattr(onnx_file, "CALIBRATION_SAMPLES", 6)
    dataset = make_colors(tmp_path / "colors", {"train": 3, "val": 1})
    model = make_trained_model("classification", torch.nn.Identity(), dataset=str(dataset))
    sizes: list[int] = []

    def to_input(inputs: torch.Tensor) -> torch.Tensor:
        sizes.append(len(inputs))
        return inputs.mean((2, 3))[:, :2].contiguous()

    samples = ComparisonSamples("validation", torch.zeros(1, 2), None, model.task.open_splits(model.job).train)
    export = Exportable(model.module, "inputs", "outputs", {}, to_input)
    write_int8(tmp_path / "int8.onnx", tmp_path / "model.onnx", model, export, samples)
    assert sizes == [4, 4]
    quantized = OnnxSession(tmp_path / "int8.onnx")(torch.tensor([[0.25, 0.5]]))
    assert quantized.flatten().tolist() == pytest.approx([0.75, 0.75], abs=0.02)


def test_write_example_raises_if_image_is_unwritable(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "photo.png")
    (tmp_path / "example.png").mkdir()
    val = Mock(spec=ImageSet, files=[str(tmp_path / "photo.png")], bands=None)
    export = Mock(input_name="values", to_input=lambda inputs: inputs)
    samples = ComparisonSamples("validation", torch.zeros(1, 2), val)
    with pytest.raises(OSError, match=r"example\.png"):
        write_example(tmp_path, Mock(channels=3), samples, export)


@pytest.mark.long
def test_missing_dataset_uses_random_images(forker: Forker, tmp_path: Path) -> None:
    of = train_small_model(forker, tmp_path, "multilabel")
    Path(of.job.data.dataset).rename(tmp_path / "elsewhere")
    result = convert_run(of, tmp_path / "out", "onnx", int8=True)
    (compared,) = result.compared
    assert compared.compared_on == "random"
    assert not compared.measures
    assert {problem.field for problem in result.problems} == {"dataset", "int8"}


@pytest.mark.long
def test_custom_task_is_handed_over(trained: Trainer, tmp_path: Path) -> None:
    shared = trained("custom")
    permit_model_file(COUNTING)
    shutil.copytree(shared.run.path, tmp_path / "run")
    of = replace(shared, run=RunFolder(tmp_path / "run"))
    result = convert_run(of, tmp_path / "model.zip", "onnx", packed=True)
    (compared,) = result.compared
    assert compared.measures == pytest.approx(compared.torch_measures, abs=1e-4)
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        archive.extractall(tmp_path)
    model = load(of.run, "last")
    given = torch.from_numpy(np.load(tmp_path / "model" / "example.npy"))
    (expected,) = model.outputs(given[None]).flatten().tolist()
    reported = run_example_script(tmp_path / "model", "example.npy").splitlines()[1]
    assert float(reported.strip("[]")) == pytest.approx(expected, abs=1e-3)
