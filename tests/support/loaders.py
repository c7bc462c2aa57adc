"""Builder of image loaders with default settings for tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.data.datasets.images import ImageSet
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler


def make_loader(images: ImageSet, sampler: GlobalBatchSampler, **given: Any) -> BatchLoader:
    """Return a loader with default settings, which `given` overrides.

    The caller closes the loader. An unreadable image fails the test.
    """
    settings: dict[str, Any] = {
        "size": 16,
        "channels": 3,
        "augmentation": "light",
        "mean": (0.4, 0.5, 0.6),
        "std": (0.2, 0.25, 0.3),
        "threads": 2,
        "device": torch.device("cpu"),
        "on_unreadable": lambda path, reason: pytest.fail(f"{path}: {reason}"),
    }
    return BatchLoader(images, sampler, **settings | given)
