"""Image sizes over the epochs of a run, and problems with sizes that change."""

from __future__ import annotations

import pytest

from engine.checks.training_checks import image_size_problems
from engine.contract.catalogue import load_catalogue
from engine.contract.images import SizeLimits, image_size_problem, side_of_epoch, sides_of_epoch, validation_side
from engine.contract.job import Job

CATALOGUE = load_catalogue()


def test_side_of_epoch_grows_over_two_thirds_of_the_run() -> None:
    job = Job.from_fields(epochs=12, progressive_from=96)
    assert [side_of_epoch(job, 224, epoch) for epoch in range(1, 13)] == [
        *(96, 96, 128, 128, 160, 160, 192, 192),
        *(224,) * 4,
    ]
    assert [side_of_epoch(job, 150, epoch) for epoch in range(1, 13)] == [*(96,) * 5, *(128,) * 3, *(150,) * 4]
    assert {side_of_epoch(Job.from_fields(epochs=12), 224, epoch) for epoch in range(1, 13)} == {224}
    assert side_of_epoch(Job.from_fields(epochs=1, progressive_from=96), 224, 1) == 96
    assert side_of_epoch(Job.from_fields(progressive_from=130), 224, 1, SizeLimits(24, 24)) == 120
    assert side_of_epoch(Job.from_fields(progressive_from=16), 224, 1) == 32


@pytest.mark.parametrize(
    ("fields", "limits", "expected"),
    [
        ({}, SizeLimits(), [640]),
        ({"multi_scale": 0.1}, SizeLimits(), [576, 608, 640, 672, 704]),
        ({"multi_scale": 0.1}, SizeLimits(smallest=640), [640, 672, 704]),
        ({"multi_scale": 0.05}, SizeLimits(24, 24), [624, 648, 672]),
        ({"multi_scale": 0.02}, SizeLimits(), [640]),
        ({"multi_scale": 0.25, "progressive_from": 128}, SizeLimits(), [96, 128, 160]),
    ],
)
def test_sides_of_epoch_are_multiples_of_the_step_near_the_size(
    fields: dict[str, object], limits: SizeLimits, expected: list[int]
) -> None:
    assert list(sides_of_epoch(Job.from_fields(**fields), 640, 1, limits)) == expected


@pytest.mark.parametrize(
    ("size", "smallest", "step", "suggested"),
    [(31, 32, 1, "32 or more"), (32, 32, 1, None), (120, 64, 32, "128"), (100, 64, 32, "96"), (96, 64, 32, None),
     (64, 288, 32, "288"), (24, 100, 24, "120")],
)  # fmt: skip
def test_image_size_problem_suggests_the_nearest_size(
    size: int, smallest: int, step: int, suggested: str | None
) -> None:
    problem = image_size_problem("U-Net", size, smallest, step)
    assert (problem and problem.remedy) == (suggested and f"Set {suggested}, or leave it empty.")


@pytest.mark.parametrize(
    ("fields", "is_refused"),
    [
        ({"progressive_from": 224}, True),
        ({"progressive_from": 16}, True),
        ({"progressive_from": 128, "image_size": 128}, True),
        ({"progressive_from": 128, "strategy": "pipeline"}, True),
        ({"progressive_from": 128, "compile": "on"}, True),
        ({"progressive_from": 128}, False),
        ({"progressive_from": 16, "task": "point_segmentation", "model": "pointcnn"}, False),
        ({"multi_scale": 0.25, "strategy": "pipeline"}, True),
        ({"multi_scale": 0.25, "compile": "on"}, True),
        ({"multi_scale": 0.25, "task": "detection", "model": "ssd300_vgg16"}, False),
        ({"multi_scale": 0.25}, False),
    ],
)
def test_image_size_problems_of_changing_sizes(fields: dict[str, object], is_refused: bool) -> None:
    job = Job.from_fields(**fields)  # type: ignore[arg-type]
    task, strategy, model = (
        CATALOGUE.task(job.task),
        CATALOGUE.strategy(job.resolved_strategy),
        CATALOGUE.model(job.model.name),
    )
    found = list(image_size_problems(job, task, strategy, model))
    assert [problem.field for problem in found] == [next(iter(fields))] * is_refused
    assert all(problem.remedy for problem in found)


def test_validation_side_depends_on_the_task() -> None:
    classification, detection = CATALOGUE.task("classification"), CATALOGUE.task("detection")
    assert classification is not None
    assert detection is not None
    assert validation_side(Job.from_fields(val_crop=0.875), classification, 224) == 256
    assert validation_side(Job(), classification, 224) == 224
    assert validation_side(Job.from_fields(val_crop=0.875), detection, 224) == 224
