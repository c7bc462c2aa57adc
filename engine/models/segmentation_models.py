"""The models of semantic segmentation: torchvision's, and the decoders of segmentation_models_pytorch on any
encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import models

from engine.checks.job_checks import ENCODER_STRIDE as STRIDE
from engine.contract.catalogue import did_you_mean
from engine.contract.job import TIMM, Job
from engine.contract.weights import TIMM_ENCODER, Weights
from engine.data.transforms.device_transforms import Statistics
from engine.models import registry, timm_models, user_file, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.model_surgery import adapt_first_conv, find_head, set_heads
from engine.models.registry import build_foreign, is_foreign

CLASSES = 21
"""torchvision's are described as they ship: for the classes of PASCAL VOC."""
IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
IMAGE_SIZE = 512
"""The default image size in pixels: torchvision's weights were trained at 520, but few decoders can take that from
encoders that halve five times."""
_TORCHVISION = {
    "deeplabv3_mobilenet_v3_large": ("DeepLabV3, MobileNetV3 Large", "DeepLab"),
    "deeplabv3_resnet50": ("DeepLabV3, ResNet-50", "DeepLab"),
    "deeplabv3_resnet101": ("DeepLabV3, ResNet-101", "DeepLab"),
    "fcn_resnet50": ("FCN, ResNet-50", "FCN"),
    "fcn_resnet101": ("FCN, ResNet-101", "FCN"),
    "lraspp_mobilenet_v3_large": ("LR-ASPP, MobileNetV3 Large", "LR-ASPP"),
}
_DECODERS = {
    "unet": ("U-Net", "U-Net"),
    "unetplusplus": ("U-Net++", "U-Net"),
    "manet": ("MA-Net", "U-Net"),
    "linknet": ("LinkNet", "LinkNet"),
    "fpn": ("FPN", "Pyramids"),
    "pspnet": ("PSPNet", "Pyramids"),
    "pan": ("PAN", "Pyramids"),
    "upernet": ("UPerNet", "Pyramids"),
    "deeplabv3plus": ("DeepLabV3+", "DeepLab"),
    "segformer": ("SegFormer", "Transformers"),
}
"""Names as in segmentation_models_pytorch, without its DeepLabV3, which torchvision has too, and DPT, which needs its
own encoders."""


def names() -> tuple[str, ...]:
    return (*_DECODERS, *_TORCHVISION)


def is_decoder(model: str) -> bool:
    """Return True if `model` is a decoder that takes the job's encoder."""
    return model in _DECODERS


def encoders() -> tuple[str, ...]:
    """The encoders that every decoder can stand on."""
    from segmentation_models_pytorch.encoders import get_encoder_names

    return tuple(sorted(get_encoder_names()))


def encoder_weights() -> dict[str, Weights]:
    """Where the encoders' weights that were trained on ImageNet come from; segmentation_models_pytorch tells no
    licences."""
    from segmentation_models_pytorch.encoders import encoders as described

    found = {name: described[name]["pretrained_settings"].get("imagenet") for name in encoders()}
    return {
        name: Weights(repository=each["repo_id"], revision=each["revision"]) for name, each in found.items() if each
    }


def statistics(job: Job, *, has_encoder: bool) -> Statistics:
    """Return the mean and standard deviation of the colors that the weights of the model or its encoder expect."""
    if has_encoder and job.encoder.startswith(TIMM_ENCODER):
        return timm_models.statistics(TIMM + job.encoder.removeprefix(TIMM_ENCODER)) or IMAGENET
    return registry.statistics(job.model, IMAGENET)


def model_info(name: str) -> ModelInfo:
    title, family = (_DECODERS | _TORCHVISION)[name]
    if name in _DECODERS:
        return ModelInfo(title, family, IMAGE_SIZE, 2 * STRIDE, CLASSES, encoder=True)
    known = weights.of_torchvision(models.get_model_weights(name).DEFAULT)
    return ModelInfo(title, family, IMAGE_SIZE, STRIDE, CLASSES, weights=known)


