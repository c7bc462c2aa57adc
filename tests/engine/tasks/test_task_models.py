"""Behavior that all models for images and points share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from engine.contract.job import Job
from engine.models.base import TaskError
from engine.models.encoders import IMAGENET
from engine.tasks.registry import TASKS
from tests.support.consent import permit_model_file
from tests.support.dataset_infos import make_dataset_info
from tests.support.encoders import compute_deepest_features, make_classifier

EDGES, ROADS, MASKS = "edge_detection", "road_extraction", "segmentation"
BOXES, INSTANCES, POINTS = "detection", "instance_segmentation", "point_segmentation"
SMALL = {"encoder": "resnet18", "image_size": 64, "points": 64}
ON_ENCODER = [(EDGES, "hed_encoder"), (ROADS, "linknet_mtl")]


def job(task: str, **fields: Any) -> Job:
    return Job.from_fields(**(SMALL | {"task": task} | fields))


def build(given: Job, channels: int = 3) -> nn.Module:
    return TASKS[given.task].build_model(given, 3, channels)


@pytest.mark.parametrize(
    ("task", "fields", "field", "message"),
    [
        (EDGES, {"model": "hedd"}, "model", "Did you mean “hed”"),
        (EDGES, {"model": "hed", "image_size": 16}, "image_size", "Set 32 or more"),
        (EDGES, {"model": "hed_encoder", "image_size": 100}, "image_size", "Set 96"),
        (EDGES, {"model": "hed_encoder", "encoder": "resnet35"}, "encoder", "no encoder “resnet35”"),
        (ROADS, {"model": "linknet34_mtl"}, "model", "Did you mean “linknet_mtl”"),
        (ROADS, {"model": "linknet_mtl", "encoder": "resnet35"}, "encoder", "no encoder “resnet35”"),
        (ROADS, {"model": "linknet_mtl", "image_size": 100}, "image_size", "Set 96"),
        (ROADS, {"model": "hourglass_mtl", "image_size": 100}, "image_size", "Set 96"),
        (ROADS, {"model": "hourglass_mtl", "pretrained": True}, "pretrained", "no pretrained weights"),
        (ROADS, {"model": "hourglass_mtl", "freeze_epochs": 100}, "freeze_epochs", "has no pretrained backbone"),
        (MASKS, {"model": "unett"}, "model", "Did you mean “unet”"),
        (MASKS, {"model": "unet", "encoder": "resnet43"}, "encoder", "There is no encoder “resnet43”"),
        (MASKS, {"model": "unet", "image_size": 100}, "image_size", "Set 96"),
        (BOXES, {"model": "fasterrcnn_resnet50_fp"}, "model", "Did you mean “fasterrcnn_resnet50_fpn”"),
        (BOXES, {"model": "ssd300_vgg16"}, "image_size", "Set 300 or more"),
        (BOXES, {"model": "fasterrcnn", "encoder": "resnet19"}, "encoder", "Did you mean “resnet1"),
        (BOXES, {"model": "fcos", "image_size": 80}, "image_size", "multiple of 32 px"),
        (INSTANCES, {"model": "maskrcnn", "encoder": "tu-vit_tiny_patch16_224"}, "encoder", "can't use"),
        (INSTANCES, {"model": "maskrcnn", "encoder": "vgg11", "pretrained": True}, "pretrained", "of the encoder vgg11"),
        (POINTS, {"model": "pointcnn_1"}, "model", "Did you mean “pointcnn_x1”"),
        (POINTS, {"model": "pointcnn_x1", "pretrained": True}, "pretrained", "no pretrained weights for point clouds"),
    ],
)  # fmt: skip
def test_unbuildable_model_is_a_field_problem(task: str, fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(TaskError) as error:
        build(job(task, **fields))
    assert error.value.field == field
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("task", "model", "channels"),
    [
        (EDGES, "hed", 1),
        (MASKS, "lraspp_mobilenet_v3_large", 1),
        (BOXES, "ssdlite320_mobilenet_v3_large", 3),
        (POINTS, "pointcnn_x1", 6),
    ],
)
def test_fresh_weights_depend_on_the_seed_alone(task: str, model: str, channels: int) -> None:
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(build(job(task, model=model), channels).state_dict())
    one, other = states
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    convolutions = [tensor for tensor in one.values() if tensor.dim() == 4]
    assert [each.shape[1] for each in convolutions[:1]] == ([] if task == POINTS else [channels])


@pytest.mark.parametrize("encoder", ["resnet18", "tu-convnext_atto"])
@pytest.mark.parametrize(("task", "model"), ON_ENCODER)
def test_model_loads_the_weights_of_its_encoder(task: str, model: str, encoder: str, tmp_path: Path) -> None:
    classifier = make_classifier(encoder).eval()
    path = tmp_path / ("encoder.pth" if task == EDGES else "encoder.safetensors")
    (torch.save if task == EDGES else save_file)(classifier.state_dict(), path)
    loaded = build(job(task, model=model, encoder=encoder, weights_file=str(path))).get_submodule("encoder").eval()
    inputs = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(loaded(inputs)[-1], compute_deepest_features(classifier, inputs))


@pytest.mark.parametrize(("task", "model"), ON_ENCODER)
def test_model_on_encoder_loads_a_file_of_the_full_model(task: str, model: str, tmp_path: Path) -> None:
    trained = build(job(task, model=model, seed=1)).state_dict()
    torch.save(trained, tmp_path / "best.pt")
    loaded = build(job(task, model=model, weights_file=str(tmp_path / "best.pt"))).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in trained.items())


@pytest.mark.parametrize(
    ("task", "model", "other"),
    [(*ON_ENCODER[0], "hed"), (*ON_ENCODER[1], "hourglass_mtl"), (BOXES, "fcos", "fcos_resnet50_fpn")],
)
def test_normalization_follows_the_encoder_of_models_that_have_one(task: str, model: str, other: str) -> None:
    lite = job(task, model=model, encoder="tu-tf_efficientnet_lite0")
    for channels in (1, 3, 5):
        assert TASKS[task].get_normalization(lite, channels) == ((0.5,) * channels, (0.5,) * channels)
    assert TASKS[task].get_normalization(lite.with_fields(model=other), 3) == IMAGENET


def test_normalization_of_ssd_follows_its_weights() -> None:
    means, deviations = TASKS[BOXES].get_normalization(job(BOXES, model="ssd300_vgg16"), 3)
    assert [255 * each for each in (*means, *deviations)] == pytest.approx([123, 117, 104, 1, 1, 1], abs=0.01)


def test_normalization_of_a_model_for_gray_images_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = ((0.3,), (0.2,))
    monkeypatch.setattr(type(TASKS[MASKS]), "get_statistics", lambda self, job: statistics)
    assert TASKS[MASKS].get_normalization(job(MASKS), 1) == statistics


@pytest.mark.parametrize(
    ("task", "valid", "invalid", "message"),
    [
        (EDGES, "Conv2d(3, n, 3, padding=1)", "Conv2d(3, n, 3)", r"expected a tensor of \[2, 1, 64, 64\]"),
        (ROADS, "Conv2d(3, n, 3, padding=1)", "Conv2d(3, n, 3)", "2 scores for background and line and 37 for the"),
        (MASKS, "Sequential(nn.Conv2d(3, n, 1))", "Sequential(nn.Conv2d(3, n, 3))", r"\[2, 3, 62, 62\]; .*\[2, 3, 64, 64\]"),
        (POINTS, "Conv1d(3, n, 1)", "Conv1d(3, n, 3)", r"returns a tensor of \[2, 3, 62\]; expected a tensor of \[2, 3, 64\]"),
    ],
)  # fmt: skip
def test_model_file_is_validated_and_learns(tmp_path: Path, task: str, valid: str, invalid: str, message: str) -> None:
    def given(layer: str) -> Job:
        path = tmp_path / "own.py"
        path.write_text(f"from torch import nn\n\ndef build_model(n):\n    return nn.{layer}\n")
        return job(task, model=str(path), model_file_sha256=permit_model_file(path))

    valid_job, channels = given(valid), 1 if task == MASKS else 3
    objective = TASKS[task].create_objective(valid_job, make_dataset_info(3))
    inputs = torch.rand(2, *TASKS[task].get_example_shape(valid_job, channels))
    assert objective.loss(build(valid_job, channels)(inputs), objective.create_blank_targets(inputs)).shape == (2,)
    if task in (EDGES, POINTS):
        with pytest.raises(TaskError, match=r"no module named head|can't determine the head"):
            build(valid_job.with_fields(freeze_epochs=1), channels)
    with pytest.raises(TaskError, match=message):
        build(given(invalid), channels)
