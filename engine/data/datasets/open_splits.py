"""Open datasets of any format for training."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.contract.dataset import parse_fold
from engine.contract.problems import Problem, errors
from engine.data.datasets.boxed_images import BoxedImages, InstanceImages
from engine.data.datasets.images import DatasetError, FileImages, IdxImages, ImageSet, LabeledImages, MaskedImages
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.idx import Bytes
from engine.data.decoding.reading import count_folder_channels
from engine.data.decoding.tiff import count_channels, learn_bands
from engine.data.files import Files
from engine.data.formats.format import resolve
from engine.data.formats.idx import open_idx_images
from engine.data.formats.registry import FORMATS, IMAGES_BY_CLASS, explain_failure, recognize
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.instances import InstanceSplit
from engine.data.formats.shared.splitting import list_strata, sample_keys, select_samples
from engine.data.splits import (
    FileSplit,
    IdxSplit,
    LabelSplit,
    MaskSplit,
    RecognizedDataset,
    dataset_error,
    order_by_hash,
)
from engine.data.transforms.device_transforms import Statistics
from engine.system.format import counted
from engine.system.regular_files import UnusableFile


@dataclass(frozen=True)
class Splits:
    """Dataset that is open for training.

    `channels` is the number of channels of images, such as 1 for gray and 3 for color. `statistics` are the mean and
    standard deviation of each channel, or None if the images have 1 or 3 channels, since the statistics of the
    pretrained model are used for those. `test` is None if there is no test split. It is the same object as `val` if the
    dataset uses one split for both purposes.
    """

    classes: tuple[str, ...]
    channels: int
    format: str
    train: ImageSet | SampleSet
    val: ImageSet | SampleSet
    statistics: Statistics | None = None
    test: ImageSet | SampleSet | None = None

    def with_each(self, change: Callable[[Any], ImageSet | SampleSet], **changes: Any) -> Splits:
        """Return a copy with `change` applied to each split. Keyword arguments replace other attributes.

        A split that serves for both validation and testing stays a single object.
        """
        val, test = change(self.val), None
        if self.test is self.val:
            test = val
        elif self.test is not None:
            test = change(self.test)
        return replace(self, train=change(self.train), val=val, test=test, **changes)


def open_splits(
    folder: str,
    *,
    val_fraction: float,
    seed: int,
    kinds: Sequence[str] = IMAGES_BY_CLASS,
    format: str = "",
    fold: str = "",
) -> Splits:
    """Open the dataset in `folder`, which must have one of the `kinds` of annotations (see `registry.KINDS`).

    `val_fraction` is the fraction of the training samples to hold out, selected randomly with `seed`, if there is no
    validation split. `format` and `fold` have the same meaning as the fields of the job. Raises DatasetError with all
    problems that were found.
    """
    folder = os.path.expanduser(folder)
    found = recognize(folder, val_fraction=val_fraction, seed=seed, kinds=kinds, format=format)
    if fold and not errors(found.problems):
        found = select_fold(found, folder, fold, seed)
    return open_recognized(found, folder)


def open_recognized(found: RecognizedDataset, folder: str) -> Splits:
    """Open a dataset that was recognized in `folder`. Raises DatasetError with all problems that were found."""
    problems = errors(found.problems)
    if problems or found.train is None or found.val is None:
        raise DatasetError(problems)
    try:
        opener = resolve(FORMATS[found.format_id].open) or OPENERS[type(found.train)]
        return _use_bands(opener(found, folder), folder)
    except UnusableFile as error:
        raise DatasetError([explain_failure(error, folder)]) from error


def _use_bands(splits: Splits, folder: str) -> Splits:
    """Set the conversion of multi-band images to 8-bit channels in all image sets of `splits`.

    The sets are changed in place. Returns the splits with the number and the statistics of these channels, or `splits`
    unchanged if no image has multiple bands.
    """
    if not isinstance(splits.train, ImageSet):
        return splits
    # Without training images, as in a folder for an evaluation, the conversion is learned from the test images.
    files = splits.train.files or getattr(splits.test or splits.val, "files", ())
    learned = learn_bands(folder, files)
    if learned is None:
        return splits
    bands = learned.bands

    def set_bands(images: ImageSet) -> ImageSet:
        images.bands = bands
        images.cache_key += repr(bands)  # keeps caches for other bands apart
        return images

    statistics = None if bands.count in (1, 3) else (bands.mean, bands.std)
    channels = count_channels(bands, splits.channels)
    return splits.with_each(set_bands, channels=channels, statistics=statistics)


def open_images(found: RecognizedDataset, make: Callable[[Any], ImageSet]) -> Splits:
    """Open a dataset of image files, after converting each of its splits to an `ImageSet` with `make`."""
    train: Any = found.train
    val: Any = found.val
    test: Any = found.test
    # Without training images, as in a folder for an evaluation, the test images show the number of channels.
    channels = count_folder_channels(train.files or (test or val).files, val.files)
    return Splits(found.classes, channels, found.format, train, val, test=test).with_each(make)


def _open_masks(found: RecognizedDataset, folder: str) -> Splits:
    code = found.code
    assert code is not None
    return open_images(found, lambda split: MaskedImages(split, code, folder))


def _open_idx(found: RecognizedDataset, folder: str) -> Splits:
    """Open idx files for training and validation. Raises DatasetError if a file can't be used."""
    problems: list[Problem] = []
    splits = []
    opened: dict[str, Bytes | None] = {}  # pixels by path, since both splits may be in one file
    for split in (found.train, found.val):
        assert isinstance(split, IdxSplit)
        if split.images not in opened:
            opened[split.images] = open_idx_images(split, problems)
        pixels = opened[split.images]
        if pixels is not None:
            splits.append(IdxImages(split, pixels))
    if errors(problems) or len(splits) != 2:
        raise DatasetError(errors(problems))
    return Splits(found.classes, channels=1, format=found.format, train=splits[0], val=splits[1])


