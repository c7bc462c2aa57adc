"""Fixtures: small generated datasets, and real ones if they are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.images import write_idx, write_image

DATASETS = Path(__file__).parents[4] / "shared/datasets"


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes images into folders, and returns the parent folder.

    Example: tree("train/cat", "train/dog", count=3).
    """

    def make(*folders: str, count: int = 2) -> Path:
        root = tmp_path / "dataset"
        root.mkdir(exist_ok=True)
        for number, folder in enumerate(folders):
            for place in range(count):
                write_image(root / folder / f"{place}.png", (10 * place, 40 * number % 256, 90))
        return root

    return make


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Create a folder of idx files with 10 classes: 40 training and 20 validation images."""
    root = tmp_path / "digits"
    generator = np.random.default_rng(0)
    for name, count in (("train", 40), ("t10k", 20)):
        write_idx(root / f"{name}-images-idx3-ubyte", generator.integers(0, 256, (count, 28, 28)))
        write_idx(root / f"{name}-labels-idx1-ubyte", np.arange(count) % 10)
    return root


@pytest.fixture(params=["hymenoptera", "mnist"])
def real_dataset(request: pytest.FixtureRequest) -> Path:
    folder = DATASETS / str(request.param)
    if not folder.is_dir():
        pytest.skip(f"the dataset {request.param} is not at hand")
    return folder
