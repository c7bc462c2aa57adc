"""Runs of transformers detectors and segmenters. Their tiny models come from a plug-in package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.events import StepMetrics, Validation
from engine.contract.job import Job
from tests.engine.training.task_jobs import task_job
from tests.support.cases import mark_long_cases
from tests.support.hub_models import ALL, INSTALL, NEEDS_TRANSFORMERS, TINY
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.worker_group import Forker, WorkerGroup

pytestmark = NEEDS_TRANSFORMERS

Start = Callable[..., WorkerGroup]
SIDE = 128
MODULES = ("d_fine.modeling_d_fine", "rf_detr.modeling_rf_detr", "mask2former.modeling_mask2former")
"""Modules of transformers with the models that the everyday suite trains."""


def job(folders: dict[str, Path], cpus: int = 1, *, model: str = "tiny_rtdetrv2", **fields: Any) -> Job:
    """Return a job for the tiny model `model` on the dataset of its task, with `cpus` CPU workers.

    `folders` maps a task to its dataset. `fields` override fields of the job.
    """
    task = TINY[model].task
    usual = {"image_size": SIDE, "batch_size": 4, "optimizer": "adamw", "clip_norm": 0.1}
    return task_job(folders[task], cpus, **usual | fields, task=task, model=model)


@pytest.fixture(scope="module")
def imported_models(forker: Forker) -> None:
    """Import transformers once for all workers. The import takes over a second."""
    forker.preload("engine.models.hugging_face.construction", *(f"transformers.models.{name}" for name in MODULES))


@pytest.fixture
def start_tiny(imported_models: None, start: Start) -> Start:
    return partial(start, every_step=True, prepare=INSTALL)


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of a dataset for each task."""
    counts = {"train": 7, "val": 2}
    outlined = make_outlined(tmp_path_factory.mktemp("discs"), counts, SIDE)
    masked = make_masked(tmp_path_factory.mktemp("masks"), counts, SIDE)
    return {"detection": outlined, "instance_segmentation": outlined, "segmentation": masked}


def losses(group: WorkerGroup) -> list[dict[str, float]]:
    return [step.losses for step in group.of(StepMetrics)]


PARTS = {
    "tiny_dfine": ["vfl", "bbox", "giou", "fgl", "ddf"],
    "tiny_rfdetr_masks": ["ce", "bbox", "giou", "mask_ce", "mask_dice"],
    "tiny_mask2former": ["cross_entropy", "mask", "dice"],
    "tiny_mask2former_pixels": ["cross_entropy", "mask", "dice"],
}
"""Expected parts of the loss, by model."""


@pytest.mark.parametrize("name", mark_long_cases(list(ALL), ["tiny_dfine"]))
def test_resumed_run_has_the_same_bits_and_all_parts_of_the_loss(
    start_tiny: Start, discs: dict[str, Path], name: str
) -> None:
    fields = {"model": name, "ema_decay": 0.9, "schedule": "none", "multi_scale": 0.0 if "eomt" in name else 0.25}
    uninterrupted = start_tiny(job(discs, **fields, epochs=2)).completed(170)
    first = start_tiny(job(discs, **fields)).completed(170)
    last = str(first.folder / "checkpoints/last.pt")
    second = start_tiny(job(discs, **fields, epochs=2, resume_from=last)).completed(170)
    assert losses(first) + losses(second) == losses(uninterrupted)
    expected, state = uninterrupted.checkpoint("best.pt"), second.checkpoint("best.pt")
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
    assert second.of(Validation)[-1].measures == uninterrupted.of(Validation)[-1].measures
    for step in uninterrupted.of(StepMetrics):
        assert name not in PARTS or list(step.losses) == PARTS[name]
        assert sum(step.losses.values()) == pytest.approx(step.loss, rel=1e-5)


STILL: dict[str, Any] = {
    "transforms": (), "augmentation": "own", "learning_rate": 1e-3, "freeze_batchnorm": True, "optimizer": "sgd",
}  # fmt: skip
"""Job fields for a training without randomness (random streams depend on the ranks) and with plain SGD.

Adam would magnify rounding errors of gradients near 0.
"""


WAYS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "uneven": ("still_rfdetr", 2, {"strategy": "ddp", "batch_size": 5, "multi_scale": 0.25}),
    "accumulation": ("still_rfdetr", 1, {"accumulation": 3}),
    "both": ("still_rfdetr", 2, {"strategy": "ddp", "accumulation": 2}),
    "fsdp": ("still_rfdetr", 2, {"strategy": "fsdp", "multi_scale": 0.25}),
    "zero1": ("still_rfdetr", 2, {"strategy": "zero1"}),
    "hybrid": ("still_rtdetrv2", 2, {"strategy": "ddp"}),
    "masks": ("still_rfdetr_masks", 2, {"strategy": "ddp", "batch_size": 5, "multi_scale": 0.25}),
    "instances": ("tiny_mask2former", 2, {"strategy": "ddp", "batch_size": 5}),
    "pixels": ("tiny_eomt_pixels", 2, {"strategy": "ddp", "accumulation": 2}),
    "fsdp masks": ("tiny_mask2former_pixels", 2, {"strategy": "fsdp"}),
}
"""Ways to divide batches: model, number of devices, and job fields."""


@pytest.mark.parametrize("way", mark_long_cases(list(WAYS), ["accumulation", "instances"]))
def test_training_is_that_of_a_single_device(start_tiny: Start, discs: dict[str, Path], way: str) -> None:
    """Compare the losses, which are means over the boxes of all ranks. Each rank has a different number of boxes."""
    name, cpus, changed = WAYS[way]
    fields = STILL | {"model": name}
    together = {"batch_size": changed.get("batch_size", 4), "multi_scale": changed.get("multi_scale", 0.0)}
    single = start_tiny(job(discs, **fields, **together)).completed(170)
    divided = start_tiny(job(discs, cpus, **fields | changed)).completed(170)
    for mine, expected in zip(losses(divided), losses(single), strict=True):
        assert mine == pytest.approx(expected, rel=1e-5, abs=1e-5)
    state, expected = divided.checkpoint("best.pt"), single.checkpoint("best.pt")
    for key, tensor in expected.items():
        torch.testing.assert_close(state[key], tensor, rtol=1e-5, atol=1e-5)