def build(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """The job's model on the CPU, in training mode: [n, channels, s, s] to [n, classes, s, s]. Its fresh weights
    depend on the job's seed alone. Raises TaskError."""
    if not is_foreign(job) and job.model not in names():
        raise TaskError("model", f"There is no model “{job.model}”.", did_you_mean(job.model, list(names())))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = _construct(job, classes, channels, size)
    of_decoder = is_decoder(job.model)
    head = "segmentation_head" if of_decoder else find_head(model, classes)
    title = job.model if is_foreign(job) else model_info(job.model).title
    load_weights(job, model, head, channels, title=title, has_encoder=of_decoder)
    if job.freeze_epochs and head is None:
        message = f"{job.model} has no layer with {classes} outputs that could be trained as the head."
        raise TaskError("freeze_epochs", message, "Train all layers.")
    # An encoder's weights come from elsewhere; a decoder's do not.
    heads = [name for name, _ in model.named_children() if name != "encoder"] if of_decoder else [head] if head else []
    set_heads(model, heads, freeze=bool(job.freeze_epochs))
    return model.train()


def load_weights(job: Job, model: nn.Module, head: str | None, channels: int, *, title: str, has_encoder: bool) -> None:
    """Load the weights that the job starts from, if any: its weights file, or pretrained weights of the model `title`.

    Where the model `has_encoder`, the weights may be those of the encoder alone, as pretrained ones are. Raises
    TaskError.
    """
    if job.weights_file:
        state, field, source = weights.from_file(job.weights_file), "weights_file", job.weights_file
    elif job.pretrained:
        state = weights.pretrained(job, f"the encoder {job.encoder}" if has_encoder else title)
        field, source = "pretrained", weights.SOURCE
    else:
        return
    if has_encoder and not any(name.startswith("encoder.") for name in state):
        model, head = model.get_submodule("encoder"), None
        state = _by_encoders_names(job.encoder, state)
    weights.load(model, state, head=head, channels=channels, field=field, source=source)


def _by_encoders_names(encoder: str, state: weights.State) -> weights.State:
    """The weights of a classification model by the names that they have in the encoder; those of another, as they
    are."""
    from segmentation_models_pytorch.encoders import get_encoder

    try:
        if encoder.startswith(TIMM_ENCODER):
            name = encoder.removeprefix(TIMM_ENCODER)
            whole = timm_models.by_own_names(name, state)  # of the features alone timm would not mind what is missing
            features = timm_models.by_own_names(name, whole, features_only=True)
            return {f"model.{each}": tensor for each, tensor in features.items()}
        plain: nn.Module = get_encoder(encoder, weights=None)
        plain.load_state_dict(dict(state))
        return plain.state_dict()
    except Exception:  # what does not fit fails in as many ways as there are encoders; loading it tells what is lacking
        return state


def _construct(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    if is_decoder(job.model):
        return _decoder(job, classes, channels, size)
    if not is_foreign(job):
        return _of_torchvision(job, classes, channels)
    model = build_foreign(job, classes, channels)
    remedy = f"Make it return {classes} values per pixel."
    user_file.try_out(job.model, model, (channels, size, size), (classes, size, size), remedy)
    return model


def _decoder(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    from segmentation_models_pytorch import create_model

    given = {"encoder_weights": None, "in_channels": channels, "classes": classes}
    title = model_info(job.model).title
    return construct_on_encoder(job, title, size, lambda: create_model(job.model, job.encoder, **given))


def construct_on_encoder(job: Job, title: str, size: int, construct: Callable[[], nn.Module]) -> nn.Module:
    """Construct a model on the job's encoder for images of `size` px; `title` names it in problems.

    Raises TaskError where the encoder is unknown or doesn't suit the model, or its strides don't divide the size.
    """
    of_timm = job.encoder.removeprefix(TIMM_ENCODER) if job.encoder.startswith(TIMM_ENCODER) else ""
    if job.encoder not in encoders() and not (of_timm and timm_models.is_known(of_timm)):
        raise TaskError("encoder", f"There is no encoder “{job.encoder}”.", did_you_mean(job.encoder, list(encoders())))
    validate_side(title, size)
    try:
        return construct()
    except (ValueError, KeyError, RuntimeError) as error:
        message = f"{title} can't use the encoder {job.encoder} ({_line(error)})."
        raise TaskError("encoder", message, "Choose another, such as resnet34.") from error


def validate_side(title: str, size: int) -> None:
    """Raise TaskError if `size` is not a multiple of the encoders' largest stride; `title` names the model."""
    if size % STRIDE:
        suggested_side = max(2 * STRIDE, round(size / STRIDE) * STRIDE)
        message = f"{title} takes sides that are a multiple of {STRIDE} px; {size} is not."
        raise TaskError("image_size", message, f"Set {suggested_side}, or leave it empty.")


def _of_torchvision(job: Job, classes: int, channels: int) -> nn.Module:
    """Without its auxiliary head, so that it gives one tensor in training, too; under torchvision's own names."""
    plain = models.get_model(job.model, weights=None, weights_backbone=None, num_classes=classes)
    kind = type(plain)

    def forward(self: nn.Module, inputs: Tensor) -> Tensor:
        outputs: dict[str, Tensor] = kind.forward(self, inputs)
        return outputs["out"]

    plain.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    adapt_first_conv(plain, channels)
    model: nn.Module = plain
    return model


def _line(error: BaseException) -> str:
    text: Any = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
