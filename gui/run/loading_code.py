"""The lines of PyTorch that load a run's best checkpoint into the plain model."""

from __future__ import annotations

from collections.abc import Callable

from engine.contract.catalogue import load_catalogue
from engine.contract.events import Planned
from engine.contract.job import TIMM, Job

_TRANSFORMERS = ("vit_",)
_WITHOUT_SIDE_HEADS = ("googlenet", "inception_v3")
_SCORES = {"road_extraction": 39}
"""What a model file is built for, where that is not the number of classes: two classes and 37 of direction."""
_OTHER_CHANNELS = """
name = next(name for name, part in model.named_modules() if isinstance(part, torch.nn.Conv2d))
old = model.get_submodule(name)
first = torch.nn.Conv2d({channels}, old.out_channels, old.kernel_size, old.stride, old.padding, bias=old.bias is not None)
model.set_submodule(name, first)"""


def loading_code(job: Job, plan: Planned, path: str, kind: str) -> str:
    """Python that builds the model of `job` and loads the checkpoint at `path`.

    `kind` is "best", which holds the model's state alone, or "last", which holds what resuming needs, too.
    """
    state = f"torch.load({path!r}, weights_only=True)" + ('["model"]' if kind == "last" else "")
    return f"{_building(job, plan)}\nmodel.load_state_dict({state})"


def _building(job: Job, plan: Planned) -> str:
    """Lines that end with a `model` as the run built it, without its weights."""
    classes, channels = len(plan.classes), plan.channels
    other = "" if channels == 3 else _OTHER_CHANNELS.format(channels=channels)
    entry = load_catalogue().model(job.model)
    task = entry.task if entry is not None else job.task
    own = _OF_MODELS.get(job.model) or _OF_TASKS.get(task)
    if entry is not None and entry.package:
        own = _from_package
    if job.model_is_file:
        return _from_file(job, classes, channels, other)
    if own is not None:
        return own(job, plan)
    if task in ("detection", "instance_segmentation"):
        return _detector(job, plan, other)
    if entry is not None and entry.encoder:
        given = f"{job.model!r}, {job.encoder!r}, encoder_weights=None, in_channels={channels}, classes={classes}"
        return f"import torch, segmentation_models_pytorch as smp; model = smp.create_model({given})"
    if job.model.startswith(TIMM):
        given = f"{job.model!r}, {classes}, {channels}, {plan.image_size}"
        return f"import torch; from engine.models.timm_models import construct; model = construct({given})"
    more = ", aux_logits=False" if job.model in _WITHOUT_SIDE_HEADS else ""
    if job.model.startswith(_TRANSFORMERS):
        more = f", image_size={plan.image_size}"
    if task == "segmentation":
        more = ", weights_backbone=None"
    call = f"torchvision.models.get_model({job.model!r}, num_classes={classes}{more})"
    return f"import torch, torchvision; model = {call}{other}"


def _from_file(job: Job, classes: int, channels: int, other: str) -> str:
    task = load_catalogue().task(job.task)
    if task is not None and task.file:
        of_file = f"runpy.run_path({job.model!r}).values()"
        derived = "isinstance(each, type) and issubclass(each, OwnTask) and each is not OwnTask"
        return (
            "import torch, runpy; from engine.tasks.custom_file import OwnTask\n"
            f"own = next(each for each in {of_file} if {derived})\nmodel = own().build_model({classes}, {channels})"
        )
    return f'import torch, runpy; model = runpy.run_path({job.model!r})["build_model"]({_scores(job, classes)}){other}'


def _from_package(job: Job, plan: Planned) -> str:
    given = f"Job(model={job.model!r}, options={job.options!r}), {_scores(job, len(plan.classes))}, {plan.channels}"
    return (
        "import torch; from engine.contract.job import Job; from engine.models.registry import build_foreign\n"
        f"model = build_foreign({given})"
    )


def _scores(job: Job, classes: int) -> int:
    """How many scores a model that is not Footplate's is to give: of what a detector tells apart, the background is
    one more; of an edge there is one map.
    """
    scores = {"detection": classes + 1, "instance_segmentation": classes + 1, "edge_detection": 1}
    return (scores | _SCORES).get(job.task, classes)


def _detector(job: Job, plan: Planned, other: str) -> str:
    classes = len(plan.classes) + 1  # with the background
    entry = load_catalogue().model(job.model)
    if entry is not None and entry.encoder:
        given = f"{job.model!r}, {job.encoder!r}, {classes}, {plan.channels}, {plan.image_size}"
        return f"import torch; from engine.models.pyramid_detectors import construct; model = construct({given})"
    given = f"{job.model!r}, weights=None, weights_backbone=None, num_classes={classes}"
    return f"import torch, torchvision; model = torchvision.models.get_model({given}){other}"


def _mnist(job: Job, plan: Planned) -> str:
    given = f"{len(plan.classes)}, channels={plan.channels}"
    return f"import torch; from engine.models.networks.mnist_cnn import MnistCnn; model = MnistCnn({given})"


def _road(job: Job, plan: Planned) -> str:
    call = f"StackHourglassNetMTL(2, 37, {plan.channels})"
    if job.model == "linknet_mtl":
        call = f"LinkNetMTL({job.encoder!r}, 2, 37, {plan.channels})"
    return f"import torch; from engine.models.networks import road_networks; model = road_networks.{call}"


def _cloud(job: Job, plan: Planned) -> str:
    return (
        "import torch; from engine.models.networks.pointcnn import PointCNN; from engine.tasks.point_segmentation import WIDTHS; "
        f"model = PointCNN({plan.channels}, {len(plan.classes)}, WIDTHS[{job.model!r}])"
    )


def _edges(job: Job, plan: Planned) -> str:
    if job.model == "hed_encoder":
        call = f"HedOnEncoder({job.encoder!r}, {plan.channels})"
        return f"import torch; from engine.models.networks.hed import HedOnEncoder; model = {call}"
    file, _, norm = job.model.partition("_")
    made = f"{file.capitalize()}({'batch_norm=True' if norm else ''})"
    other = "" if plan.channels == 3 else _OTHER_CHANNELS.format(channels=plan.channels)
    return f"import torch; from engine.models.networks.{file} import {file.capitalize()}; model = {made}{other}"


_OF_MODELS: dict[str, Callable[[Job, Planned], str]] = {"mnist_cnn": _mnist}
_OF_TASKS: dict[str, Callable[[Job, Planned], str]] = {
    "road_extraction": _road,
    "point_segmentation": _cloud,
    "edge_detection": _edges,
}
"""What builds a model of a task's own networks."""
