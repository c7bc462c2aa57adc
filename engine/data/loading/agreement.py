"""Whether all ranks have found the same dataset.

Each looks through the folder for itself, perhaps by a network file system or while somebody adds to it. Ranks that
found different data would train on batches that do not belong together, without an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.samples import SampleSet
from engine.data.formats.shared.unpacking import name_within
from engine.data.splits import dataset_error, printable

REMEDY = (
    "Wait until the folder no longer changes, make sure that every rank reads the same copy of it, and train again."
)

ReduceMax = Callable[[Sequence[int]], list[int]]
GatherRows = Callable[[Tensor], Tensor]


class _Seen(NamedTuple):
    """One rank's data where the ranks first differ: the number of samples, the label's hash and the name."""

    samples: int
    label: int
    name: str


def check_alike(splits: Splits, folder: str, all_reduce_max: ReduceMax, all_gather_rows: GatherRows) -> None:
    """Raises DatasetError on all ranks alike where they have found different data: other names, another order, other
    labels.

    `all_reduce_max` and `all_gather_rows` are those of `Collectives`; all ranks call it together. What lies within
    the files is not looked at.
    """
    number = fingerprint(splits)
    largest, smallest = all_reduce_max((number, -number))
    if largest == -smallest:
        return
    halves = (("training", splits.train), ("validation", splits.val))
    told = next(
        (text for which, half in halves if (text := _difference(half, which, all_reduce_max, all_gather_rows))), ""
    )
    told = told or "the file names are the same, but the classes or annotations differ."
    raise DatasetError([dataset_error(f"The ranks do not see the same dataset in {printable(folder)}: {told}", REMEDY)])


def fingerprint(splits: Splits) -> int:
    """63 bits that differ where the splits' names, order or labels do."""
    digest = hashlib.blake2b(repr((splits.format, splits.classes, splits.channels)).encode(), digest_size=8)
    for half in (splits.train, splits.val):
        for part in half.identity():
            digest.update(part)
    return int.from_bytes(digest.digest(), "big") >> 1


def _difference(
    samples: ImageSet | SampleSet, which: str, all_reduce_max: ReduceMax, all_gather_rows: GatherRows
) -> str:
    """The first difference in a split, in words; "" where there is none. The same on all ranks."""
    names = _names(samples)
    labels = _labels(samples)
    hashes = [_hash(name.encode(errors="backslashreplace")) ^ label for name, label in zip(names, labels, strict=True)]
    shortest = -all_reduce_max([-len(hashes)])[0]
    together = all_reduce_max([*hashes[:shortest], *(-number for number in hashes[:shortest])])
    pairs = zip(together[:shortest], together[shortest:], strict=True)
    first = next((index for index, (most, least) in enumerate(pairs) if most != -least), shortest)
    name, label = (names[first], labels[first]) if first < len(names) else ("", 0)
    row = [len(names), label, *name.encode(errors="backslashreplace")]
    seen = [_seen(each) for each in all_gather_rows(torch.tensor([row], dtype=torch.float64)).long().tolist()]
    other = next((rank for rank, each in enumerate(seen) if each != seen[0]), None)
    return "" if other is None else _told(seen[0], seen[other], other, which)


def _names(samples: ImageSet | SampleSet) -> list[str]:
    """Return the names of the samples as they are on every machine."""
    if isinstance(samples, ImageSet) and len(samples.files) == len(samples):
        return [name_within(path, samples.folder) for path in samples.files]
    return [samples.path(index) for index in range(len(samples))]


def _labels(samples: ImageSet | SampleSet) -> list[int]:
    """A hash of what is to be learnt of each sample, as far as that is known without loading it."""
    if isinstance(samples, SampleSet):
        return [0] * len(samples)
    return [_hash(samples.targets_of(index).numpy().tobytes()) for index in np.arange(len(samples))[:, None]]


def _seen(row: list[int]) -> _Seen:
    samples, label, *name = row
    return _Seen(samples, label, bytes(name).rstrip(b"\0").decode())


def _told(ours: _Seen, theirs: _Seen, other: int, which: str) -> str:
    counts = f"rank 0 finds {ours.samples:,} samples for {which}, rank {other} finds {theirs.samples:,}."
    if ours.name == theirs.name:
        return f"{counts} {ours.name} has one label on rank 0 and another on rank {other}."
    names = [each.name or "nothing more" for each in (ours, theirs)]
    return f"{counts} They first differ where rank 0 finds {names[0]} and rank {other} finds {names[1]}."


def _hash(content: bytes) -> int:
    """48 bits, which a double holds."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "big")
