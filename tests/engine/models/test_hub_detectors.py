"""Transformers detectors and segmenters: losses, results, weights and sizes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torchvision.ops import box_convert

from engine.catalogue import DESCRIBED_CLASSES
from engine.checks.job_checks import problems
from engine.contract.catalogue import EXTRA_MODULES, load_builtin_catalogue
from engine.contract.idle_fields import find_idle_fields
from engine.contract.job import Job
from engine.contract.recipes import collect_facts, load_recipes
from engine.data.decoding.mask_values import NO_CLASS
from engine.models.base import TaskError
from engine.models.hugging_face.hub_model import crop_masks
from engine.models.hugging_face.variants import MODELS
from engine.models.tensor_detector import (
    DETECTION_VALUES,
    FINE_MASK_SIDE,
    adapt_to_image_sizes,
    load_and_mark_heads,
)
from engine.models.torchvision_detectors import convert_instance_targets
from engine.models.weights import InitialWeights, read_file
from engine.tasks.detection.objects import read_detections
from engine.tasks.instances.task import paste_masks as pasted_masks
from engine.tasks.registry import TASKS
from tests.support.cases import mark_long_cases
from tests.support.hub_models import ALL, CONFIGS, MASKS, NEEDS_TRANSFORMERS, PIXELS, VIT, make_tiny_model
from tests.support.waits import WaitCounter

pytestmark = NEEDS_TRANSFORMERS

SIDE = 128
CLASSES = 3
BOXES = [[(10, 10, 60, 60, 0), (70, 20, 100, 90, 1)], [(20, 30, 50, 90, 1)]]


def build(name: str, classes: int = CLASSES, channels: int = 3, **changed: Any) -> Any:
    torch.manual_seed(0)
    return make_tiny_model(name, **changed).build(classes + (name not in PIXELS), channels)


def targets_of(boxes: list[list[tuple[int, ...]]]) -> torch.Tensor:
    targets = torch.zeros(len(boxes), 4, 6)
    targets[..., 4] = -1
    for row, each in zip(targets, boxes, strict=True):
        for number, box in enumerate(each):
            row[number, :5] = torch.tensor(box)
    return targets


def labels_of(boxes: list[list[tuple[int, ...]]], height: int = SIDE) -> list[dict[str, torch.Tensor]]:
    converted = []
    for each in boxes:
        rows = torch.tensor(each, dtype=torch.float32).reshape(-1, 5)
        relative = box_convert(rows[:, :4] / torch.tensor([SIDE, height, SIDE, height]), "xyxy", "cxcywh")
        converted.append({"class_labels": rows[:, 4].long(), "boxes": relative})
    return converted


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "wait_count"), [("tiny_rtdetrv2", 1), ("tiny_rfdetr_masks", 2), ("tiny_eomt_pixels", 2)]
)
def test_step_synchronizes_once_or_with_masks_twice(name: str, wait_count: int, images: torch.Tensor) -> None:
    model, targets = build(name), make_targets(name, BOXES)
    with WaitCounter() as waits:
        losses = model(images, targets)
        losses.sum() / model.loss_units(targets).sum()
    assert sum(count for (file, *_), count in waits.counts.items() if "transformers" not in file) == wait_count


def test_losses_are_in_the_order_of_their_names() -> None:
    model = build("tiny_dfine")
    model.loss_names = ("first", "second", "missing")
    model.compute_losses = lambda *_arguments: {"second": torch.tensor(2.0), "first": torch.tensor(1.0)}
    assert model(torch.zeros(2, 3, 4, 4), torch.zeros(2, 0, 6)).tolist() == [[1, 2, 0]] * 2


def planes_of(boxes: list[list[tuple[int, ...]]]) -> torch.Tensor:
    planes = torch.zeros(len(boxes), 2, SIDE, SIDE, dtype=torch.int64)
    planes[:, 1] = NO_CLASS
    for plane, each in zip(planes, boxes, strict=True):
        for number, (left, top, right, bottom, of) in enumerate(each, 1):
            plane[:, top:bottom, left:right] = torch.tensor([number, of])[:, None, None]
    return planes


def make_targets(name: str, boxes: list[list[tuple[int, ...]]]) -> torch.Tensor:
    """Return the targets of a batch in the form that the task of the model `name` needs.

    `boxes` has a list of boxes for each image. Masks are filled boxes.
    """
    if name in CONFIGS:
        return targets_of(boxes)
    planes = planes_of(boxes)
    return planes if name in MASKS else planes[:, 1]


@pytest.mark.parametrize("name", CONFIGS)
def test_losses_are_those_of_transformers_times_the_objects(name: str, images: torch.Tensor) -> None:
    model, height = build(name), 96
    images = images[:, :, :height]
    with torch.no_grad():
        torch.manual_seed(1)
        expected = model.call_library(images, labels=labels_of(BOXES, height)).loss
        torch.manual_seed(1)
        losses = model(images, targets_of(BOXES))
    assert losses.shape == (2, len(model.loss_names))
    assert not [module for module in model.modules() if "Frozen" in type(module).__name__]
    assert float(losses.sum()) == pytest.approx(3 * float(expected), rel=1e-5)


@pytest.mark.parametrize("name", MASKS | PIXELS)
def test_losses_of_masks_are_those_of_transformers_times_the_units(
    name: str, images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the losses with those of an unmodified transformers model that samples the same points.

    Transformers samples the points for all images at once, and RF-DETR's matcher samples more points for more images.
    RF-DETR is therefore compared on one image.
    """
    count = 1 if name == "tiny_rfdetr_masks" else 2
    images, boxes = images[:count], BOXES[:count]
    points = torch.rand(3 * 1024, 2, generator=torch.Generator().manual_seed(2))
    draw = torch.rand

    def rand(*shape: Any, **options: Any) -> torch.Tensor:
        return points[: shape[1]].expand(shape).contiguous() if len(shape) == 3 else draw(*shape, **options)

    monkeypatch.setattr(torch, "rand", rand)
    model, targets = build(name), make_targets(name, boxes)
    plain = model.library_class(model.config).train().requires_grad_(False)
    plain.load_state_dict(model.state_dict())
    if name == "tiny_rfdetr_masks":
        labels = [label | {"masks": planes} for label, planes in zip(labels_of(boxes), paste_masks(boxes), strict=True)]
        from transformers.loss import loss_rf_detr

        with monkeypatch.context() as patched:
            patched.setattr(loss_rf_detr, "RfDetrHungarianMatcher", loss_rf_detr.RfDetrHungarianMatcher.__base__)
            patched.setattr(loss_rf_detr, "RfDetrImageLoss", loss_rf_detr.RfDetrImageLoss.__base__)
            expected = plain(images, labels=labels).loss
    else:
        classes, masks = zip(*model.split_by_class(targets), strict=True)
        expected = plain(images, mask_labels=list(masks), class_labels=list(classes)).loss
    with torch.no_grad():
        found = (model(images, targets).sum(0) / model.loss_units(targets)).sum()
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


