"""Augmentations written as text: parsing, description, and problems with invalid texts."""

from __future__ import annotations

import pytest

from engine.checks.training_checks import augmentation_problems
from engine.contract.augmentation import (
    TRANSFORMS,
    Transform,
    describe,
    last_mosaic_epoch,
    parse,
    should_mirror,
    transforms,
)
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.problems import Problem


def custom(*texts: str, task: str = "classification") -> Job:
    return Job.from_fields(task=task, augmentation="own", transforms=texts)


def test_parse_fills_in_default_numbers() -> None:
    assert parse("rotate:10") == Transform("rotate", (10.0,))
    assert parse(" resized_crop:0.35 ") == Transform("resized_crop", (0.35, 1.0))
    assert parse("randaugment") == Transform("randaugment", (2, 9))
    assert parse("trivial") == Transform("trivial")
    assert parse("randaugment:1:30") == Transform("randaugment", (1, 30))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rotat:10", "Did you mean “rotate”?"),
        ("rotate", "needs degrees from 0 to 180"),
        ("rotate:200", "“200” is not degrees from 0 to 180"),
        ("rotate:-1", "“-1” is not degrees from 0 to 180"),
        ("rotate:nan", "“nan” is not degrees"),
        ("rotate:ten", "“ten” is not degrees"),
        ("rotate:1:2", "needs degrees from 0 to 180"),
        ("trivial:1", "takes no numbers"),
        ("randaugment:2.5", "“2.5” is not operations from 1 to 10"),
        ("scale:2:0.5", "Write scale:0.5:2."),
        ("", "There is no transform “”."),
    ],
)
def test_parse_returns_a_problem_with_a_remedy(text: str, expected: str) -> None:
    (problem,) = augmentation_problems(custom(text))
    assert expected in str(problem)
    assert (problem.field, problem.severity) == ("transforms", "error")
    assert problem.remedy


def test_augmentation_problems_reports_all_texts() -> None:
    assert len(augmentation_problems(custom("rotate:200", "flip", "nonsense"))) == 2


@pytest.mark.parametrize(
    ("task", "text"), [("segmentation", "erase"), ("detection", "augmix"), ("classification", "mosaic")]
)
def test_parse_refuses_transforms_of_other_tasks(task: str, text: str) -> None:
    job = custom(text, "flip:1", task=task)
    (problem,) = augmentation_problems(job)
    assert (problem.field, problem.severity) == ("transforms", "error")
    assert transforms(job) == (Transform("flip", (1.0,)),)


def test_augmentation_problems_of_strengths_and_lists() -> None:
    assert not augmentation_problems(Job.from_fields(transforms=("flip",)))  # idle fields are reported elsewhere
    (empty,) = augmentation_problems(custom())
    assert (empty.field, empty.severity) == ("transforms", "error")
    (points,) = augmentation_problems(custom("flip", task="point_segmentation"))
    assert (points.field, points.severity) == ("augmentation", "error")
    (points,) = augmentation_problems(Job.from_fields(augmentation="strong", task="point_segmentation"))
    assert (points.field, points.severity) == ("augmentation", "warning")
    assert not augmentation_problems(Job.from_fields(augmentation="light", task="point_segmentation"))


def test_strengths_are_valid_for_every_task() -> None:
    tasks = {entry.id: entry.augmentation for entry in load_catalogue().tasks}
    assert [task for task, kind in tasks.items() if kind is None] == ["point_segmentation"]
    for task, kind in tasks.items():
        if kind is None:
            continue
        weaker, stronger = (transforms(Job.from_fields(task=task, augmentation=each)) for each in ("medium", "strong"))
        assert weaker
        assert stronger
        assert weaker != stronger
        for name in ("medium", "strong"):
            job = Job.from_fields(task=task, augmentation=name)
            assert all(isinstance(parse(text, kind), Transform) for text in describe(job).split(", "))
        assert not transforms(Job.from_fields(task=task, augmentation="light"))
        assert not transforms(Job.from_fields(task=task, augmentation="none"))


def test_parse_remedy_is_a_valid_example() -> None:
    for name in TRANSFORMS:
        problem = parse(f"{name}:1:2:3:4:5:6:7")
        assert isinstance(problem, Problem)
        example = problem.remedy.removeprefix("Write ").removesuffix(".")
        assert isinstance(parse(example), Transform), example


@pytest.mark.parametrize(("epochs", "last"), [(1, 0), (5, 4), (50, 45), (300, 290)])
def test_mosaic_ends_before_the_run(epochs: int, last: int) -> None:
    assert last_mosaic_epoch(epochs) == last


def test_mirrors_excludes_images_of_characters() -> None:
    for classes in (("0", "1"), ("00012", "7"), ("A", "b")):
        assert not should_mirror(Job(), classes)
        assert should_mirror(Job.from_fields(mirror="on"), classes)
    assert should_mirror(Job(), ("rose", "tulip"))
    assert should_mirror(Job(), ("A", "rose"))
    assert should_mirror(Job(), ())
    assert not should_mirror(Job.from_fields(mirror="off"), ("rose", "tulip"))
    assert not should_mirror(Job(), ("rose",), images=False)
