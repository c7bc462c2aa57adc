"""What texts of transforms mean, and what is wrong with them."""

from __future__ import annotations

import pytest

from engine.checks.augmentation_checks import augmentation_problems
from engine.contract.augmentation import (
    TRANSFORMS,
    Transform,
    in_words,
    mirrors,
    mosaic_ends,
    parse,
    transforms,
)
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.problems import Problem


def own(*texts: str, task: str = "classification") -> Job:
    return Job.from_fields(task=task, augmentation="own", transforms=texts)


def test_that_a_text_is_a_name_and_its_numbers_of_which_those_with_a_default_may_be_left_out() -> None:
    assert parse("rotate:10") == Transform("rotate", (10.0,))
    assert parse(" resized_crop:0.35 ") == Transform("resized_crop", (0.35, 1.0))
    assert parse("randaugment") == Transform("randaugment", (2, 9))
    assert parse("trivial") == Transform("trivial")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rotat:10", "Did you mean “rotate”?"),
        ("rotate", "needs degrees from 0 to 180"),
        ("rotate:200", "“200” is not degrees from 0 to 180"),
        ("rotate:nan", "“nan” is not degrees"),
        ("rotate:ten", "“ten” is not degrees"),
        ("rotate:1:2", "needs degrees from 0 to 180"),
        ("trivial:1", "takes no numbers"),
        ("randaugment:2.5", "“2.5” is not operations from 1 to 10"),
        ("scale:2:0.5", "Write scale:0.5:2."),
        ("", "There is no transform “”."),
    ],
)
def test_that_a_wrong_text_is_told_with_its_remedy(text: str, said: str) -> None:
    (problem,) = augmentation_problems(own(text))
    assert said in str(problem)
    assert (problem.field, problem.severity) == ("transforms", "error")
    assert problem.remedy


def test_that_all_wrong_texts_are_told_at_once() -> None:
    assert len(augmentation_problems(own("rotate:200", "flip", "nonsense"))) == 2


@pytest.mark.parametrize(
    ("task", "text", "why"),
    [
        ("segmentation", "erase", "leave labels under"),
        ("detection", "augmix", "mixes images"),
        ("classification", "mosaic", "four images"),
    ],
)
def test_that_a_transform_that_a_tasks_labels_cannot_follow_is_refused(task: str, text: str, why: str) -> None:
    (problem,) = augmentation_problems(own(text, task=task))
    assert "not for this task" in problem.message
    assert why in problem.message


def test_that_own_without_a_list_is_told() -> None:
    assert not augmentation_problems(
        Job.from_fields(transforms=("flip",))
    )  # which has no effect, as is told of all such fields
    (empty,) = augmentation_problems(own())
    assert (empty.field, empty.severity) == ("transforms", "error")
    (points,) = augmentation_problems(own("flip", task="point_segmentation"))
    assert (points.field, points.severity) == ("augmentation", "error")
    (points,) = augmentation_problems(Job.from_fields(augmentation="strong", task="point_segmentation"))
    assert (points.field, points.severity) == ("augmentation", "warning")
    assert not augmentation_problems(Job.from_fields(augmentation="light", task="point_segmentation"))


def test_that_every_task_with_images_has_strengths_of_transforms_that_it_can_have() -> None:
    tasks = {entry.id: entry.augmentation for entry in load_catalogue().tasks}
    assert [task for task, kind in tasks.items() if kind is None] == ["point_segmentation"]
    for task, kind in tasks.items():
        if kind is None:
            continue
        weaker, stronger = (transforms(Job.from_fields(task=task, augmentation=each)) for each in ("medium", "strong"))
        assert weaker
        assert stronger
        assert weaker != stronger
        for job in (
            Job.from_fields(task=task, augmentation="medium"),
            Job.from_fields(task=task, augmentation="strong"),
        ):
            assert all(isinstance(parse(text, kind), Transform) for text in in_words(job).split(", "))
        assert not transforms(Job.from_fields(task=task, augmentation="light"))


def test_that_every_transform_has_an_example_that_is_right() -> None:
    for name in TRANSFORMS:
        problem = parse(f"{name}:1:2:3:4:5:6:7")
        assert isinstance(problem, Problem)
        example = problem.remedy.removeprefix("Write ").removesuffix(".")
        assert isinstance(parse(example), Transform), example


@pytest.mark.parametrize(("epochs", "last"), [(1, 0), (5, 4), (50, 45), (300, 290)])
def test_that_mosaic_ends_before_the_run_does(epochs: int, last: int) -> None:
    assert mosaic_ends(epochs) == last


def test_that_images_of_signs_are_not_mirrored_unless_the_job_says_so() -> None:
    for classes in (("0", "1"), ("00012", "7"), ("A", "b")):
        assert not mirrors(Job(), classes)
        assert mirrors(Job.from_fields(mirror="on"), classes)
    assert mirrors(Job(), ("rose", "tulip"))
    assert mirrors(Job(), ("A", "rose"))
    assert not mirrors(Job.from_fields(mirror="off"), ("rose", "tulip"))
    assert not mirrors(Job(), ("rose",), images=False)
