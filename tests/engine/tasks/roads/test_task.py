"""Losses, metrics and models for road extraction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from engine.contract.job import Job
from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.decoding.mask_values import NO_CLASS
from engine.tasks.analysis import TASK_METRIC, EvaluatedMetrics, SampleColumns
from engine.tasks.registry import TASKS
from engine.tasks.roads.directions import BACKGROUND, DIRECTIONS, STEP, compute_orientation_plane, find_center_lines
from engine.tasks.roads.models import SCORES
from tests.support.dataset_infos import make_dataset_info
from tests.support.lines import make_line, make_lined
from tests.support.masks import make_masked
from tests.support.metrics import compute_on_ranks

TASK = TASKS["road_extraction"]
OBJECTIVE = TASK.create_objective(Job.from_fields(task="road_extraction"), make_dataset_info(2))
SIDE = 32


def linknet(**fields: Any) -> Job:
    return Job.from_fields(
        **{"task": "road_extraction", "model": "linknet_mtl", "encoder": "resnet18", "image_size": 64} | fields
    )


def make_targets(count: int) -> torch.Tensor:
    """Return targets for `count` images with a line: its mask and its directions, int64 [count, 2, h, w].

    The first row of each image is unlabeled.
    """
    planes = []
    for seed in range(count):
        mask = (make_line(SIDE, seed)[1] > 0).astype(np.uint8)
        mask[0] = NO_CLASS
        planes.append(np.stack([mask, compute_orientation_plane(mask)]))
    return torch.from_numpy(np.stack(planes)).long()


def make_guesses(targets: torch.Tensor, sureness: float, sides: tuple[int, ...] = (SIDE,)) -> torch.Tensor:
    """Return outputs of a model whose guesses are better than chance: noise plus `sureness` times the targets.

    There is one square map per element of `sides`, its size in pixels. As in the model's outputs, the maps are
    flattened and concatenated: [n, scores, pixels].
    """
    generator = torch.Generator().manual_seed(1)
    maps = []
    for side in sides:
        step = SIDE // side
        true, along = targets[:, :, ::step, ::step].unbind(1)
        right = [
            functional.one_hot(plane.where(plane != NO_CLASS, 0), count).permute(0, 3, 1, 2)
            for plane, count in ((true, 2), (along, DIRECTIONS + 1))
        ]
        noise = torch.randn(len(targets), SCORES, side, side, generator=generator)
        maps.append((noise + sureness * torch.cat(right, 1)).flatten(2))
    return torch.cat(maps, 2)


def compute_by_hand(outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Compute the metrics from their definitions, one pixel at a time."""
    scores = outputs[:, :, : SIDE * SIDE].reshape(-1, SCORES, SIDE, SIDE)
    right = union = found_lines = true_lines = directed = rightly = 0
    near, all_of = [0, 0], [0, 0]
    for score, (true, along) in zip(scores, targets.numpy(), strict=True):
        found, direction = score[:2].argmax(0).numpy(), score[2:-1].argmax(0).numpy()
        found_line, true_line = (found == 1) & (true != NO_CLASS), true == 1
        right += (found_line & true_line).sum()
        union += (found_line | true_line).sum()
        found_lines += found_line.sum()
        true_lines += true_line.sum()
        middles = find_center_lines(found_line), find_center_lines(true_line)
        for place in range(2):
            other = np.argwhere(middles[1 - place])
            for row, column in np.argwhere(middles[place]):
                all_of[place] += 1
                near[place] += bool((np.abs(other - (row, column)).max(1, initial=0) <= 3).any()) if len(other) else 0
        for one, other_one in zip(along.ravel().tolist(), direction.ravel().tolist(), strict=True):
            if one < DIRECTIONS:
                directed += 1
                off = abs(one - other_one) * STEP % 180
                rightly += min(off, 180 - off) <= 10
    precision, recall = near[0] / all_of[0], near[1] / all_of[1]
    return {
        "iou": right / union,
        "relaxed_iou": precision * recall / (precision + recall - precision * recall),
        "f1": 2 * right / (found_lines + true_lines),
        "orientation": rightly / directed,
        "relaxed_precision": precision,
        "relaxed_recall": recall,
    }


