"""Training on images with more channels than RGB, from the folder to the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from engine.contract.events import Planned, StepMetrics, Validation, Warned
from engine.contract.job import Job
from engine.data.datasets.open_splits import open_splits
from engine.data.inspection.inspector import inspect
from engine.models.model_surgery import adapt_first_conv, match_channels
from tests.support.worker_group import WorkerGroup

BANDS = 5
SIDE = 28


def scene(seed: int, bright: bool) -> np.ndarray:
    """Return 16-bit values [h, w, bands]. Only the last band depends on the class (`bright`)."""
    random = np.random.default_rng(seed)
    values = random.integers(200, 2500, (SIDE, SIDE, BANDS), np.uint16)
    values[8:20, 8:20, -1] += 6000 if bright else 0
    return values


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    for number in range(96):
        split = "train" if number < 72 else "val"
        path = folder / split / ("field", "wood")[number % 2] / f"{number}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, scene(number, number % 2 == 1), photometric="minisblack", planarconfig="contig")
    return folder


def test_bands_beyond_rgb_are_learned(start: Callable[..., WorkerGroup], scenes: Path, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "odd.tif", scene(0, False)[:, :, :2], photometric="minisblack", planarconfig="contig")
    odd = scenes / "train/field/odd.tif"
    odd.write_bytes((tmp_path / "odd.tif").read_bytes())
    try:
        job = Job.from_fields(
            dataset=str(scenes), model="mnist_cnn", batch_size=8, epochs=3, optimizer="adam", learning_rate=0.002,
            loader_workers=1, memory_format="contiguous", devices=("cpu",),
        )  # fmt: skip
        group = start(job).completed(120)
    finally:
        odd.unlink()
    (plan,) = group.of(Planned)
    assert plan.channels == BANDS
    assert group.of(Validation)[-1].measures["top1"] == 1.0
    (message,) = [event.message for event in group.of(Warned) if event.code == "unreadable_picture"]
    assert "odd.tif: it has 2 bands, most of the others have 5" in message
    assert all(event.loss < 5 for event in group.of(StepMetrics))  # the inputs are normalized with their own statistics


def test_bands_are_inspected_and_previewed(scenes: Path) -> None:
    report = inspect(str(scenes), val_fraction=0.2, seed=0, progress=lambda done, total: None)
    (problem,) = report.problems
    assert (report.channels, report.unreadable_count, problem.severity) == (BANDS, 0, "warning")
    assert "16-bit" in problem.message
    assert [split.images for split in report.splits] == [72, 24]
    assert len(report.examples) == 12


def test_segmentation_accepts_bands(tmp_path: Path) -> None:
    for number in range(6):
        for kind in ("images", "masks"):
            (tmp_path / kind).mkdir(exist_ok=True)
        tifffile.imwrite(
            tmp_path / f"images/{number}.tif", scene(number, True), photometric="minisblack", planarconfig="contig"
        )
        Image.fromarray(np.eye(SIDE, dtype=np.uint8)).save(tmp_path / f"masks/{number}.png")
    splits = open_splits(str(tmp_path), val_fraction=0.3, seed=0, kinds=("masks",))
    loaded = splits.train.load(0, 32, BANDS)
    assert (splits.channels, loaded.shape) == (BANDS, (BANDS + 1, 32, 32))
    assert splits.statistics is not None
    mean = splits.train.load(1, SIDE, BANDS)[:BANDS].float().mean((1, 2)) / 255
    assert mean.tolist() == pytest.approx(splits.statistics[0], abs=0.05)
    report = inspect(str(tmp_path), val_fraction=0.3, seed=0, kinds=("masks",), progress=lambda done, total: None)
    assert (report.channels, report.unreadable_count) == (BANDS, 0)
    assert report.examples


@pytest.mark.parametrize("channels", [2, 4, 5, 8])
def test_pretrained_weights_adapt_to_channels(channels: int) -> None:
    torch.manual_seed(0)
    color = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3))
    wide = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3))
    adapt_first_conv(wide, channels)
    assert wide[0].weight.std().item() == pytest.approx(color[0].weight.std().item(), rel=0.3)  # type: ignore[operator]
    wide.load_state_dict({"0.weight": match_channels(color[0].weight, channels), "0.bias": color[0].bias})  # type: ignore[arg-type]
    gray = torch.rand(2, 1, 8, 8)
    expected = color(gray.expand(2, 3, 8, 8))
    torch.testing.assert_close(wide(gray.expand(2, channels, 8, 8)), expected, rtol=1e-4, atol=1e-5)
