"""Numbers that heat maps explain, selected from a model's outputs."""

from __future__ import annotations

import pytest
import torch

from engine.contract.job import Job
from engine.tasks.explanation import create_output_targets, create_pixel_targets
from engine.tasks.registry import TASKS
from tests.support.dataset_infos import make_dataset_info

CLASSES = ("road", "car", "tree")


def test_pixel_targets_average_the_pixels_of_their_class() -> None:
    predicted = torch.tensor([[0, 0, 0], [1, 2, 2]])
    logits = torch.nn.functional.one_hot(predicted, 3).permute(2, 0, 1) * torch.tensor([[1.0, 2, 3], [4, 5, 9]])
    probabilities = logits.softmax(0)
    (target,) = create_pixel_targets(logits, CLASSES, ())
    assert (target.class_name, target.value, target.note) == ("tree", 7, "")
    assert target.score == pytest.approx(probabilities[2, 1, 1:].mean().item())
    targets = create_pixel_targets(logits, CLASSES, (1, 0))
    assert [(each.class_name, each.value) for each in targets] == [("car", 4), ("road", 2)]
    (target,) = create_pixel_targets(logits[[0, 1, 1]] - 1, CLASSES, (2,))
    assert (target.class_name, target.value, "car" in target.note, "tree" in target.note) == (
        "tree",
        pytest.approx(4 / 6 - 1),
        False,
        True,
    )
    assert target.score == pytest.approx(logits[[0, 1, 1]].softmax(0)[2].mean().item())
    (target,) = create_pixel_targets(logits + torch.tensor([9.0, 0, 0])[:, None, None], CLASSES, ())
    assert (target.class_name, target.value) == ("road", 10)


def test_output_targets_average_the_part_of_a_class() -> None:
    output = torch.tensor([[1.0, 3], [5, 7], [9, 11]])
    assert [each[:2] for each in create_output_targets(output, CLASSES, (2, 0))] == [("tree", 10), ("road", 2)]
    for classes, requested in ((CLASSES, ()), (CLASSES[:2], (1,))):
        (target,) = create_output_targets(output, classes, requested)
        assert (target.class_name, target.value, target.score) == ("", 6, None)


def test_detections_are_explained_by_score() -> None:
    objective = TASKS["detection"].create_objective(Job.from_fields(task="detection"), make_dataset_info(3))

    def select(scores: list[float], requested: tuple[int, ...] = ()) -> list[tuple[str, float, float]]:
        boxes = torch.arange(4.0 * len(scores)).reshape(-1, 4)
        detections = {"scores": torch.tensor(scores, requires_grad=True), "boxes": boxes}
        detections["labels"] = torch.tensor([3, 1, 2, 1, 2])[: len(scores)]
        targets = objective.select_explanation_targets([detections], CLASSES, requested, 64)
        assert all(each.value.item() == pytest.approx(each.score) and each.value.requires_grad for each in targets)
        return [(each.class_name, round(each.score or 0, 3), each.box[0] if each.box else -1) for each in targets]

    assert select([0.5, 0.9, 0.7, 0.6, 0.8]) == [("road", 0.9, 4), ("car", 0.8, 16), ("car", 0.7, 8)]
    assert select([0.5, 0.4, 0.5]) == [("tree", 0.5, 0), ("car", 0.5, 8)]
    assert select([0.1, 0.3, 0.2]) == [("road", 0.3, 4)]
    assert select([0.5, 0.9, 0.7, 0.6, 0.8], (2, 1)) == [("tree", 0.5, 0), ("car", 0.8, 16)]
    assert select([0.5, 0.9], (1,)) == select([]) == []
