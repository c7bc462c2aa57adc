"""Boxes and masks, which are cropped and mirrored together with their images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.data.datasets.boxed_images import PADDING, BoxedImages
from engine.data.datasets.images import ImageSet, UnreadableImage
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.data.transforms.device_transforms import AffinePlacement, CropPlacement, Placement
from tests.support import boxed
from tests.support.boxed import SPLITS, TWO, DrawnImage, Rectangle, draw, write_numbered_mask
from tests.support.from_the_host import HostTensorRecorder
from tests.support.loaders import make_loader

SIZE = 64
UNCHANGED = {"size": SIZE, "mean": (0.0,) * 3, "std": (1.0,) * 3}


def open_training_split(folder: Path, format_: str = "boxes") -> ImageSet:
    return open_splits(str(folder), val_fraction=0.25, seed=0, kinds=(format_,)).train


def load_batches(images: ImageSet, epochs: int, **given: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the inputs and targets of each batch in several epochs. `given` are arguments of the training loader."""
    sampler = GlobalBatchSampler(len(images), len(images), 0, 1, RandomStreams(5), shuffle=True)
    loader: BatchLoader = make_loader(images, sampler, **UNCHANGED | given)
    try:
        return [(batch.inputs, batch.targets) for epoch in range(epochs) for batch in loader.epoch(epoch)]
    finally:
        loader.close()


def find_color(image: Tensor, name: str) -> Tensor:
    """Return a mask, bool [h, w], of the pixels that have the color of class `name`.

    `image` is [3, h, w] in 0..1.
    """
    color = torch.tensor(boxed.COLORS[name])[:, None, None] / 255
    return (image - color).abs().amax(0) < 0.3


def find_extent(where: Tensor) -> list[float]:
    rows, columns = where.any(1).nonzero()[:, 0], where.any(0).nonzero()[:, 0]
    return [columns.min().item(), rows.min().item(), columns.max().item() + 1, rows.max().item() + 1]


def test_box_targets_are_fractions_of_the_square(tmp_path: Path) -> None:
    images = open_training_split(boxed.coco(tmp_path, SPLITS))
    targets = images.targets_of(np.arange(2))
    assert targets.shape == (2, 2, 6)
    wide, tall = targets
    expected = [[8 / 80, 14 / 80, 40 / 80, 38 / 80, 1, 0], [50 / 80, 40 / 80, 74 / 80, 66 / 80, 0, 0]]
    assert torch.allclose(wide, torch.tensor(expected))
    assert torch.allclose(tall[0], torch.tensor([20 / 80, 20 / 80, 40 / 80, 70 / 80, 0, 0]))
    assert tall[1].tolist() == [0, 0, 0, 0, PADDING, 0]
    assert images.class_counts(2) == [2, 1]


def test_crowds_are_not_counted(tmp_path: Path) -> None:
    folder = boxed.coco(tmp_path, SPLITS)
    for path in folder.rglob("*.json"):
        annotations = json.loads(path.read_text())
        for annotation in annotations["annotations"]:
            annotation["iscrowd"] = int(annotation is annotations["annotations"][0])
        path.write_text(json.dumps(annotations))
    images = open_training_split(folder)
    assert int((images.targets_of(np.arange(2))[..., 4] != PADDING).sum()) == 3
    assert sum(images.class_counts(2)) == 2


@pytest.mark.parametrize("augmentation", ["none", "light"])
def test_boxes_follow_objects_in_crops(tmp_path: Path, augmentation: str) -> None:
    images = open_training_split(boxed.coco(tmp_path, SPLITS))
    centers: set[float] = set()
    for inputs, targets in load_batches(images, epochs=1 if augmentation == "none" else 6, augmentation=augmentation):
        for image, rows in zip(inputs, targets, strict=True):
            for row in rows[rows[:, 4] != PADDING]:
                edges = find_extent(find_color(image, boxed.CLASSES[int(row[4])]))
                assert row[:4].tolist() == pytest.approx(edges, abs=1.6)
                centers.add(round(row[0].item(), 2))
    assert len(centers) == 3 if augmentation == "none" else len(centers) > 6


def test_object_planes_follow_their_images(tmp_path: Path) -> None:
    images = open_training_split(boxed.coco(tmp_path, SPLITS), "instances")
    for inputs, targets in load_batches(images, epochs=4):
        assert (targets.dtype, targets.shape[1:]) == (torch.int64, (2, SIZE, SIZE))
        for image, (numbers, classes) in zip(inputs, targets, strict=True):
            assert ((numbers == 0) == (classes == NO_CLASS)).all()
            for label, name in enumerate(boxed.CLASSES):
                where = find_color(image, name)
                assert (where ^ (classes == label)).sum() <= 0.15 * max(int(where.sum()), 1)
    assert images.class_counts(2) == [2, 1]


def make_targets(rows: list[list[float]], crops: list[list[int]], loaded: int, size: int, tmp_path: Path) -> Tensor:
    images = open_training_split(boxed.coco(tmp_path, SPLITS))
    assert isinstance(images, BoxedImages)
    return images.batch_targets(torch.tensor([rows]), None, CropPlacement(torch.tensor(crops), loaded, size), size)[0]


