"""Detectors: targets, losses and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from engine.contract.job import Job
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.drawing import draw_boxes
from engine.models import pyramid_detectors
from engine.models.base import TaskError
from engine.models.detection_models import to_current_names
from engine.models.meta_device import build_on_meta
from engine.models.torchvision_detectors import (
    convert_box_targets,
    convert_instance_targets,
    convert_to_tensor_detector,
    split_instances,
)
from engine.parallel.split_points import CannotSplit
from engine.strategies.pipelining.model_split import find_split_points
from engine.tasks.base import DatasetInfo
from engine.tasks.registry import TASKS
from tests.support.consent import permit_model_file
from tests.support.metrics import compute_on_ranks

BOXES, MASKS = TASKS["detection"], TASKS["instance_segmentation"]
CLASSES = ("disc", "bar", "ring")
ENCODER = "tu-mobilenetv3_small_050"
FROZEN = "fasterrcnn_mobilenet_v3_large_320_fpn"


def job(**fields: Any) -> Job:
    return Job.from_fields(**({"task": "detection", "image_size": 64, "encoder": ENCODER} | fields))


def make_target_boxes() -> Tensor:
    """Return the target boxes of two images. The first image has an ignored box, the second has no boxes."""
    filling = [0.0, 0, 0, 0, -1, 0]
    first = [[4.0, 6, 30, 40, 2, 0], [1, 1, 9, 9, 0, 1], [20, 20, 60, 50, 1, 0], filling]
    return torch.tensor([first, [filling] * 4])


def make_masks() -> Tensor:
    """Return masks for two images: the boxes of `make_target_boxes` that aren't ignored, and an unlabeled object."""
    made = torch.zeros(2, 2, 64, 64, dtype=torch.int64)
    made[:, 1] = NO_CLASS
    made[0, :, 6:40, 4:30] = torch.tensor([7, 2])[:, None, None]
    made[0, :, 20:50, 20:60] = torch.tensor([9, 1])[:, None, None]
    made[1, 0, 2:22, 3:28] = 1
    return made


def make_perfect_outputs(true: list[tuple[list[float], int]], masks: Tensor | None = None) -> Tensor:
    """Return the outputs of a perfect detector for one image with the objects `true`: pairs (box, class).

    They have room for eight detections. `masks` are the masks of the objects, if the task has masks.
    """
    found = torch.zeros(1, 8, 6 if masks is None else 6 + 28 * 28)
    found[..., 4] = -1
    for number, (box, of_class) in enumerate(true):
        found[0, number, :6] = torch.tensor([*box, 0.9 - number / 10, of_class])
        if masks is not None:
            found[0, number, 6:] = masks[number].flatten()
    return found


def test_detector_targets_skip_ignored_and_padding() -> None:
    first, second = convert_box_targets(make_target_boxes())
    assert first["boxes"].tolist() == [[4, 6, 30, 40], [20, 20, 60, 50]]
    assert first["labels"].tolist() == [3, 2]
    assert second["boxes"].shape == (0, 4)


def test_objects_have_boxes_of_their_pixels() -> None:
    first, second = convert_instance_targets(make_masks())
    assert first["boxes"].tolist() == [[4, 6, 30, 40], [20, 20, 60, 50]]
    assert first["labels"].tolist() == [3, 2]
    assert first["masks"].shape == (2, 64, 64)
    assert first["masks"].sum((1, 2)).tolist() == [34 * 26 - 20 * 10, 30 * 40]
    assert len(second["labels"]) == 0
    ignored = split_instances(make_masks()[1])
    assert ignored.boxes.tolist() == [[3, 2, 28, 22]]
    assert ignored.ignored.tolist() == [True]
    assert split_instances(torch.zeros(2, 8, 8, dtype=torch.int64)).masks.shape == (0, 8, 8)


