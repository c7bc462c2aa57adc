"""Conversion of detectors whose scores are randomized, because brief training finds no objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import onnxruntime
import pytest
import torch
from msgspec.structs import replace

from engine.contract.inference.conversion import TOLERANCE, Difference, OnnxOptions
from engine.contract.job import Job
from engine.inference.conversion.comparison import compare_detections, get_max_detections, is_equivalent
from engine.inference.conversion.exportable import prepare_for_export
from engine.inference.conversion.failure import suppress_output
from engine.tasks.registry import TASKS
from tests.support.plain_models import make_trained_model


@torch.no_grad()
def spread_scores(model: Any, images: torch.Tensor) -> None:
    """Change the weights of a detector's last layers in place, so that scores differ from box to box.

    For detectors without a region proposal network, the scores of `images` determine the scale of the change.
    """
    if hasattr(model, "rpn"):
        for parameter_name, values in model.named_parameters():
            if values.dim() > 1 and ("predictor" in parameter_name or "rpn.head" in parameter_name):
                values.copy_(torch.randn_like(values) * 0.05)
        return
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    model.train().head(list(model.backbone(images).values()))  # sets the statistics of BatchNorm
    model.eval()
    spread = float(model.head(list(model.backbone(images).values()))["cls_logits"].std())
    for parameter_name, values in model.head.classification_head.named_parameters():
        is_depthwise = values.dim() > 1 and values.shape[1] == 1
        if (
            values.dim() > 1
            and not is_depthwise
            and ("cls_logits" in parameter_name or "module_list" in parameter_name)
        ):
            values.mul_(1.5 / spread)
        elif "cls_logits" in parameter_name:
            values.fill_(-2.0)


def create_detector(task: str, name: str, size: int, channels: int = 3) -> tuple[Any, torch.Tensor]:
    """Return an untrained detector for three classes whose scores differ, and three random images of `size` pixels.

    `name` is a model of the task `task`. `channels` is the number of channels of the images.
    """
    torch.manual_seed(0)
    job = Job.from_fields(task=task, model=name, encoder="resnet18", image_size=size)
    model = TASKS[task].build_model(job, 3, channels).eval()
    images = torch.randn(3, channels, size, size)
    spread_scores(model, images)
    return model, images


def test_rounding_may_change_a_few_detections() -> None:
    module, _ = create_detector("detection", "fasterrcnn", 64)
    model = Mock(module=module, task=TASKS["detection"])
    limit = get_max_detections(model)
    assert limit == module.max_detections == 100
    within = Difference(batch_size=1, difference=0.0, largest_output=1.0, unmatched=2)
    other = Difference(batch_size=3, difference=TOLERANCE * 5, largest_output=5.0, unmatched=6)
    small = Difference(batch_size=1, difference=TOLERANCE, largest_output=0.5)
    assert is_equivalent((within, other, small), limit)
    for wrong in (replace(within, unmatched=3), replace(other, unmatched=7), replace(other, largest_output=4.9)):
        assert not is_equivalent((within, wrong), limit)


def test_detections_are_compared_with_the_nearest() -> None:
    expected, actual = torch.zeros(3, 3, 6), torch.zeros(3, 3, 6)
    expected[0] = torch.tensor([[0.0, 0, 32, 64, 0.75, 1], [8, 8, 16, 16, 0.5, 2], [0, 0, 4, 4, 0.25, 0]])
    # Moved by 1/2048 of the side; of another class; moved by 1/16 of the side; added.
    actual[0] = torch.tensor([[8.0, 8, 16, 16, 0.5, 1], [0, 0, 32, 64.03125, 0.75, 1], [0, 0, 4, 8, 0.25, 0]])
    actual[1, 0] = torch.tensor([1.0, 1, 2, 2, 0.5, 0])
    expected[2, 0] = actual[2, 0] = torch.tensor([1.0, 1, 2, 2, 0.5, 0])
    found = compare_detections(expected, actual, 64)
    assert found == Difference(batch_size=3, difference=1 / 2048, largest_output=1.0, unmatched=5)
    assert compare_detections(actual[1:], expected[1:], 64).unmatched == 1


def test_mask_of_selected_boxes_leaves_out_rejected_ones() -> None:
    from engine.inference.conversion.static_detectors import TRANSLATIONS, nms_mask

    boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30], [1, 1, 10, 10], [40, 40, 50, 50]]).repeat(2, 1, 1)
    scores = torch.tensor([[0.9, -1, 0.8, 0.1], [0.7, 0.2, 0.8, -1]])
    expected = [[True, False, False, True], [False, True, True, False]]
    assert nms_mask(boxes, scores, 0.5).tolist() == expected
    in_onnx = TRANSLATIONS[torch.ops.footplate.nms_mask.default]
    assert in_onnx(boxes.numpy(), scores.numpy(), 0.5).value.tolist() == expected


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "size", "channels", "threshold"),
    [
        ("maskrcnn", 64, 3, 0.44),
        ("retinanet", 64, 3, 0.5),
        ("fcos", 64, 1, 0.4),
        ("ssdlite320_mobilenet_v3_large", 128, 3, 0.5),
    ],
)
def test_static_detector_matches_the_model(name: str, size: int, channels: int, threshold: float) -> None:
    task = "instance_segmentation" if name == "maskrcnn" else "detection"
    model, images = create_detector(task, name, size, channels)
    trained = make_trained_model(task, model, channels=channels, size=size)
    static = prepare_for_export(trained, OnnxOptions(preprocessing=False)).module
    getattr(model, "roi_heads", model).score_thresh = threshold
    expected = model(images[:2])
    has_object = expected[..., 4] > 0
    assert has_object.sum() >= 100
    assert not has_object.all()
    compared = compare_detections(expected, static(images[:2]), size)
    assert compared.difference < 1e-4
    assert compared.unmatched <= 2  # rounding


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("task", "name", "size"),
    [
        ("detection", "retinanet_resnet50_fpn", 128),
        ("detection", "ssd300_vgg16", 300),
        ("detection", "fcos", 128),
        ("instance_segmentation", "maskrcnn", 128),
    ],
)
def test_converted_detector_matches_the_model(task: str, name: str, size: int, tmp_path: Path) -> None:
    from engine.inference.conversion.static_detectors import TRANSLATIONS, create_static_detector

    model, images = create_detector(task, name, size)
    static = create_static_detector(model, 3, size)
    assert static is not None
    with suppress_output():
        program = torch.onnx.export(
            static,
            (images[:2],),
            dynamo=True,
            dynamic_shapes=({0: "batch"},),
            custom_translation_table=TRANSLATIONS,
            verbose=False,
        )
    assert program is not None
    program.save(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for count in (1, 3):
        with torch.no_grad():
            expected = model(images[:count])
        (found,) = session.run(None, {session.get_inputs()[0].name: images[:count].numpy()})
        assert (expected[..., 4] > 0).sum() >= 100 * count
        compared = compare_detections(expected, torch.from_numpy(found), size)
        assert compared.difference < 1e-4
        assert not compared.unmatched
