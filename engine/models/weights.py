"""Initial weights, which are pretrained weights in a library's cache, or weights in a local file."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum
from torchvision.models.vision_transformer import interpolate_embeddings
from torchvision.transforms._presets import ImageClassification

from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.job import Job
from engine.contract.weights import HUB_FILES, Weights, cached_path, find_weights, unavailable_remedy
from engine.models import timm_models, torchvision_models
from engine.models.base import TaskError
from engine.models.fetch import CannotFetch, fetch, get_first_line
from engine.models.model_surgery import find_first_conv, match_channels
from engine.system.archives import refuse_packed
from engine.system.format import listed
from engine.system.regular_files import UnusableFile, open_regular

State = dict[str, Tensor]

SCRATCH_REMEDY = "Train from scratch (pretrained weights off; in a terminal, --no-pretrained), or set a weights file."
PRETRAINED_SOURCE = "The file of pretrained weights"
_SWAG = "SWAG"
"""Part of the names of weights whose license is CC-BY-NC 4.0, according to torchvision's README."""
_MEASURES = {"mask_map": " mask AP", "box_map": " AP", "miou": " mIoU", "acc@1": "% top-1"}
"""Unit and name under which users see each measure of accuracy in torchvision's metadata."""
_STATE_KEYS = ("model", "state_dict_ema", "state_dict")
"""Possible keys of the weights in a file with other content, such as checkpoints of Footplate and of timm's authors."""


class InitialWeights(NamedTuple):
    """Weights that a model starts from.

    `field` is the job field that requests them, and `source` is their name in messages.
    """

    state: State
    field: str
    source: str


def read_initial(job: Job, title: str) -> InitialWeights | None:
    """Read the weights that the job starts from. Return None if it starts from random weights. Raises TaskError.

    `title` is the name of the model, or of its encoder, in messages.
    """
    if job.model.weights_file:
        return InitialWeights(read_file(job.model.weights_file), "weights_file", job.model.weights_file)
    if job.model.pretrained:
        return InitialWeights(read_pretrained(job, title), "pretrained", PRETRAINED_SOURCE)
    return None


def create_torchvision_source(weights: WeightsEnum) -> Weights:
    """Return the source of weights from torchvision.

    A license is stated only for SWAG weights. The license of the training data is not considered.
    """
    license = "cc-by-nc-4.0" if _SWAG in str(weights.meta.get("license", "")) else ""
    evaluation_transform = weights.transforms()
    crop = {}
    if isinstance(evaluation_transform, ImageClassification):
        crop["crop"] = round(evaluation_transform.crop_size[0] / evaluation_transform.resize_size[0], 3)
    return Weights(url=weights.url, license=license, bytes=round(weights.meta["_file_size"] * 2**20), **crop)


def format_published_accuracy(weights: WeightsEnum) -> str:
    """Return the accuracy of weights as stated by torchvision's documentation: "COCO 46.7 AP, torchvision"."""
    for dataset, values in weights.meta["_metrics"].items():
        for measure, unit in _MEASURES.items():
            if measure in values:
                return f"{dataset.partition('-')[0]} {values[measure]:.1f}{unit}, torchvision"
    return ""


def read_pretrained(job: Job, title: str) -> State:
    """Return the pretrained weights for the job's model or its encoder, which `engine.models.fetch` has verified.

    `title` is the name of the model or encoder in messages.

    Raises:
        TaskError: The weights are missing, damaged or unreadable.
    """
    source = weights_of(job, load_catalogue())
    if source is None:
        raise TaskError("pretrained", f"There are no pretrained weights for {title}.", SCRATCH_REMEDY)
    if source.is_included:
        return _read_included(source)
    path = find_weights(source).path
    if not path:
        message = f"The pretrained weights of {title} are not on this machine: {cached_path(source)} does not exist."
        raise TaskError("pretrained", message, f"Put {source.title} there. {SCRATCH_REMEDY}")
    try:
        return _read_state(Path(path))
    except OSError as error:
        message = f"The pretrained weights in {path} can't be read ({_describe_error(error)})."
        raise TaskError("pretrained", message, f"Check the file's permissions. {SCRATCH_REMEDY}") from error
    except Exception as error:  # torch.load raises many kinds of errors
        message = f"The pretrained weights in {path} are damaged ({_describe_error(error)})."
        raise TaskError("pretrained", message, f"Remove that file. {SCRATCH_REMEDY}") from error


def _read_included(source: Weights) -> State:
    """Return the weights that are included in the installation, with the names of timm's model."""
    try:
        path = fetch(source, lambda *_: None)
        return timm_models.rename_included_weights(_read_state(path))
    except CannotFetch as error:
        raise TaskError("pretrained", error.message, error.remedy) from error
    except Exception as error:  # torch.load documents no exceptions
        message = f"The included weights {source.distribution} can't be read ({_describe_error(error)})."
        raise TaskError("pretrained", message, unavailable_remedy(source)) from error


