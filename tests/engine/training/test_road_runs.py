"""Road extraction under all strategies, from the folder to the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.events import ClassMeasures, Failed, Predicted, StepMetrics, Validation
from tests.engine.training.task_jobs import task_job
from tests.support.consent import permit_model_file
from tests.support.lines import make_lined
from tests.support.masks import make_masked
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
SIDE = 32
ROADS = Path(__file__).parents[4] / "shared/datasets/massachusetts_roads_tiles"

job = partial(task_job, task="road_extraction", model="linknet_mtl", encoder="resnet18", image_size=SIDE)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lined(tmp_path_factory.mktemp("lines"), {"train": 48, "val": 10}, SIDE)


MODEL = """
from torch import nn

def build_model(scores):
    layers = []
    for inputs, spread in ((3, 1), (24, 2), (24, 4)):
        layers += [nn.Conv2d(inputs, 24, 3, padding=spread, dilation=spread), nn.BatchNorm2d(24), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(24, scores, 1))
"""


def test_roads_learn_lines_and_directions(start: Start, lines: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODEL)
    fields: dict[str, Any] = {
        "model": str(tmp_path / "own.py"),
        "model_file_sha256": permit_model_file(tmp_path / "own.py"),
    }
    fields |= {"epochs": 20, "learning_rate": 0.01, "schedule": "none", "augmentation": "light", "predictions": 2}
    group = start(job(lines, **fields)).completed(150)
    measured = [event.measures for event in group.of(Validation)]
    assert measured[-1]["iou"] > 0.6  # predicting lines everywhere gives 0.2
    assert measured[-1]["relaxed_iou"] > 0.6
    assert measured[-1]["orientation"] > 0.4  # predicting a single direction gives 0.14, that is, 5 of 36 classes
    last = group.of(ClassMeasures)[-1]
    assert last.measures["IoU"][1] == measured[-1]["iou"]
    assert sum(map(sum, last.confusion)) == 10 * SIDE * SIDE
    for sample in group.of(Predicted)[-1].samples:
        assert sample.truth_words.startswith("Lines on ")
        with Image.open(group.folder / sample.prediction_png) as drawn:
            assert drawn.size == (SIDE, SIDE)


def test_roads_refuse_masks_of_several_classes(start: Start, tmp_path: Path) -> None:
    group = start(job(make_masked(tmp_path, {"train": 8, "val": 2}, SIDE)))
    group.finish()
    (failed,) = group.of(Failed)
    assert "The masks have 3 classes" in failed.cause
    assert not group.of(StepMetrics)


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_roads_predict_aerial_images(start: Start) -> None:
    """Train from scratch for some minutes.

    Roads cover 10% of the validation tiles, so predicting roads everywhere gives an IoU of 10%. The best brightness
    threshold of the training tiles gives 17%.
    """
    if not ROADS.is_dir():
        pytest.skip(f"needs {ROADS}")
    fields = {"image_size": 128, "epochs": 20, "batch_size": 4, "augmentation": "light", "learning_rate": 0.001}
    group = start(job(ROADS, schedule="none", **fields)).completed(900)
    measured = [event.measures for event in group.of(Validation)]
    assert max(measures["iou"] for measures in measured) > 0.22
    assert max(measures["relaxed_iou"] for measures in measured) > 0.5