def test_pixels_of_a_class_form_one_mask() -> None:
    plane = torch.tensor([[0, 2], [2, NO_CLASS]])
    ((classes, masks),) = build("tiny_mask2former_pixels").split_by_class(plane[None])
    assert (classes.tolist(), masks.tolist()) == ([0, 2], [[[1, 0], [0, 0]], [[0, 1], [1, 0]]])


def test_points_of_the_matcher_depend_only_on_the_image() -> None:
    from engine.models.hugging_face.segmenters import MatcherByImage

    class Drawing:
        def forward(self, *_: Any) -> list[torch.Tensor]:
            return [torch.rand(4)]

    class Matcher(MatcherByImage, Drawing):
        pass

    matcher, values, labels = Matcher(), torch.zeros(3, 1), [torch.zeros(1)] * 3
    matcher.seeds = [5, 7, 5]
    first, other, same = matcher.forward(values, values, labels, labels)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_masks_without_a_query_do_not_count_for_the_class_loss() -> None:
    model = build("tiny_mask2former", num_queries=1)
    assert model.loss_units(make_targets("tiny_mask2former", BOXES)).tolist() == [2, 3, 3]


def paste_masks(boxes: list[list[tuple[int, ...]]]) -> list[torch.Tensor]:
    return [each["masks"].float() for each in convert_instance_targets(planes_of(boxes))]


