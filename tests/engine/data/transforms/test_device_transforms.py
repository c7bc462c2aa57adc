"""Light crops and normalization, compared with torchvision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional

from engine.data.randomness import RandomStreams
from engine.data.transforms.augmentation import draw_crops
from engine.data.transforms.device_transforms import Normalization, crop, fit_statistics, gather_crops

CPU = torch.device("cpu")


def pixels(count: int, channels: int, side: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=torch.manual_seed(1))


def test_fit_statistics_averages_them_for_other_channels() -> None:
    statistics = ((0.25, 0.5, 0.75), (0.125, 0.25, 0.375))
    assert fit_statistics(statistics, 3) == statistics
    assert fit_statistics(statistics, 2) == ((0.5, 0.5), (0.25, 0.25))


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize(("count", "channels"), [(7, 3), (5, 1), (0, 3)])
def test_gathered_and_copied_crops_match_torchvision(count: int, channels: int, mirror: bool) -> None:
    images = pixels(count, channels, 20)
    crops = torch.from_numpy(draw_crops(4, RandomStreams(3), 2, np.arange(count), mirror=mirror))
    by_torchvision = [
        functional.crop(image, top, left, 16, 16).flip(-1) if mirrored else functional.crop(image, top, left, 16, 16)
        for image, (top, left, mirrored) in zip(images, crops.tolist(), strict=True)
    ]
    expected = torch.stack(by_torchvision) if count else images[..., :16, :16]
    assert torch.equal(crop(images, crops, 16), expected)
    assert torch.equal(gather_crops(images, crops, 16), expected)


def test_crops_cover_all_positions_and_mirror_half() -> None:
    crops = draw_crops(4, RandomStreams(0), 0, np.arange(4000), mirror=True)
    counts = np.stack([np.bincount(crops[:, column], minlength=5) for column in range(2)])
    assert counts.shape == (2, 5)
    assert abs(counts - 800).max() < 120
    assert abs(crops[:, 2].sum() - 2000) < 150
    assert not draw_crops(4, RandomStreams(0), 0, np.arange(4000), mirror=False)[:, 2].any()


def test_crop_does_not_depend_on_batch() -> None:
    samples = np.array([5, 900, 17, 2**40])
    joined = draw_crops(8, RandomStreams(7), 3, samples, mirror=True)
    assert np.array_equal(joined[[2, 0]], draw_crops(8, RandomStreams(7), 3, samples[[2, 0]], mirror=True))
    assert not np.array_equal(joined, draw_crops(8, RandomStreams(7), 4, samples, mirror=True))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_normalization_matches_torchvision(memory_format: torch.memory_format) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    images = pixels(3, 3, 12)
    before = images.clone()
    normalized = Normalization(torch.tensor(mean), torch.tensor(std), CPU)(images, memory_format)
    plain = functional.normalize(functional.to_dtype(images, torch.float32, scale=True), list(mean), list(std))
    torch.testing.assert_close(normalized, plain, rtol=1e-5, atol=1e-6)
    assert normalized.is_contiguous(memory_format=memory_format)
    assert torch.equal(images, before)
