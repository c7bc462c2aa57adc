"""PointCNN, and losses and metrics for point clouds."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from engine.contract.job import Job
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.mask_values import NO_CLASS, class_colors
from engine.models.base import TaskError
from engine.tasks.base import DatasetInfo
from engine.tasks.points.drawing import draw_points, encode_points
from engine.tasks.points.networks import PointCNN, XConv, XTransform, find_neighbors, select_farthest_points, take
from engine.tasks.points.samples import PointBlocks
from engine.tasks.registry import TASKS
from tests.support.clouds import make_clouds

TASK = TASKS["point_segmentation"]
CLASSES = 3


def job(**fields: object) -> Job:
    return Job.from_fields(**({"task": "point_segmentation", "model": "pointcnn_x1", "points": 64} | fields))  # type: ignore[arg-type]


def cloud(count: int = 2, points: int = 64, channels: int = 3) -> torch.Tensor:
    return torch.randn(count, channels, points, generator=torch.Generator().manual_seed(0))


def test_farthest_point_sampling() -> None:
    points = cloud(3, 40).transpose(1, 2)
    found = select_farthest_points(points, 12)
    for number in range(3):
        chosen = [0]
        while len(chosen) < 12:
            away = [min(float((point - points[number, each]).norm()) for each in chosen) for point in points[number]]
            chosen.append(int(np.argmax(away)))
        assert found[number].tolist() == chosen


def test_neighbors_are_dilated_and_repeated() -> None:
    points = cloud(2, 30).transpose(1, 2)
    found = find_neighbors(points[:, :5], points, 4, 2)
    for number in range(2):
        for place in range(5):
            order = (points[number] - points[number, place]).norm(dim=1).argsort()
            assert found[number, place].tolist() == order[:8:2].tolist()
    for dilation in (2, 8):  # of ten points, each second one at most
        near = find_neighbors(points[:, :5], points[:, :10], 4, dilation)
        assert torch.equal(near, find_neighbors(points[:, :5], points[:, :10], 10, 1)[..., :8:2])
    few = find_neighbors(points[:, :5], points[:, :3], 8, 4)
    assert few.shape == (2, 5, 8)
    assert torch.equal(few[..., :3], few[..., 3:6])
    assert torch.equal(few[..., :3].sort().values, torch.arange(3).expand(2, 5, 3))


@pytest.mark.parametrize("fan_in", [4, 16])
def test_x_transform_starts_like_linear_layers(fan_in: int) -> None:
    torch.manual_seed(0)
    transform = XTransform(fan_in)
    for columns in (transform.second, transform.third):
        # uniform from -bound to bound, as torch.nn.Linear: standard deviation bound / sqrt(3)
        assert columns.weight.std().item() == pytest.approx(fan_in**-0.5 / 3**0.5, rel=0.2)
        assert columns.weight.abs().max().item() <= fan_in**-0.5
        assert not columns.bias.any()


def test_x_conv_matches_the_paper() -> None:
    torch.manual_seed(0)
    layer = XConv(5, 7, neighbors=4, dilation=1, lifted_channels=6, depth_multiplier=2).eval()
    assert 0.4 < layer.depthwise.abs().max().item() <= 4**-0.5
    points, features = cloud(1, 20).transpose(1, 2), torch.randn(1, 20, 5)
    outputs = layer(points, features, points[:, :3])
    for place in range(3):
        neighbors = (points[0] - points[0, place]).norm(dim=1).argsort()[:4]
        local = layer.norm(points[0, neighbors] - points[0, place])
        lifted = torch.stack([layer.lift(row) for row in local])
        joined = torch.cat([lifted, features[0, neighbors]], 1)
        transform = _transform_by_hand(layer.transform, local)
        mixed = transform @ joined
        each = torch.stack(
            [sum(mixed[k, c] * layer.depthwise[k, c, d] for k in range(4)) for c in range(11) for d in range(2)]
        )
        by_hand = layer.out_norm(functional.elu(layer.pointwise(each))[None])[0]
        torch.testing.assert_close(outputs[0, place], by_hand, rtol=1e-4, atol=1e-5)


def _transform_by_hand(layer: XTransform, local: torch.Tensor) -> torch.Tensor:
    """Compute the 4 x 4 matrix of an X-transform from the local coordinates of four neighbors, one column at a time."""
    values = functional.elu(layer.first(local.flatten())).reshape(4, 4)
    for number, columns in enumerate((layer.second, layer.third)):
        rows = torch.stack([values[:, c] @ columns.weight[c] for c in range(4)]) + columns.bias
        values = functional.elu(rows) if number == 0 else rows
    return values


def test_batches_of_clouds_do_not_mix() -> None:
    values = torch.arange(24.0).reshape(2, 4, 3)
    taken = take(values, torch.tensor([[[0, 3]], [[1, 1]]]))
    assert taken.tolist() == [[[[0, 1, 2], [9, 10, 11]]], [[[15, 16, 17], [15, 16, 17]]]]


@pytest.mark.parametrize(("channels", "points"), [(3, 64), (6, 100)])
def test_outputs_follow_the_point_order(channels: int, points: int) -> None:
    torch.manual_seed(0)
    model = PointCNN(channels, CLASSES, width=1)
    inputs = cloud(2, points, channels)
    outputs = model(inputs)
    assert outputs.shape == (2, CLASSES, points)
    assert not torch.equal(model(inputs), outputs), "dropout"
    outputs.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    model.eval()
    order = torch.cat(
        [torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(points - 1)]
    )  # the first begins the others
    with torch.no_grad():
        torch.testing.assert_close(model(inputs)[:, :, order], model(inputs[:, :, order]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("channels", [pytest.param(3, marks=pytest.mark.long), 4])
def test_gradients_are_the_slopes_of_the_loss(channels: int) -> None:
    torch.manual_seed(0)
    model = PointCNN(channels, CLASSES, width=1).double().eval()
    inputs = cloud(1, 40, channels).double()
    weights = torch.randn(1, CLASSES, 40, dtype=torch.float64)
    parameters = list(model.parameters())
    grads = torch.autograd.grad((model(inputs) * weights).sum(), parameters)
    if channels > 3:
        assert not torch.allclose(model(inputs), model(inputs * torch.tensor([[1.0], [1], [1], [2]])))
    for parameter, grad in zip(parameters, grads, strict=True):
        direction, losses = torch.randn_like(parameter), []
        with torch.no_grad():
            for step in (1e-6, -2e-6):
                parameter.add_(step * direction)
                losses.append((model(inputs) * weights).sum().item())
            parameter.add_(1e-6 * direction)
        slope = (losses[0] - losses[1]) / 2e-6
        assert slope == pytest.approx((grad * direction).sum().item(), rel=1e-3, abs=1e-4)
    assert PointCNN(channels, CLASSES, width=1).eval()(cloud(1, 1, channels)).shape == (1, CLASSES, 1)


@pytest.mark.parametrize(("channels", "width", "parameters"), [(3, 1, 109_473), (6, 1, 110_617), (6, 2, 280_563)])
def test_networks_keep_their_size(channels: int, width: int, parameters: int) -> None:
    with torch.device("meta"):
        model = PointCNN(channels, CLASSES, width)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_weights_load_into_the_plain_network() -> None:
    model = TASK.build_model(job(freeze_epochs=9), CLASSES, 6)
    PointCNN(6, CLASSES, 1).load_state_dict(model.state_dict())
    assert {name.split(".")[0] for name, each in model.named_parameters() if each.requires_grad} == {"head"}


def test_point_losses_and_metrics_match_pixels() -> None:
    objective = TASK.create_objective(job(), DatasetInfo(tuple("abc")))
    outputs, targets = torch.randn(4, CLASSES, 30), torch.randint(0, CLASSES, (4, 30))
    targets[:, :7] = NO_CLASS
    expected = functional.cross_entropy(outputs[:, :, 7:], targets[:, 7:], reduction="none").mean(1)
    torch.testing.assert_close(objective.loss(outputs, targets), expected)
    dice = TASK.create_objective(job(loss="dice"), DatasetInfo(tuple("abc"))).loss(outputs, targets)
    assert ((dice > 0) & (dice < 1)).all()
    found, true = outputs.argmax(1)[:, 7:].numpy(), targets[:, 7:].numpy()
    assert objective.count_correct(outputs, targets).item() == pytest.approx((found == true).mean(1).sum(), rel=1e-6)  # type: ignore[union-attr]
    measures = objective.create_metric()
    measures.update(outputs, targets)
    measured = measures.compute()
    assert measured.keys() == {measure.id for measure in TASK.entry.metrics}
    ious = [((found == n) & (true == n)).sum() / ((found == n) | (true == n)).sum() for n in range(CLASSES)]
    assert measured["miou"] == pytest.approx(np.mean(ious), rel=1e-6)
    assert measured["point_accuracy"] == pytest.approx((found == true).mean(), rel=1e-6)
    assert measures.per_class()["IoU"] == pytest.approx(ious, rel=1e-6)
    assert objective.create_blank_targets(torch.zeros(2, 6, 30)).shape == (2, 30)


def test_rare_classes_may_be_weighted() -> None:
    dataset_info = DatasetInfo(("floor", "ball"), class_counts=lambda: (900.0, 100.0))
    outputs, targets = torch.zeros(2, 2, 10), torch.tensor([[0] * 10, [1] * 10])
    floor, ball = TASK.create_objective(job(class_weights="balanced"), dataset_info).loss(outputs, targets).tolist()
    assert ball > 1.5 * floor


def test_points_are_drawn_from_the_sample() -> None:
    objective = TASK.create_objective(job(), DatasetInfo(("floor", "ball")))
    given = cloud(1, 50)[0]
    target = torch.arange(50) % 2
    truth = objective.show_truth(given.numpy(), target)  # type: ignore[arg-type]
    right = functional.one_hot(target, 2).T.float()
    assert truth.image.shape == (256, 256, 3)
    assert (truth.legend, [entry.name for entry in objective.legend]) == ((0, 1), ["floor", "ball"])
    assert np.array_equal(objective.show_prediction(given.numpy(), right).image, truth.image)  # type: ignore[arg-type]
    assert not np.array_equal(objective.show_prediction(given.numpy(), 1 - right).image, truth.image)  # type: ignore[arg-type]


def test_drawn_points_keep_the_directions_of_the_file() -> None:
    # The variance is largest along x, then y: x points right, y up, and z towards the viewer.
    positions = np.array(
        [[-10, 0, 0], [10, 0, 0], [10, 0, 0], [0, 6, 0], [0, -6, 0], [0, 0, 1.5], [0, 0, -1.5]], np.float32
    )
    numbers = np.array([1, 2, 2, 3, 4, 5, 5], np.uint8)
    image = draw_points(positions, numbers, 65)
    colors = class_colors(6)
    left, right, top, bottom = (np.argwhere((image == colors[number]).all(2)).mean(0) for number in (1, 2, 3, 4))
    assert (left[1] < top[1] < right[1], top[0] < left[0] < bottom[0]) == (True, True)
    assert (left[0], right[0], top[1], bottom[1]) == pytest.approx((32,) * 4, abs=1)
    assert (left[1] + right[1], top[0] + bottom[0]) == pytest.approx((64, 64), abs=1)
    raw = np.frombuffer(
        zlib.decompress(base64.b64decode(encode_points(positions, numbers))), [("at", "<i2", 3), ("color", "u1", 3)]
    )
    assert (np.abs(raw["at"] - positions / 10 * 32767) <= 1).all()
    assert (raw["color"] == colors[numbers]).all()
    line = np.linspace(-1, 1, 5000, dtype=np.float32)[:, None] * np.array([1, 0, 0], np.float32)
    encoded = encode_points(line, (line[:, 0] > 0).astype(np.uint8))
    raw = np.frombuffer(zlib.decompress(base64.b64decode(encoded)), raw.dtype)
    assert (len(raw), raw["at"][0, 0], raw["at"][-1, 0]) == (2500, -32767, 32767)
    assert (raw["color"] == colors[(raw["at"][:, 0] > 0).astype(int)]).all()


def test_splits_may_ignore_a_label(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 2, "val": 1}, 200)
    splits = open_splits(str(tmp_path), val_fraction=0.2, seed=0, kinds=("points",))
    prepared = TASK.prepare_splits(job(points=80, seed=7, augmentation="light"), splits)
    assert isinstance(prepared.train, PointBlocks)
    assert isinstance(prepared.val, PointBlocks)
    assert (len(prepared.train), len(prepared.val), prepared.train.streams.seed) == (6, 3, 7)
    assert (prepared.train.training, prepared.train.is_rotated) == (True, True)
    assert (prepared.val.training, prepared.val.is_rotated) == (False, False)
    assert prepared.train.statistics == prepared.val.statistics == prepared.statistics
    plain = TASK.prepare_splits(job(augmentation="none"), splits).train
    assert isinstance(plain, PointBlocks)
    assert (plain.training, plain.is_rotated, len(plain)) == (True, False, 8)
    assert prepared.train.load(0, 1)[0].shape == TASK.get_example_shape(job(points=80), splits.channels)
    with pytest.raises(TaskError, match="Without the label 1, there are no two classes left") as error:
        TASK.prepare_splits(job(ignore_value=1), splits)
    assert error.value.field == "ignore_value"
