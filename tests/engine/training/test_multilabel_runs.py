"""Multi-label classification under all strategies, from the folder to the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.contract.events import ClassMeasures, Planned, Predicted, Validation
from tests.engine.training.task_jobs import task_job
from tests.support.trained_runs import LABELS, make_labeled
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]

job = partial(task_job, task="multilabel", model="mnist_cnn", image_size=16, batch_size=12, learning_rate=0.01)


@pytest.fixture(scope="module")
def lights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_labeled(tmp_path_factory.mktemp("lights"), {"train": 60, "val": 21})


def test_multilabel_learns_each_label(start: Start, lights: Path) -> None:
    fields = {"mixup": 0.2, "label_smoothing": 0.05, "oversample": True, "class_weights": "balanced"}
    group = start(job(lights, epochs=8, **fields)).completed()
    (plan,) = group.of(Planned)
    assert plan.classes == LABELS
    # By chance it would be 0.4, the fraction of images with a label.
    assert group.of(Validation)[-1].measures["map"] > 0.9
    assert set(group.of(ClassMeasures)[-1].measures) == {"AP", "Precision", "Recall", "F1"}
    first = group.of(Predicted)[-1].samples[0]
    rows = (lights / "val/labels.csv").read_text().splitlines()[1:]
    row = next(row for row in rows if row.startswith(Path(first.name).name))
    shining = [name for name, flag in zip(LABELS, row.split(",")[1:], strict=True) if flag == "1"]
    assert first.truth_words == (", ".join(shining) or "no label")