_STILL: dict[str, dict[str, Any]] = {
    "tiny_dfine": {"num_denoising": 0, "weight_loss_ddf": 0.0},
    "tiny_rtdetrv2": {"num_denoising": 0, "num_queries": 336},
    "tiny_deimv2": {"num_denoising": 0, "weight_loss_ddf": 0.0, "use_dense_one_to_one": False},
}
"""Configuration values that disable random numbers, and losses that are averaged within a chunk of the batch.

As many queries as positions are not selected by scores, which are nearly equal before training.
"""


@pytest.mark.parametrize("name", ALL)
def test_losses_of_parts_add_up_to_those_of_the_batch(name: str, images: torch.Tensor) -> None:
    model, targets = build(name, **_STILL.get(name, {})), make_targets(name, BOXES)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.eval()
    parts, state = [slice(0, 1), slice(1, 2)], torch.get_rng_state()
    apart = sum(model(images[rows], targets[rows]).sum(0) for rows in parts)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)  # the points at which masks are compared depend only on the images
    torch.testing.assert_close(apart, model(images, targets).sum(0), rtol=1e-5, atol=2e-5)
    units = sum(model.loss_units(targets[rows]) for rows in (*parts, slice(2, 2)))
    torch.testing.assert_close(units, model.loss_units(targets))


@pytest.mark.parametrize("name", ALL)
def test_images_without_objects_give_finite_gradients(name: str, images: torch.Tensor) -> None:
    model = build(name)
    model(images, make_targets(name, [[], []])).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", CONFIGS)
def test_detections_are_those_of_transformers(name: str, images: torch.Tensor) -> None:
    from transformers import RTDetrImageProcessor

    model = build(name).eval()
    with torch.no_grad():
        outputs = model.call_library(images)
        found = model(images)
    expected = RTDetrImageProcessor().post_process_object_detection(
        outputs, threshold=0.0, target_sizes=[(SIDE, SIDE)] * 2
    )
    assert found.shape == (2, 30, 6)
    for row, each in zip(found, expected, strict=True):
        torch.testing.assert_close(row[:, 4], each["scores"])
        torch.testing.assert_close(row[:, :4], each["boxes"].clamp(0, SIDE), rtol=1e-4, atol=1e-3)
        assert row[:, 5].tolist() == each["labels"].tolist()
    with torch.no_grad():
        detected = model.detect(images)
    for row, each, logits in zip(found, detected, outputs.logits, strict=True):
        assert torch.equal(each["labels"], logits.argmax(1) + 1)
        torch.testing.assert_close(each["scores"], logits.sigmoid().amax(1))
        torch.testing.assert_close(each["boxes"][each["scores"].argmax()], row[0, :4])


