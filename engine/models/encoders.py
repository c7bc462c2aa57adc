"""Encoders from segmentation_models_pytorch and timm, for decoders and detectors."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from engine.contract.catalogue import suggest_name
from engine.contract.job import TIMM, Job
from engine.contract.weights import TIMM_ENCODER, Weights
from engine.data.transforms.device_transforms import Statistics
from engine.models import timm_models, weights
from engine.models.base import TaskError, validate_image_size
from engine.models.fetch import get_first_line

IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
STRIDE = 32
"""Largest stride of the encoders in pixels. The sides of their images must be multiples of it."""
MIN_IMAGE_SIZE = 2 * STRIDE
"""Minimum image size in pixels for models that are built on an encoder."""


def list_names() -> tuple[str, ...]:
    """Return the names of the encoders in segmentation_models_pytorch."""
    from segmentation_models_pytorch.encoders import get_encoder_names

    return tuple(sorted(get_encoder_names()))


def list_imagenet_weights() -> dict[str, Weights]:
    """Return the source of each encoder's ImageNet weights, by the name of the encoder.

    segmentation_models_pytorch states no licenses for them.
    """
    from segmentation_models_pytorch.encoders import encoders as library_encoders

    settings = {name: library_encoders[name]["pretrained_settings"].get("imagenet") for name in list_names()}
    return {
        name: Weights(repository=source["repo_id"], revision=source["revision"])
        for name, source in settings.items()
        if source
    }


def get_statistics(encoder: str) -> Statistics:
    """Return the mean and standard deviation of the colors that the encoder's weights were trained with."""
    name = _find_timm_name(encoder)
    timm_statistics = None if name is None else timm_models.get_statistics(TIMM + name)
    return timm_statistics or IMAGENET


def construct(job: Job, title: str, size: int, constructor: Callable[[], nn.Module]) -> nn.Module:
    """Construct a model with the job's encoder as backbone, for images of `size` px, by calling `constructor`.

    `title` is the model's name in error messages.

    Raises:
        TaskError: The encoder is unknown or doesn't suit the model, or its strides don't divide the size.
    """
    name = _find_timm_name(job.model.encoder)
    if job.model.encoder not in list_names() and not (name and timm_models.is_known(name)):
        raise TaskError(
            "encoder",
            f"There is no encoder “{job.model.encoder}”.",
            suggest_name(job.model.encoder, list(list_names())),
        )
    validate_image_size(title, size, STRIDE, STRIDE)
    try:
        return constructor()
    except (ValueError, KeyError, RuntimeError) as error:
        message = f"{title} can't use the encoder {job.model.encoder} ({get_first_line(error)})."
        raise TaskError("encoder", message, "Choose another, such as resnet34.") from error


def load_initial(job: Job, model: nn.Module, head: str | None, channels: int, *, title: str, has_encoder: bool) -> None:
    """Load the weights that the job starts from into `model`, if there are any. Raises TaskError.

    The layer `head` is loaded only if its shape fits. Error messages call the model `title`. If `has_encoder` is True,
    the weights may be those of the module "encoder" alone, as pretrained weights always are.
    """
    initial = weights.read_initial(job, f"the encoder {job.model.encoder}" if has_encoder else title)
    if initial is None:
        return
    if has_encoder and not any(name.startswith("encoder.") for name in initial.state):
        load_weights(model.get_submodule("encoder"), job.model.encoder, initial, channels)
    else:
        weights.load(model, initial, head=head, channels=channels)


def load_weights(encoder: nn.Module, name: str, initial: weights.InitialWeights, channels: int) -> None:
    """Load weights of the encoder `name`, or of the classification model that it is part of, into `encoder`.

    Raises TaskError.
    """
    initial = initial._replace(state=_to_encoder_names(name, initial.state))
    weights.load(encoder, initial, head=None, channels=channels)


def _to_encoder_names(encoder: str, state: weights.State) -> weights.State:
    """Rename the weights of a classification model to the names in the encoder `encoder`.

    If the weights don't fit this encoder, all are returned unchanged.
    """
    from segmentation_models_pytorch.encoders import get_encoder

    name = _find_timm_name(encoder)
    try:
        if name:
            # First the entire model, since timm ignores missing weights with features_only.
            full = timm_models.to_current_names(name, state)
            features = timm_models.to_current_names(name, full, features_only=True)
            return {f"model.{key}": tensor for key, tensor in features.items()}
        plain: nn.Module = get_encoder(encoder, weights=None)
        plain.load_state_dict(dict(state))
        return plain.state_dict()
    except Exception:  # encoders raise different errors; loading the weights reports the missing names
        return state


def _find_timm_name(encoder: str) -> str | None:
    """Return the encoder's name in timm, or None if it is from segmentation_models_pytorch."""
    return encoder.removeprefix(TIMM_ENCODER) if encoder.startswith(TIMM_ENCODER) else None
