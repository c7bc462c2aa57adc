"""Losses, metrics and models for edge detection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import vgg

from engine.contract.inference.evaluation import Interval
from engine.contract.job import Job
from engine.tasks.analysis import TASK_METRIC, EvaluatedMetrics, Intervals, SampleColumns
from engine.tasks.edges.decoding import FULL, OUTSIDE
from engine.tasks.edges.metrics import compute_scores, count_matches, select_best_counts, suppress_non_maxima
from engine.tasks.edges.networks import Bdcn, BdcnHead, Hed, HedHead, HedOnEncoder, IncrementalDetection
from engine.tasks.edges.task import EdgeDetection, EdgeObjective
from tests.support.dataset_infos import make_dataset_info
from tests.support.metrics import compute_on_ranks

TASK = EdgeDetection()
SIDE = 48
WAYS = ("to_deep", "to_shallow")
"""Attributes with the outputs of BDCN's cascade in its two directions."""


def job(**fields: Any) -> Job:
    return Job.from_fields(**({"task": "edge_detection", "model": "hed", "image_size": SIDE} | fields))


def make_sample(images: int, maps: int) -> tuple[Tensor, Tensor]:
    """Return random logits, [images, maps, h, w], and targets of two annotators, [images, 2, h, w].

    Each image has lines that both annotators, one of them, or one of ten have drawn, and padding.
    """
    generator = torch.Generator().manual_seed(0)
    targets = torch.zeros(images, 2, SIDE, SIDE, dtype=torch.int64)
    for image in targets:
        first, second = torch.randint(12, 36, (2,), generator=generator).tolist()
        image[1, first, 4:44] |= 1
        image[1, 10:40, second] |= 3
        image[1, 30:40, second] &= 2
        image[0] = (image[1] & 1) * FULL // 2 + (image[1] >> 1) * FULL // 2
    # Pixels that only one of ten annotators has drawn are ignored.
    targets[:, 0, 11, 4:44] = FULL // 10
    targets[:, 0, :8] = targets[:, 0, -8:] = targets[:, 0, :20, :6] = OUTSIDE
    targets[:, 1, :8] = targets[:, 1, -8:] = targets[:, 1, :20, :6] = 0
    outputs = torch.randn(images, maps, SIDE, SIDE, generator=generator)
    return outputs + 2 * (targets[:, :1] > 100), targets


def compute_loss_by_hand(outputs: np.ndarray, share: np.ndarray, side: float, fused: float, balance: float) -> float:
    """Compute the loss of an image one pixel at a time.

    `share` is the fraction of annotators at each pixel. `side`, `fused` and `balance` are weights of the side outputs,
    of the fused output, and of pixels without edges.
    """
    edges = sum(76 < value <= FULL for value in share.ravel())
    others = sum(value == 0 for value in share.ravel())
    total = 0.0
    for number, logits in enumerate(outputs):
        summed, weights = 0.0, 0.0
        for logit, value in zip(logits.ravel(), share.ravel(), strict=True):
            likely = 1 / (1 + np.exp(-float(logit)))
            if 76 < value <= FULL:
                summed -= others * np.log(likely)
                weights += others
            elif value == 0:
                summed -= balance * edges * np.log(1 - likely)
                weights += balance * edges
        total += summed / weights * (fused if number == len(outputs) - 1 else side)
    return total


def test_fusion_begins_as_the_mean_of_the_sides() -> None:
    sides = torch.rand(2, 3, 4, 5)
    head = HedHead((600, 700, 800))
    torch.testing.assert_close(head.fuse(sides), sides.mean(1, keepdim=True))
    sides_of_both = [*head.side, *(block.enhance[0].down for block in BdcnHead().blocks)]
    assert [side.weight.std().item() for side in sides_of_both] == pytest.approx([0.01] * 8, rel=0.2)
    assert not any(side.bias.any() for side in sides_of_both)


@pytest.mark.parametrize(("model", "side", "fused", "balance"), [("hed", 1, 1, 1), ("bdcn", 0.5, 1.1, 1.1)])
def test_loss_matches_the_paper(model: str, side: float, fused: float, balance: float) -> None:
    outputs, targets = make_sample(2, 3)
    losses = TASK.create_objective(job(model=model), make_dataset_info(1)).loss(outputs, targets)
    for found, some, target in zip(losses, outputs, targets, strict=True):
        expected = compute_loss_by_hand(some.numpy(), target[0].numpy(), side, fused, balance)
        assert found.item() == pytest.approx(expected, rel=1e-5)


