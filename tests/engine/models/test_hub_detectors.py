"""Transformers detectors: losses, detections, weights and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.ops import box_convert

from engine.checks.job_checks import problems
from engine.contract.catalogue import EXTRA_MODULES, shipped_catalogue
from engine.contract.job import Job
from engine.contract.recipes import collect_facts, load_recipes
from engine.models.base import TaskError
from engine.models.hugging_face.variants import MODELS
from engine.models.weights import Initial, from_file
from engine.tasks.registry import TASKS

pytest.importorskip("transformers", reason="needs footplate[transformers]")

from tests.support.hub_models import CONFIGS, tiny

SIDE = 128
CLASSES = 3
BOXES = [[(10, 10, 60, 60, 0), (70, 20, 100, 90, 1)], [(20, 30, 50, 90, 1)]]


def build(name: str, classes: int = CLASSES, channels: int = 3, **changed: Any) -> Any:
    torch.manual_seed(0)
    return tiny(name, **changed).build(classes + 1, channels)


def targets_of(boxes: list[list[tuple[int, ...]]]) -> torch.Tensor:
    targets = torch.zeros(len(boxes), 4, 6)
    targets[..., 4] = -1
    for row, each in zip(targets, boxes, strict=True):
        for number, box in enumerate(each):
            row[number, :5] = torch.tensor(box)
    return targets


def labels_of(boxes: list[list[tuple[int, ...]]]) -> list[dict[str, torch.Tensor]]:
    converted = []
    for each in boxes:
        rows = torch.tensor(each, dtype=torch.float32).reshape(-1, 5)
        relative = box_convert(rows[:, :4] / SIDE, "xyxy", "cxcywh")
        converted.append({"class_labels": rows[:, 4].long(), "boxes": relative})
    return converted


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", CONFIGS)
def test_losses_are_those_of_transformers_times_the_objects(name: str, images: torch.Tensor) -> None:
    model = build(name)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = model.call_library(images, labels=labels_of(BOXES)).loss
        torch.manual_seed(1)
        losses = model(images, targets_of(BOXES))
    assert losses.shape == (2, len(model.loss_names))
    assert float(losses.sum()) == pytest.approx(3 * float(expected), rel=1e-5)


@pytest.mark.parametrize("name", ["tiny_dfine", "tiny_rtdetrv2", "tiny_rfdetr"])
def test_losses_of_parts_add_up_to_those_of_the_batch(name: str, images: torch.Tensor) -> None:
    """Sum the losses over parts of a batch.

    D-FINE's loss between layers is a mean over each part; all other losses are sums over objects.
    """
    still = {"num_denoising": 0, "weight_loss_ddf": 0.0} if name != "tiny_rfdetr" else {}
    model, targets = build(name, **still), targets_of(BOXES)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.eval()
    together = model(images, targets).sum(0)
    apart = sum(model(images[part], targets[part]).sum(0) for part in (slice(0, 1), slice(1, 2)))
    torch.testing.assert_close(apart, together, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_images_without_objects_give_finite_gradients(name: str, images: torch.Tensor) -> None:
    model = build(name)
    model(images, targets_of([[], []])).sum().backward()
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


def test_half_precision_gives_boxes_in_fp32(images: torch.Tensor) -> None:
    model = build("tiny_dfine").eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert model(images).dtype == torch.float32


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_folder_is_loaded_without_the_heads_of_other_classes(name: str, tmp_path: Path) -> None:
    saved = build(name, classes=5)
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.add_(0.5)
    # Names of the original format are not read again by transformers 5.24 for RF-DETR.
    saved.library_class.save_pretrained(saved, tmp_path, save_original_format=False)
    state = from_file(str(tmp_path))
    model = build(name)
    before = model.state_dict()
    before = {name: tensor.clone() for name, tensor in before.items()}
    model.load_initial(Initial(state, "weights_file", "x"))
    after, expected = model.state_dict(), saved.state_dict()
    same = {name for name in after if after[name].shape == expected[name].shape}
    assert all(torch.equal(after[name], expected[name]) for name in same)
    heads = after.keys() - same
    assert heads
    assert all(torch.equal(after[name], before[name]) for name in heads)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    state = build("tiny_rtdetrv2").state_dict()
    with pytest.raises(TaskError, match="does not fit"):
        build("tiny_dfine").load_initial(Initial(state, "weights_file", "x"))


def test_channels_other_than_three_are_taken(images: torch.Tensor, tmp_path: Path) -> None:
    saved = build("tiny_rfdetr")
    model = build("tiny_rfdetr", channels=1)
    model.load_initial(Initial(saved.state_dict(), "weights_file", "x"))
    gray = images[:, :1]
    with torch.no_grad():
        found, expected = model.eval()(gray), saved.eval()(gray.expand(-1, 3, -1, -1))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "valid", "invalid"), [("tiny_dfine", 96, 100), ("tiny_rfdetr", 96, 64)])
def test_unsuitable_sizes_are_refused(name: str, valid: int, invalid: int) -> None:
    model = build(name)
    model.fit_size("x", valid)
    with pytest.raises(TaskError, match=f"Set {96}") as caught:
        model.fit_size("x", invalid)
    assert caught.value.field == "image_size"


def test_small_images_have_fewer_queries() -> None:
    model = build("tiny_dfine", num_queries=300)
    model.fit_size("x", 64)
    found = model.eval()(torch.rand(1, 3, 64, 64))
    assert found.shape == (1, 8**2 + 4**2 + 2**2, 6)


def test_table_names_safe_weights_with_their_license() -> None:
    for model in MODELS.values():
        assert model.weights is not None
        assert model.weights.files == ("model.safetensors",)
        assert model.weights.licence
        assert model.extra == "transformers"


def test_models_are_listed_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = shipped_catalogue().model("dfine_s")
    assert entry is not None
    assert (entry.published, entry.license, entry.extra) == ("COCO 48.5 AP, D-FINE paper", "Apache-2.0", "transformers")
    job = Job.from_fields(task="detection", model="dfine_s", pretrained=False)
    assert not [problem for problem in problems(job, shipped_catalogue()) if problem.field == "model"]
    monkeypatch.setitem(EXTRA_MODULES, "transformers", "no_such_module")
    (problem,) = (each for each in problems(job, shipped_catalogue()) if each.field == "model")
    assert problem.severity == "error"
    assert 'pip install "footplate[transformers]"' in problem.remedy
    with pytest.raises(TaskError, match="footplate"):
        TASKS["detection"].build_model(job, CLASSES, 3)


def test_recipe_trains_backbones_at_a_tenth_of_the_rate() -> None:
    values = {"task": "detection", "model": "dfine_s"}
    recipe = load_recipes().get("fine-tune")
    assert recipe is not None
    found = recipe.values(collect_facts(values, shipped_catalogue(), None, values))
    assert (found["optimizer"], found["clip_norm"], found["weight_decay"]) == ("adamw", 0.1, 1e-4)
    assert found["learning_rate"] * found["head_rate"] == pytest.approx(1e-4)
