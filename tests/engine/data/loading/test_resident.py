"""A split that is brought to a device whole holds the images that the source hands out, and gives the same batches.

Here the CPU stands in for the device: what is asked of it is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.data.datasets.open_splits import open_splits
from engine.data.loading import resident
from engine.data.loading.base_loader import Batch
from engine.data.loading.decode_pool import ImageSource
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.resident import bring
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.loading.staging import Slot
from engine.data.randomness import RandomStreams

CPU = torch.device("cpu")


def test_that_all_images_are_brought_and_those_that_cannot_be_read_stay_blank(tree: Callable[..., Path]) -> None:
    root = tree("train/a", "train/b", "val/a", "val/b", count=5)
    (root / "train/b/3.png").write_bytes(b"no")
    images = open_splits(str(root), val_fraction=0.2, seed=0).train
    unreadable: list[str] = []
    source = ImageSource(images, 12, 3, 2, lambda path, reason: unreadable.append(path), keep="memory")
    try:
        whole = bring(source, len(images), Slot(4, (3, 12, 12)), CPU)
        assert unreadable == ["train/b/3.png"]
        assert source.at_hand
        readable = np.delete(np.arange(10), 8)
        assert torch.equal(whole[readable], torch.from_numpy(source.pixels(readable)))
        assert whole[readable].any()
        assert not whole[8].any()
    finally:
        source.close()


@pytest.mark.parametrize("augmentation", ["none", "light"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_that_the_batches_are_the_same_as_those_that_are_sent_whole(
    tree: Callable[..., Path], augmentation: str, shuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree("train/a", "train/b", "val/a", "val/b", count=5)
    (root / "train/b/3.png").write_bytes(b"no")
    images = open_splits(str(root), val_fraction=0.2, seed=0).train

    def three_epochs() -> tuple[list[Batch], list[str]]:
        chosen: list[str] = []
        loader = BatchLoader(
            images,
            GlobalBatchSampler(10, 4, 0, 1, RandomStreams(5), shuffle),
            size=16,
            channels=3,
            augmentation=augmentation,
            mean=(0.5, 0.4, 0.3),
            std=(0.2, 0.25, 0.3),
            threads=2,
            device=CPU,
            on_unreadable=lambda path, reason: None,
            keep="memory",
            on_chosen=lambda choice, why: chosen.append(choice),
        )
        try:
            return [batch for epoch in range(3) for batch in loader.epoch(epoch)], chosen
        finally:
            loader.close()

    plain, chosen = three_epochs()
    assert "device" not in chosen
    monkeypatch.setattr(resident, "room", lambda device: 10 * 3 * 21 * 21)
    brought, chosen = three_epochs()
    assert chosen[-1] == "device"
    for one, other in zip(plain, brought, strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)
