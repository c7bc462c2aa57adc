"""Multi-label classification from a folder to a checkpoint, under the strategies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.events import ClassMeasures, Planned, Predicted, Validation
from engine.contract.job import Job
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
LABELS = ("blue", "green", "red")


@pytest.fixture(scope="module")
def lights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create noisy images with any of three colors, and a table of their labels."""
    folder = tmp_path_factory.mktemp("lights")
    random = np.random.default_rng(0)
    for split, count in (("train", 60), ("val", 21)):
        (folder / split).mkdir()
        lines = [f"file,{','.join(LABELS)}"]
        for number in range(count):
            shining = random.random(3) < 0.4
            pixels = random.integers(0, 130, (16, 16, 3)) + 100 * shining[::-1]
            Image.fromarray(pixels.astype(np.uint8)).save(folder / split / f"{number}.png")
            lines.append(f"{number}.png,{','.join(str(int(each)) for each in shining)}")
        (folder / split / "labels.csv").write_text("\n".join(lines))
    return folder


def job(folder: Path, cpus: int = 1, **fields: Any) -> Job:
    given: dict[str, Any] = {
        "dataset": str(folder), "task": "multilabel", "model": "mnist_cnn", "image_size": 16, "batch_size": 12, "epochs": 1,
        "loader_workers": 1, "optimizer": "adam", "learning_rate": 0.01, "memory_format": "contiguous",
        "devices": ("cpu",) * cpus,
    }  # fmt: skip
    return Job.from_fields(**(given | fields))


def test_multilabel_learns_each_label(start: Start, lights: Path) -> None:
    fields = {"mixup": 0.2, "label_smoothing": 0.05, "oversample": True, "class_weights": "balanced"}
    group = start(job(lights, epochs=8, **fields)).completed()
    (plan,) = group.of(Planned)
    assert plan.classes == LABELS
    assert group.of(Validation)[-1].measures["map"] > 0.9  # chance is the share of images with a label, 0.4
    assert set(group.of(ClassMeasures)[-1].measures) == {"AP", "Precision", "Recall", "F1"}
    first = group.of(Predicted)[-1].samples[0]
    rows = (lights / "val/labels.csv").read_text().splitlines()[1:]
    row = next(row for row in rows if row.startswith(Path(first.name).name))
    shining = [name for name, flag in zip(LABELS, row.split(",")[1:], strict=True) if flag == "1"]
    assert first.truth_words == (", ".join(shining) or "no label")