def read_file(path: str) -> State:
    """Return the weights in a local file. Raises TaskError.

    The file contains a plain state dict, or a checkpoint with a state dict under a key such as "model". `path` may also
    be a folder that `save_pretrained` of transformers has written.
    """
    file = Path(path).expanduser()
    try:
        return _read_state(file / HUB_FILES[0] if file.is_dir() else file)
    except FileNotFoundError:
        raise TaskError("weights_file", f"There is no file {path}.", "Check the spelling, or browse for it.") from None
    except PermissionError:
        raise TaskError(
            "weights_file",
            f"You don't have permission to read {path}.",
            "Change its permissions so that you can read it.",
        ) from None
    except UnusableFile as error:
        raise TaskError("weights_file", f"{path} {error.reason}.", "Choose a file of weights.") from None
    except NoWeightsError:
        message = f"{path} contains no weights (a dict of tensors by name)."
        raise TaskError(
            "weights_file", message, "Choose a file that torch.save made of a model's state dict."
        ) from None
    except (RuntimeError, OSError) as error:  # torch reads past the end of a truncated file
        message = f"{path} is damaged or incomplete."
        raise TaskError("weights_file", message, "Copy or download it again.") from error
    except Exception as error:  # torch.load raises many kinds of errors for other files
        message = f"{path} can't be read as weights ({_describe_error(error)})."
        remedy = (
            "Choose a file that torch.save made of a state dict, or a .safetensors file; files that "
            "contain code are not opened."
        )
        raise TaskError("weights_file", message, remedy) from error


class NoWeightsError(ValueError):
    """Raised when a weights file can be read, but does not contain named tensors."""


def _read_state(file: Path) -> State:
    """Return the weights in a file without running code from it.

    Raises NoWeightsError, and any error of torch.load or safetensors.
    """
    open_regular(file).close()  # raises UnusableFile for a FIFO or a device, which the libraries would wait for
    content: Any
    if file.suffix == ".safetensors":
        content = _read_safetensors(file)
    else:
        with open_regular(file) as stream:
            refuse_packed(stream)
        with torch.serialization.safe_globals([argparse.Namespace]):  # options in files from timm's authors
            content = torch.load(file, map_location="cpu", weights_only=True)
    for key in _STATE_KEYS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(each, Tensor) for each in content.values()):
        raise NoWeightsError("it contains no dict of tensors by name")
    # DataParallel and DDP add the prefix.
    return {name.removeprefix("module."): tensor for name, tensor in content.items()}


def _read_safetensors(file: Path) -> State:
    """Return the content of a safetensors file. Raises OSError, and RuntimeError if the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except SafetensorError as error:
        raise RuntimeError(str(error)) from error


def load(model: nn.Module, initial: InitialWeights, *, head: str | None, channels: int) -> None:
    """Load weights into a model. Raises TaskError if a tensor is missing or has the wrong shape.

    The layer named `head` is loaded only if its shape fits. The first layer is adapted to `channels` image channels.
    """
    state = dict(initial.state)
    first_conv = find_first_conv(model)
    first_weight = f"{first_conv}.weight"
    if first_conv is not None and first_weight in state and state[first_weight].ndim == 4:
        state[first_weight] = match_channels(state[first_weight], channels)
    expected = model.state_dict()
    matching = {
        name: state[name] for name, tensor in expected.items() if name in state and state[name].shape == tensor.shape
    }
    head_names = {name for name in expected if head is not None and name.startswith(head + ".")}
    if not head_names <= matching.keys():  # a head is loaded as a whole or not at all
        matching = {name: tensor for name, tensor in matching.items() if name not in head_names}
    missing = [name for name in expected if name not in matching and name not in head_names]
    # Early versions of torch didn't save batch counters, which are not needed.
    missing = [name for name in missing if "num_batches_tracked" not in name]
    if missing:
        message = f"{initial.source} does not fit the model: {listed(missing, most=3)} missing or of a different shape."
        raise TaskError(initial.field, message, "Choose weights of this model.")
    model.load_state_dict(matching, strict=False)


def resize_positions(name: str, state: State, size: int) -> State:
    """Return the weights of a vision transformer, with its learned positions resized for images of `size` px.

    The positions are interpolated as in torchvision. `name` is the name of the model.
    """
    if name not in torchvision_models.PATCH_SIZES or "encoder.pos_embedding" not in state:
        return state
    patch = torchvision_models.PATCH_SIZES[name]
    if state["encoder.pos_embedding"].shape[1] == (size // patch) ** 2 + 1:  # one is for the class token
        return state
    resized: State = interpolate_embeddings(size, patch, dict(state))
    return resized


def _describe_error(error: BaseException) -> str:
    """Return the first line of the message of an error that reading a weights file raised.

    If the file is not a torch file, torch's message would recommend unsafe loading. It is therefore replaced.
    """
    if isinstance(error, pickle.UnpicklingError | LookupError | EOFError):
        return "it is not a torch file, or contains more than tensors and plain values"
    return get_first_line(error)
