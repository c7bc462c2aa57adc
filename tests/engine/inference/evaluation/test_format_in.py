"""Choice of the dataset format in which an evaluation reads a folder other than the training dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.registry import recognize
from engine.inference.evaluation.dataset import find_readable_format
from tests.support.dataset_formats import coco, voc, yolo
from tests.support.dataset_formats.truth import TRUTH


@pytest.mark.parametrize("chosen", ["coco", "voc", "yolo"])
def test_format_in_is_the_chosen_one_if_the_folder_has_it(chosen: str, tmp_path: Path) -> None:
    (coco.write if chosen == "coco" else voc.write if chosen == "voc" else yolo.write)(TRUTH, tmp_path)
    assert find_readable_format(str(tmp_path), chosen, ("boxes",)) == chosen
    assert find_readable_format(str(tmp_path), f"{chosen}:variant", ("boxes",)) == chosen
    assert find_readable_format(str(tmp_path), "", ("boxes",)) == ""
    assert find_readable_format(str(tmp_path), chosen, ("points",)) == ""
    assert find_readable_format(str(tmp_path), "kitti", ("boxes",)) == ""


def test_format_in_settles_a_question_as_in_the_training(tmp_path: Path) -> None:
    images = [each.save(tmp_path / f"images/{each.name}.png") for each in TRUTH.images]
    rows = [f"images/{path.name},{'ab'[number % 2]},{'cd'[number % 2]}" for number, path in enumerate(images)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,shape,taste", *rows]))
    recognized = recognize(str(tmp_path), val_fraction=0.0, seed=0)
    (problem,) = recognized.problems
    for choice in problem.choices:
        chosen = str(choice.values["format"])
        assert find_readable_format(str(tmp_path), chosen, ("classes",)) == chosen
    assert len(problem.choices) >= 2
