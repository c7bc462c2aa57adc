"""Losses, metrics and models for semantic segmentation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import segmentation_models_pytorch as smp
import timm
import torch
import torchvision
from safetensors.torch import save_file
from segmentation_models_pytorch.encoders import get_encoder
from torch import Tensor
from torch.nn import functional

from engine.contract import weights
from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.job import Job
from engine.data.decoding.mask_values import NO_CLASS
from engine.models.base import TaskError
from engine.models.meta_device import build_on_meta
from engine.tasks.base import DatasetInfo
from engine.tasks.registry import TASKS
from tests.support.dataset_infos import make_dataset_info
from tests.support.metrics import compute_on_ranks

TASK = TASKS["segmentation"]
CLASSES = 4


def sample(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, CLASSES - 1, (count, 6, 5), generator=generator)  # the last class never occurs
    targets[torch.rand(targets.shape, generator=generator) < 0.2] = NO_CLASS
    return torch.randn(count, CLASSES, 6, 5, generator=generator), targets


def compute_by_hand(outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Compute the metrics from their definitions in plain NumPy, one pixel at a time."""
    found, true = outputs.argmax(1).numpy().ravel(), targets.numpy().ravel()
    found, true = found[true != NO_CLASS], true[true != NO_CLASS]
    ious, f1s = [], []
    for number in range(CLASSES):
        right = int(np.sum((found == number) & (true == number)))
        union = int(np.sum((found == number) | (true == number)))
        if union:
            ious.append(right / union)
            f1s.append(2 * right / (np.sum(found == number) + np.sum(true == number)))
    return {"miou": np.mean(ious), "mean_f1": np.mean(f1s), "pixel_accuracy": np.mean(found == true)}


@pytest.mark.parametrize("ranks", [1, 3])
def test_metrics_match_their_definitions(ranks: int) -> None:
    objective = TASK.create_objective(Job.from_fields(task="segmentation"), make_dataset_info(CLASSES))
    outputs, targets = sample(7)
    found = compute_on_ranks(objective, outputs, targets, ranks, 2).compute()
    assert found.keys() == {measure.id for measure in TASK.entry.metrics}
    for name, value in compute_by_hand(outputs, targets).items():
        assert found[name] == pytest.approx(value, abs=1e-6)
    assert found["loss"] == pytest.approx(objective.loss(outputs, targets).mean().item(), rel=1e-6)
    assert objective.create_metric().compute() == {}
    correct = objective.create_analysis("abcd").compute_columns(outputs, targets).correct
    accuracies = [compute_by_hand(outputs[[n]], targets[[n]])["pixel_accuracy"] for n in range(7)]
    assert correct == pytest.approx(accuracies)


def test_class_metrics_match_their_definitions() -> None:
    measures = TASK.create_objective(Job.from_fields(task="segmentation"), make_dataset_info(CLASSES)).create_metric()
    outputs, targets = sample(7)
    outputs[:, 3] = -9.0  # the class neither occurs nor is predicted
    for some, truth in zip(outputs.split(2), targets.split(2), strict=True):
        measures.update(some, truth)
    found, true = outputs.argmax(1).numpy().ravel(), targets.numpy().ravel()
    found, true = found[true != NO_CLASS], true[true != NO_CLASS]
    class_metrics = measures.per_class()
    for number in range(CLASSES - 1):
        right = np.sum((found == number) & (true == number))
        union = np.sum((found == number) | (true == number))
        assert class_metrics["IoU"][number] == pytest.approx(right / union)
        assert class_metrics["Precision"][number] == pytest.approx(right / np.sum(found == number))
        assert class_metrics["Recall"][number] == pytest.approx(right / np.sum(true == number))
        assert class_metrics["F1"][number] == pytest.approx(
            2 * right / (np.sum(found == number) + np.sum(true == number))
        )
    assert [class_metrics[title][3] for title in ("IoU", "Precision", "Recall", "F1")] == [None] * 4
    by_hand = [[int(np.sum((true == row) & (found == column))) for column in range(4)] for row in range(4)]
    assert [list(row) for row in measures.confusion()] == by_hand