@pytest.mark.parametrize("ranks", [1, 3])
def test_metrics_match_their_definitions(ranks: int) -> None:
    targets = make_targets(7)
    outputs = make_guesses(targets, 2.5)
    total: Any = compute_on_ranks(OBJECTIVE, outputs, targets, ranks, 2)
    found = total.compute()
    assert found.keys() == {measure.id for measure in TASK.entry.metrics}
    other = OBJECTIVE.create_metric()  # its values have the same names, so those of the task's metric replace them
    other.update(outputs[:1], targets[:1])
    values = OBJECTIVE.create_analysis(("background", "road")).compute_values(
        EvaluatedMetrics({TASK_METRIC: total, "other": other}, np.ones(7, np.int64), SampleColumns())
    )
    assert values.per_class == total.per_class()
    for name, value in compute_by_hand(outputs, targets).items():
        assert 0.1 < value <= 1
        assert values.measures[name] == pytest.approx(value, abs=1e-6)
    assert found["loss"] == pytest.approx(OBJECTIVE.loss(outputs, targets).mean().item(), rel=1e-6)
    assert total.per_class()["IoU"][1] == found["iou"]
    assert [sum(row) for row in total.confusion()] == [int((targets[:, 0] == number).sum()) for number in range(2)]
    assert OBJECTIVE.create_metric().compute() == {}


def test_relaxed_metrics_accept_shifted_lines() -> None:
    targets = torch.zeros(1, 2, SIDE, SIDE, dtype=torch.int64)
    targets[:, 1] = BACKGROUND
    targets[0, 0, 10:13], targets[0, 1, 10:13] = 1, 0
    right = OBJECTIVE.create_metric()
    right.update(make_guesses(targets, 50), targets)
    assert [right.compute()[name] for name in ("iou", "relaxed_iou", "f1", "orientation")] == [1, 1, 1, 1]
    shifted = OBJECTIVE.create_metric()
    shifted.update(make_guesses(targets.roll(3, 2), 50), targets)
    assert shifted.compute()["iou"] == 0
    assert shifted.compute()["relaxed_iou"] == 1
    off = OBJECTIVE.create_metric()
    off.update(make_guesses(targets.roll(4, 2), 50), targets)
    assert off.compute()["relaxed_iou"] == 0
    thick = targets.clone()
    thick[0, 0, 10:25], thick[0, 1, 10:25] = 1, 0
    wide: Any = OBJECTIVE.create_metric()
    wide.update(make_guesses(thick, 50), targets)
    assert wide.compute_relaxed_scores()[1] < 0.3  # lines near the border of a band aren't found