def test_boxes_are_moved_mirrored_then_cut(tmp_path: Path) -> None:
    rows = [[0.1, 0.2, 0.4, 0.5, 1.0, 0.0], [0.5, 0.5, 1.0, 1.0, 0.0, 1.0]]
    found = make_targets(rows, [[10, 5, 0]], 100, 80, tmp_path / "plain")
    assert found.tolist() == [[5, 10, 35, 40, 1, 0], [45, 40, 80, 80, 0, 1]]
    found = make_targets(rows, [[10, 5, 1]], 100, 80, tmp_path / "mirrored")
    assert found.tolist() == [[45, 10, 75, 40, 1, 0], [0, 40, 35, 80, 0, 1]]


def test_boxes_cropped_below_a_quarter_are_dropped(tmp_path: Path) -> None:
    rows = [[0.0, 0.0, 0.4, 0.4, 1.0, 0.0], [0.0, 0.0, 0.1, 0.4, 0.0, 0.0], [0, 0, 0, 0, -1.0, 0]]
    nothing = [0, 0, 0, 0, PADDING, 0]
    assert make_targets(rows, [[20, 20, 0]], 100, 50, tmp_path / "quarter").tolist() == [
        [0, 0, 20, 20, 1, 0],
        nothing,
        nothing,
    ]
    assert make_targets(rows, [[21, 20, 0]], 100, 50, tmp_path / "less").tolist() == [nothing] * 3


def test_batch_targets_keep_stored_targets(tmp_path: Path) -> None:
    images = open_training_split(boxed.coco(tmp_path, SPLITS))
    before = images.targets_of(np.arange(2))
    for _, targets in load_batches(images, epochs=2, augmentation="none"):
        targets.zero_()
    assert torch.equal(images.targets_of(np.arange(2)), before)


def test_rank_gets_boxes_of_its_images_only(tmp_path: Path) -> None:
    cat = Rectangle(2, 2, 20, 20, "cat")
    one, many = DrawnImage(40, 40, (cat,)), DrawnImage(40, 40, (cat,) * 30)
    images = open_training_split(
        boxed.coco(tmp_path, {"train": {"a": one, "b": many, "c": TWO, "d": one}, "val": {"e": one}})
    )
    shapes = []
    for rank in range(4):
        sampler = GlobalBatchSampler(4, 4, rank, 4, RandomStreams(5), shuffle=False)
        loader: BatchLoader = make_loader(images, sampler, **UNCHANGED)
        try:
            (batch,) = loader.epoch(1)
        finally:
            loader.close()
        shapes.append(tuple(batch.targets.shape))
    assert shapes == [(1, 1, 6), (1, 30, 6), (1, 2, 6), (1, 1, 6)]


@pytest.mark.parametrize("augmentation", ["none", "light", "strong"])
def test_batch_targets_do_not_synchronize(tmp_path: Path, augmentation: str) -> None:
    """Use FakeTensorMode, whose tensors have no values and refuse to be read."""
    images = open_training_split(boxed.coco(tmp_path, SPLITS))
    with FakeTensorMode(), HostTensorRecorder() as host:
        rows = torch.empty((2, 2, 6), device="cuda")
        placement: Placement | None = None
        if augmentation == "light":
            placement = CropPlacement(torch.empty((2, 3), dtype=torch.int64, device="cuda"), SIZE + 8, SIZE)
        elif augmentation == "strong":
            placement = AffinePlacement(torch.empty((2, 6), device="cuda"), SIZE, 1)
        batch = images.batch_targets(rows, None, placement, SIZE)
    assert (batch.shape, batch.device) == (rows.shape, rows.device)
    assert not host.noted


def test_images_without_boxes_have_empty_targets(tmp_path: Path) -> None:
    nothing = DrawnImage(20, 30, ())
    images = open_training_split(boxed.yolo(tmp_path, {"train": {"a": nothing, "b": nothing}, "val": {"c": TWO}}))
    assert images.targets_of(np.arange(2)).shape == (2, 0, 6)
    (_, targets), *_ = load_batches(images, epochs=1)
    assert targets.shape == (2, 0, 6)
    assert images.class_counts(2) == [0, 0]


def test_image_with_other_size_than_annotated_is_unreadable(tmp_path: Path) -> None:
    root = boxed.coco(tmp_path, SPLITS)
    for size, text in (({"height": 80, "width": 60}, "60 x 80"), ({"height": 50}, "80 x 50")):
        draw(root / "train2017/a.png", TWO._replace(**size))
        with pytest.raises(UnreadableImage, match=f"it has {text} pixels, but its boxes belong to an image of 80 x 60"):
            open_training_split(root).load(0, SIZE, 3)
    with pytest.raises(UnreadableImage, match="different size"):
        open_training_split(root, "instances").load(0, SIZE, 3)


def test_numbered_masks_and_outlines_give_same_planes(tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    for split, images in SPLITS.items():
        for stem, drawn in images.items():
            draw(masks / f"images/{split}/{stem}.png", drawn)
            write_numbered_mask(masks / f"masks/{split}/{stem}.png", drawn)
    by_number, by_outline = (
        open_training_split(masks, "instances"),
        open_training_split(boxed.coco(tmp_path / "coco", SPLITS), "instances"),
    )
    for index in range(2):
        first, second = by_number.load(index, SIZE, 3), by_outline.load(index, SIZE, 3)
        assert torch.equal(first[:4], second[:4])
        assert torch.equal(first[4] == NO_CLASS, second[4] == NO_CLASS)
