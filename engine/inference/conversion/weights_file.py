"""Weights as safetensors, with a config.json that other libraries need to load them."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from engine.contract.job import TIMM
from engine.contract.problems import Problem
from engine.inference.conversion.failure import CannotConvert, get_first_line, suppress_output
from engine.inference.trained_model import TrainedModel
from engine.models import detection_models, segmentation_models, timm_models, torchvision_models
from engine.system import paths
from engine.system.files import read_file

WEIGHTS, CONFIG = "model.safetensors", "config.json"
TORCHVISION, TIMM_LIBRARY, SMP = "torchvision", "timm", "segmentation_models_pytorch"
_TORCHVISION_CODE = """\
import json
from pathlib import Path

import torchvision
from safetensors.torch import load_file

config = json.loads(Path("config.json").read_text())
model = torchvision.models.get_model(config["architecture"], **config["arguments"])
model.load_state_dict(load_file("model.safetensors"))
model.eval()"""


@dataclass(frozen=True)
class Library:
    """Library that can load the weights.

    Attributes:
        name: Name of its Python package.
        code: Python code that loads the weights from the current folder.
        load: Function that loads the weights from a folder and returns the model.
    """

    name: str
    code: str
    load: Callable[[Path], nn.Module]

    @property
    def version(self) -> str:
        return f"{self.name} {importlib.import_module(self.name).__version__}"


def write_weights(folder: Path, model: TrainedModel) -> tuple[Library | None, Problem | None]:
    """Write the files `WEIGHTS` and `CONFIG` to a folder.

    The class names and the preprocessing are stored in `CONFIG` or, for models of SMP, in the metadata of `WEIGHTS`.
    Returns the library that can load them, or None if only Footplate can, and a problem in that case. Raises OSError,
    and CannotConvert if the written weights differ when they are read again.
    """
    state = {name: tensor.contiguous().clone() for name, tensor in model.module.state_dict().items()}
    library, config = _find_library(model)
    preprocessing, metadata = _create_preprocessing_config(model), {"format": "pt"}
    if library is not None and library.name == SMP:  # it would pass the preprocessing on to encoders from timm
        metadata |= {name: json.dumps(value) for name, value in preprocessing.items()}
    else:
        config |= preprocessing
    paths.write_atomically(folder / WEIGHTS, save(state, metadata))
    paths.write_atomically(folder / CONFIG, json.dumps(config, indent=2).encode())
    written = load_file(folder / WEIGHTS)
    if written.keys() != state.keys() or not all(torch.equal(written[name], state[name]) for name in state):
        raise CannotConvert(Problem("out", "The weights read back differ from those written.", "Check the disk."))
    if library is None:
        message = f"No other library builds {model.job.model.name}: its weights load only with the code that builds it."
        return None, Problem("model", message, "Convert into ONNX for other programs.", "warning")
    return library, None


def make_library_runner(library: Library, folder: Path) -> Callable[[Tensor], Tensor]:
    """Return a function that runs the model loaded by a library on a batch.

    Raises CannotConvert if it can't be loaded.
    """
    try:
        with suppress_output():
            module = library.load(folder).eval()
    except Exception as error:  # models fail in many ways
        message = f"{library.name} can't load the weights: {get_first_line(error)}"
        raise CannotConvert(Problem("model", message, "Convert into ONNX.")) from error

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        outputs: Any = module(inputs)
        tensor: Tensor = outputs["out"] if isinstance(outputs, dict) else outputs
        return tensor

    return run


def _find_library(model: TrainedModel) -> tuple[Library | None, dict[str, Any]]:
    """Return the library that can build the model, and the config that the library needs.

    The library is None if only Footplate can build the model.
    """
    job = model.job
    if job.model.name.startswith(TIMM):
        return Library(TIMM_LIBRARY, _compose_timm_code(model), _load_timm), _create_timm_config(model)
    if hasattr(model.module, "save_pretrained") and hasattr(model.module, "config"):  # a model of SMP
        code = f'import {SMP} as smp\n\nmodel = smp.from_pretrained(".").eval()'
        module: Any = model.module
        return Library(SMP, code, _load_smp), {**module.config, "_model_class": type(module).__name__}
    arguments = _find_torchvision_arguments(model)
    if arguments is None:
        return None, {"library": "footplate", "architecture": job.model.name}
    config = {"library": TORCHVISION, "architecture": job.model.name, "arguments": arguments}
    return Library(TORCHVISION, _TORCHVISION_CODE, _load_torchvision), config


def _create_preprocessing_config(model: TrainedModel) -> dict[str, Any]:
    """Return the config entries for the class names and, unless the model is from timm, for the preprocessing."""
    preprocessing = model.preprocessing
    config: dict[str, Any] = {"label_names": list(model.classes)}
    if not model.job.model.name.startswith(TIMM):  # timm's pretrained_cfg includes it
        config |= {
            "mean": preprocessing.mean,
            "std": preprocessing.std,
            "image_size": model.size,
            "channels": model.channels,
        }
    return config


def _create_timm_config(model: TrainedModel) -> dict[str, Any]:
    """Return the content of the config.json that timm needs to load the model, in the format of its `save_for_hf`."""
    from timm.models._hub import save_config_for_hf

    name = model.job.model.name.removeprefix(TIMM)
    pretrained_config: dict[str, Any] = {
        "mean": model.preprocessing.mean,
        "std": model.preprocessing.std,
        "input_size": (model.channels, model.size, model.size),
        "crop_pct": model.size / model.resized_side,
        "interpolation": "bilinear",
        "crop_mode": "center",
        "test_input_size": None,
        "test_crop_pct": None,
        "license": None,
    }
    size_arguments = timm_models.get_size_arguments(model.job.model.name, model.size)
    with tempfile.TemporaryDirectory() as folder, suppress_output():
        file = Path(folder, CONFIG)
        save_config_for_hf(
            model.module, str(file), model_config={"pretrained_cfg": pretrained_config}, model_args=size_arguments
        )
        config: dict[str, Any] = json.loads(read_file(file))
    return {**config, "architecture": name}


def _compose_timm_code(model: TrainedModel) -> str:
    """Return Python code that loads the written weights with timm, for the model card."""
    name = model.job.model.name.removeprefix(TIMM)
    arguments = timm_models.get_size_arguments(model.job.model.name, model.size)
    size_arguments = "".join(f", {key}={value}" for key, value in arguments.items())
    return (
        "import json\nfrom pathlib import Path\n\nimport timm\n\n"
        'model = timm.create_model("local-dir:.", pretrained=True).eval()\n\n'
        "# Or, by its name:\n"
        f'config = json.loads(Path("{CONFIG}").read_text())["pretrained_cfg"]\n'
        f'model = timm.create_model("{name}", pretrained=True, num_classes={len(model.classes)}{size_arguments},\n'
        f'                          pretrained_cfg_overlay=dict(config, file="{WEIGHTS}")).eval()'
    )


def _load_timm(folder: Path) -> nn.Module:
    """Load the written model with timm, as a user would."""
    import timm

    model: nn.Module = timm.create_model(f"local-dir:{folder}", pretrained=True)
    return model


def _load_smp(folder: Path) -> nn.Module:
    """Load the written model with segmentation_models_pytorch, as a user would."""
    import segmentation_models_pytorch

    model: nn.Module = segmentation_models_pytorch.from_pretrained(str(folder))
    return model


def _load_torchvision(folder: Path) -> nn.Module:
    """Build the written model with torchvision, and load its weights, as a user would."""
    from torchvision import models

    config = json.loads(read_file(folder / CONFIG))
    model: nn.Module = models.get_model(config["architecture"], **config["arguments"])
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model


def _find_torchvision_arguments(model: TrainedModel) -> dict[str, Any] | None:
    """Return the arguments with which torchvision builds the model, or None if it can't.

    torchvision lacks some models, and supports others only for color images.
    """
    job, classes = model.job, len(model.classes)
    if model.channels != 3:
        return None
    if job.model.name in torchvision_models.list_names():
        arguments = torchvision_models.create_arguments(job.model.name, classes, model.size)
        if job.model.name in torchvision_models.INCEPTION_FAMILY:
            arguments["init_weights"] = False  # which is slow, and the weights are loaded anyway
        return {"weights": None, **arguments}
    no_weights = {"weights": None, "weights_backbone": None}
    if job.model.name in segmentation_models.list_names():
        return {**no_weights, "num_classes": classes}
    if detection_models.is_from_torchvision(job.model.name):
        sides = {"min_size": model.size, "max_size": model.size}
        statistics = {"image_mean": model.preprocessing.mean, "image_std": model.preprocessing.std}
        # The builders of SSD set the image size and statistics themselves.
        input_arguments = {} if job.model.name.startswith("ssd") else {**sides, **statistics}
        return {**no_weights, "num_classes": classes + 1, **input_arguments}
    return None