@pytest.mark.parametrize("name", MASKS)
def test_instances_have_masks_in_their_boxes(name: str, images: torch.Tensor) -> None:
    model = build(name).eval()
    with torch.no_grad():
        found = model(images)
    assert found.shape == (2, model.max_detections, DETECTION_VALUES + FINE_MASK_SIDE**2)
    assert found.isfinite().all()
    assert (found[..., 4] >= 0).all()
    assert found[..., DETECTION_VALUES:].min() >= 0
    assert found[..., DETECTION_VALUES:].max() <= 1
    assert found[..., :4].max() <= SIDE
    with torch.no_grad():
        outputs, detected = model.call_library(images), model.detect(images)
    is_rf_detr = name == "tiny_rfdetr_masks"
    logits = outputs.logits if is_rf_detr else outputs.class_queries_logits
    class_scores = logits.sigmoid() if is_rf_detr else logits.softmax(-1)[..., :-1]
    logits = outputs.pred_masks if is_rf_detr else outputs.masks_queries_logits
    masks = functional.interpolate(logits, (SIDE, SIDE), mode="bilinear").sigmoid()
    for image in range(2):
        best, number = class_scores[image].flatten().max(0)
        query, number = divmod(int(number), class_scores.shape[-1])
        row, mask = found[image, 0], masks[image, query]
        assert row[5] == number
        assert torch.equal(detected[image]["labels"], class_scores[image].argmax(1) + 1)
        torch.testing.assert_close(detected[image]["scores"], class_scores[image].amax(1))
        torch.testing.assert_close(detected[image]["boxes"][query], row[:4])
        if not is_rf_detr:
            rows, columns = (mask >= 0.5).nonzero().T
            box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if len(rows) else [0] * 4
            assert row[:4].tolist() == box
            best = best * (mask[mask >= 0.5].mean() if len(rows) else 0)
        torch.testing.assert_close(row[4], best)
        source = logits[image, query].sigmoid() if is_rf_detr else mask
        cropped = crop_masks(source[None], row[None, :4], (SIDE, SIDE), FINE_MASK_SIDE)
        torch.testing.assert_close(row[None, DETECTION_VALUES:], cropped)


def test_cropped_masks_are_those_of_the_image_again() -> None:
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    disc = ((rows - 50) ** 2 + (columns - 70) ** 2 < 30**2)[None]
    from engine.models.hugging_face.segmenters import compute_boxes

    boxes = compute_boxes(disc)
    assert boxes.tolist() == [[41, 21, 100, 80]]
    parts = crop_masks(disc.float(), boxes, (SIDE, SIDE), FINE_MASK_SIDE)
    pasted = pasted_masks(read_detections(torch.cat([boxes, torch.tensor([[1.0, 0.0]]), parts], 1)), SIDE, SIDE)
    assert (pasted & disc.numpy()).sum() / (pasted | disc.numpy()).sum() > 0.97
    assert compute_boxes(torch.zeros(1, SIDE, SIDE, dtype=torch.bool)).tolist() == [[0, 0, 0, 0]]


def test_pixels_are_those_of_transformers(images: torch.Tensor) -> None:
    from transformers import Mask2FormerImageProcessor

    model = build("tiny_mask2former_pixels").eval()
    with torch.no_grad():
        found = model(images)
        outputs = model.call_library(images)
    expected = Mask2FormerImageProcessor().post_process_semantic_segmentation(outputs, [(SIDE, SIDE)] * 2)
    assert found.shape == (2, CLASSES, SIDE, SIDE)
    assert (found.argmax(1) == torch.stack(expected)).float().mean() > 0.98


@pytest.mark.parametrize("name", mark_long_cases(list(ALL), ["tiny_dfine", "tiny_rfdetr_masks", "tiny_mask2former"]))
def test_half_precision_gives_losses_and_results_in_fp32(name: str, images: torch.Tensor) -> None:
    model, targets = build(name, **_STILL.get(name, {})), make_targets(name, BOXES)
    with torch.no_grad():
        expected = model(images, targets).sum()
        with torch.autocast("cpu", torch.bfloat16):
            assert float(model(images, targets).sum()) == pytest.approx(float(expected), rel=0.1)
            assert model.eval()(images).dtype == torch.float32


