"""Check that all ranks have found the same dataset.

Each rank scans the folder itself, possibly on a network file system or while somebody adds files. If their data
differed, the ranks would train on inconsistent batches without any error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.samples import SampleSet
from engine.data.formats.shared.unpacking import name_within
from engine.data.splits import dataset_error, printable
from engine.system.format import counted

REMEDY = (
    "Wait until the folder no longer changes, make sure that every rank reads the same copy of it, and train again."
)

GatherObjects = Callable[[Any], list[Any]]


class _RankView(NamedTuple):
    """Description of a split by one rank, for a message about differences between ranks.

    `samples` is the number of samples. `label` is the hash of the targets of the first sample that differs between
    ranks, and `name` the name of this sample. They are 0 and "" if this rank has no such sample.
    """

    samples: int
    label: int
    name: str


def check_same_dataset(splits: Splits, folder: str, all_gather_objects: GatherObjects) -> None:
    """Raise DatasetError on all ranks if the names, order or labels of samples differ between ranks.

    All ranks must call this together. `all_gather_objects` passes an object from each rank to all ranks (see
    `Collectives`). The contents of files are not compared.
    """
    if len(set(all_gather_objects(compute_fingerprint(splits)))) == 1:
        return
    named = (("training", splits.train), ("validation", splits.val))
    differences = (_describe_first_difference(samples, name, all_gather_objects) for name, samples in named)
    text = next(filter(None, differences), "the file names are the same, but the classes or annotations differ.")
    raise DatasetError([dataset_error(f"The ranks do not see the same dataset in {printable(folder)}: {text}", REMEDY)])


def compute_fingerprint(splits: Splits) -> int:
    """Return a hash of the dataset's format, classes and channels, and of the training and validation samples.

    See `identity` of the splits for what is hashed of the samples, such as their names, order and labels.
    """
    digest = hashlib.blake2b(repr((splits.format, splits.classes, splits.channels)).encode(), digest_size=8)
    for samples in (splits.train, splits.val):
        for content in samples.identity():
            digest.update(content)
    return int.from_bytes(digest.digest(), "big")


def _describe_first_difference(samples: ImageSet | SampleSet, split: str, all_gather_objects: GatherObjects) -> str:
    """Describe the first difference between the ranks in a split, or return "" if there is none.

    `split` names the split in the description. All ranks must call this together, and all get the same text.
    """
    sample_names = _list_names(samples)
    label_hashes = _hash_labels(samples)
    sample_hashes = [
        _hash(name.encode(errors="backslashreplace")) ^ label
        for name, label in zip(sample_names, label_hashes, strict=True)
    ]
    hashes_of_ranks = all_gather_objects(sample_hashes)
    columns = zip(*hashes_of_ranks, strict=False)  # the hashes of each sample on all ranks, up to the shortest list
    shortest = min(map(len, hashes_of_ranks))
    first = next((index for index, column in enumerate(columns) if len(set(column)) > 1), shortest)
    name, label = (sample_names[first], label_hashes[first]) if first < len(sample_names) else ("", 0)
    views = all_gather_objects(_RankView(len(sample_names), label, name.encode(errors="backslashreplace").decode()))
    for rank, view in enumerate(views):
        if view != views[0]:
            return _describe_difference(views[0], view, rank, split)
    return ""


def _list_names(samples: ImageSet | SampleSet) -> list[str]:
    """Return the names of the samples, without the folders at their beginning that may differ between computers."""
    if isinstance(samples, ImageSet) and len(samples.files) == len(samples):
        return [name_within(path, samples.folder) for path in samples.files]
    return [samples.path(index) for index in range(len(samples))]


def _hash_labels(samples: ImageSet | SampleSet) -> list[int]:
    """Return a hash of each sample's targets, or 0 for each sample if targets are known only after loading."""
    if isinstance(samples, SampleSet):
        return [0] * len(samples)
    return [_hash(samples.targets_of(index).numpy().tobytes()) for index in np.arange(len(samples))[:, None]]


def _describe_difference(first: _RankView, second: _RankView, rank: int, split: str) -> str:
    """Describe the first sample that differs between rank 0 (`first`) and another rank (`second`)."""
    counts = f"rank 0 finds {counted(first.samples, 'sample')} for {split}, rank {rank} finds {second.samples:,}."
    if first.name == second.name:
        return f"{counts} {first.name} has one label on rank 0 and another on rank {rank}."
    names = [view.name or "nothing more" for view in (first, second)]
    return f"{counts} They first differ where rank 0 finds {names[0]} and rank {rank} finds {names[1]}."


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "big")
