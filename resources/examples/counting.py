"""Custom task that counts the objects in an image.

The folder holds `images` and a table `counts.csv` with a line "NAME.png,NUMBER" for each image. Copy this file, adapt it to
your data, choose the task "Your own task", and give the copy as the model:

    footplate train FOLDER --task custom --model counting.py --trust-model-file
"""

import csv
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from engine.tasks.custom.interface import CustomTask, Measure, SampleSet, UnreadableImage, Visualization

SIDE = 48
"""Side in pixels that images are resized to."""


class CountedImages(SampleSet):
    """Images with the number of objects in each."""

    def __init__(self, folder: Path, rows: list[tuple[str, int]]) -> None:
        self.folder = str(folder)
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def path(self, index: int) -> str:
        return f"images/{self.rows[index][0]}"

    def load(self, index: int, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the image, float [3, SIDE, SIDE] from 0 to 1, and its number, float [1]."""
        name, count = self.rows[index]
        try:
            with Image.open(Path(self.folder, "images", name)) as image:
                pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)))
        except OSError as error:  # the image is skipped, and reported by its name
            raise UnreadableImage(self.path(index), str(error)) from error
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255, torch.tensor([float(count)])


class Counting(CustomTask):
    metrics = (
        Measure("mean_error", "Mean error", higher_is_better=False),
        Measure("exact", "Counted exactly", higher_is_better=True, percent=True),
    )

    def datasets(self) -> tuple[SampleSet, SampleSet]:
        """Return all images of the table, a random fraction of them for validation."""
        folder = Path(self.job.data.dataset)
        with open(folder / "counts.csv", newline="", encoding="utf-8") as table:
            rows = [(name, int(count)) for name, count in csv.reader(table)]
        random.Random(self.job.training.seed).shuffle(rows)  # every worker draws the same
        val_count = max(1, round(len(rows) * self.job.data.val_fraction))
        return CountedImages(folder, rows[val_count:]), CountedImages(folder, rows[:val_count])

    def build_model(self, classes: int, channels: int) -> nn.Module:
        """Build a network that marks objects and adds the marks up."""
        return nn.Sequential(
            nn.Conv2d(channels, 16, 5, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 1, 1),
            nn.Flatten(),
            Sum(),
        )

    def transform(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mirror half of the batches, which changes no number."""
        return (inputs.flip(3) if torch.rand(()) < 0.5 else inputs), targets

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.smooth_l1_loss(outputs, targets, reduction="none")[:, 0]

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return each image's error, and 1 if its rounded number is right; their means are reported."""
        return torch.cat([(outputs - targets).abs(), (outputs.round() == targets).float()], 1)

    def show(self, image: np.ndarray, value: Tensor, *, predicted: bool) -> Visualization:
        return Visualization(image, f"{value.item():.1f} counted" if predicted else f"{value.item():.0f} expected")


class Sum(nn.Module):
    """Sum of a map of marks [n, pixels], [n, 1]; a tenth of it, so that fresh weights start near small numbers."""

    def forward(self, marks: Tensor) -> Tensor:
        return marks.sum(1, keepdim=True) / 10