def test_loss_ignores_borders_and_disagreement() -> None:
    outputs, targets = make_sample(3, 2)
    targets[2, 0] = 0
    losses = EdgeObjective().loss(outputs.requires_grad_(), targets)
    assert losses[2] == 0
    losses.sum().backward()
    assert outputs.grad is not None
    left_out = (targets[:2, :1] == OUTSIDE) | (targets[:2, :1] == FULL // 10)
    assert (outputs.grad[:2][left_out.expand(2, 2, SIDE, SIDE)] == 0).all()
    assert (outputs.grad[:2][~left_out.expand(2, 2, SIDE, SIDE)] != 0).all()
    assert not outputs.grad[2].any()


@pytest.mark.parametrize("ranks", [1, 3])
def test_edge_metrics_are_independent_of_the_partition(ranks: int) -> None:
    objective = TASK.create_objective(job(), make_dataset_info(1))
    outputs, targets = make_sample(5, 2)
    metric = compute_on_ranks(objective, outputs, targets, ranks)
    found = metric.compute()
    assert metric.annotated_pixels == (targets[:, 1] & 1).sum() + (targets[:, 1] >> 1).sum()  # type: ignore[attr-defined]
    assert found.keys() == {measure.id for measure in TASK.entry.metrics}
    inside = (targets[0, 0, 8:-8] != OUTSIDE).numpy()
    counts = [
        count_matches(
            suppress_non_maxima(torch.sigmoid(some[-1, 8:-8]).numpy()) * inside,
            [(target[1, 8:-8] & 1).bool().numpy(), (target[1, 8:-8] & 2).bool().numpy()],
        )
        for some, target in zip(outputs, targets, strict=True)
    ]
    expected = compute_scores(sum(counts), sum(map(select_best_counts, counts)))
    assert (found["ods"], found["ois"], found["ap"]) == pytest.approx(expected[:3])
    assert 0.2 < found["ods"] < 1
    assert found["loss"] == pytest.approx(objective.loss(outputs, targets).mean().item(), rel=1e-6)
    measured = EvaluatedMetrics({TASK_METRIC: metric}, np.ones(5, np.int64), SampleColumns())
    (curve,) = objective.create_analysis(("edge",)).compute_curves(measured, Intervals({"ap": Interval(0.5)}))
    assert (curve.positives, curve.average_precision) == (metric.annotated_pixels, Interval(0.5))  # type: ignore[attr-defined]
    assert (curve.thresholds[0], curve.thresholds[-1], curve.best_f1) == (0.99, 0.01, found["ods"])
    best = curve.thresholds.index(curve.best_threshold)
    precision, recall = curve.precision[best], curve.recall[best]
    assert 2 * precision * recall / (precision + recall) == pytest.approx(found["ods"])
    assert objective.create_metric().compute() == {}


def test_annotated_edges_score_near_one() -> None:
    objective = EdgeObjective()
    outputs, targets = make_sample(2, 1)
    outputs = torch.where(targets[:, 1:] > 0, 4.0, -8.0)
    padding = torch.tensor([OUTSIDE, 0])[None, :, None, None].expand(1, 2, SIDE, SIDE)
    measures = objective.create_metric()
    measures.update(outputs, targets)
    found = measures.compute()
    measures.update(outputs[:1], padding)  # an image without visible pixels
    assert measures.compute() == found | {"loss": pytest.approx(found["loss"] * 2 / 3)}
    assert found["ods"] > 0.9
    assert found["loss"] < 0.02
    assert objective.loss(-outputs, targets).min() > 3


@pytest.mark.parametrize(
    "model",
    [
        "hed",
        pytest.param("hed_bn", marks=pytest.mark.long),
        pytest.param("bdcn", marks=pytest.mark.long),
        "bdcn_bn",
    ],
)
def test_vgg16_weights_load_from_torchvision(tmp_path: Path, model: str) -> None:
    theirs = vgg.make_layers(vgg.cfgs["D"], batch_norm=model.endswith("bn"))
    state = {f"features.{name}": tensor for name, tensor in theirs.state_dict().items()}
    torch.save(state | {"classifier.0.bias": torch.zeros(4)}, tmp_path / "vgg.pth")
    network = TASK.build_model(job(model=model, weights_file=str(tmp_path / "vgg.pth")), 1, 3)
    stages = network.get_submodule("features")
    before_last = 33 if model.endswith("bn") else 23
    inputs = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        theirs.train()
        torch.testing.assert_close(stages[:before_last](inputs), theirs[:before_last](inputs))  # type: ignore[index]
        outputs = network(inputs)
    assert outputs.shape == (2, 6 if model.startswith("hed") else 11, 32, 32)
    assert set(stages.state_dict()) == set(theirs.state_dict())


def test_hed_matches_the_paper() -> None:
    model = Hed().eval()
    inputs = torch.rand(1, 3, 50, 36)
    with torch.no_grad():
        sides, values, first = [], inputs, 0
        for number, end in enumerate((4, 9, 16, 23, 30)):
            values = model.features[first:end](values)
            side = model.head.side[number](values)
            sides.append(functional.interpolate(side, (50, 36), mode="bilinear"))
            first = end
        fused = sum(sides) / 5
        torch.testing.assert_close(model(inputs), torch.cat([*sides, fused], 1))


@pytest.mark.parametrize(("encoder", "widths"), [("resnet18", [64, 64, 128, 256, 512]), ("mit_b0", [32, 64, 160, 256])])
def test_hed_on_encoder_returns_a_map_per_level_and_their_mean(encoder: str, widths: list[int]) -> None:
    model = HedOnEncoder(encoder, 3).eval()
    assert [side.in_channels for side in model.head.side] == widths
    inputs = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        enlarged = functional.interpolate(inputs, (128, 128), mode="bilinear")
        levels = [level for level in model.encoder(enlarged)[1:] if level.shape[1]]
        sides = [
            functional.interpolate(side(level), (64, 64), mode="bilinear")
            for side, level in zip(model.head.side, levels, strict=True)
        ]
        torch.testing.assert_close(model(inputs), torch.cat([*sides, sum(sides) / len(sides)], 1))


def test_bdcn_blocks_add_the_scales_of_all_layers() -> None:
    block = IncrementalDetection(4, 2)
    layers = torch.rand(2, 1, 4, 20, 20)
    enhanced = []
    for module, layer in zip(block.enhance, layers, strict=True):
        reduced = module.conv(layer).relu()
        dilated = [
            functional.conv2d(reduced, each.weight, each.bias, padding=4 * step, dilation=4 * step).relu()
            for step, each in enumerate(module.dilated, 1)
        ]
        assert len(dilated) == 3
        enhanced.append(module.down(reduced + sum(dilated)))
    to_deep, to_shallow = block(layers)
    torch.testing.assert_close(to_deep, block.to_deep(sum(enhanced)))
    torch.testing.assert_close(to_shallow, block.to_shallow(sum(enhanced)))


def test_bdcn_stages_learn_residual_edges() -> None:
    model = Bdcn()
    convolutions = [layer for layer in model.features if isinstance(layer, nn.Conv2d)]
    assert [each.dilation[0] for each in convolutions] == [1] * 10 + [2] * 3
    assert convolutions[2].weight.std().item() == pytest.approx((2 / 9 / 128) ** 0.5, rel=0.05)
    assert not any(each.bias.any() for each in convolutions)  # type: ignore[union-attr]
    assert model.features(torch.rand(1, 3, 32, 32)).shape == (1, 512, 4, 4), "the last stage doesn't halve the image"
    maps = model(torch.rand(1, 3, 32, 32))
    blocks = list(model.head.blocks)
    biases = {(way, stage): getattr(block, way).bias for stage, block in enumerate(blocks) for way in WAYS}
    for number in range(10):
        grads = torch.autograd.grad(maps[:, number].sum(), list(biases.values()), retain_graph=True, allow_unused=True)
        learning = [key for key, grad in zip(biases, grads, strict=True) if grad is not None and grad.any()]
        assert learning == [(WAYS[number // 5], number % 5)]
    with torch.no_grad():
        biases = torch.arange(1.0, 11.0)
        for block, to_deep, to_shallow in zip(blocks, biases[:5], biases[5:], strict=True):
            for convolution, bias in ((block.to_deep, to_deep), (block.to_shallow, to_shallow)):
                convolution.weight.zero_()
                convolution.bias.fill_(bias)
        found = model(torch.rand(1, 3, 32, 32))[0, :, 0, 0]
    assert found[:10].tolist() == [1, 3, 6, 10, 15, 40, 34, 27, 19, 10]
    assert found[10].item() == pytest.approx(16.5)


@pytest.mark.parametrize("model_id", ["hed", "hed_encoder"])
def test_a_frozen_backbone_leaves_the_head_to_learn(model_id: str) -> None:
    model = TASK.build_model(job(model=model_id, image_size=64, freeze_epochs=100), 1, 5)
    assert model(torch.rand(1, 5, 64, 64)).shape[2:] == (64, 64)
    learning = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learning == {"head"}


def test_edges_are_drawn_white_on_black() -> None:
    outputs, targets = make_sample(1, 2)
    objective = TASK.create_objective(job(), make_dataset_info(1))
    image = np.full((SIDE, SIDE, 3), 90, np.uint8)
    truth = objective.show_truth(image, targets[0]).image
    assert truth.shape == (SIDE, SIDE, 3)
    agreement = targets[0, 0].where(targets[0, 0] != OUTSIDE, 0)
    np.testing.assert_array_equal(truth[..., 0], np.rint(agreement.numpy() / FULL * 255))
    found = objective.show_prediction(image, outputs[0]).image
    np.testing.assert_array_equal(found[..., 1], np.rint(torch.sigmoid(outputs[0, 1]).numpy() * 255))