@pytest.mark.parametrize("kind", ["cross_entropy", "focal", "cross_entropy_dice", "dice"])
def test_balanced_weights_follow_enet(kind: str) -> None:
    counts = (900.0, 80.0, 20.0, 0.0)
    given = DatasetInfo(tuple("badc"), class_counts=lambda: counts)
    job = Job.from_fields(task="segmentation", loss=kind, class_weights="balanced")  # type: ignore[arg-type]
    objective, plain = (
        TASK.create_objective(job, given),
        TASK.create_objective(job.with_fields(class_weights="none"), given),
    )
    assert [entry.name for entry in plain.legend] == list("badc")  # type: ignore[attr-defined]
    by_hand = [1 / math.log(1.02 + count / 1000) for count in counts]
    mean = sum(weight * count / 1000 for weight, count in zip(by_hand, counts, strict=True))
    outputs = torch.randn(1, CLASSES, 6, 5, generator=torch.Generator().manual_seed(0))
    for number, weight in enumerate(by_hand):
        targets = torch.full((1, 6, 5), number)
        targets[0, 0] = NO_CLASS
        dice = TASK.create_objective(job.with_fields(loss="dice"), given).loss(outputs, targets)
        weighted, even = objective.loss(outputs, targets), plain.loss(outputs, targets)
        if kind == "dice":
            assert weighted == even == dice
        elif kind == "cross_entropy_dice":
            cross_entropy = functional.cross_entropy(outputs, targets, ignore_index=NO_CLASS)
            torch.testing.assert_close(2 * even - dice, cross_entropy[None])
            torch.testing.assert_close(2 * weighted - dice, cross_entropy[None] * weight / mean)
        else:
            torch.testing.assert_close(weighted, even * weight / mean)
    measures = objective.create_metric()
    measures.update(outputs, targets)
    assert measures.compute()["loss"] == pytest.approx(plain.loss(outputs, targets).item())


def test_cross_entropy_ignores_unlabeled_pixels() -> None:
    outputs, targets = sample(3)
    losses = TASK.create_objective(Job.from_fields(task="segmentation"), make_dataset_info(CLASSES)).loss(
        outputs, targets
    )
    for number in range(3):
        expected = functional.cross_entropy(
            outputs[number : number + 1], targets[number : number + 1], ignore_index=NO_CLASS
        )
        torch.testing.assert_close(losses[number], expected)


@pytest.mark.parametrize("kind", ["cross_entropy", "focal", "dice", "cross_entropy_dice"])
def test_losses_vanish_for_perfect_outputs(kind: str) -> None:
    objective = TASK.create_objective(Job.from_fields(task="segmentation", loss=kind), make_dataset_info(CLASSES))  # type: ignore[arg-type]
    outputs, targets = sample(3)
    targets[2] = NO_CLASS
    sure = 50.0 * functional.one_hot(targets.where(targets != NO_CLASS, 0), CLASSES).permute(0, 3, 1, 2).float()
    wrong, right = objective.loss(outputs.requires_grad_(), targets), objective.loss(sure, targets)
    assert wrong.shape == (3,)
    assert (wrong[:2] > 0.1).all()
    assert (right < 1e-3).all()
    assert wrong[2] == 0
    wrong.sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    ignored = (targets == NO_CLASS)[:, None].expand_as(outputs)
    assert (outputs.grad[ignored] == 0).all()


def test_focal_loss_matches_the_paper() -> None:
    outputs = torch.tensor([[[[2.0]], [[0.0]]]])
    likely = torch.sigmoid(torch.tensor(2.0)).item()
    loss = TASK.create_objective(Job.from_fields(task="segmentation", loss="focal"), make_dataset_info(2)).loss(
        outputs, torch.zeros(1, 1, 1, dtype=torch.int64)
    )
    assert loss.item() == pytest.approx(-((1 - likely) ** 2) * np.log(likely), rel=1e-5)


def test_dice_loss_averages_the_classes_of_an_image() -> None:
    objective = TASK.create_objective(Job.from_fields(task="segmentation", loss="dice"), make_dataset_info(3))
    losses = objective.loss(torch.zeros(1, 3, 1, 5), torch.tensor([[[0, 0, 0, 1, NO_CLASS]]]))
    by_class = [1 - (2 * 3 / 3 + 1) / (4 / 3 + 3 + 1), 1 - (2 * 1 / 3 + 1) / (4 / 3 + 1 + 1)]
    assert losses.tolist() == pytest.approx([np.mean(by_class)])


@pytest.mark.parametrize(("model", "channels"), [("unet", 3), ("unet", 1), ("lraspp_mobilenet_v3_large", 3)])
def test_weights_load_in_the_plain_library(model: str, channels: int) -> None:
    job = Job.from_fields(task="segmentation", model=model, encoder="resnet18", image_size=64)
    network = TASK.build_model(job, CLASSES, channels).eval()
    if model == "unet":
        plain = smp.Unet("resnet18", encoder_weights=None, in_channels=channels, classes=CLASSES)
    else:
        plain = torchvision.models.get_model(model, weights=None, weights_backbone=None, num_classes=CLASSES)
    plain.load_state_dict(network.state_dict())
    plain.eval()
    inputs = torch.rand(2, channels, 64, 64)
    with torch.no_grad():
        theirs = plain(inputs)
        torch.testing.assert_close(network(inputs), theirs["out"] if isinstance(theirs, dict) else theirs)