@pytest.mark.parametrize("task", [BOXES, MASKS])
def test_detector_returns_losses_then_detections(task: Any) -> None:
    name = task.entry.id
    model = task.build_model(job(task=name, model=task.entry.model), len(CLASSES), 3)
    objective = task.create_objective(job(task=name), DatasetInfo(CLASSES))
    inputs = torch.randn(2, 3, 64, 64)
    for targets in (
        make_target_boxes() if name == "detection" else make_masks(),
        objective.create_blank_targets(inputs),
    ):
        losses = objective.loss(model(inputs, targets), targets)
        assert losses.shape == (2,)
        assert losses[0] == losses[1] > 0
    losses.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.roi_heads.detections_per_img = 5
    with torch.no_grad():
        found = model.eval()(inputs)
    assert found.shape == (2, 100, 6 if name == "detection" else 6 + 28 * 28)
    detections = found[found[..., 4] >= 0]
    assert len(detections) == 10
    assert (detections[:, 2:4] >= detections[:, :2]).all()
    assert (detections[:, 5] < len(CLASSES)).all()
    assert (found[..., 4][found[..., 4] < 0] == -1).all()


def test_detector_state_loads_in_torchvision() -> None:
    footplate_model = BOXES.build_model(job(model="ssdlite320_mobilenet_v3_large"), 3, 3).eval()
    plain = torchvision.models.get_model(
        "ssdlite320_mobilenet_v3_large", weights=None, weights_backbone=None, num_classes=4,
        image_mean=(0, 0, 0), image_std=(1, 1, 1),
    )  # fmt: skip
    plain.load_state_dict(footplate_model.state_dict())
    plain.transform.fixed_size = (64, 64)
    inputs = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        found, theirs = footplate_model(inputs), plain.eval()(list(inputs))
    for each, expected in zip(found, theirs, strict=True):
        count = len(expected["boxes"])
        assert count > 0
        torch.testing.assert_close(each[:count, :4], expected["boxes"])
        torch.testing.assert_close(each[:count, 4], expected["scores"])
        assert (each[:count, 5] + 1).tolist() == expected["labels"].tolist()
        assert (each[count:, 4] == -1).all()


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn"])
def test_boxes_stay_in_fp32_under_bf16(name: str) -> None:
    model = BOXES.build_model(job(model=name), 3, 3).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        boxes = model(torch.randn(2, 3, 64, 64))[..., :4]
    assert boxes.dtype == torch.float32
    assert (boxes != boxes.bfloat16().float()).any()


@pytest.mark.parametrize("channels", [1, 5])
def test_detectors_accept_other_channels(channels: int) -> None:
    model = BOXES.build_model(job(model="ssdlite320_mobilenet_v3_large"), 3, channels)
    assert model(torch.randn(2, channels, 64, 64), make_target_boxes()).isfinite().all()


def test_detector_on_encoder_normalizes_other_channels_by_the_average() -> None:
    model: Any = build_on_meta(lambda: pyramid_detectors.construct("retinanet", "resnet18", 3, 2, 64))
    assert (model.transform.min_size, model.transform.max_size) == ((64,), 64)
    assert model.transform.image_mean == pytest.approx([(0.485 + 0.456 + 0.406) / 3] * 2)
    assert model.transform.image_std == pytest.approx([(0.229 + 0.224 + 0.225) / 3] * 2)


@pytest.mark.parametrize(("size", "proposals"), [(64, 128), (416, 138), (800, 512), (1600, 512)])
def test_small_images_use_fewer_proposals(size: int, proposals: int) -> None:
    for name in ("fasterrcnn", FROZEN):
        model: Any = build_on_meta(lambda name=name: BOXES.build_model(job(model=name, image_size=size), 3, 3))
        assert model.roi_heads.fg_bg_sampler.batch_size_per_image == proposals


