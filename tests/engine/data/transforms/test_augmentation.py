"""Augmentations: random values for any number of ranks, and alignment of images with masks and boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as vision

from engine.contract.augmentation import Transform, parse, transforms
from engine.contract.job import Job
from engine.data.cache.cache_space import format_bytes
from engine.data.datasets.boxed_images import MIN_VISIBLE, PADDING, InstanceImages
from engine.data.datasets.images import ImageSet
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.data.transforms.augmentation import (
    AFFINE,
    BLURRED,
    COLOR,
    ERASED,
    FORWARD,
    GRAY,
    OPERATIONS,
    Augmentation,
    Chain,
    Draws,
    OperationDraw,
    rotate,
    shear,
    shift,
    stretch,
)
from engine.data.transforms.device_transforms import (
    AffinePlacement,
    CropPlacement,
    Normalization,
    ResizePlacement,
    Transforms,
    apply_operations,
)
from tests.support import boxed
from tests.support.from_the_host import HostTensorRecorder
from tests.support.images import write_noise
from tests.support.loaders import make_loader
from tests.support.masks import make_masked

SIZE = 32
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
UNCHANGED = {"size": SIZE, "mean": (0.0,) * 3, "std": (1.0,) * 3, "augmentation": "none"}
STRONG = {
    task: transforms(Job.from_fields(task=task, augmentation="strong")) for task in ("classification", "detection")
}
ALL = ("resized_crop:0.3", "scale:0.5:2", "flip", "vflip", "rotate:30", "translate:0.2", "shear:10", "color:0.3", "hue:0.1", "gray",
         "trivial", "randaugment", "augmix", "blur", "erase")  # fmt: skip

Loaders = Callable[..., BatchLoader]


def parse_all(*texts: str) -> tuple[Transform, ...]:
    found = tuple(parse(text) for text in texts)
    return tuple(each for each in found if isinstance(each, Transform))


def make_augmentation(*texts: str, seed: int = 3, **given: int) -> Augmentation:
    """Return an augmentation with the transforms that `texts` describe, for nine color images of `SIZE`.

    `given` overrides other arguments of `Augmentation`.
    """
    settings = {"size": SIZE, "channels": 3, "images": 9, "epochs": 20} | given
    return Augmentation(parse_all(*texts), RandomStreams(seed), mirror=True, **settings)


@pytest.fixture
def loaders() -> Iterator[Loaders]:
    """Return a function that builds loaders, which are closed after the test."""
    augmentation: list[BatchLoader] = []

    def build(
        images: ImageSet,
        given: Sequence[Transform],
        *,
        rank: int = 0,
        world: int = 1,
        epochs: int = 4,
        **more: object,
    ) -> BatchLoader:
        sampler = GlobalBatchSampler(len(images), 8, rank, world, RandomStreams(5), shuffle=True)
        augmentation.append(make_loader(images, sampler, transforms=given, epochs=epochs, **UNCHANGED | more))
        return augmentation[-1]

    yield build
    for loader in augmentation:
        loader.close()


@pytest.fixture
def photographs(tmp_path: Path) -> ImageSet:
    for number in range(20):
        write_noise(tmp_path / "set" / "ab"[number % 2] / f"{number}.png", number, size=(40, 40 + number))
    return open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0).train


@pytest.fixture
def boxes(tmp_path: Path) -> ImageSet:
    drawn = [boxed.TWO, boxed.ONE, boxed.NONE]
    train = {f"{number:02}": drawn[number % 3] for number in range(16)}
    folder = boxed.coco(tmp_path / "boxes", {"train": train, "val": {"x": boxed.ONE}})
    return open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("boxes",)).train


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("given", [parse_all(*ALL), STRONG["detection"]], ids=["every", "mosaic"])
def test_augmentation_is_equal_for_ranks_and_resumed_runs(
    loaders: Loaders, photographs: ImageSet, boxes: ImageSet, world: int, given: Sequence[Transform]
) -> None:
    images = boxes if given is STRONG["detection"] else photographs
    for epoch in (1, 4):
        single = list(loaders(images, given, threads=0).epoch(epoch))
        ranks = [list(loaders(images, given, rank=rank, world=world, threads=3).epoch(epoch)) for rank in range(world)]
        for step, full_map in enumerate(single):
            parts = [batches[step] for batches in ranks]
            assert torch.equal(torch.cat([crop.inputs for crop in parts]), full_map.inputs)
            labels = [crop.targets for crop in parts]
            if images is photographs:
                assert torch.equal(torch.cat(labels), full_map.targets)
            else:  # as many rows as the fullest of a part needs
                found = [sorted(rows[rows[:, 4] != PADDING].tolist()) for crop in labels for rows in crop]
                assert found == [sorted(rows[rows[:, 4] != PADDING].tolist()) for rows in full_map.targets]
        resumed = list(loaders(images, given, threads=0).epoch(epoch, 1))
        assert torch.equal(resumed[0].inputs, single[1].inputs)


def test_rank_without_samples_has_empty_batches(loaders: Loaders, photographs: ImageSet, boxes: ImageSet) -> None:
    for images, given in ((photographs, parse_all(*ALL, "augmix")), (boxes, STRONG["detection"])):
        inputs = [batch.inputs for batch in loaders(images, given, rank=9, world=10, threads=0).epoch(1)]
        assert [tuple(each.shape) for each in inputs] == [(0, 3, SIZE, SIZE)] * 2


def test_transforms_do_not_synchronize_with_gpu() -> None:
    """Use FakeTensorMode, whose tensors have no values and refuse to be read."""
    augmentation = make_augmentation(*ALL, "augmix", seed=1, epochs=5)
    drawn = augmentation.draw(1, np.arange(6))
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    with FakeTensorMode():
        device = torch.device("cuda")
        transforms_ = Transforms(augmentation, mean, std, device, outside=(0, NO_CLASS), extends_edges=False)
        normalize = Normalization(torch.tensor(mean), torch.tensor(std), device)
        numbers = torch.empty(drawn.numbers.shape, device=device)
        pixels = torch.empty((6, 5, 36, 36), dtype=torch.uint8, device=device)
        with HostTensorRecorder() as host:
            images, planes = transforms_.move(pixels, numbers, drawn)
            inputs = transforms_.paint(images, numbers, drawn, normalize, torch.channels_last)
    assert planes is not None
    assert (inputs.shape, planes.shape, inputs.device.type) == ((6, 3, SIZE, SIZE), (6, 2, SIZE, SIZE), "cuda")
    assert not host.noted


def test_augmentation_changes_with_epoch(loaders: Loaders, photographs: ImageSet) -> None:
    loader = loaders(photographs, parse_all("rotate:30"))
    first, again, later = (torch.cat([b.inputs for b in loader.epoch(epoch)]) for epoch in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_draws_do_not_depend_on_later_transforms() -> None:
    samples = np.arange(6)

    def affine(*texts: str) -> np.ndarray:
        augmentation = make_augmentation(*texts, seed=1, epochs=5)
        return augmentation.draw(2, samples).numbers[:, AFFINE]

    assert np.array_equal(affine("rotate:30"), affine("rotate:30", "color:0.5", "blur"))


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_draws_have_a_color_map_for_every_number_of_channels(channels: int) -> None:
    augmentation = make_augmentation("color:0.5", "hue:0.1", "gray", seed=1, channels=channels, epochs=5)
    drawn = augmentation.draw(1, np.arange(6)).numbers[:, COLOR:]
    assert drawn.shape == (6, channels * channels + channels)
    assert all(np.ptp(drawn[:, row * (channels + 2)]) > 0 for row in range(channels)), "brightness varies"


def test_flip_requires_mirror(loaders: Loaders, photographs: ImageSet) -> None:
    given = parse_all("flip:1")
    plain = torch.cat([b.inputs for b in loaders(photographs, given, mirror=False).epoch(1)])
    mirrored = torch.cat([b.inputs for b in loaders(photographs, given, mirror=True).epoch(1)])
    torch.testing.assert_close(mirrored.flip(-1), plain, atol=1e-4, rtol=0)


# Geometry and color against torchvision


@pytest.mark.parametrize("degrees", [-40.0, 25.0])
def test_composed_maps_match_torchvision_affine(degrees: float) -> None:
    right, down, factor, slope = 4, -6, 0.8, 15.0
    image = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    image[:, :, 12:40, 20:30] = torch.tensor([250, 130, 60], dtype=torch.uint8)[:, None, None]
    image = vision.gaussian_blur(image, [7, 7])
    expected = vision.affine(
        image.float(), degrees, [right, down], factor, [slope, 0.0], interpolation=InterpolationMode.BILINEAR
    )
    one = np.ones(1)
    # RSS = rotation after shear and scale, as in torchvision's _get_inverse_affine_matrix
    full_map = (
        shift(right / 32 * one, down / 32 * one)
        @ rotate(degrees * one)
        @ shear(-np.tan(np.radians(slope)) * one, 0 * one)
        @ stretch(factor * one, factor * one)
    )
    moved = warp_images(image, full_map)
    assert (moved - expected).abs().mean() < 0.5
    assert expected.std() > 20


def warp_images(pixels: Tensor, maps: np.ndarray) -> Tensor:
    """Apply a homogeneous matrix, [n, 3, 3], to each image with the code that transforms batches on the device.

    `pixels` is uint8 [n, 3, s, s]. The matrices in `maps` map input coordinates to output coordinates. Returns float32
    [n, 3, s, s] with values from 0 to 255.
    """
    augmentation = Augmentation(
        (), RandomStreams(0), size=pixels.shape[-1], channels=3, images=1, epochs=1, mirror=True
    )
    drawn = augmentation.draw(1, np.arange(len(pixels)))
    drawn.numbers[:, AFFINE] = np.linalg.inv(maps)[:, :2].reshape(len(pixels), 6)
    device = torch.device("cpu")
    transforms_ = Transforms(augmentation, (0.0,) * 3, (1.0,) * 3, device, outside=(), extends_edges=False)
    return transforms_.move(pixels, torch.from_numpy(drawn.numbers), drawn)[0]


def test_color_matches_torchvision() -> None:
    pixels = torch.randint(40, 160, (4, 3, 8, 8), dtype=torch.uint8)
    augmentation = make_augmentation("color:0.4", seed=2, size=8, images=4, epochs=1)
    drawn = augmentation.draw(1, np.arange(4))
    matrices = drawn.numbers[:, COLOR : augmentation.policies_from].reshape(4, 3, 4)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    device = torch.device("cpu")
    transforms_ = Transforms(augmentation, mean, std, device, outside=(), extends_edges=False)
    normalize = Normalization(torch.tensor(mean), torch.tensor(std), device)
    numbers = torch.from_numpy(drawn.numbers)
    found = transforms_.paint(pixels.float(), numbers, drawn, normalize, torch.contiguous_format)
    for image, matrix, result in zip(pixels, matrices, found, strict=True):
        # Saturation first, then gain and offset, which are the same for all channels.
        sums, offset = matrix[:, :3].sum(1), matrix[:, 3]
        assert np.ptp(sums) < 1e-5
        assert np.ptp(offset) < 1e-5
        saturation = (matrix[0, 0] - matrix[1, 0]) / sums[0]
        expected = vision.adjust_saturation(image.float() / 255, float(saturation)) * sums[0] + offset[0]
        back = result * torch.tensor(std)[:, None, None] + torch.tensor(mean)[:, None, None]
        torch.testing.assert_close(back, expected, atol=4e-3, rtol=0)
    assert len({tuple(matrix.ravel()) for matrix in matrices}) == 4


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_policy_operations_match_torchvision(channels: int) -> None:
    known: dict[str, Callable[[Tensor, float], Tensor]] = {
        "brightness": lambda image, m: vision.adjust_brightness(image, 1 + m),
        "color": lambda image, m: vision.adjust_saturation(image, 1 + m) if len(image) == 3 else image,
        "contrast": lambda image, m: vision.adjust_contrast(image, 1 + m),
        "sharpness": lambda image, m: vision.adjust_sharpness(image, 1 + m),
        "posterize": lambda image, m: vision.posterize(image, int(m)),
        "solarize": lambda image, m: vision.solarize(image, m * 255),
        "autocontrast": lambda image, m: vision.autocontrast(image),
        "equalize": lambda image, m: vision.equalize(image),
    }
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(20, 220, (2 * len(OPERATIONS), channels, 16, 16), dtype=torch.uint8, generator=generator)
    pixels[:, 0] //= 2
    operations = np.arange(len(pixels)) % len(OPERATIONS)
    magnitudes = torch.rand(len(pixels), generator=generator)
    magnitudes[operations == OPERATIONS.index("posterize")] = 4
    found = apply_operations(pixels, operations, magnitudes)
    for image, number, magnitude, result in zip(pixels, operations, magnitudes.tolist(), found, strict=True):
        transforms_ = known.get(OPERATIONS[number], lambda image, m: image)
        single = channels in (1, 3)
        expected = (
            transforms_(image, magnitude)
            if single
            else torch.cat([transforms_(band[None], magnitude) for band in image])
        )
        assert (result.int() - expected.int()).abs().max() <= 1, OPERATIONS[number]
    assert torch.equal(found[0], pixels[0])


@pytest.mark.parametrize("policy", ["trivial", "randaugment:2:9", "augmix"])
def test_policies_draw_all_operations(policy: str) -> None:
    count = 400
    augmentation = make_augmentation(policy, seed=2, images=count, epochs=1)
    drawn = augmentation.draw(1, np.arange(count))
    rounds = [*drawn.rounds, *(each for chain in drawn.chains for each in chain.rounds)]
    assert set(np.concatenate([each.operations for each in rounds])) == set(range(len(OPERATIONS)))
    assert drawn.numbers.shape == (count, augmentation.columns)
    assert np.isfinite(drawn.numbers).all()
    weights = sum((drawn.numbers[:, chain.column + 6] for chain in drawn.chains), np.zeros(count))
    assert 0 <= weights.min() <= weights.max() <= 1


# Masks, instances and boxes


@pytest.mark.parametrize("text", [*ALL[:7], "trivial"])
def test_masks_follow_their_image(loaders: Loaders, tmp_path: Path, text: str) -> None:
    folder = make_masked(tmp_path / "set", {"train": 12, "val": 4}, side=64, ignored=False)
    images = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("masks",)).train
    given = parse_all(text) if text != "trivial" else parse_all("scale:0.5:2", "rotate:30", "flip")
    outside = 0
    for batch in loaders(images, given, size=64).epoch(1):
        bright = batch.inputs[:, :2].amax(1) > 170 / 255
        disc = (batch.targets > 0) & (batch.targets != NO_CLASS)
        edges = (bright ^ disc).float().sum((1, 2)) / disc.sum((1, 2)).clamp(min=40)
        assert edges.max() < 0.12
        none = batch.targets == NO_CLASS
        assert batch.inputs.amax(1)[none].numel() == 0 or batch.inputs.amax(1)[none].median() == 0
        outside += int(none.sum())
    assert (outside > 0) == (text in ("scale:0.5:2", "rotate:30", "translate:0.2", "shear:10", "trivial"))


@pytest.mark.parametrize(
    "given", [STRONG["detection"], parse_all("rotate:20", "shear:10", "scale:0.7:1.3")], ids=["strong", "rotated"]
)
def test_boxes_follow_their_objects(loaders: Loaders, boxes: ImageSet, given: Sequence[Transform]) -> None:
    remaining = tuple(each for each in given if each.name not in ("color", "hue"))
    upright = not any(each.name == "rotate" for each in remaining)
    inspected, colored, covered = 0, 0, 0
    for batch in loaders(boxes, remaining, size=96).epoch(1):
        for image, rows in zip(batch.inputs, batch.targets, strict=True):
            pixels = image.permute(1, 2, 0).numpy()
            is_colored = np.ptp(pixels, axis=-1) > 0.6
            within = np.zeros_like(is_colored)
            for left, top, right, bottom, label, _ in rows[rows[:, 4] != PADDING].tolist():
                color = np.array(boxed.COLORS[sorted(boxed.CLASSES)[int(label)]]) / 255
                matches = np.abs(pixels - color).max(-1) < 0.25
                inside = slice(round(top), round(bottom)), slice(round(left), round(right))
                window = matches[inside]
                within[inside] = True
                if min(window.shape) < 5:
                    continue
                inspected += 1
                assert window[1:-1, 1:-1].mean() > (0.7 if upright else 0.35)
                if not upright:  # the box touches its object on all sides
                    rows_, columns = np.nonzero(window)
                    assert max(rows_.min(), columns.min()) <= 3
            colored, covered = colored + is_colored.sum(), covered + (is_colored & within).sum()
    assert inspected > 12
    assert covered > 0.9 * colored > 1000


def test_mosaic_has_four_images_and_ends_early(loaders: Loaders, boxes: ImageSet) -> None:
    loader = loaders(boxes, parse_all("mosaic:1"), epochs=20, size=96)
    (first, *_), (last, *_) = list(loader.epoch(18)), list(loader.epoch(19))
    assert first.targets.shape[1] > last.targets.shape[1]
    box_counts = [int((batch.targets[..., 4] != PADDING).sum(1).max()) for batch in (first, last)]
    assert box_counts[0] > box_counts[1] == 2
    rare = next(iter(loaders(boxes, parse_all("mosaic:0"), epochs=20, size=96).epoch(1)))
    assert int((rare.targets[..., 4] != PADDING).sum(1).max()) == 2


def test_small_remnants_of_objects_are_dropped(tmp_path: Path) -> None:
    folder = boxed.coco(tmp_path / "set", {"train": {"a": boxed.ONE, "b": boxed.ONE}, "val": {"x": boxed.ONE}})
    boxes = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("boxes",)).train
    things = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("instances",)).train
    assert isinstance(things, InstanceImages)
    loaded = torch.stack([things.load(0, 96, 3)] * 2)
    is_colored = (loaded[0, 3] > 0).nonzero()
    middle = (is_colored[:, 1].float().mean() + 0.5) / 48 - 1
    wide = (is_colored[:, 1].max() - is_colored[:, 1].min() + 1) / 48
    # Move the objects to the left until a third or a sixth remains.
    right = torch.stack([-1 - middle + wide * (share - 0.5) for share in (MIN_VISIBLE + 0.1, MIN_VISIBLE - 0.1)])
    maps = shift(right.double().numpy(), np.zeros(2))
    affine = torch.from_numpy(maps[:, :2].reshape(2, 6)).float()
    rows = boxes.batch_targets(boxes.targets_of(np.zeros(2, np.int64)), None, AffinePlacement(affine, 96, 1), 96)
    assert (rows[:, :, 4] != PADDING).sum(1).tolist() == [1, 0]
    moved = warp_images(torch.cat([loaded[:, 3:], loaded[:, 3:4]], 1), maps).round().to(torch.uint8)[:, :2]
    moved[:, 1][moved[:, 0] == 0] = NO_CLASS
    mirrored = affine * torch.tensor([-1, -1, -1, 1, 1, 1])
    for each in (affine, mirrored):
        remaining = things.drop_remnants(moved, loaded[:, 3:], AffinePlacement(each, 96, 1))
        assert [int((planes[0] > 0).sum()) > 0 for planes in remaining] == [True, False]
    assert (moved[1, 0] > 0).any()
    assert (remaining[1, 1] == NO_CLASS).all()


@pytest.mark.parametrize("augmentation", ["none", "light", "own"])
def test_small_epochs_scale_masks_and_boxes(
    loaders: Loaders, boxes: ImageSet, tmp_path: Path, augmentation: str
) -> None:
    folder = make_masked(tmp_path / "set", {"train": 8, "val": 4}, side=64, ignored=False)
    masks = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("masks",)).train
    given = parse_all("scale:0.8:1.5") if augmentation == "own" else ()
    options = {
        "size": 96,
        "side_of_batch": lambda epoch, _batch: 64 if epoch == 1 else 96,
        "augmentation": augmentation,
        "threads": 0,
    }
    for batch in loaders(masks, given, **options).epoch(1):
        assert batch.inputs.shape[-1] == batch.targets.shape[-1] == 64
        bright = batch.inputs[:, :2].amax(1) > 170 / 255
        disc = (batch.targets > 0) & (batch.targets != NO_CLASS)
        assert ((bright ^ disc).float().sum((1, 2)) / disc.sum((1, 2)).clamp(min=40)).max() < 0.12
    small, large = (torch.cat([b.targets for b in loaders(boxes, given, **options).epoch(e)]) for e in (1, 2))
    assert small[..., :4].max() <= 64 < large[..., :4].max()
    if augmentation == "none":
        ordered = [
            sorted(rows[rows[:, 4] != PADDING][:, 2:4].flatten().tolist())
            for rows in (small.flatten(0, 1), large.flatten(0, 1))
        ]
        assert ordered[0] == pytest.approx([edge * 64 / 96 for edge in ordered[1]])


def test_validation_uses_center_of_larger_images(photographs: ImageSet) -> None:
    sampler = GlobalBatchSampler(len(photographs), 8, 0, 1, RandomStreams(5), shuffle=False)
    loader = make_loader(photographs, sampler, **UNCHANGED | {"resized": 40, "threads": 0})
    try:
        first = next(iter(loader.epoch(1))).inputs
    finally:
        loader.close()
    expected = photographs.load(0, 40, 3)[:, 4:36, 4:36].float() / 255
    torch.testing.assert_close(first[0], expected, atol=1e-5, rtol=0)


# Crops of full images


def draw_parts(text: str, aspect: float) -> np.ndarray:
    """Return the regions that the augmentation `text` selects in 4,000 images with the aspect ratio `aspect`.

    They are fractions of the image's size, [4000, 4]: left, top, width and height.
    """
    count = 4000
    augmentation = make_augmentation(text, seed=4, images=count, epochs=1)
    drawn = augmentation.draw(1, np.arange(count), np.full(count, aspect, np.float32))
    inverse = drawn.numbers[:, AFFINE].reshape(-1, 2, 3).astype(np.float64)
    size = inverse[:, (0, 1), (0, 1)]
    return np.concatenate([(inverse[:, :, 2] - size + 1) / 2, size], 1)


@pytest.mark.parametrize("aspect", [1.0, 4 / 3, 0.6, 3.0])
@pytest.mark.parametrize("smallest", [0.08, 0.35])
def test_resized_crop_draws_the_parts_that_torchvision_draws(aspect: float, smallest: float) -> None:
    parts = draw_parts(f"resized_crop:{smallest}", aspect)
    height = 1200
    image = torch.empty(1, height, round(height * aspect))
    torch.manual_seed(0)
    theirs = [RandomResizedCrop.get_params(image, [smallest, 1.0], [3 / 4, 4 / 3]) for _ in range(len(parts))]
    expected = np.array([(left, top, wide, tall) for top, left, tall, wide in theirs]) / np.tile(
        [image.shape[-1], height], 2
    )
    for column in range(4):
        difference = np.abs(np.quantile(parts[:, column], QUANTILES) - np.quantile(expected[:, column], QUANTILES))
        assert difference.max() < 0.03
    assert (parts[:, :2] > -1e-6).all()
    assert (parts[:, :2] + parts[:, 2:] < 1 + 1e-6).all()


@pytest.mark.parametrize("aspect", [4 / 3, 0.6])
def test_scale_shows_squares_of_the_original_from_one_edge_to_the_other(aspect: float) -> None:
    parts = draw_parts("scale:1.125:1.125", aspect)
    sides = parts[:, 2:] * (max(aspect, 1), max(1 / aspect, 1))
    np.testing.assert_allclose(sides, 1 / 1.125, atol=1e-5)
    longer = 0 if aspect > 1 else 1
    assert parts[:, longer].min() < 0.01
    assert (parts[:, longer] + parts[:, 2 + longer]).max() > 0.99


def test_framing_comes_before_transforms_that_are_listed_first() -> None:
    def maps(*texts: str) -> np.ndarray:
        both = make_augmentation(*texts, seed=1, epochs=5)
        return both.draw(2, np.arange(6), np.full(6, 1.5, np.float32)).numbers[:, AFFINE]

    assert np.array_equal(maps("rotate:90", "scale:1:2"), maps("scale:1:2", "rotate:90"))


def test_mosaics_are_scaled_after_they_are_composed() -> None:
    augmentation = make_augmentation("mosaic:1", "scale:2:2", seed=1, epochs=50)
    inverse = augmentation.draw(1, np.arange(6)).numbers[:, AFFINE].reshape(6, 4, 2, 3)
    np.testing.assert_allclose(inverse[..., (0, 1), (0, 1)], 0.5, rtol=1e-6)


def test_later_framing_transforms_start_from_the_square_of_the_first() -> None:
    composed = make_augmentation("resized_crop:0.3", "scale:2:2", seed=1, epochs=5)
    single = make_augmentation("resized_crop:0.3", seed=1, epochs=5)
    aspects = np.full(6, 2.0, np.float32)
    both, first = (
        each.draw(1, np.arange(6), aspects).numbers[:, AFFINE].reshape(6, 2, 3) for each in (composed, single)
    )
    np.testing.assert_allclose(both[:, (0, 1), (0, 1)], first[:, (0, 1), (0, 1)] / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("images", "text", "side"),
    [
        ("photographs", "resized_crop:0.08", 64),
        ("photographs", "resized_crop:0.5", 45),
        ("photographs", "scale:1.125:1.125", 42),
        ("photographs", "scale:0.5:0.8", 37),
        ("photographs", "flip", 32),
        ("boxes", "scale:0.7:1.3", 36),
    ],
)
def test_loader_stores_images_as_large_as_the_smallest_part_needs(
    loaders: Loaders, request: pytest.FixtureRequest, images: str, text: str, side: int
) -> None:
    chosen: list[str] = []
    split = request.getfixturevalue(images)
    loader = loaders(
        split, parse_all(text), threads=0, cache="memory", on_chosen=lambda choice, why: chosen.append(why)
    )
    next(iter(loader.epoch(1)))
    needed = len(split) * 3 * side * side
    assert chosen == [f"Decoded once, for this run: {format_bytes(needed)} for each worker."]


@pytest.mark.parametrize("cache", ["memory", "disk", "off"])
@pytest.mark.parametrize("augmentation", ["light", "own"])
def test_crops_reach_the_edges_of_an_elongated_image(
    loaders: Loaders, tmp_path: Path, cache: str, augmentation: str
) -> None:
    """Use an image with a red left edge and a blue right edge, both outside of its center square."""
    pixels = np.zeros((60, 120, 3), np.uint8)
    pixels[:, :6, 0] = 255
    pixels[:, -6:, 2] = 255
    for number in range(10):
        path = tmp_path / "set" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    images = open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0).train
    given = parse_all("resized_crop:0.35") if augmentation == "own" else ()
    loader = loaders(images, given, augmentation=augmentation, cache=cache, mirror=False)
    brightest = torch.cat([batch.inputs for epoch in range(1, 9) for batch in loader.epoch(epoch)]).amax((2, 3))
    assert (brightest[:, 0] > 0.9).any()
    assert (brightest[:, 2] > 0.9).any()
    assert (brightest[:, 0] < 0.1).any()


# Given random numbers


class GivenStreams(RandomStreams):
    """Streams that return given numbers, [count] or [count, n], instead of random ones."""

    given: np.ndarray

    def draw(self, purpose: object, epoch: int, samples: np.ndarray, count: int, draw_index: int = 0) -> np.ndarray:
        numbers = np.asarray(self.given[:count], np.float64)
        return np.broadcast_to(numbers.reshape(count, -1), (count, len(samples))).copy()


def draws_of(text: str, given: object, *, n: int = 1) -> Draws:
    streams = GivenStreams(0)
    streams.given = np.array(given, np.float64)
    augmentation = Augmentation(
        parse_all(*text.split()), streams, size=SIZE, channels=3, images=100, epochs=20, mirror=True
    )
    return augmentation.draw(1, np.arange(n), None)


def test_augmentation_leaves_out_mirroring_and_ends_mosaics() -> None:
    given = parse_all("flip:1", "vflip:1", "mosaic:1", "blur")
    settings = {"size": SIZE, "channels": 3, "images": 6, "epochs": 20}
    mirrored, plain = (Augmentation(given, RandomStreams(1), mirror=mirror, **settings) for mirror in (True, False))
    assert [len(each.transforms) for each in (mirrored, plain)] == [4, 2]
    assert [plain.tiles(epoch) for epoch in (1, 18, 19, 20)] == [4, 4, 1, 1]
    partners = plain.select_images(1, np.arange(3))
    assert (partners[::4].tolist(), len(partners), plain.select_images(19, np.arange(3)).tolist()) == (
        [0, 1, 2],
        12,
        [0, 1, 2],
    )
    assert set(plain.select_images(1, np.arange(60)).reshape(60, 4)[:, 1:].flat) == set(range(6))


@pytest.mark.parametrize(("text", "is_mosaic"), [("mosaic:0.5", False), ("mosaic:0.7", True)])
def test_mosaic_happens_with_its_probability(text: str, is_mosaic: bool) -> None:
    forward = draws_of(text, [0.25, 0.75, 0.6]).numbers[:, FORWARD].reshape(4, 2, 3)
    assert forward[1, 0, 2] == (0.5 if is_mosaic else 1e4)
    assert forward[0, :, 2].tolist() == ([-1.5, -0.5] if is_mosaic else [0, 0])


@pytest.mark.parametrize(("chance", "sigma"), [(0.2, 1.05), (0.1, 0.0)])
def test_blur_has_a_smallest_sigma(chance: float, sigma: float) -> None:
    drawn = draws_of(f"blur:{chance}", [0.15, 0.5])
    assert drawn.numbers[:, BLURRED].tolist() == pytest.approx([sigma])
    assert drawn.blurred == ([0] if sigma else [])


@pytest.mark.parametrize(
    ("uniform", "window"),
    [
        ([0, 1, 0, 0.5, 0.5], (0.335, 0, 0.665, 1)),
        ([0, 1, 1, 0.5, 1], (0, 0.335, 1, 0.665)),
        ([0.9, 1, 0, 0, 0], (0,) * 4),
        ([0, 0, 0.5, 0, 0], (0, 0, (0.02 * 0.99**0.5) ** 0.5, (0.02 / 0.99**0.5) ** 0.5)),
    ],
)
def test_erased_rectangle_is_within_the_image(uniform: list[float], window: tuple[float, ...]) -> None:
    assert draws_of("erase:0.5", uniform).numbers[0, ERASED].tolist() == pytest.approx(window, abs=1e-6)


def test_color_matrix_combines_brightness_and_contrast() -> None:
    matrix = draws_of("color:0.4", [0.75, 0.25, 0.5]).numbers[0, COLOR:].reshape(3, 4)
    np.testing.assert_allclose(matrix, np.column_stack([0.96 * np.eye(3), np.full(3, 0.1)]), atol=1e-6)


@pytest.mark.parametrize("given", [0.0, 1.0])
def test_hue_rotates_colors_around_the_gray_axis(given: float) -> None:
    matrix = draws_of("hue:0.25", [given]).numbers[0, COLOR:].reshape(3, 4)[:, :3].astype(np.float64)
    # Two quarters of a turn give the complementary color.
    np.testing.assert_allclose(matrix @ matrix, 2 * np.tile(GRAY, (3, 1)) - np.eye(3), atol=1e-5)


ORDER = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "posterize",
    "solarize",
    "color",
    "contrast",
    "sharpness",
)


@pytest.mark.parametrize(
    ("text", "magnitudes"),
    [
        ("trivial", (0, 0.495, 0.495, 0.5, 0.5, 67.5, 0.495, 5, 0.5, 0.495, 0.495, 0.495)),
        ("randaugment:2:9", (0, 0.09, 0.09, 45 / 331, 45 / 331, 9, 0.27, 7, 0.7, 0.27, 0.27, 0.27)),
        ("augmix:3", (0, 1 / 15, 1 / 15, 2 / 27, 2 / 27, 20 / 3, 0.2, 3, 7 / 9, 0.2, 0.2, 0.2)),
    ],
)
def test_policies_scale_the_largest_magnitudes(text: str, magnitudes: tuple[float, ...]) -> None:
    numbers = np.array([OPERATIONS.index(name) for name in ORDER])
    chosen = (
        np.maximum(numbers - 0.5, 0) / (len(OPERATIONS) - 1)
        if text == "augmix:3"
        else (numbers + 0.5) / len(OPERATIONS)
    )
    magnitude = np.full(len(ORDER), 0.99 if text == "augmix:3" else 0.5)
    for sign in (0.25, 0.75):
        signs = np.full(len(ORDER), sign)
        if text == "augmix:3":  # a mixture, then for each chain a weight, a depth and the operations
            given = [magnitude, *[magnitude, magnitude, *[chosen, magnitude, signs] * 3] * 3]
        else:
            given = [chosen, signs, chosen, signs] if text.startswith("rand") else [chosen, magnitude, signs]
        drawn = draws_of(text, given, n=len(ORDER))
        rounds = [*drawn.rounds, *(each for chain in drawn.chains for each in chain.rounds)]
        assert len(rounds) == {"trivial": 1, "randaugment:2:9": 2, "augmix:3": 9}[text]
        for each in rounds:
            is_used = each.operations == numbers
            assert is_used[1:].all()
            is_signed = np.array([name not in ("posterize", "solarize") for name in ORDER])
            expected = np.array(magnitudes) * np.where(is_signed & (sign < 0.5), -1, 1)
            np.testing.assert_allclose(drawn.numbers[is_used, each.column], expected[is_used], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("operation", "forward"),
    [
        ("shear_x", [1, 0.495, 0, 0, 1, 0]),
        ("shear_y", [1, 0, 0, 0.495, 1, 0]),
        ("translate_x", [1, 0, 1, 0, 1, 0]),
        ("translate_y", [1, 0, 0, 0, 1, 1]),
        ("rotate", [0.382683, -0.92388, 0, 0.92388, 0.382683, 0]),
        ("brightness", [1, 0, 0, 0, 1, 0]),
    ],
)
def test_policies_move_images_by_their_magnitude(operation: str, forward: list[float]) -> None:
    drawn = draws_of("trivial", [(OPERATIONS.index(operation) + 0.5) / len(OPERATIONS), 0.5, 0.75])
    np.testing.assert_allclose(drawn.numbers[0, FORWARD], forward, atol=1e-5)


def test_augmix_maps_lead_from_the_result_to_the_image() -> None:
    operation = (OPERATIONS.index("translate_x") - 0.5) / (len(OPERATIONS) - 1)
    drawn = draws_of("augmix:3", [0.5, *[0.5, 0.99, *[operation, 0.99, 0.75] * 3] * 3])
    for chain in drawn.chains:  # three translations by 2/27 of the side, which is 2 long
        expected = [1, 0, -3 * 2 * 2 / 27, 0, 1, 0, 0.5 / 3]
        np.testing.assert_allclose(drawn.numbers[0, chain.column : chain.column + 7], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "uniform", "forward"),
    [("scale:0.5:2", [0.5, 1, 1], [1, 0, 0, 0, 1, 0]), ("scale:2:2", [0, 1, 0.25], [2, 0, 1, 0, 2, -0.5])],
)
def test_scale_is_drawn_logarithmically(text: str, uniform: list[float], forward: list[float]) -> None:
    np.testing.assert_allclose(draws_of(text, uniform).numbers[0, FORWARD], forward, atol=1e-6)


def test_policies_also_apply_to_mosaics() -> None:
    drawn = draws_of("mosaic:1 trivial", [0.3, 0.99, 0.75], n=2)
    assert drawn.numbers[:, drawn.rounds[0].column].tolist() == [1, 0, 0, 0] * 2
    assert drawn.tiles == 4


@pytest.mark.parametrize(("text", "ratio"), [("scale:0.5:0.8", 1.1547), ("scale:0.5:1.5", 1.7321), ("flip", 1.0)])
def test_oversampling_is_that_of_the_largest_image(text: str, ratio: float) -> None:
    assert make_augmentation(text).oversampling == pytest.approx(ratio, abs=1e-4)


def test_maps_of_resized_batches_are_scaled() -> None:
    cropped = CropPlacement(torch.tensor([[10, 5, 0], [10, 5, 1]]), 100, 80)
    for placement, factor in ((cropped, 1), (ResizePlacement(cropped, 40), 0.5)):
        linear, offset = placement.maps()
        assert linear.tolist() == [[[sign * 100 * factor, 0], [0, 100 * factor]] for sign in (1, -1)]
        assert offset.tolist() == [[-5 * factor, -10 * factor], [85 * factor, -10 * factor]]


@pytest.mark.parametrize("threads", [0, 2])
def test_unreadable_tiles_of_mosaics_are_replaced(loaders: Loaders, boxes: ImageSet, threads: int) -> None:
    for path in boxes.files[1::2]:
        Path(path).write_bytes(b"torn")
    loader = loaders(
        boxes, parse_all("mosaic:1"), epochs=20, threads=threads, cache="off", on_unreadable=lambda *_: None
    )
    inputs = torch.cat([batch.inputs for batch in loader.epoch(1)])
    assert (inputs.amax(1) > 0.1).float().mean() > 0.5


# Painting with given numbers


def apply_augmentation(augmentation: Augmentation, pixels: Tensor, drawn: Draws) -> Tensor:
    device = torch.device("cpu")
    transforms_ = Transforms(augmentation, (0.0,) * 3, (1.0,) * 3, device, outside=(), extends_edges=False)
    normalize = Normalization(torch.zeros(3), torch.ones(3) / 255, device)
    return transforms_.paint(pixels, torch.from_numpy(drawn.numbers), drawn, normalize, torch.contiguous_format)


def test_paint_erases_pixels_whose_centers_are_inside() -> None:
    augmentation = make_augmentation("mosaic:1", "erase:1", size=8)
    drawn = augmentation.draw(1, np.arange(2))
    drawn.numbers[:, ERASED] = 0
    drawn.numbers[4, ERASED] = np.array([0.5, 1.5, 4.5, 3.5]) / 8
    found = apply_augmentation(augmentation, torch.full((2, 3, 8, 8), 7.0), drawn)
    expected = torch.full((2, 3, 8, 8), 7.0)
    expected[1, :, :4, 1:3] = 0
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_paint_blurs_like_torchvision(sigma: float) -> None:
    augmentation = make_augmentation("blur:1")
    drawn = augmentation.draw(1, np.arange(2))
    drawn.numbers[:, BLURRED] = 0, sigma
    pixels = torch.zeros(2, 3, SIZE, SIZE)
    pixels[:, :, 15:17, 14:18] = torch.tensor([200.0, 100.0, 50.0])[:, None, None]
    found = apply_augmentation(augmentation, pixels.clone(), drawn._replace(blurred=[1]))
    torch.testing.assert_close(found[0], pixels[0])
    torch.testing.assert_close(found[1], vision.gaussian_blur(pixels[1], [13, 13], [sigma] * 2), atol=1e-3, rtol=1e-4)


def test_paint_mixes_all_operations_of_a_chain() -> None:
    augmentation = make_augmentation()
    identity, brightness = (np.array([OPERATIONS.index(name)]) for name in ("identity", "brightness"))
    numbers = np.zeros((1, COLOR + 9), np.float32)
    numbers[0, COLOR:] = 1, 0, 0, 0, 1, 0, 0.25, 0, -1  # an affine map, the weight, and two magnitudes
    chain = Chain(COLOR, (OperationDraw(identity, COLOR + 7), OperationDraw(brightness, COLOR + 8)))
    found = apply_augmentation(augmentation, torch.full((1, 3, SIZE, SIZE), 80.0), Draws(numbers, 1, [], (), (chain,)))
    torch.testing.assert_close(found, torch.full((1, 3, SIZE, SIZE), 60.0))
    numbers[0, COLOR + 1 : COLOR + 3] = -0.5, -0.75
    rounds = tuple(OperationDraw(brightness, COLOR + column) for column in (1, 2))
    found = apply_augmentation(augmentation, torch.full((1, 3, SIZE, SIZE), 80.0), Draws(numbers, 1, [], rounds, ()))
    torch.testing.assert_close(found, torch.full((1, 3, SIZE, SIZE), 10.0))


@pytest.mark.parametrize("extends_edges", [False, True])
def test_planes_are_filled_with_their_values_outside(extends_edges: bool) -> None:
    drawn = make_augmentation().draw(1, np.arange(1))
    drawn.numbers[:, AFFINE] = 1, 0, 1, 0, 1, 0  # the right half of the image
    device = torch.device("cpu")
    transforms_ = Transforms(
        make_augmentation(), (0.0,) * 3, (1.0,) * 3, device, outside=(0, 7), extends_edges=extends_edges
    )
    images, planes = transforms_.move(
        torch.full((1, 5, SIZE, SIZE), 9, dtype=torch.uint8), torch.from_numpy(drawn.numbers), drawn
    )
    assert images[..., -1].unique().tolist() == [9 if extends_edges else 0]
    assert planes is not None
    assert [sorted(set(plane.flatten().tolist())) for plane in planes[0]] == [[0, 9], [7, 9]]
    assert (planes[0, :, :, : SIZE // 2] == 9).all()
