"""Libraries that load written weights, scripts and examples for ONNX files, and messages of libraries."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import Tensor, nn

from engine.contract.job import Job
from engine.data.datasets.images import ImageSet
from engine.inference.conversion.comparison import ComparisonSamples
from engine.inference.conversion.exportable import Exportable
from engine.inference.conversion.failure import CannotConvert, suppress_output
from engine.inference.conversion.script import create_script_source, write_example
from engine.inference.conversion.weights_file import CONFIG, WEIGHTS, Library, make_library_runner, write_weights
from engine.tasks.registry import TASKS
from tests.support.plain_models import make_trained_model


@torch.no_grad()
@pytest.mark.parametrize(
    ("task", "fields", "name"),
    [
        ("segmentation", {"model": "unet", "encoder": "tu-mobilenetv3_small_050"}, "segmentation_models_pytorch"),
        ("classification", {"model": "timm:vit_tiny_patch16_224"}, "timm"),
    ],
)
def test_library_loads_written_weights(
    task: str, fields: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = 1 if name == "timm" else 3
    job = Job.from_fields(task=task, image_size=32, **fields)
    module = TASKS[task].build_model(job, 3, channels).eval()
    model = make_trained_model(task, module, channels=channels, size=32, image_size=32, **fields)
    library, problem = write_weights(tmp_path, model)
    assert problem is None
    assert library is not None
    assert library.name == name
    if task == "segmentation":
        with safe_open(tmp_path / WEIGHTS, "pt") as stored:
            assert json.loads(stored.metadata()["label_names"]) == ["a", "b", "c"]
    inputs, names = torch.rand(2, channels, 32, 32), dict[str, Any]()
    torch.testing.assert_close(make_library_runner(library, tmp_path)(inputs), module(inputs))
    monkeypatch.chdir(tmp_path)
    exec(library.code, names)
    torch.testing.assert_close(names["model"](inputs), module(inputs))


def test_weights_of_an_unknown_model_have_no_library(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    module.config = {}  # type: ignore[assignment]
    library, problem = write_weights(tmp_path, make_trained_model("classification", module, model="mnist_cnn"))
    assert library is None
    assert problem is not None
    assert problem.message.startswith("No other library builds mnist_cnn")
    assert json.loads((tmp_path / CONFIG).read_text())["label_names"] == ["a", "b", "c"]


def test_library_runner_selects_the_map_in_evaluation(tmp_path: Path) -> None:
    class Segmenter(nn.Module):
        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            return {"aux": inputs, "out": inputs + 1 + self.training}

    run = make_library_runner(Library("torchvision", "", lambda folder: Segmenter()), tmp_path)
    assert run(torch.zeros(1)).tolist() == [1]
    library = Library("torchvision", "", lambda folder: torch.load(folder / "none"))
    with pytest.raises(CannotConvert, match=r"torchvision can't load the weights: .*No such file"):
        make_library_runner(library, tmp_path)


def test_suppress_output_restores_the_log_level() -> None:
    previous = logging.root.manager.disable
    try:
        logging.disable(logging.DEBUG)
        with suppress_output():
            assert not logging.getLogger("torch").isEnabledFor(logging.CRITICAL)
            for category in (UserWarning, FutureWarning, DeprecationWarning):
                warnings.warn("unused", category, stacklevel=1)  # would fail this test
        assert logging.root.manager.disable == logging.DEBUG
    finally:
        logging.disable(previous)


@pytest.mark.parametrize("task", ["classification", "segmentation", "detection", "point_segmentation"])
def test_script_imports_each_name_once(task: str) -> None:
    source = create_script_source(make_trained_model(task, nn.Identity()))
    compile(source, "predict.py", "exec")
    lines = source.split('"""', 2)[2].split("\n\n\n")[0].splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    modules = [line.split()[1] for line in imports]
    assert "image_input" not in source
    assert len(set(modules)) == len(modules)
    is_third_party = [module in ("numpy", "onnxruntime", "PIL") for module in modules]
    assert is_third_party == sorted(is_third_party)
    assert source.count("import numpy") == 1


@pytest.mark.parametrize(
    ("name", "shape", "stored", "expected"),
    [
        ("images", (5, 4, 3), (5, 4, 3), "example.png"),
        ("images", (5, 4, 1), (5, 4), "example.png"),
        ("images", (5, 4, 2), (5, 4, 2), "example.npy"),
        ("inputs", (3, 5, 4), (3, 5, 4), "example.npy"),
    ],
)
def test_write_example_stores_samples_as_the_model_takes_them(
    name: str, shape: tuple[int, ...], stored: tuple[int, ...], expected: str, tmp_path: Path
) -> None:
    samples = ComparisonSamples("validation", torch.randint(0, 256, (2, *shape), dtype=torch.uint8), Mock())
    export = Exportable(nn.Identity(), name, "outputs", {}, lambda inputs: 255 - inputs)
    model = make_trained_model("classification", nn.Identity(), channels=shape[2])
    file = write_example(tmp_path, model, samples, export)
    assert file == tmp_path / expected
    values = np.load(file) if file.suffix == ".npy" else np.asarray(Image.open(file))
    assert values.shape == stored
    assert values.tobytes() == (255 - samples.inputs[0].numpy()).tobytes()
    assert write_example(tmp_path, model, ComparisonSamples("random", samples.inputs), export) is None


@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (1, "L")])
def test_write_example_reduces_the_first_image(channels: int, mode: str, tmp_path: Path) -> None:
    for name, color in (("first.png", "red"), ("second.png", "blue")):
        Image.new("RGB", (1100, 550), color).save(tmp_path / name)
    files = [str(tmp_path / name) for name in ("first.png", "second.png")]
    model = make_trained_model("classification", nn.Identity(), channels=channels)
    export = Exportable(model.module, "images", "outputs", {}, Tensor.contiguous)
    values: dict[str, Any] = {"kind": "validation", "inputs": torch.zeros(1, 8, 8, channels, dtype=torch.uint8)}
    for bands, size in ((None, (1024, 512)), ("1,2", (8, 8))):
        samples = ComparisonSamples(**values, val=Mock(spec=ImageSet, files=files, bands=bands))
        file = write_example(tmp_path, model, samples, export)
        assert file is not None
        with Image.open(file) as image:
            assert (image.size, image.mode) == (size, mode)
            if bands is None:
                assert image.getpixel((0, 0)) == ((255, 0, 0) if channels == 3 else 76)
