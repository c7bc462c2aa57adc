"""A task of one's own: how many things are in an image.

The folder holds `images` and a table `counts.csv` with a line "NAME.png,NUMBER" for each image. Copy this file, change what is
different in your case, choose the task "Your own task", and give the copy as the model:

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

from engine.tasks.custom_file import Measure, OwnTask, SampleSet, UnreadableImage, Visualization

SIDE = 48
"""Images are made so large, in pixels, before the model sees them."""


class CountedImages(SampleSet):
    """Images and how many things are in each of them."""

    def __init__(self, folder: Path, rows: list[tuple[str, int]]) -> None:
        self.folder = str(folder)
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def path(self, index: int) -> str:
        return f"images/{self.rows[index][0]}"

    def load(self, index: int, epoch: int) -> tuple[Tensor, Tensor]:
        """The image, float [3, SIDE, SIDE] from 0 to 1, and its number, float [1]."""
        name, count = self.rows[index]
        try:
            with Image.open(Path(self.folder, "images", name)) as image:
                pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)))
        except OSError as error:  # it is left out, and told of by its name
            raise UnreadableImage(self.path(index), str(error)) from error
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255, torch.tensor([float(count)])


class Counting(OwnTask):
    measures = (
        Measure("mean_error", "Mean error", higher_is_better=False),
        Measure("exact", "Counted exactly", higher_is_better=True, percent=True),
    )

    def datasets(self) -> tuple[SampleSet, SampleSet]:
        """All images of the table, of which the job's share is drawn for validation."""
        folder = Path(self.job.data.dataset)
        with open(folder / "counts.csv", newline="", encoding="utf-8") as table:
            rows = [(name, int(count)) for name, count in csv.reader(table)]
        random.Random(self.job.training.seed).shuffle(rows)  # every worker draws the same
        kept = max(1, round(len(rows) * self.job.data.val_fraction))
        return CountedImages(folder, rows[kept:]), CountedImages(folder, rows[:kept])

    def build_model(self, classes: int, channels: int) -> nn.Module:
        """Marks what looks like a thing, and adds the marks up."""
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
        """Half of the batches are mirrored: that changes no number."""
        return (inputs.flip(3) if torch.rand(()) < 0.5 else inputs), targets

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.smooth_l1_loss(outputs, targets, reduction="none")[:, 0]

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Of each image how far off the number is, and whether it is right when rounded; the means are reported."""
        return torch.cat([(outputs - targets).abs(), (outputs.round() == targets).float()], 1)

    def show(self, image: np.ndarray, value: Tensor, *, predicted: bool) -> Visualization:
        return Visualization(image, f"{value.item():.1f} counted" if predicted else f"{value.item():.0f} there")


class Sum(nn.Module):
    """Adds a map of marks [n, pixels] up to a number [n, 1]; to a tenth of it, so that fresh weights begin near small ones."""

    def forward(self, marks: Tensor) -> Tensor:
        return marks.sum(1, keepdim=True) / 10