def test_loss_is_soft_iou_plus_cross_entropy() -> None:
    targets = make_targets(3)
    targets[1, 0, 1:], targets[1, 1, 1:] = 0, BACKGROUND
    sides = (SIDE, SIDE // 2, SIDE // 4, SIDE // 4)
    outputs = make_guesses(targets, 1.0, sides)
    losses = OBJECTIVE.loss(outputs, targets)
    assert losses.shape == (3,)
    for number in range(3):
        expected, offset = 0.0, 0
        for side in sides:
            scores = outputs[number, :, offset : offset + side * side]
            offset += side * side
            true, along = targets[number, :, :: SIDE // side, :: SIDE // side].reshape(2, -1)
            for mask in (along < DIRECTIONS, along == BACKGROUND):
                off = functional.cross_entropy(scores[2:].T[mask], along[mask], reduction="sum").item()
                expected += off / max(int(mask.sum()), 1) / 2
            # Mean over line pixels, or over the background if a map has no lines.
            kind = int((true == 1).any())
            likely, mask = scores[:2].softmax(0)[kind, true != NO_CLASS], (true == kind)[true != NO_CLASS]
            both = (likely * mask).sum()
            expected += 1 - (both / (likely.sum() + mask.sum() - both)).item()
        assert losses[number].item() == pytest.approx(expected, rel=1e-5)


def test_loss_vanishes_for_perfect_outputs() -> None:
    targets = make_targets(3)
    targets[1, 0], targets[1, 1] = 0, BACKGROUND
    targets[2] = NO_CLASS
    outputs = make_guesses(targets, 0.0).requires_grad_()
    wrong, right = OBJECTIVE.loss(outputs, targets), OBJECTIVE.loss(make_guesses(targets, 60), targets)
    assert (wrong[:2] > 0.5).all()
    assert wrong[2] == 0
    assert (right < 1e-2).all()
    wrong.sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    left_out = (targets[:, 0] == NO_CLASS).flatten(1)[:, None].expand_as(outputs)
    assert (outputs.grad[left_out] == 0).all()
    assert OBJECTIVE.count_correct(make_guesses(targets, 60), targets) == 2
    assert OBJECTIVE.loss(
        make_guesses(targets, 0.0), OBJECTIVE.create_blank_targets(torch.zeros(3, 3, SIDE, SIDE))
    ).shape == (3,)


def test_direction_loss_balances_lines_and_background() -> None:
    targets = torch.zeros(1, 2, SIDE, SIDE, dtype=torch.int64)
    targets[0, 1] = BACKGROUND
    targets[0, 0, 10], targets[0, 1, 10] = 1, 5
    outputs = torch.zeros(1, SCORES, SIDE * SIDE, requires_grad=True)
    OBJECTIVE.loss(outputs, targets).sum().backward()
    assert outputs.grad is not None
    pulls = outputs.grad[0, 2:].reshape(-1, SIDE, SIDE).abs().sum(0)
    assert pulls[10].sum().item() == pytest.approx(pulls.sum().item() / 2)


def test_lines_are_colored_by_direction() -> None:
    targets = torch.zeros(1, 2, SIDE, SIDE, dtype=torch.int64)
    targets[0, 1] = BACKGROUND
    targets[0, 0, 10:14], targets[0, 1, 10:14] = 1, 0
    gray = np.full((SIDE, SIDE, 3), 100, np.uint8)
    true = OBJECTIVE.show_truth(gray, targets[0])
    guesses = make_guesses(targets, 50, (SIDE, SIDE // 2, SIDE // 4))[0]
    guesses[-1] += 100  # "no direction" is not a direction of a line
    found = OBJECTIVE.show_prediction(gray, guesses)
    for drawing in (true, found):
        assert drawing.text == "Lines on 12.5% of it"
        assert (drawing.image[0] == 100).all()
        red, green, blue = drawing.image[11, 5].tolist()
        assert red > 200
        assert green == blue < 50
    assert true.legend == found.legend == (0, 1, 2, 3)
    for name, along in (("level", 0), ("rising to the right", DIRECTIONS // 4), ("upright", DIRECTIONS // 2)):
        targets[0, 1, 10:14] = along
        (color,) = (entry.color for entry in OBJECTIVE.legend if entry.name == name)
        pixel = OBJECTIVE.show_truth(gray, targets[0]).image[11, 5].tolist()
        assert pixel == [25 + channel // 4 * 3 for channel in bytes.fromhex(color[1:])]
    targets[0, 0, :8] = NO_CLASS
    assert OBJECTIVE.show_truth(gray, targets[0]).text == "Lines on 16.7% of it"
    without_classes = OBJECTIVE.show_truth(gray, torch.full_like(targets[0], NO_CLASS))
    assert (without_classes.text, without_classes.legend) == ("Lines on 0.0% of it", ())


def test_largest_map_is_exported_and_explained() -> None:
    outputs = make_guesses(make_targets(2), 1.0, (SIDE, SIDE // 2))
    exported = OBJECTIVE.select_exported_outputs(outputs, torch.zeros(2, 3, SIDE, SIDE))
    assert torch.equal(exported, outputs[:, :, : SIDE * SIDE].reshape(2, SCORES, SIDE, SIDE))
    (target,) = OBJECTIVE.select_explanation_targets(outputs[:1], ("background", "road"), (), SIDE)
    assert target.class_name == "road"


def test_masks_must_have_two_classes(tmp_path: Path) -> None:
    def open_prepared_splits(folder: Path, ignored: int | None = None) -> Splits:
        splits = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=TASK.entry.annotations)
        return TASK.prepare_splits(Job.from_fields(task="road_extraction", ignore_value=ignored), splits)

    discs = make_masked(tmp_path / "discs", {"train": 2, "val": 2})
    assert open_prepared_splits(make_lined(tmp_path / "lines", {"train": 2, "val": 2})).train.planes == 2
    with pytest.raises(DatasetError, match=r"The masks have 3 classes.*choose the task Semantic segmentation"):
        open_prepared_splits(discs)
    splits = open_prepared_splits(discs, ignored=2)
    assert len(splits.classes) == 2
    of_class_2 = np.asarray(Image.open(discs / "masks/train/000.png")) == 2
    assert of_class_2.any()
    assert isinstance(splits.train, ImageSet)
    assert (splits.train.load(0, 32, 3).numpy()[3:, of_class_2] == NO_CLASS).all()


def test_linknet_freezes_its_encoder_while_the_branches_learn() -> None:
    model = TASK.build_model(linknet(freeze_epochs=100), 2, 5)
    learning = {name.partition(".")[0] for name, each in model.named_parameters() if each.requires_grad}
    assert learning == {"roads", "directions"}
    outputs = [model.get_submodule(f"{branch}.finalconv3").out_channels for branch in ("roads", "directions")]
    assert outputs == [2, DIRECTIONS + 1]
    before = {name: buffer.clone() for name, buffer in model.named_buffers() if "running_mean" in name}
    model(torch.rand(2, 5, 64, 64))
    moved = {name for name, buffer in model.named_buffers() if name in before and not torch.equal(before[name], buffer)}
    assert {name.partition(".")[0] for name in moved} == {"roads", "directions"}
