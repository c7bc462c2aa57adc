"""Replicated pipelines, compared with a single device that processes the same microbatches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from engine.contract.events import Planned, ScheduleTraced, Validation
from engine.contract.job import Job
from engine.tasks.registry import TASKS
from tests.engine.strategies.comparison import assert_same_training
from tests.support.cases import mark_long_cases

Make = Callable[..., Job]
Start = Callable[..., Any]
CLASSES = ("blue", "green", "red")
SCHEDULES = mark_long_cases(("gpipe", "1f1b", "interleaved_1f1b", "zb1p", "zbv"), everyday=("1f1b",))

PLAIN = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Tanh(),
        nn.Flatten(), nn.Linear(256, 32), nn.Tanh(), nn.Linear(32, num_classes))
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_hybrid_trains_equally(
    job: Make, start: Start, model_file: Callable[[str], dict[str, str]], schedule: str
) -> None:
    fields = {**model_file(PLAIN), "epochs": 2, "clip_norm": 0.5, "ema_decay": 0.9, "batch_size": 24}
    single = start(job(accumulation=8, **fields), every_step=True).completed()
    group = start(
        job(cpus=4, strategy="ddp_pipeline", pipeline_schedule=schedule, microbatches=4, **fields), every_step=True
    ).completed()
    assert_same_training(group, single, 1e-4)
    assert set(group.checkpoint()["optimizer"]["state"]) == set(group.checkpoint()["model"])
    (planned,) = group.of(Planned)
    event, *_ = group.of(ScheduleTraced, 0)
    assert len(event.ranks) == len(planned.model_split.devices) == 2


@pytest.mark.parametrize("schedule", mark_long_cases(("1f1b", "zbv"), everyday=("1f1b",)))
def test_hybrid_replica_without_images(
    job: Make, start: Start, model_file: Callable[[str], dict[str, str]], tmp_path: Path, schedule: str
) -> None:
    for place, count in {"train/a": 1, "train/b": 0, "val/a": 1, "val/b": 1}.items():
        (tmp_path / "few" / place).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(np.full((16, 16, 3), 80 * (number + 1), np.uint8)).save(
                tmp_path / "few" / place / f"{number}.png"
            )
    Image.fromarray(np.full((16, 16, 3), 20, np.uint8)).save(tmp_path / "few/train/b/0.png")
    fields = {**model_file(PLAIN), "dataset": str(tmp_path / "few"), "epochs": 3}
    single = start(job(**fields), every_step=True).completed()
    group = start(
        job(cpus=4, strategy="ddp_pipeline", pipeline_schedule=schedule, microbatches=3, **fields), every_step=True
    ).completed()
    assert len(single.losses) == 3
    assert_same_training(group, single, 1e-4)


def test_hybrid_replicas_share_statistics(
    job: Make, start: Start, model_file: Callable[[str], dict[str, str]], images: Path
) -> None:
    text = PLAIN.replace("nn.ReLU(), nn.Conv2d(8, 8, 3)", "nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)")
    requested = job(cpus=4, strategy="ddp_pipeline", pipeline_schedule="1f1b", microbatches=3, **model_file(text))
    group = start(requested).completed()
    state = group.checkpoint()["model"]
    assert int(state["1.num_batches_tracked"]) == 6 * 3
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    model = namespace["build_model"](3).eval()
    model.load_state_dict(state)
    mean, std = (np.array(each, np.float32) for each in TASKS[requested.task].get_normalization(requested, 3))
    files = [(number, path) for number, name in enumerate(CLASSES) for path in (images / "val" / name).iterdir()]
    inputs = np.stack([(np.asarray(Image.open(path), np.float32) / 255 - mean) / std for _, path in files])
    targets = torch.tensor([number for number, _ in files])
    with torch.no_grad():
        loss = cross_entropy(model(torch.from_numpy(inputs).permute(0, 3, 1, 2)), targets)
    (validation,) = group.of(Validation)
    assert validation.images == len(files)
    assert validation.measures["loss"] == pytest.approx(float(loss), rel=1e-5)
