"""Blocks of neighboring points from point clouds, as samples with a fixed number of points."""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import psutil
import torch

from engine.contract.images import Preprocessing
from engine.data.datasets.images import UnreadableImage, create_lost_folder_error, is_missing
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.samples import Sample
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.reading import Unfit, describe_failure
from engine.data.randomness import Purpose
from engine.data.splits import Labels, MaskCode, RecognizedDataset, printable, spread_evenly
from engine.data.transforms.device_transforms import Statistics
from engine.tasks.base import FileSamples
from engine.tasks.points.classes import label_classes
from engine.tasks.points.decoding.clouds import is_upright, read_cloud
from engine.tasks.points.decoding.fields import Points
from engine.tasks.points.formats import PointSplit, read_heads

MAX_BLOCK_SAMPLES = 8
"""Maximum number of points in a block, as a multiple of the points in a sample.

A sample is taken from an entire block, so it covers the same area as a thinned block, as in PointCNN.
"""
CACHE_BYTES = 2 << 30
CACHE_FRACTION = 1 / 16
"""Fraction of the available memory that may hold recently read clouds. The limit is at least `CACHE_BYTES`."""
MAX_SURVEYED = 16
"""Maximum number of clouds that are read to compute the mean and standard deviation of each channel."""
MAX_TILT_RAD = math.pi / 32
"""Largest rotation about each axis in radians if the vertical axis is unknown.

PointCNN rotates the rooms of S3DIS about one axis by at most the same angle.
"""

Flags = npt.NDArray[np.bool_]


class _BlockedCloud(NamedTuple):
    """Cloud whose points are sorted by block.

    The rows of block i are `starts[i]` to `starts[i + 1]`.
    """

    positions: Points
    features: Points
    classes: Bytes
    starts: tuple[int, ...]
    rows: Labels
    """Index in the file of each point in the cloud."""

    @property
    def size_bytes(self) -> int:
        return self.positions.nbytes + self.features.nbytes + self.classes.nbytes + self.rows.nbytes