@pytest.mark.parametrize(
    ("model", "head"),
    [("unet", ("decoder.", "segmentation_head.")), ("lraspp_mobilenet_v3_large", ("classifier.high_classifier.",))],
)
def test_frozen_backbone_leaves_the_head_to_learn(model: str, head: tuple[str, ...]) -> None:
    fields = {"task": "segmentation", "model": model, "encoder": "resnet18", "image_size": 64, "freeze_epochs": 1}
    network = build_on_meta(lambda: TASK.build_model(Job.from_fields(**fields), CLASSES, 3))  # type: ignore[arg-type]
    trained = {name for name, each in network.named_parameters() if each.requires_grad}
    assert trained == {name for name, _ in network.named_parameters() if name.startswith(head)}


def a_file(path: Path, state: dict[str, Tensor]) -> str:
    save_file(state, path)
    return str(path)


def test_timm_weights_load_into_the_encoder(tmp_path: Path) -> None:
    classifier = timm.create_model("tf_efficientnet_lite0").eval()
    file = a_file(tmp_path / "lite0.safetensors", classifier.state_dict())
    fields = {"task": "segmentation", "model": "unet", "image_size": 64}
    job = Job.from_fields(**fields, encoder="tu-tf_efficientnet_lite0", weights_file=file)  # type: ignore[arg-type]
    inputs = torch.rand(1, 3, 64, 64)
    encoder = TASK.build_model(job, CLASSES, 3).get_submodule("encoder").eval()
    torch.testing.assert_close(encoder(inputs)[-1], compute_features(inputs, classifier))
    gray = TASK.build_model(job, CLASSES, 1).get_submodule("encoder").eval()
    expected = compute_features(inputs[:, :1].expand(1, 3, 64, 64), classifier)
    torch.testing.assert_close(gray(inputs[:, :1])[-1], expected, rtol=1e-4, atol=1e-4)
    # The normalization with which its weights were trained.
    assert TASK.get_normalization(job, 3) == ((0.5,) * 3, (0.5,) * 3)
    other = Job.from_fields(**fields, encoder="tu-mobilenetv3_small_050", weights_file=file)  # type: ignore[arg-type]
    state = {name: tensor for name, tensor in classifier.state_dict().items() if not name.startswith("blocks.3.0.")}
    incomplete = job.with_fields(weights_file=a_file(tmp_path / "incomplete.safetensors", state))
    for unfit in (other, incomplete):
        with pytest.raises(TaskError, match="does not fit the model") as error:
            TASK.build_model(unfit, CLASSES, 3)
        assert error.value.field == "weights_file"


def compute_features(inputs: Tensor, classifier: torch.nn.Module) -> Tensor:
    """Return the features of the encoder's last stage, computed with the timm classifier that contains the encoder."""
    outputs: Tensor = classifier.forward_intermediates(inputs, intermediates_only=True)[-1]
    return outputs


@pytest.mark.parametrize("encoder", ["resnet18", "tu-resnet18"])
def test_encoder_starts_pretrained(encoder: str) -> None:
    job = Job.from_fields(task="segmentation", model="linknet", encoder=encoder, pretrained=True, image_size=64)
    known = weights_of(job, load_catalogue())
    assert known is not None
    with pytest.raises(TaskError, match="are not on this machine") as error:
        TASK.build_model(job, CLASSES, 3)
    assert error.value.field == "pretrained"
    given = timm.create_model("resnet18") if encoder.startswith("tu-") else get_encoder(encoder)
    weights.cached_path(known).parent.mkdir(parents=True)
    save_file(given.state_dict(), weights.cached_path(known))
    network = TASK.build_model(job, CLASSES, 3).get_submodule("encoder")
    first = next(iter(network.parameters()))
    assert torch.equal(first, next(iter(given.parameters())))
    assert TASK.build_model(job, CLASSES, 1)(torch.rand(2, 1, 64, 64)).shape == (2, CLASSES, 64, 64)


def test_encoder_without_weights_is_reported() -> None:
    job = Job.from_fields(task="segmentation", model="unet", encoder="dpn68b", pretrained=True, image_size=64)
    with pytest.raises(TaskError, match="no pretrained weights for the encoder dpn68b"):
        build_on_meta(lambda: TASK.build_model(job, CLASSES, 3))