@pytest.mark.parametrize(
    ("name", "strides", "anchors"),
    [
        ("fasterrcnn", [8, 16, 32, 64], [8, 8 * 2**0.5]),
        ("maskrcnn", [4, 8, 16, 32, 64], [4, 4 * 2**0.5]),
        ("retinanet", [8, 16, 32, 64, 128], [8, 8 * 2 ** (1 / 3), 8 * 2 ** (2 / 3)]),
        ("fcos", [8, 16, 32, 64, 128], [8]),
    ],
)
def test_pyramids_of_detectors_begin_at_their_stride(name: str, strides: list[int], anchors: list[float]) -> None:
    model: Any = build_on_meta(lambda: pyramid_detectors.construct(name, "resnet18", 1 + len(CLASSES), 3, 200))
    levels = model.backbone(torch.zeros(1, 3, 256, 256, device="meta")).values()
    assert [256 // level.shape[-1] for level in levels] == strides
    assert {level.shape[1] for level in levels} == {128}
    generator = model.rpn.anchor_generator if "rcnn" in name else model.anchor_generator
    assert generator.sizes[0] == pytest.approx(anchors)
    if "rcnn" in name:
        pooler = model.roi_heads.box_roi_pool
        assert (pooler.featmap_names, pooler.output_size) == (["0", "1", "2", "3"][: len(strides) - 1], (7, 7))
        assert model.roi_heads.box_predictor.cls_score.out_features == 1 + len(CLASSES)
        tops = [model.rpn._pre_nms_top_n, model.rpn._post_nms_top_n]
        assert [(top["training"], top["testing"]) for top in tops] == [(1000, 1000), (1000, 300)]
    if name == "maskrcnn":
        assert model.roi_heads.mask_predictor.mask_fcn_logits.out_channels == 1 + len(CLASSES)


def test_detectors_cannot_be_split() -> None:
    model = BOXES.build_model(job(model="ssdlite320_mobilenet_v3_large"), 3, 3)
    with pytest.raises(CannotSplit, match="the boxes that it processes depend on the image"):
        find_split_points(model)


def test_pretrained_weights_load_without_the_head(tmp_path: Path) -> None:
    before = BOXES.build_model(job(model=FROZEN), 5, 3)
    torch.save(before.state_dict(), tmp_path / "weights.pt")
    given = job(model=FROZEN, weights_file=str(tmp_path / "weights.pt"), freeze_epochs=100, seed=8)
    after = BOXES.build_model(given, 3, 3)
    old, new = before.state_dict(), after.state_dict()
    unchanged = {name for name, tensor in new.items() if torch.equal(tensor, old[name])}
    assert {name for name in new if name.startswith("backbone.")} <= unchanged
    assert "roi_heads.box_head.fc6.weight" in unchanged
    assert "roi_heads.box_predictor.cls_score.weight" not in unchanged
    assert not [module for module in after.backbone.body.modules() if isinstance(module, nn.BatchNorm2d)]
    trained = {name.split(".")[0] + "." + name.split(".")[1] for name, p in after.named_parameters() if p.requires_grad}
    assert trained == {"backbone.fpn", "rpn.head", "roi_heads.box_head", "roi_heads.box_predictor"}


@pytest.mark.parametrize("name", pyramid_detectors.KINDS)
def test_detector_on_encoder_works_as_plain_torchvision_model(name: str) -> None:
    """Check that the model works without Footplate: it normalizes images and returns torchvision's dicts."""
    task = MASKS if name == "maskrcnn" else BOXES
    trained = task.build_model(job(task=task.entry.id, model=name), len(CLASSES), 3).eval()
    plain = pyramid_detectors.construct(name, ENCODER, 1 + len(CLASSES), 3, 64).eval()
    plain.load_state_dict(trained.state_dict())
    for detector in (trained, plain):
        getattr(detector, "roi_heads", detector).score_thresh = 0.0
    mean, std = (torch.tensor(values)[:, None, None] for values in task.get_normalization(job(model=name), 3))
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        outputs, expected = trained((images - mean) / std), plain(list(images))
    for output, detections in zip(outputs, expected, strict=True):
        count = len(detections["boxes"])
        assert count > 0
        torch.testing.assert_close(output[:count, :4], detections["boxes"])
        torch.testing.assert_close(output[:count, 4], detections["scores"])


@pytest.mark.parametrize("encoder", ["resnet18", ENCODER])
def test_detector_on_encoder_loads_encoder_weights(encoder: str, tmp_path: Path) -> None:
    name = encoder.removeprefix("tu-")
    classifier = timm.create_model(name) if name != encoder else torchvision.models.get_model(name)
    torch.save(classifier.state_dict(), tmp_path / "weights.pt")
    given = job(model="fasterrcnn", encoder=encoder, weights_file=str(tmp_path / "weights.pt"))
    state = BOXES.build_model(given, 3, 3).state_dict()
    body = {name.removeprefix("backbone.body.").removeprefix("model."): tensor for name, tensor in state.items()}
    loaded = body.keys() & classifier.state_dict().keys()
    assert len(loaded) > 100
    assert all(torch.equal(body[name], classifier.state_dict()[name]) for name in loaded)


@pytest.mark.parametrize("name", ["fcos", "fasterrcnn", FROZEN])
def test_detector_loads_full_weights_except_heads_of_other_classes(name: str, tmp_path: Path) -> None:
    before = BOXES.build_model(job(model=name), 5, 3).state_dict()
    before = {name: tensor + 0.5 if tensor.is_floating_point() else tensor for name, tensor in before.items()}
    torch.save(before, tmp_path / "weights.pt")
    given = job(model=name, weights_file=str(tmp_path / "weights.pt"), seed=8)
    model = BOXES.build_model(given, 3, 3)
    after = model.state_dict()
    changed = {name.rpartition(".")[0] for name, tensor in after.items() if not tensor.equal(before[name])}
    predictors = {"roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred"}
    assert changed == (predictors if name != "fcos" else {"head.classification_head.cls_logits"})
    assert any(isinstance(each, FrozenBatchNorm2d) for each in model.modules()) == (name == FROZEN)


@pytest.mark.parametrize("size", [64, 96, 160])
@pytest.mark.parametrize("name", ["fasterrcnn", "maskrcnn", "retinanet"])
def test_anchors_of_small_images_have_areas(name: str, size: int) -> None:
    plain: Any = pyramid_detectors.construct(name, ENCODER, 2, 3, size)
    generator = plain.anchor_generator if name == "retinanet" else plain.rpn.anchor_generator
    for anchors in generator.cell_anchors:
        assert (anchors[:, 2:] > anchors[:, :2]).all()


def test_anchors_scale_with_image_size() -> None:
    sides = {}
    for size in (320, 640):
        model: Any = build_on_meta(lambda size=size: BOXES.build_model(job(model="fasterrcnn", image_size=size), 3, 3))
        sides[size] = torch.tensor(model.rpn.anchor_generator.sizes)
    torch.testing.assert_close(sides[640], 2 * sides[320])
    assert sides[320].min() == pytest.approx(12.8)


@pytest.mark.parametrize(
    ("name", "old"),
    [
        (
            "maskrcnn_resnet50_fpn",
            {
                "backbone.fpn.inner_blocks.0.0.weight": "backbone.fpn.inner_blocks.0.weight",
                "backbone.fpn.layer_blocks.3.0.bias": "backbone.fpn.layer_blocks.3.bias",
                "rpn.head.conv.0.0.weight": "rpn.head.conv.weight",
                "roi_heads.mask_head.1.0.weight": "roi_heads.mask_head.mask_fcn2.weight",
            },
        ),
        (
            "retinanet_resnet50_fpn",
            {"head.regression_head.conv.2.0.bias": "head.regression_head.conv.4.bias"},
        ),
        ("fcos_resnet50_fpn", {}),
    ],
)
def test_older_weight_names_are_converted(name: str, old: dict[str, str]) -> None:
    plain = build_on_meta(lambda: torchvision.models.get_model(name, weights=None, weights_backbone=None))
    today = dict(plain.state_dict())
    assert old.keys() <= today.keys()
    older = {old.get(each, each): tensor for each, tensor in today.items()}
    assert to_current_names(older, retinanet="retinanet" in name).keys() == today.keys()


CUSTOM_MODEL = """
from torchvision.models import get_model
from torch import nn

def build_model(num_classes):
    return {made}
"""


def test_model_file_may_return_a_detector(tmp_path: Path) -> None:
    def built(made: str) -> nn.Module:
        text = CUSTOM_MODEL.format(made=made)
        (tmp_path / "own.py").write_text(text)
        trusted = permit_model_file(tmp_path / "own.py")
        return BOXES.build_model(job(model=str(tmp_path / "own.py"), model_file_sha256=trusted), 3, 3)

    mine = built(
        "get_model('ssdlite320_mobilenet_v3_large', weights_backbone=None, num_classes=num_classes, detections_per_img=7)"
    )
    assert mine.eval()(torch.zeros(2, 3, 64, 64)).shape == (2, 7, 6)
    with pytest.raises(TaskError, match=r"lacks the structure of torchvision's detectors"):
        built("nn.Conv2d(3, num_classes, 3)")


def test_model_file_with_a_detector_loads_weights_and_freezes_the_backbone(tmp_path: Path) -> None:
    made = "get_model('fasterrcnn_mobilenet_v3_large_320_fpn', weights_backbone=None, num_classes=num_classes)"
    (tmp_path / "own.py").write_text(CUSTOM_MODEL.format(made=made))
    fields = {"model": str(tmp_path / "own.py"), "model_file_sha256": permit_model_file(tmp_path / "own.py")}
    before = BOXES.build_model(job(**fields), 5, 3).state_dict()
    torch.save(before, tmp_path / "weights.pt")
    given = job(**fields, weights_file=str(tmp_path / "weights.pt"), freeze_epochs=100, seed=8)
    after = BOXES.build_model(given, 3, 3)
    changed = {name.rpartition(".")[0] for name, tensor in after.state_dict().items() if not tensor.equal(before[name])}
    assert changed == {"roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred"}
    trained = {".".join(name.split(".")[:2]) for name, each in after.named_parameters() if each.requires_grad}
    assert trained == {"backbone.fpn", "rpn.head", "roi_heads.box_head", "roi_heads.box_predictor"}


@pytest.mark.parametrize("ranks", [1, 3])
def test_detection_metrics_are_independent_of_the_partition(ranks: int) -> None:
    objective = BOXES.create_objective(job(), DatasetInfo(CLASSES))
    targets = torch.cat([make_target_boxes(), make_target_boxes()[:1]])
    right = [([4.0, 6, 30, 40], 2), ([20.0, 20, 60, 50], 1)]
    shifted = [([4.0, 15, 30, 40], 2), ([2.0, 2, 8, 8], 0), ([20.0, 20, 60, 50], 2)]
    outputs = torch.cat([make_perfect_outputs(right), make_perfect_outputs(right[:1]), make_perfect_outputs(shifted)])
    total: Any = compute_on_ranks(objective, outputs, targets, ranks)
    found = total.compute()
    assert found.keys() == {measure.id for measure in BOXES.entry.metrics}
    # Class 1 is found in one of its two places (51 of 101 recalls have a precision); class 2 in the first image with a score
    # of 0.9, wrongly in the second with the same, and in the third with an overlap of 25 / 34; class 0 has only an ignored one.
    assert total.per_class()["AP50"] == (None, pytest.approx(51 / 101), pytest.approx((51 + 50 * 2 / 3) / 101))
    assert found["ap50"] == pytest.approx(np.mean([51 / 101, (51 + 50 * 2 / 3) / 101]))
    assert found["ap75"] == pytest.approx(51 / 101)
    all_thresholds = (51 + 50 / 3) / 101  # the mean over five thresholds with the third detection, and five without it
    assert total.per_class()["AP"] == (None, pytest.approx(51 / 101), pytest.approx(all_thresholds))
    assert found["map"] == pytest.approx(np.mean([51 / 101, all_thresholds]))
    crowd, in_crowd = make_target_boxes()[:1], objective.create_metric()
    crowd[0, 1] = torch.tensor([0, 40, 40, 64, 2, 1])
    in_crowd.update(make_perfect_outputs([([2.0, 42, 10, 50], 2), *right]), crowd)
    assert in_crowd.compute()["ap50"] == pytest.approx(1), "a small detection in an ignored object doesn't count"
    without_objects = objective.create_metric()
    assert without_objects.compute() == {}
    without_objects.update(outputs[1:2], targets[1:2])
    assert without_objects.compute() == {"map": 0, "ap50": 0, "ap75": 0}


def test_blank_masks_have_an_object_in_the_middle() -> None:
    numbers, classes = (
        MASKS.create_objective(job(), DatasetInfo(CLASSES)).create_blank_targets(torch.zeros(2, 3, 64, 48)).unbind(1)
    )
    expected = torch.zeros(2, 64, 48, dtype=torch.int64)
    expected[:, 16:48, 12:36] = 1
    assert torch.equal(numbers, expected)
    assert torch.equal(classes, torch.where(expected > 0, 0, NO_CLASS))


def test_masks_and_boxes_are_matched_separately() -> None:
    objective = MASKS.create_objective(job(), DatasetInfo(CLASSES))
    targets = make_masks()[:1, :, :56]  # wider than high
    boxes = [([4.0, 6, 30, 40], 2), ([20.0, 20, 60, 50], 1)]
    full = torch.ones(2, 28, 28)
    half = full.clone()
    half[1, 14:] = 0
    for masks, expected in ((full, 1.0), (half, 0.5)):
        measures = objective.create_metric()
        measures.update(make_perfect_outputs(boxes, masks=masks), targets)
        assert measures.compute()["mask_ap50"] == pytest.approx(expected)
        assert measures.compute()["box_map"] == pytest.approx(1)
        assert measures.per_class()["Mask AP50"] == (None, pytest.approx(2 * expected - 1), pytest.approx(1))
    by_size: Any = objective.create_analysis(CLASSES).create_metrics(1.2)["objects"]
    # With 684 and 1,200 visible pixels, that is, 985 and 1,728 pixels of the file.
    by_size.update(make_perfect_outputs(boxes, masks=full), targets)
    assert by_size.counters[2:].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert {size: by_size.compute()[f"ap50_{size}"] for size in ("small", "medium")} == pytest.approx(
        {"small": 1, "medium": 1}
    )


def test_detections_in_ignored_objects_do_not_count() -> None:
    objective = MASKS.create_objective(job(), DatasetInfo(CLASSES))
    masks = torch.ones(3, 28, 28)
    here = [([4.0, 6, 30, 40], 2), ([20.0, 20, 60, 50], 1)]
    measures = objective.create_metric()
    measures.update(make_perfect_outputs(here, masks=masks), make_masks()[:1])
    # Small parts of the ignored object with the highest scores. If they counted as wrong, they would lower the precision.
    detections = make_perfect_outputs(
        [([4.0, 3, 12, 10], 2), ([14.0, 8, 27, 20], 1), ([40, 41, 50, 50], 1)], masks=masks
    )
    detections[0, :3, 4] = 0.99
    targets = make_masks()[1:]
    targets[0, 0, 40:60, 40:60], targets[0, 0, 40:60, 5:15] = 2, 3
    measures.update(detections, targets)
    assert measures.compute()["box_map"] == pytest.approx(1)
    assert measures.compute()["mask_ap50"] == pytest.approx(1)
    by_size: Any = objective.create_analysis(CLASSES).create_metrics(1.0)["objects"]
    by_size.update(make_perfect_outputs(here, masks=masks), make_masks()[:1])
    by_size.update(detections, targets)
    assert {size: by_size.compute()[f"ap50_{size}"] for size in ("small", "medium")} == pytest.approx(
        {"small": 1, "medium": 1}
    )


def test_objects_are_drawn_and_summarized() -> None:
    image = np.full((64, 64, 3), 40, np.uint8)
    objective = BOXES.create_objective(job(), DatasetInfo(CLASSES))
    truth = objective.show_truth(image, make_target_boxes()[0])
    assert truth.text == "1 disc, 1 bar, 1 ring"
    assert truth.legend == (0, 1, 2)
    assert [entry.name for entry in objective.legend] == list(CLASSES)
    assert (truth.image[6, 4:30] != 40).any()
    found = make_perfect_outputs([([4.0, 6, 30, 40], 2), ([20.0, 20, 60, 50], 1)])[0]
    found[1, 4] = 0.4
    drawing = objective.show_prediction(image, found)
    assert (drawing.text, drawing.legend) == ("1 ring", (2,))
    assert (drawing.image == draw_boxes(image, np.array([[4.0, 6, 30, 40]]), [2], ["ring 90%"])).all()
    found[0, 4] = 0.2
    assert objective.show_prediction(image, found).text == "no detections with a score of 50%; the best score is 40%"
    assert objective.show_truth(image, make_target_boxes()[1]).text == "nothing"

    assert MASKS.create_objective(job(), DatasetInfo(CLASSES)).show_truth(image, make_masks()[0]).legend == (1, 2)
    objective = MASKS.create_objective(job(), DatasetInfo(("thing",)))
    assert objective.legend == ()
    one = make_masks()[0].clone()
    one[1][one[1] != NO_CLASS] = 0
    truth = objective.show_truth(image, one)
    assert truth.text == "2 thing"
    assert (truth.image[45, 45] != 40).any()
    assert (truth.image[60, 2] == 40).all()
    drawing = objective.show_prediction(
        image[:, :48], make_perfect_outputs([([4.0, 6, 30, 40], 0)], masks=torch.ones(1, 28, 28))[0]
    )
    assert (drawing.image[20, 10] != 40).any()
    assert (drawing.image[45, 45] == 40).all()
    found = make_perfect_outputs([([4.0, 6, 30, 40], 0), ([20.0, 20, 60, 50], 0)], masks=torch.ones(2, 28, 28))[0]
    both = objective.show_prediction(image, found).image
    assert (both[30, 25] == drawing.image[20, 10]).all(), "the best detection is on top"
    assert (both[45, 45] != both[30, 25]).any()
    found[1, 4], found[0, 4] = 0.3, 0.2
    assert objective.show_prediction(image, found).text == "no detections with a score of 50%; the best score is 30%"


def test_catalogue_lists_every_detector() -> None:
    known = set(torchvision.models.list_models(module=torchvision.models.detection))
    footplate_model = {*BOXES.list_models(), *MASKS.list_models()}
    assert known - footplate_model == {"keypointrcnn_resnet50_fpn"}
    assert footplate_model - known == pyramid_detectors.KINDS.keys()


@pytest.mark.long
@pytest.mark.parametrize("task", [BOXES, MASKS])
def test_detectors_train_on_their_smallest_images(task: Any) -> None:
    for name in task.list_models():
        size = task.describe_model(name).min_image_size
        model = task.build_model(job(task=task.entry.id, model=name, image_size=size), 3, 3)
        objective = task.create_objective(job(), DatasetInfo(CLASSES))
        inputs = torch.randn(2, 3, size, size)
        some = objective.create_blank_targets(inputs)
        none = torch.full_like(some, NO_CLASS) if some.dim() == 4 else torch.full_like(some, -1)
        if some.dim() == 4:
            none[:, 0] = 0
        for targets in (some, none):
            model.zero_grad()
            model(inputs, targets).sum().backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters()), name
        with torch.no_grad():
            assert model.eval()(inputs).isfinite().all(), name


def test_foreign_detector_is_refused() -> None:
    with pytest.raises(AttributeError):
        convert_to_tensor_detector(nn.Linear(1, 1), 1)