class PointBlocks(FileSamples):
    """Split whose samples are blocks of neighboring points: inputs float32 [3 + f, points], and classes int64 [points].

    Each cloud is halved across its longest side until a block has at most `MAX_BLOCK_SAMPLES` times as many points as a
    sample. The points of a block are distributed at random over as many samples as needed, so that every point occurs
    once per epoch. In training the distribution depends on (seed, epoch, block). In validation it is always the same. A
    sample with too few points is filled up with other points of the block, whose class is set to `NO_CLASS`.

    Positions are relative to their mean, and rotated in training if `is_rotated` is True. All inputs are normalized by
    `statistics`.
    """

    has_labels = True
    """True if the points have labels. Otherwise all points have the first class."""

    def __init__(self, split: PointSplit, code: MaskCode, folder: str, *, points: int = 2048) -> None:
        self.folder = folder
        self.code = code
        self.points = points  # in a sample
        self.training = self.is_rotated = False
        self.statistics: Statistics | None = None  # mean and deviation of each channel, to normalize inputs
        self.split = split
        # Number of points and of blocks in each cloud. Unreadable clouds count as one point.
        self._point_counts = [max(1, head.points) if head is not None else 1 for head in read_heads(split.files)]
        self._block_counts = [max(1, math.ceil(count / (MAX_BLOCK_SAMPLES * points))) for count in self._point_counts]
        samples = [
            (cloud, block, number)
            for cloud, (count, blocks) in enumerate(zip(self._point_counts, self._block_counts, strict=True))
            for block, block_points in enumerate(_divide_evenly(count, blocks))
            for number in range(math.ceil(block_points / points))
        ]
        self._samples = np.array(samples, np.int64).reshape(-1, 3)  # cloud, block, and number of the sample in it
        self._cache: OrderedDict[int, _BlockedCloud] = OrderedDict()
        self._cache_bytes = max(CACHE_BYTES, int(psutil.virtual_memory().available * CACHE_FRACTION))
        self._read_errors: dict[int, str] = {}  # reasons by cloud
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def channels(self) -> int:
        return 3 + len(self.split.features)

    @property
    def features(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.split.features

    @property
    def label_values(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.code.values

    def with_features(self, features: tuple[str, ...]) -> PointBlocks:
        return PointBlocks(replace(self.split, features=features), self.code, self.folder)

    def for_evaluation(self, statistics: Statistics) -> PointBlocks:
        """Turn off the random changes for training, set the `statistics`, and return this split."""
        self.training = self.is_rotated = False
        return self.normalize(statistics)

    def path(self, index: int) -> str:
        return printable(os.path.relpath(self.split.files[self._samples[index][0]], self.folder))

    def get_points(self, index: int) -> tuple[Labels, Flags]:
        """Return the indices in the file of a validation sample's points, int64 [points], and a mask of regular points.

        Each point of the cloud is a regular point in exactly one sample. In other samples, it may only fill up the
        sample. Raises the exceptions of the file's reader.
        """
        cloud, block, block_sample = map(int, self._samples[index])
        points = self._get_cloud(cloud)
        rows, is_regular = self._select_rows(points, cloud, block, block_sample, epoch=0)
        return points.rows[rows], is_regular

    def identity(self) -> Iterator[bytes | memoryview]:
        yield f"{self.split.features} {self.code} {self.points}".encode()
        yield os.fsencode("\0".join(self.split.files)).replace(os.fsencode(self.folder), b"")
        yield np.array(self._point_counts).data

    def load(self, index: int, epoch: int) -> Sample:
        """Load a sample, and rotate its points in training. Raises UnreadableImage if its cloud can't be read.

        A cloud that can't be read is remembered, and not read again.
        """
        cloud, block, block_sample = map(int, self._samples[index])
        if cloud in self._read_errors:
            raise UnreadableImage(self.path(index), self._read_errors[cloud])
        try:
            points = self._get_cloud(cloud)
        except Exception as error:  # readers raise many errors for broken files
            if isinstance(error, OSError) and is_missing(self.folder):
                raise create_lost_folder_error(self.folder) from error
            self._read_errors[cloud] = describe_failure(error)
            raise UnreadableImage(self.path(index), self._read_errors[cloud]) from error
        rows, is_regular = self._select_rows(points, cloud, block, block_sample, epoch if self.training else 0)
        positions, features = points.positions[rows], points.features[rows]
        positions = positions - positions.mean(0)
        if self.training and self.is_rotated:
            positions = positions @ self._choose_rotation(index, epoch, upright=is_upright(self.split.files[cloud]))
        inputs = np.concatenate([positions, features], 1).T
        if self.statistics is not None:
            mean, deviation = (np.array(each, np.float32)[:, None] for each in self.statistics)
            inputs = (inputs - mean) / deviation
        target = np.where(is_regular, points.classes[rows], NO_CLASS).astype(np.int64)
        return torch.from_numpy(np.ascontiguousarray(inputs, np.float32)), torch.from_numpy(target)

    def class_counts(self, classes: int) -> list[float]:
        """Return the number of points of each class in all readable clouds."""
        counts = np.zeros(NO_CLASS + 1, np.int64)
        for cloud in range(len(self.split.files)):
            try:
                counts += np.bincount(self._get_cloud(cloud).classes, minlength=len(counts))
            except Exception:
                continue  # the loader reports it
        return counts[:classes].astype(float).tolist()  # without `NO_CLASS`

    def normalize(self, statistics: Statistics) -> Self:
        """Normalize the channels of samples by `statistics` from now on, and return this split."""
        self.statistics = statistics
        return self

    def compute_statistics(self) -> Statistics:
        """Compute the mean and standard deviation of each channel from up to `MAX_SURVEYED` clouds.

        Positions are relative to the mean of their block and share one standard deviation, which preserves shapes. The
        standard deviation of a constant channel is set to 1.
        """
        square_sum, coordinate_count, features = 0.0, 0, []
        for cloud in spread_evenly(len(self.split.files), MAX_SURVEYED):
            try:
                points = self._get_cloud(cloud)
            except Exception:
                continue  # the loader reports it
            for first, last in pairwise(points.starts):
                block = points.positions[first:last]
                square_sum += float(np.square(block - block.mean(0)).sum())
                coordinate_count += block.size
            features.append(points.features)
        position_deviation = math.sqrt(square_sum / coordinate_count) if square_sum else 1.0
        all_features = np.concatenate(features) if features else np.zeros((1, self.channels - 3))
        means, deviations = all_features.mean(0, np.float64).tolist(), all_features.std(0, dtype=np.float64).tolist()
        feature_deviations = [each if each > 0 else 1.0 for each in deviations]
        return (0.0, 0.0, 0.0, *means), (*[position_deviation] * 3, *feature_deviations)

    def _select_rows(
        self, points: _BlockedCloud, cloud: int, block: int, block_sample: int, epoch: int
    ) -> tuple[Labels, Flags]:
        """Select the points of sample number `block_sample` in block `block` at random. Validation has the epoch 0.

        Returns the rows of the points in `points`, and a mask that is False for points that only fill up the sample.
        """
        first, last = points.starts[block : block + 2]
        # As in `__init__`: from the number in the header, which includes points without a position.
        block_points = _divide_evenly(self._point_counts[cloud], self._block_counts[cloud])[block]
        block_samples = math.ceil(block_points / self.points)
        # Number of each point within the split, in bits: cloud, 16 for the block, 24 for the point.
        point_numbers = (cloud << 40) + (block << 24) + np.arange(last - first, dtype=np.int64)
        random = self.streams.draw(Purpose.POINTS, epoch, point_numbers, 1)[0]
        order = first + np.argsort(random, kind="stable")
        sizes = _divide_evenly(len(order), block_samples)
        # The points of the following samples fill up the sample. After the last point, they start again with the first.
        rows = np.resize(np.roll(order, -sum(sizes[:block_sample])), self.points)
        return rows, np.arange(self.points) < sizes[block_sample]

    def _choose_rotation(self, index: int, epoch: int, *, upright: bool) -> Points:
        """Choose a random rotation matrix, float32 [3, 3], with a reflection half of the time.

        If `upright` is True, it rotates only about the vertical axis, by any angle. Otherwise it rotates about each
        axis by at most `MAX_TILT_RAD`.
        """
        # Three factors for the angles and one for the reflection, each from -0.5 to 0.5.
        uniform = self.streams.draw(Purpose.ROTATE, epoch, np.array([index]), 4)[:, 0]
        *angle_factors, reflection = (uniform - 0.5).tolist()
        if upright:
            rotation = _create_axis_rotation(2, 2 * math.pi * angle_factors[0])
        else:
            rotation = np.linalg.multi_dot(
                [_create_axis_rotation(axis, 2 * MAX_TILT_RAD * factor) for axis, factor in enumerate(angle_factors)]
            )
        return (rotation * np.array([1.0 if reflection < 0 else -1.0, 1, 1])).astype(np.float32)

    def _get_cloud(self, cloud: int) -> _BlockedCloud:
        """Return the points of the cloud with the index `cloud`, from the cache or its file.

        If the cache exceeds its limit, the least recently used clouds are removed from it. Raises the exceptions of the
        file's reader.
        """
        with self._lock:
            if cloud in self._cache:
                self._cache.move_to_end(cloud)
                return self._cache[cloud]
        points = self._read_blocks(cloud)
        with self._lock:
            self._cache[cloud] = points
            while len(self._cache) > 1 and sum(each.size_bytes for each in self._cache.values()) > self._cache_bytes:
                self._cache.popitem(last=False)
        return points

    def _read_blocks(self, cloud: int) -> _BlockedCloud:
        """Read a cloud and sort its points by block. Raises Unfit and the exceptions of the file's reader."""
        file = read_cloud(self.split.files[cloud], self.split.features, with_labels=self.has_labels)
        classes = label_classes(file.labels, self.code) if self.has_labels else np.zeros(len(file.labels), np.uint8)
        blocks = self._block_counts[cloud]
        if len(classes) < blocks:
            raise Unfit("nearly all of its points lack valid coordinates")
        order = np.arange(len(classes))
        _sort_into_blocks(file.positions, order, blocks)
        starts = (0, *np.cumsum(_divide_evenly(len(classes), blocks)).tolist())
        return _BlockedCloud(file.positions[order], file.features[order], classes[order], starts, file.rows[order])


class UnlabeledClouds(PointBlocks):
    """Unlabeled blocks of points, cut from the point cloud in one file and normalized as in training."""

    has_labels = False

    def __init__(self, file: str, preprocessing: Preprocessing, points: int) -> None:
        split = PointSplit([file], preprocessing.features)
        super().__init__(split, MaskCode((0,)), os.path.dirname(file) or ".", points=points)
        self.statistics = (preprocessing.mean, preprocessing.std)


def open_points(dataset: RecognizedDataset, folder: str) -> Splits:
    """Open the splits of a folder that was recognized as a dataset of point clouds, without reading the points."""
    train: Any = dataset.train
    val: Any = dataset.val
    test: Any = dataset.test
    code = dataset.code
    assert code is not None
    splits = Splits(dataset.classes, 3 + len(train.features), dataset.format, train, val, test=test)
    return splits.with_each(lambda split: PointBlocks(split, code, folder))


def _divide_evenly(count: int, parts: int) -> list[int]:
    """Return the sizes of `parts` nearly equal parts of `count` items, like np.array_split."""
    size, remainder = divmod(count, parts)
    return [size + (number < remainder) for number in range(parts)]


def _sort_into_blocks(positions: Points, order: Labels, block_count: int) -> None:
    """Sort `order` in place so that it consists of `block_count` nearly equal blocks of neighboring points.

    `order` holds indices in `positions`. The points are halved recursively across their longest side.
    """
    if block_count == 1:
        return
    first_half_blocks = block_count // 2
    first_half_points = sum(_divide_evenly(len(order), block_count)[:first_half_blocks])
    ordered = positions[order]
    axis = int(np.argmax(np.ptp(ordered, 0)))
    order[:] = order[np.argpartition(ordered[:, axis], first_half_points)]
    _sort_into_blocks(positions, order[:first_half_points], first_half_blocks)
    _sort_into_blocks(positions, order[first_half_points:], block_count - first_half_blocks)


def _create_axis_rotation(axis: int, angle: float) -> npt.NDArray[np.float64]:
    """Return the matrix [3, 3] that rotates by `angle` radians about the axis with the index `axis`.

    The sense of the rotation follows the right-hand rule for axes 0 and 2, and is the opposite for axis 1.
    """
    first, second = (index for index in range(3) if index != axis)
    rotation = np.eye(3)
    rotation[[first, second], [first, second]] = math.cos(angle)
    rotation[first, second], rotation[second, first] = -math.sin(angle), math.sin(angle)
    return rotation
