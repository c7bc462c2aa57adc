"""Images with any number of labels each, as the loader takes them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.data.datasets.images import FileImages
from engine.data.splits import LabelSplit


class LabelledImages(FileImages):
    """`targets` are float32 [N, C], 1 for each label that an image has."""

    def __init__(self, split: LabelSplit, folder: str) -> None:
        self.targets = torch.from_numpy(split.labels).float()
        self.folder = folder
        self.files = split.files

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the number of images with each label."""
        counts: list[float] = self.targets.sum(0).tolist()
        return counts