@pytest.mark.parametrize(
    "name", mark_long_cases(list(ALL), ["tiny_dfine", "tiny_rfdetr", "tiny_mask2former", "tiny_eomt"])
)
def test_saved_folder_is_loaded_without_the_heads_of_other_classes(name: str, tmp_path: Path) -> None:
    saved = build(name, classes=5)
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.add_(0.5)
    # Names of the original format are not read again by transformers 5.24 for RF-DETR.
    saved.library_class.save_pretrained(saved, tmp_path, save_original_format=False)
    state = read_file(str(tmp_path))
    model = build(name)
    before = model.state_dict()
    before = {name: tensor.clone() for name, tensor in before.items()}
    model.load_initial(InitialWeights(state, "weights_file", "x"))
    after, expected = model.state_dict(), saved.state_dict()
    same = {name for name in after if after[name].shape == expected[name].shape}
    assert all(torch.equal(after[name], expected[name]) for name in same)
    heads = after.keys() - same
    assert heads
    assert all(torch.equal(after[name], before[name]) for name in heads)


def test_weights_of_another_model_are_refused() -> None:
    wider = build("tiny_dfine").state_dict()
    *_, name = (name for name, tensor in wider.items() if tensor.ndim == 4)
    wider[name] = wider[name].repeat(2, 1, 1, 1)
    for state in (build("tiny_rtdetrv2").state_dict(), wider):
        with pytest.raises(TaskError, match="does not fit"):
            build("tiny_dfine").load_initial(InitialWeights(state, "weights_file", "x"))


@pytest.mark.parametrize("name", ["tiny_rfdetr", "tiny_mask2former_pixels", "tiny_eomt_pixels"])
def test_channels_other_than_three_are_taken(name: str, images: torch.Tensor) -> None:
    saved = build(name)
    model = build(name, channels=1)
    model.load_initial(InitialWeights(saved.state_dict(), "weights_file", "x"))
    gray = images[:, :1]
    with torch.no_grad():
        found, expected = model.eval()(gray), saved.eval()(gray.expand(-1, 3, -1, -1))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_positions_of_another_image_size_are_interpolated() -> None:
    saved, model = build("tiny_eomt"), build("tiny_eomt")
    model.adapt_to_size("x", 96)
    saved.adapt_to_size("x", 64)
    rows = torch.arange(4.0).repeat_interleave(4)
    saved.embeddings.position_embeddings.weight.data.copy_(rows[:, None])
    model.load_initial(InitialWeights(saved.state_dict(), "weights_file", "x"))
    positions = model.embeddings.position_embeddings.weight.detach().unflatten(0, (6, 6))
    assert positions.shape == (6, 6, 48)
    torch.testing.assert_close(positions, positions[:, :1, :1].expand_as(positions))
    assert (positions[1:] > positions[:-1]).all()
    assert model.embeddings.position_embeddings.weight.requires_grad
    assert model.eval()(torch.rand(1, 3, 96, 96)).shape[0] == 1
    same = build("tiny_eomt")
    same.adapt_to_size("x", 64)
    same.load_initial(InitialWeights(saved.state_dict(), "weights_file", "x"))
    assert torch.equal(same.embeddings.position_embeddings.weight, saved.embeddings.position_embeddings.weight)


@pytest.mark.parametrize(
    ("name", "valid", "invalid"),
    [("tiny_dfine", 96, 100), ("tiny_rfdetr", 96, 64), ("tiny_mask2former", 96, 100), ("tiny_eomt", 96, 90)],
)
def test_unsuitable_sizes_are_refused(name: str, valid: int, invalid: int) -> None:
    model = build(name)
    model.adapt_to_size("x", valid)
    with pytest.raises(TaskError, match=f"Set {96}") as caught:
        model.adapt_to_size("x", invalid)
    assert caught.value.field == "image_size"


