"""The lines of PyTorch that load a run's best checkpoint into the plain model."""

from __future__ import annotations

from engine.contract.catalogue import load_catalogue
from engine.contract.events import Planned
from engine.contract.job import Job

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
    classes = len(plan.classes)
    other = "" if plan.channels == 3 else _OTHER_CHANNELS.format(channels=plan.channels)
    if job.model_is_file:
        scores = _SCORES.get(job.task, classes)
        return f'import torch, runpy; model = runpy.run_path({job.model!r})["build_model"]({scores}){other}'
    if job.model == "mnist_cnn":
        return (
            "import torch; from engine.tasks.mnist_cnn import MnistCnn; "
            f"model = MnistCnn({classes}, channels={plan.channels})"
        )
    entry = load_catalogue().model(job.model)
    if entry is not None and entry.encoder:
        given = f"{job.model!r}, {job.encoder!r}, encoder_weights=None, in_channels={plan.channels}, classes={classes}"
        return f"import torch, segmentation_models_pytorch as smp; model = smp.create_model({given})"
    if entry is not None and entry.task == "road_extraction":
        given = f"{job.model!r}, channels={plan.channels}"
        return f"import torch; from engine.tasks.road_models import network; model = network({given})"
    if entry is not None and entry.task == "point_segmentation":
        return (
            "import torch; from engine.tasks.pointcnn import PointCNN; "
            "from engine.tasks.point_segmentation import WIDTHS; "
            f"model = PointCNN({plan.channels}, {classes}, WIDTHS[{job.model!r}])"
        )
    more = ", aux_logits=False" if job.model in _WITHOUT_SIDE_HEADS else ""
    if job.model.startswith(_TRANSFORMERS):
        more = f", image_size={plan.image_size}"
    if entry is not None and entry.task == "segmentation":
        more = ", weights_backbone=None"
    call = f"torchvision.models.get_model({job.model!r}, num_classes={classes}{more})"
    return f"import torch, torchvision; model = {call}{other}"
