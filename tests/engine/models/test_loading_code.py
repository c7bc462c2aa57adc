"""Code that the window displays for loading a checkpoint, executed on saved checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.events import Planned
from engine.contract.job import Job
from engine.tasks.registry import TASKS
from gui.run.loading_code import loading_code

CLASSES = ("a", "b")
SIZE = 64
ALL = (
    ("detection", "fasterrcnn", 3),
    pytest.param("edge_detection", "hed_bn", 1, marks=pytest.mark.long),
    ("multilabel", "mobilenet_v3_small", 5),
    pytest.param("detection", "ssdlite320_mobilenet_v3_large", 3, marks=pytest.mark.long),
    pytest.param("instance_segmentation", "maskrcnn", 4, marks=pytest.mark.long),
    pytest.param("edge_detection", "bdcn", 3, marks=pytest.mark.long),
    ("edge_detection", "hed_encoder", 4),
    ("road_extraction", "linknet_mtl", 1),
    pytest.param("road_extraction", "hourglass_mtl", 3, marks=pytest.mark.long),
    pytest.param("point_segmentation", "pointcnn", 3, marks=pytest.mark.long),
    pytest.param("segmentation", "unet", 1, marks=pytest.mark.long),
    pytest.param("classification", "timm:vit_tiny_patch16_224", 3, marks=pytest.mark.long),
)


@pytest.mark.parametrize(("task", "model", "channels"), ALL)
def test_loading_code_builds_the_saved_model(task: str, model: str, channels: int, tmp_path: Path) -> None:
    job = Job.from_fields(task=task, model=model, image_size=SIZE, encoder="resnet18")
    trained = TASKS[task].build_model(job, len(CLASSES), channels)
    path = tmp_path / "best.pt"
    torch.save(trained.state_dict(), path)
    plan = Planned(
        epochs=1, steps_per_epoch=1, train_images=1, val_images=1, classes=CLASSES, image_size=SIZE, channels=channels,
        parameters=1, trainable_parameters=1,
    )  # fmt: skip
    given: dict[str, Any] = {}
    exec(loading_code(job, plan, str(path), "best"), given)
    loaded = given["model"].state_dict()
    assert set(loaded) == set(trained.state_dict())
    assert all(torch.equal(loaded[name], value) for name, value in trained.state_dict().items())


def test_loading_code_builds_a_custom_model(tmp_path: Path) -> None:
    file = Path(__file__).parents[3] / "resources/examples/counting.py"
    plan = Planned(
        epochs=1, steps_per_epoch=1, train_images=1, val_images=1, classes=(), image_size=SIZE, parameters=1,
        trainable_parameters=1,
    )  # fmt: skip
    code = loading_code(Job.from_fields(task="custom", model=str(file)), plan, str(tmp_path / "best.pt"), "best")
    given: dict[str, Any] = {}
    exec(code.rpartition("\n")[0], given)
    assert isinstance(given["model"], torch.nn.Module)