@pytest.mark.parametrize(
    ("name", "field", "value", "is_valid"),
    [
        ("tiny_dfine", "progressive_from", 64, True), ("tiny_dfine", "progressive_from", 32, False),
        ("tiny_rfdetr", "progressive_from", 96, True), ("tiny_rfdetr", "progressive_from", 64, False),
        ("tiny_mask2former", "progressive_from", 32, True), ("tiny_eomt", "progressive_from", 96, False),
        ("tiny_rfdetr", "multi_scale", 0.9, True), ("tiny_eomt", "multi_scale", 0.25, False),
    ],
)  # fmt: skip
def test_changing_image_sizes_are_checked(name: str, field: str, value: float, is_valid: bool) -> None:
    with nullcontext() if is_valid else pytest.raises(TaskError) as caught:
        adapt_to_image_sizes(build(name), Job.from_fields(model=name, **{field: value}), SIDE)
    assert is_valid or (caught.value.field == field and caught.value.remedy)


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        ("tiny_dfine", {}, (64, 32)),
        ("tiny_rfdetr", {}, (96, 32)),
        ("tiny_rfdetr_masks", {"backbone_config": VIT | {"patch_size": 12}}, (72, 24)),
        ("tiny_mask2former_pixels", {}, (32, 32)),
    ],
)
def test_size_limits_leave_a_position_for_each_query(
    name: str, changed: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert build(name, **changed).size_limits == expected


def test_small_images_have_fewer_queries() -> None:
    model = build("tiny_dfine", num_queries=300)
    model.adapt_to_size("x", 64)
    found = model.eval()(torch.rand(1, 3, 64, 64))
    assert found.shape == (1, 8**2 + 4**2 + 2**2, 6)


def test_table_names_safe_weights_with_their_license() -> None:
    for model in MODELS.values():
        assert model.extra == "transformers"
        if model.weights is None:
            assert not model.published
        else:
            assert model.weights.files == ("model.safetensors",)
            assert model.weights.license


def test_rf_detr_has_the_training_values_of_rfdetr() -> None:
    from transformers import RfDetrConfig

    expected = {
        "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "group_detr": 13, "class_cost": 2, "bbox_cost": 5,
        "giou_cost": 2, "class_loss_coefficient": 1, "bbox_loss_coefficient": 5, "giou_loss_coefficient": 2, "focal_alpha": 0.25,
        "mask_class_loss_coefficient": 5.0, "mask_dice_loss_coefficient": 5.0, "mask_point_sample_ratio": 16,
    }  # fmt: skip
    names = [name for name in MODELS if name.startswith("rfdetr")]
    assert len(names) == 10
    for name in names:
        build: Any = MODELS[name].build
        values = RfDetrConfig(**build.args[1]).to_dict()
        assert {key: values[key] for key in expected} == expected, name


def test_dfine_backbones_have_the_stages_of_hgnetv2() -> None:
    from transformers import HGNetV2Config

    defaults = HGNetV2Config().to_dict()
    for name in (name for name in MODELS if name.startswith("dfine")):
        build: Any = MODELS[name].build
        values = build.args[1]["backbone_config"]
        for key in ("stage_downsample", "stage_light_block", "stage_kernel_size"):
            assert values[key] == defaults[key], (name, key)


PUBLISHED = {
    "dfine_n": 4, "dfine_s": 10, "dfine_m": 19, "dfine_l": 31, "dfine_x": 62, "rtdetrv2_r18": 20, "rtdetrv2_r50": 42,
    "deimv2_atto": 0.5, "deimv2_femto": 1.0, "deimv2_pico": 1.5, "deimv2_n": 3.6, "rfdetr_nano": 30.5,
    "rfdetr_small": 32.1, "rfdetr_medium": 33.7, "rfdetr_large": 33.9, "rfdetr_seg_nano": 33.6, "rfdetr_seg_small": 33.7,
    "rfdetr_seg_medium": 35.7, "rfdetr_seg_large": 36.2, "rfdetr_seg_xlarge": 38.1, "rfdetr_seg_xxlarge": 38.6,
    "mask2former_swin_t": 47, "mask2former_swin_t_semantic": 47, "mask2former_swin_s": 69,
    "mask2former_swin_s_semantic": 69, "eomt_s": 24, "eomt_s_semantic": 24, "eomt_b": 93, "eomt_b_semantic": 93,
    "eomt_l": 316, "eomt_l_semantic": 316,
}  # fmt: skip
"""Number of parameters in millions, as published by the authors."""


def test_models_have_the_published_number_of_parameters() -> None:
    entries = {model.id: model for model in load_builtin_catalogue().models if model.id in MODELS}
    assert entries.keys() == PUBLISHED.keys()
    for name, entry in entries.items():
        assert entry.parameters / 1e6 == pytest.approx(PUBLISHED[name], rel=0.08), name
        info = MODELS[name].describe_model(DESCRIBED_CLASSES)
        for field in ("title", "family", "image_size", "weights", "published", "own_loss", "extra"):
            assert getattr(info, field) == getattr(entry, field), (name, field)


@pytest.mark.parametrize(
    ("name", "backbone"),
    [
        ("tiny_dfine", ("model.backbone.",)),
        ("tiny_mask2former", ("model.pixel_level_module.encoder.",)),
        ("tiny_eomt_pixels", ("embeddings.", "layers.")),
    ],
)
def test_all_modules_outside_the_backbone_are_heads(name: str, backbone: tuple[str, ...]) -> None:
    model = load_and_mark_heads(build(name).eval(), Job.from_fields(model=name, freeze_epochs=1))
    assert model.training
    frozen = {parameter for parameter, each in model.named_parameters() if not each.requires_grad}
    assert frozen == {parameter for parameter, _ in model.named_parameters() if parameter.startswith(backbone)}


def test_models_are_listed_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = load_builtin_catalogue().model("dfine_s")
    assert entry is not None
    assert (entry.published, entry.license, entry.extra) == ("COCO 48.5 AP, D-FINE paper", "Apache-2.0", "transformers")
    job = Job.from_fields(task="detection", model="dfine_s", pretrained=False)
    assert not [problem for problem in problems(job, load_builtin_catalogue()) if problem.field == "model"]
    monkeypatch.setitem(EXTRA_MODULES, "transformers", "no_such_module")
    (problem,) = (each for each in problems(job, load_builtin_catalogue()) if each.field == "model")
    assert problem.severity == "error"
    assert 'pip install "footplate[transformers]"' in problem.remedy
    with pytest.raises(TaskError, match="footplate"):
        TASKS["detection"].build_model(job, CLASSES, 3)


def test_own_losses_leave_no_choice_of_the_loss() -> None:
    job = {"task": "segmentation", "model": "eomt_s_semantic", "loss": "dice", "class_weights": "balanced"}
    assert {"loss", "class_weights"} <= find_idle_fields(job, load_builtin_catalogue()).keys()
    assert "loss" not in find_idle_fields(job | {"model": "unet"}, load_builtin_catalogue())


RATES = [
    ("detection", "dfine_s", 0.1, 1e-4, 0.25),
    ("detection", "dfine_n", 0.1, 1e-4, None),
    ("detection", "deimv2_n", 0.1, 1e-4, None),
    ("instance_segmentation", "rfdetr_seg_nano", 0.1, 1e-4, 0.25),
    ("instance_segmentation", "mask2former_swin_t", 0.01, 0.05, None),
    ("segmentation", "eomt_s_semantic", 0.01, 0.05, None),
]


@pytest.mark.parametrize(("task", "model", "clip_norm", "weight_decay", "multi_scale"), RATES)
def test_recipe_trains_backbones_at_a_tenth_of_the_rate(
    task: str, model: str, clip_norm: float, weight_decay: float, multi_scale: float | None
) -> None:
    values = {"task": task, "model": model}
    recipe = load_recipes().get("fine-tune")
    assert recipe is not None
    found = recipe.values(collect_facts(values, load_builtin_catalogue(), None, values))
    assert (found["optimizer"], found["clip_norm"], found["weight_decay"]) == ("adamw", clip_norm, weight_decay)
    assert found.get("multi_scale") == multi_scale
    assert found["learning_rate"] * found["head_rate"] == pytest.approx(1e-4)