OPENERS: dict[type, Callable[[RecognizedDataset, str], Splits]] = {
    FileSplit: lambda found, folder: open_images(found, lambda split: FileImages(split, folder)),
    MaskSplit: _open_masks,
    BoxSplit: lambda found, folder: open_images(found, lambda split: BoxedImages(split, folder)),
    InstanceSplit: lambda found, folder: open_images(found, lambda split: InstanceImages(split, folder)),
    LabelSplit: lambda found, folder: open_images(found, lambda split: LabeledImages(split, folder)),
    IdxSplit: _open_idx,
}
"""Functions that open a recognized dataset, keyed by the type of its splits. They may raise DatasetError."""


def select_fold(found: RecognizedDataset, folder: str, fold: str, seed: int) -> RecognizedDataset:
    """Return a copy of a dataset that uses one fold of its training images for validation.

    The `fold` "2/5" is the second of five folds. Each image is in exactly one fold, and the images of each class are
    spread evenly over the folds. If the validation split was sampled from the training images, its images are divided
    into folds, too. A validation split that exists in the folder is not used.
    """
    fold_number = parse_fold(fold)
    train: Any = found.train
    val: Any = found.val
    if fold_number is None or not isinstance(train, FileSplit | IdxSplit | LabelSplit):
        message = f"A dataset of the format “{found.format}” has no fold “{fold}”."
        return replace(found, problems=(*found.problems, dataset_error(message, "Leave the fold empty.")))
    number, count = fold_number
    samples = _join_splits(train, val) if val.is_drawn else train
    labels = list_strata(samples)
    held_out = np.zeros(len(labels), bool)
    by_class = order_by_hash(sample_keys(samples, folder), labels, seed)  # so that each fold has all classes
    held_out[by_class[number - 1 :: count]] = True
    if held_out.all() or not held_out.any():
        message = f"{counted(len(labels), 'image')} can't be divided into {count} folds."
        return replace(found, problems=(*found.problems, dataset_error(message, "Use fewer folds.")))
    return replace(
        found, train=select_samples(samples, ~held_out), val=select_samples(samples, held_out, is_drawn=True)
    )


def _join_splits(train: Any, val: Any) -> Any:
    """Join training and validation samples from the same split of the folder to one split again."""
    labels = np.concatenate([train.labels, val.labels])
    if isinstance(train, IdxSplit):
        assert train.rows is not None
        return replace(train, labels=labels, rows=np.concatenate([train.rows, val.rows]))
    files = train.files.join(val.files) if isinstance(train.files, Files) else [*train.files, *val.files]
    return replace(train, files=files, labels=labels)
