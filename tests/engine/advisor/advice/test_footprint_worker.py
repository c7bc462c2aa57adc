"""Sizes of a job's model and data, and the memory that a forward pass saves, computed without allocating it."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from engine.advisor.advice.footprint_worker import _measure_activations, _measure_bf16_fraction, _measure_saved_bytes
from engine.advisor.advice.trial_files import Activations, Footprint
from engine.advisor.advice.trials import measure_footprint
from engine.contract.job import Job
from engine.processes import worker_process
from tests.engine.supervisor.supervised import make_images
from tests.support.worker_group import Forker


def test_footprint_has_sizes_and_available_memory(
    forker: Forker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_spawn", forker.spawn)
    images = make_images(tmp_path / "images", 8)
    job = Job.from_fields(dataset=str(images), model="mnist_cnn", devices=("cpu",), batch_size=4, loader_workers=1)
    (tmp_path / "trial").mkdir()
    found = measure_footprint(job, tmp_path / "trial", 600.0)
    assert isinstance(found, Footprint)
    assert (found.train_images, found.val_images) == (16, 4)
    assert found.trained_bytes == found.parameter_bytes > found.last_bytes > 0
    assert found.limits[0] > found.base_bytes + (512 << 20)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Linear(4, 3), (0, 0)),  # saves only the images and its weights
        (nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 5)), (2 * 3 * 4, 2 * 3 * 4)),
        (
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
            (2 * 3 * 4 + 2 * 3 * 4, 2 * 3 * 4),
        ),  # with mean and deviation
        (nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 5), nn.Tanh()), (2 * (3 + 5) * 4, 2 * 5 * 4)),
    ],
)
def test_saved_bytes_are_those_of_new_tensors(model: nn.Module, expected: tuple[int, int]) -> None:
    assert _measure_saved_bytes(model, Job.from_fields(precision="fp32"), (2, 4)) == expected


def test_activations_are_divided_into_those_of_an_image_and_fixed_ones() -> None:
    job = Job.from_fields(precision="fp32")
    # Batch normalization saves a mean and a deviation of each channel, regardless of the number of images.
    normalized = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    assert _measure_activations(normalized, job, (4,)) == Activations(fixed=2 * 3 * 4, per_image=3 * 4, largest=3 * 4)
    assert normalized.training
    assert _measure_activations(nn.ModuleList(), job, (4,)) is None
    model = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 5), nn.Tanh())
    assert 0.5 <= _measure_bf16_fraction(model, job, (4,), _measure_activations(model, job, (4,))) < 1
    assert _measure_bf16_fraction(model, job, (4,), None) == 1
