"""Python code that loads a run's checkpoint without Footplate's window."""

from __future__ import annotations

from engine.contract.catalogue import PredictionKind, load_catalogue, predictions_of
from engine.contract.events import Planned
from engine.contract.job import TIMM, Job

_TRANSFORMERS = ("vit_",)
_WITH_AUXILIARY_HEADS = ("googlenet", "inception_v3")
_OTHER_CHANNELS = """
name = next(name for name, part in model.named_modules() if isinstance(part, torch.nn.Conv2d))
old = model.get_submodule(name)
first = torch.nn.Conv2d({channels}, old.out_channels, old.kernel_size, old.stride, old.padding, bias=old.bias is not None)
model.set_submodule(name, first)"""


def loading_code(job: Job, plan: Planned, path: str, kind: str) -> str:
    """Return Python code that builds the model of `job`, and loads the checkpoint at `path`.

    Args:
        job: Job of the run.
        plan: Plan of the run, with classes and channels.
        path: Path of the checkpoint.
        kind: "best" (model state only) or "last" (model and training state).
    """
    state = f"torch.load({path!r}, weights_only=True)" + ('["model"]' if kind == "last" else "")
    return f"{_build_code(job, plan)}\nmodel.load_state_dict({state})"


def _build_code(job: Job, plan: Planned) -> str:
    """Return code that builds the run's model as the variable `model`, without weights."""
    classes, channels = len(plan.classes), plan.channels
    other = "" if channels == 3 else _OTHER_CHANNELS.format(channels=channels)
    entry = load_catalogue().model(job.model.name)
    predicts = predictions_of(entry.task if entry is not None else job.task)
    if job.model_is_file:
        return _from_file(job, classes, channels, other)
    if entry is not None and entry.package:
        return _from_package(job, plan)
    if entry is not None and entry.construction:
        code = entry.construction.format(encoder=job.model.encoder, classes=classes, channels=channels)
        return code if "{channels}" in entry.construction else f"{code}{other}"
    if predicts == "objects":
        return _detector(job, plan, other)
    if entry is not None and entry.encoder:
        arguments = f"{job.model.name!r}, {job.model.encoder!r}, encoder_weights=None, in_channels={channels}, classes={classes}"
        return f"import torch, segmentation_models_pytorch as smp; model = smp.create_model({arguments})"
    return _from_library(job, plan, other, predicts)


def _from_library(job: Job, plan: Planned, other: str, predicts: PredictionKind) -> str:
    """Return code that builds a timm or torchvision model."""
    classes, channels = len(plan.classes), plan.channels
    if job.model.name.startswith(TIMM):
        arguments = f"{job.model.name!r}, {classes}, {channels}, {plan.image_size}"
        return f"import torch; from engine.models.timm_models import construct; model = construct({arguments})"
    options = ", aux_logits=False" if job.model.name in _WITH_AUXILIARY_HEADS else ""
    if job.model.name.startswith(_TRANSFORMERS):
        options = f", image_size={plan.image_size}"
    if predicts == "pixels":
        options = ", weights_backbone=None"
    call = f"torchvision.models.get_model({job.model.name!r}, num_classes={classes}{options})"
    return f"import torch, torchvision; model = {call}{other}"


def _from_file(job: Job, classes: int, channels: int, other: str) -> str:
    task = load_catalogue().task(job.task)
    if task is not None and task.file:
        contents = f"runpy.run_path({job.model.name!r}).values()"
        is_subclass = "isinstance(each, type) and issubclass(each, CustomTask) and each is not CustomTask"
        return (
            "import torch, runpy; from engine.tasks.custom.interface import CustomTask\n"
            f"own = next(each for each in {contents} if {is_subclass})\nmodel = own().build_model({classes}, {channels})"
        )
    return f'import torch, runpy; model = runpy.run_path({job.model.name!r})["build_model"]({_score_count(job, classes)}){other}'


def _from_package(job: Job, plan: Planned) -> str:
    arguments = f"Job.from_fields(model={job.model.name!r}, options={job.options!r}), {_score_count(job, len(plan.classes))}, {plan.channels}"
    return (
        "import torch; from engine.contract.job import Job; from engine.models.registry import build_foreign\n"
        f"model = build_foreign({arguments})"
    )


def _score_count(job: Job, classes: int) -> int:
    """Return the number of scores that a model from a file or package outputs.

    Detectors also score a background class.
    """
    entry = load_catalogue().task(job.task)
    if entry is not None and entry.scores is not None:
        return entry.scores
    return classes + 1 if predictions_of(job.task) == "objects" else classes


def _detector(job: Job, plan: Planned, other: str) -> str:
    classes = len(plan.classes) + 1  # includes the background
    entry = load_catalogue().model(job.model.name)
    if entry is not None and entry.encoder:
        arguments = f"{job.model.name!r}, {job.model.encoder!r}, {classes}, {plan.channels}, {plan.image_size}"
        return f"import torch; from engine.models.pyramid_detectors import construct; model = construct({arguments})"
    arguments = f"{job.model.name!r}, weights=None, weights_backbone=None, num_classes={classes}"
    return f"import torch, torchvision; model = torchvision.models.get_model({arguments}){other}"
