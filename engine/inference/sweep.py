"""Run a model on the samples of a split in batches, which may be divided among several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.data.loading.base_loader import Batch, Loader
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sample_loader import SampleLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.data.splits import Labels
from engine.inference.trained_model import TrainedModel
from engine.strategies.base import memory_format


class BatchOutput(NamedTuple):
    """Batch with the outputs of the model, on the model's device.

    `samples` are the indices of the samples in their split, int64 [n].
    """

    samples: Labels
    inputs: Tensor
    targets: Tensor
    outputs: Tensor


class Partition(NamedTuple):
    """Part of each batch that one device processes.

    `rank` is the device's number, from 0 on, among the `world` devices that divide each batch.
    """

    rank: int = 0
    world: int = 1


ALL_SAMPLES = Partition()


def predict_batches(
    model: TrainedModel,
    samples: ImageSet | SampleSet,
    *,
    batch_size: int,
    partition: Partition = ALL_SAMPLES,
    on_unreadable: Callable[[str, str], None] = lambda path, reason: None,
) -> Iterator[BatchOutput]:
    """Run the model on the samples, and yield the outputs for this device's part of each batch.

    Samples are preprocessed as in validation, and prefetched. Unreadable samples are skipped after calling
    `on_unreadable(path, reason)`. `batch_size` is the number of samples per device.
    """
    for batch in iterate_batches(
        model, samples, batch_size=batch_size, partition=partition, on_unreadable=on_unreadable
    ):
        assert batch.samples is not None
        if len(batch.samples):
            yield BatchOutput(batch.samples, batch.inputs, batch.targets, model.outputs(batch.inputs))


def iterate_batches(
    model: TrainedModel,
    samples: ImageSet | SampleSet,
    *,
    batch_size: int,
    partition: Partition = ALL_SAMPLES,
    on_unreadable: Callable[[str, str], None] = lambda path, reason: None,
    selected: Labels | None = None,
) -> Iterator[Batch]:
    """Yield the same batches as `predict_batches`, but without running the model.

    `selected` contains the indices of the samples to use, in order, or is None for all samples.
    """
    length = len(samples) if selected is None else len(selected)
    sampler = _SelectedSampler(
        length,
        batch_size * partition.world,
        partition.rank,
        partition.world,
        RandomStreams(model.job.training.seed),
        shuffle=False,
    )
    sampler.selected = selected
    loader = _create_loader(model, samples, sampler, on_unreadable)
    try:
        yield from loader.epoch(1)  # all epochs are equal without shuffling
    finally:
        loader.close()


class _SelectedSampler(GlobalBatchSampler):
    """Sampler of the samples with the indices `selected`, in this order, or of all samples if it is None."""

    selected: Labels | None = None

    def _order(self, epoch: int) -> Labels:
        return super()._order(epoch) if self.selected is None else self.selected


def _create_loader(
    model: TrainedModel,
    samples: ImageSet | SampleSet,
    sampler: GlobalBatchSampler,
    on_unreadable: Callable[[str, str], None],
) -> Loader[Any]:
    """Return a loader of the batches that `sampler` selects from `samples`, preprocessed as in validation.

    `on_unreadable(path, reason)` is called for each sample that can't be read.
    """
    job = model.job
    if isinstance(samples, SampleSet):
        return SampleLoader(
            samples, sampler, threads=job.data.loader_workers, device=model.device, on_unreadable=on_unreadable
        )
    return BatchLoader(
        samples,
        sampler,
        size=model.size,
        channels=model.channels,
        resized=model.resized_side,
        mean=model.preprocessing.mean,
        std=model.preprocessing.std,
        threads=job.data.loader_workers,
        device=model.device,
        on_unreadable=on_unreadable,
        memory_format=memory_format(job),
        cache="off",
    )
