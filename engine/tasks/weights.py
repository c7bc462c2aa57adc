"""Weights to start from: torchvision's own, or a file's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlparse

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum
from torchvision.models.vision_transformer import interpolate_embeddings

from engine.tasks import torchvision_models
from engine.tasks.adapt import find_first_conv, match_channels
from engine.tasks.base import TaskError

State = dict[str, Tensor]

SCRATCH = "Train from scratch (pretrained weights off), or give a weights file."


def cache_path(weights: WeightsEnum) -> Path:
    """Where torchvision keeps the file of these weights once it has fetched it."""
    return Path(torch.hub.get_dir()) / "checkpoints" / os.path.basename(urlparse(weights.url).path)


def pretrained(name: str, title: str) -> State:
    """torchvision's default weights for the model, from its cache or the network. Raises TaskError."""
    known = torchvision_models.weights(name)
    if not known:
        raise TaskError("pretrained", f"There are no pretrained weights for {title}.", SCRATCH)
    return of_torchvision(known[0], title)


def of_torchvision(weights: WeightsEnum, title: str) -> State:
    """The same of weights by their name."""
    path = cache_path(weights)
    cached = path.is_file()
    try:
        state: State = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except (URLError, OSError) as error:
        if cached:
            message = f"The pretrained weights in {path} cannot be read ({_first_line(error)})."
            raise TaskError("pretrained", message, f"Check the file's permissions. {SCRATCH}") from error
        message = (
            f"The pretrained weights of {title} are not in torchvision's cache ({path}) and cannot be fetched, "
            f"since there is no network ({_first_line(error)})."
        )
        raise TaskError("pretrained", message, SCRATCH) from error
    except Exception as error:  # torch.load raises many things for what it does not take
        if cached:
            message = f"The pretrained weights in {path} are damaged ({_first_line(error)})."
            raise TaskError("pretrained", message, f"Remove that file. {SCRATCH}") from error
        message = f"The pretrained weights of {title} arrived damaged ({_first_line(error)})."
        raise TaskError("pretrained", message, f"Try again. {SCRATCH}") from error
    return state


def from_file(path: str) -> State:
    """The weights in a local file: a plain state dict, or a checkpoint that holds one as "model". Raises TaskError."""
    from safetensors.torch import load_file

    file = Path(path).expanduser()
    try:
        content: Any = (
            load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, map_location="cpu", weights_only=True)
        )
    except FileNotFoundError:
        raise TaskError("weights_file", f"There is no file {path}.", "Check the spelling, or browse for it.") from None
    except PermissionError:
        raise TaskError("weights_file", f"{path} may not be read.", "Give yourself permission to read it.") from None
    except Exception as error:  # torch.load raises many things for what is no file of its own
        message = f"{path} cannot be read as weights ({_first_line(error)})."
        remedy = (
            "Give a file made by torch.save of a state dict, or a .safetensors; files that hold code are not opened."
        )
        raise TaskError("weights_file", message, remedy) from error
    for key in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(each, Tensor) for each in content.values()):
        message = f"{path} holds no weights (a dict of tensors by name)."
        raise TaskError("weights_file", message, "Give a file made by torch.save of a model's state dict.")
    return {name.removeprefix("module."): tensor for name, tensor in content.items()}


def load(model: nn.Module, state: State, *, head: str | None, channels: int, field: str, source: str) -> None:
    """Puts `state` into the model. The head is taken over where its shape fits and left as it is otherwise.

    Raises TaskError (at `field`) where anything else of the model is missing in `state` or has another shape.
    """
    state = dict(state)
    first = find_first_conv(model)
    if first is not None and f"{first}.weight" in state and state[f"{first}.weight"].ndim == 4:
        state[f"{first}.weight"] = match_channels(state[f"{first}.weight"], channels)
    own = model.state_dict()
    fitting = {name: state[name] for name, tensor in own.items() if name in state and state[name].shape == tensor.shape}
    head_names = {name for name in own if head is not None and name.startswith(head + ".")}
    if not head_names <= fitting.keys():
        fitting = {name: tensor for name, tensor in fitting.items() if name not in head_names}
    # Counters of batches were not kept by early versions of torch, and change nothing.
    lacking = [
        name for name in own if name not in fitting | dict.fromkeys(head_names) and "num_batches_tracked" not in name
    ]
    if lacking:
        named = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        message = f"{source} does not fit the model: {named} missing or of another shape."
        raise TaskError(field, message, "Give the weights of this very model.")
    model.load_state_dict(fitting, strict=False)


def resize_positions(name: str, state: State, size: int) -> State:
    """A vision transformer's weights for pictures of another size, their positions interpolated as torchvision does."""
    if name not in torchvision_models.PATCH_SIZES or "encoder.pos_embedding" not in state:
        return state
    patch = torchvision_models.PATCH_SIZES[name]
    if state["encoder.pos_embedding"].shape[1] == (size // patch) ** 2 + 1:
        return state
    resized: State = interpolate_embeddings(size, patch, dict(state))
    return resized


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
