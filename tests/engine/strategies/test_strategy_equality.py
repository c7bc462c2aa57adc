"""Equal training under several strategies: other optimizers, unequal chunks, few images, a frozen backbone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from engine.contract.events import Planned, Validation
from engine.contract.job import Job

Make = Callable[..., Job]
Start = Callable[..., Any]


@pytest.mark.parametrize(
    ("strategy", "cpus"),
    [("ddp", 2), pytest.param("fsdp", 2, marks=pytest.mark.long), pytest.param("pipeline", 2, marks=pytest.mark.long)],
)
def test_groups_warmup_and_ema_train_equally(job: Make, start: Start, strategy: str, cpus: int) -> None:
    fields: dict[str, Any] = {
        "optimizer": "adamw", "learning_rate": 0.003, "weight_decay": 0.3, "decay_norms": False, "layer_decay": 0.7,
        "head_rate": 2.0, "warmup_steps": 3, "ema_decay": 0.9, "ema_ramp": 3, "clip_norm": 1.0, "epochs": 2,
    }  # fmt: skip
    single = start(job(**fields), every_step=True).completed()
    group = start(job(cpus=cpus, strategy=strategy, **fields), every_step=True).completed()
    np.testing.assert_allclose(group.losses, single.losses, rtol=1e-3)
    one, other = (g.checkpoint()["optimizer"] for g in (single, group))
    assert one["ema"].keys() == other["ema"].keys()
    for name, average in one["ema"].items():
        torch.testing.assert_close(other["ema"][name], average, rtol=1e-2, atol=1e-3)


def test_ddp_uneven_batches_train_equally(job: Make, start: Start) -> None:
    single = start(job(batch_size=13, epochs=2), every_step=True).completed()
    group = start(job(cpus=3, strategy="ddp", batch_size=13, epochs=2), every_step=True).completed()
    assert len(single.losses) == 10
    np.testing.assert_allclose(group.losses, single.losses, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "pipeline"])
def test_dataset_smaller_than_batch_trains_equally(job: Make, start: Start, tmp_path: Path, strategy: str) -> None:
    for place in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / "two" / place).mkdir(parents=True)
        shade = 200 if place.endswith("a") else 50
        Image.fromarray(np.full((16, 16, 3), shade, np.uint8)).save(tmp_path / "two" / place / "0.png")
    fields = {"dataset": str(tmp_path / "two"), "epochs": 4}
    single = start(job(**fields), every_step=True).completed()
    group = start(job(cpus=3, strategy=strategy, **fields), every_step=True).completed()
    assert len(single.losses) == 4
    np.testing.assert_allclose(group.losses, single.losses, rtol=1e-4)
    assert [v.measures["loss"] for v in group.of(Validation)] == pytest.approx(
        [v.measures["loss"] for v in single.of(Validation)], rel=1e-4
    )


@pytest.mark.long
def test_pipeline_with_frozen_backbone_trains_head(job: Make, start: Start) -> None:
    fields = {"model": "resnet18", "image_size": 32, "freeze_epochs": 100}
    group = start(job(cpus=2, strategy="pipeline", **fields)).completed()
    (planned,) = group.of(Planned)
    assert planned.trainable_parameters == 512 * 3 + 3
    assert len(planned.model_split.split_points) == 1
    state = group.checkpoint()
    assert set(state["optimizer"]["state"]) == {"fc.weight", "fc.bias"}
    assert int(state["model"]["bn1.num_batches_tracked"]) == 0
    assert float(state["model"]["bn1.running_mean"].abs().sum()) == 0.0
