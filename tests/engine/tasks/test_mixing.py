"""Mixup and CutMix, compared with their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.contract.job import Job
from engine.data.randomness import Purpose, RandomStreams
from engine.tasks.mixing import Mixing, OneHot, choose_window, create_mixing_transform
from engine.tasks.registry import TASKS

CLASSES = 4


def batch(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(count, 3, 16, 12, generator=generator)
    return inputs, torch.randint(0, CLASSES, (count,), generator=generator)


def test_mixup_averages_images_and_classes() -> None:
    inputs, targets = batch()
    mixed, shares = Mixing(CLASSES, 0.4, 0.0, RandomStreams(3))(inputs.clone(), targets, 2, 5)
    other = targets.roll(1)
    differing = int((targets != other).nonzero()[0])
    fraction = shares[differing, targets[differing]].item()
    assert fraction == pytest.approx(RandomStreams(3).generator(Purpose.MIX, epoch=2, batch=5).beta(0.4, 0.4))
    torch.testing.assert_close(mixed, fraction * inputs + (1 - fraction) * inputs.roll(1, 0))
    assert shares[differing, other[differing]].item() == pytest.approx(1 - fraction)
    torch.testing.assert_close(shares.sum(1), torch.ones(6))


def test_cutmix_weights_classes_by_pixels() -> None:
    inputs, targets = batch()
    mixed, shares = Mixing(CLASSES, 0.0, 1.0, RandomStreams(3))(inputs.clone(), targets, 1, 0)
    pasted = (mixed != inputs).any(1)
    assert (mixed == torch.where(pasted[:, None], inputs.roll(1, 0), inputs)).all()
    share = pasted[0].float().mean()
    assert 0 < share < 1
    differing = targets != targets.roll(1)
    fraction = shares.gather(1, targets[:, None])[differing, 0]
    torch.testing.assert_close(fraction, (1 - share).expand_as(fraction))


def test_draws_depend_on_seed_epoch_and_position() -> None:
    def shares(seed: int, epoch: int, place: int) -> list[float]:
        torch.manual_seed(np.random.default_rng().integers(99))
        return Mixing(CLASSES, 0.3, 0.7, RandomStreams(seed))(*batch(), epoch, place)[1].flatten().tolist()

    assert shares(1, 2, 3) == shares(1, 2, 3)
    assert len({str(shares(*which)) for which in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))}) == 4


def test_mixup_and_cutmix_are_combined() -> None:
    mixer = Mixing(CLASSES, 0.3, 0.7, RandomStreams(0))
    for place in range(8):
        inputs, targets = batch()
        mixed, _ = mixer(inputs.clone(), targets, 1, place)
        random = RandomStreams(0).generator(Purpose.MIX, epoch=1, batch=place)
        expected, other = inputs.clone(), inputs.roll(1, 0)
        if random.random() < 0.5:
            window = choose_window(16, 12, random.beta(0.7, 0.7), random)
            rows, columns = slice(window.top, window.bottom), slice(window.left, window.right)
            expected[..., rows, columns] = other[..., rows, columns]
        else:
            expected = other.lerp(inputs, random.beta(0.3, 0.3))
        torch.testing.assert_close(mixed, expected)


def test_cutmix_windows_fit_the_image() -> None:
    random = np.random.default_rng(0)
    areas, lefts = [], []
    for _ in range(300):
        window = choose_window(20, 30, 0.75, random)
        assert 0 <= window.top <= window.bottom <= 20
        assert 0 <= window.left <= window.right <= 30
        lefts.append(window.left)
        areas.append((window.bottom - window.top) * (window.right - window.left))
    assert max(lefts) > 20
    assert max(areas) == 150  # a quarter of 600, if the rectangle isn't clipped


def test_mixing_accepts_few_and_soft_targets() -> None:
    mixer = Mixing(CLASSES, 0.4, 0.4, RandomStreams(0))
    inputs, targets = batch(1)
    mixed, shares = mixer(inputs.clone(), targets, 1, 0)
    torch.testing.assert_close(mixed, inputs)
    assert shares.tolist() == OneHot(CLASSES)(inputs, targets, 1, 0)[1].tolist()
    assert mixer(inputs[:0], targets[:0], 1, 0)[1].shape == (0, CLASSES)
    several = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert Mixing(CLASSES, 0.4, 0, RandomStreams(0))(batch(2)[0], several, 1, 0)[1].sum().item() == pytest.approx(3)


def test_mixing_is_for_training_of_some_tasks() -> None:
    job, plain, streams = Job.from_fields(mixup=0.2), Job(), RandomStreams(0)
    classification, segmentation = TASKS["classification"].entry, TASKS["segmentation"].entry
    mixing = create_mixing_transform(job, classification, CLASSES, streams, training=True)
    assert mixing is not None
    assert torch.equal(mixing(*batch(), 1, 0)[0], Mixing(CLASSES, 0.2, 0, streams)(*batch(), 1, 0)[0])
    assert type(create_mixing_transform(job, classification, 3, streams, training=False)) is OneHot
    assert create_mixing_transform(plain, classification, 3, streams, training=True) is None
    assert create_mixing_transform(job, segmentation, 3, streams, training=True) is None
