"""Data loaders for a worker's part of each split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from engine.contract import augmentation
from engine.contract.events import Chosen, LogLine, Warned
from engine.contract.images import (
    USUAL_LIMITS,
    Preprocessing,
    SizeLimits,
    sides_of_epoch,
    validation_side,
    varying_size_fields,
)
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.data.datasets.images import ImageSet
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.samples import SampleSet
from engine.data.loading.base_loader import Finish, Loader
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sample_loader import SampleLoader
from engine.data.loading.sampler import GlobalBatchSampler, compute_balancing_chances
from engine.data.randomness import Purpose, RandomStreams
from engine.data.transforms.device_transforms import Statistics
from engine.models.registry import MODELS
from engine.models.tensor_detector import LoadableDetector
from engine.strategies.base import Strategy, memory_format
from engine.tasks.base import Task
from engine.tasks.mixing import create_mixing_transform
from engine.training.callbacks.predictions import PickedImages, PickedSamples, Predictions, RankSamples
from engine.training.report import Reporter
from engine.training.sample_processes import SampleProcesses, SplitName, should_use_processes
from engine.training.split_loader import SplitLoader


class DataLoaders:
    """Factory for a worker's data loaders. It must be created after the strategy has wrapped the model.

    The job in `spec` must include the automatic choices (see `engine.training.autotune`).
    """

    def __init__(
        self,
        spec: WorkerSpec,
        strategy: Strategy,
        task: Task,
        splits: Splits,
        reporter: Reporter,
        *,
        streams: RandomStreams,
    ) -> None:
        self._spec = spec
        self._strategy = strategy
        self._task = task
        self._splits = splits
        self._streams = streams
        self._reporter = reporter
        self._processes: SampleProcesses | None = None  # None if threads load the samples

    def start_processes(self) -> None:
        """Load samples in separate processes from now on, if a measurement shows that this is faster.

        The measurement (see `should_use_processes`) loads samples, and is made only for classes of samples that the
        user or a plug-in has defined.
        """
        job, strategy, train = self._spec.job, self._strategy, self._splits.train
        if not strategy.loads_data or job.data.loader_workers < 2 or not isinstance(train, SampleSet):
            return
        loads = len(train) * job.training.epochs // strategy.data_world  # by this rank in the entire run
        if should_use_processes(train, loads):
            self._processes = SampleProcesses(job, self._splits, lambda text: self._reporter.send(LogLine(text=text)))

    def close(self) -> None:
        """Stop the processes that load samples. The caller must close the loaders first."""
        if self._processes is not None:
            self._processes.close()

    def create_train_loader(self) -> SplitLoader:
        """Create the loader for this worker's part of the training split."""
        return self._create_split_loader(self._splits.train, self._create_sampler(self._splits.train, shuffle=True))

    def create_val_loader(self) -> SplitLoader:
        """Create the loader for this worker's part of the validation split."""
        return self._create_split_loader(self._splits.val, self._create_sampler(self._splits.val, shuffle=False))

    def create_predictions(self) -> Predictions | None:
        """Create the callback that saves predictions for validation samples. Return None if the job requests none."""
        if not self._spec.job.checkpoints.predictions or not len(self._splits.val):
            return None
        return Predictions(Path(self._spec.run_folder), self._strategy, self._load_picked, self._reporter.send)

    def _load_picked(self) -> RankSamples:
        """Load the validation samples whose predictions are saved. All ranks call it together."""
        job, all_reduce_max = self._spec.job, self._strategy.collectives.all_reduce_max
        val, size = self._splits.val, self._task.get_image_size(job)
        picked: PickedImages | PickedSamples
        if isinstance(val, SampleSet):
            picked = PickedSamples(val, job.checkpoints.predictions, all_reduce_max=all_reduce_max)
        else:
            picked = PickedImages(
                val,
                job.checkpoints.predictions,
                validation_side(job, self._task.entry, size),
                self._splits.channels,
                middle=size,
                all_reduce_max=all_reduce_max,
            )
        sampler = self._create_sampler(picked, shuffle=False)
        # Indices into `picked` of the samples that this rank predicts.
        positions = [int(index) for batch in sampler.iterate_epoch(1) for index in batch.indices]
        return RankSamples(picked, positions, self._create_split_loader(picked, sampler, cache="memory", threads=0))

    def _create_sampler(self, samples: ImageSet | SampleSet, *, shuffle: bool) -> GlobalBatchSampler:
        """Create the sampler that divides the global batches of a split among the data-parallel ranks.

        If the job requests it, training images of rare classes are selected more often.
        """
        is_balanced = shuffle and self._spec.job.data.oversample and "oversample" in self._task.entry.fields
        chances = None
        if is_balanced and isinstance(samples, ImageSet):
            chances = compute_balancing_chances(samples.targets)
        return GlobalBatchSampler(
            len(samples),
            self._spec.job.training.batch_size,
            self._strategy.data_rank,
            self._strategy.data_world,
            self._streams,
            shuffle=shuffle,
            shares=self._strategy.shares,
            chances=chances,
        )

    def _create_split_loader(
        self,
        samples: ImageSet | SampleSet,
        sampler: GlobalBatchSampler,
        *,
        cache: str = "",
        threads: int | None = None,
    ) -> SplitLoader:
        """Create the loader for a split. On a rank that loads no data, it yields None in place of batches.

        If `sampler` shuffles, the batches are augmented for training. An empty `cache` stands for the image cache of
        the job, and `threads=None` for its number of threads.
        """
        threads = self._spec.job.data.loader_workers if threads is None else threads
        loader: Loader[Any] | None = None
        if self._strategy.loads_data:
            if isinstance(samples, SampleSet):
                loader = self._create_sample_loader(samples, sampler, threads=threads)
            else:
                loader = self._create_image_loader(samples, sampler, cache=cache, threads=threads)
        return SplitLoader(len(sampler), len(samples), loader)

    def _create_batch_transform(self, sampler: GlobalBatchSampler) -> Finish | None:
        """Return the task's transform of training batches, or None for other batches and tasks without a transform."""
        is_training = sampler.shuffle
        if not is_training:
            return None
        return self._task.create_batch_transform(self._spec.job, self._streams, self._strategy.data_rank)

    def _create_sample_loader(self, samples: SampleSet, sampler: GlobalBatchSampler, *, threads: int) -> SampleLoader:
        """Create a loader for samples that are not images. If processes have been started, these load the samples."""
        strategy, splits = self._strategy, self._splits
        load = None
        # The processes can't load the samples of predictions, which are in neither split.
        if self._processes is not None and (samples is splits.train or samples is splits.val):
            split: SplitName = "train" if samples is splits.train else "val"
            load = partial(self._processes.load, split)
        return SampleLoader(
            samples,
            sampler,
            threads=threads,
            device=strategy.device,
            on_unreadable=self._report_unreadable,
            on_stage_end=strategy.profiler.mark,
            finish=self._create_batch_transform(sampler),
            load=load,
        )

    def _create_image_loader(
        self, samples: ImageSet, sampler: GlobalBatchSampler, *, cache: str, threads: int
    ) -> BatchLoader:
        """Create a loader for images that are cached in `cache`, or as the job requests if it is empty."""
        job, strategy, is_training = self._spec.job, self._strategy, sampler.shuffle
        finish = self._create_batch_transform(sampler)
        if finish is None:
            finish = create_mixing_transform(
                job, self._task.entry, len(self._splits.classes), self._streams, training=is_training
            )
        return create_image_loader(
            job.with_fields(picture_cache=cache or job.data.picture_cache),
            self._task,
            self._splits,
            samples,
            sampler,
            limits=get_size_limits(job, self._task, strategy.model),
            threads=threads,
            device=strategy.device,
            on_unreadable=self._report_unreadable,
            on_chosen=self._report_cache if is_training and self._spec.rank == 0 else lambda _choice, _reason: None,
            on_stage_end=strategy.profiler.mark,
            memory_format=memory_format(job),
            finish=finish,
        )

    def _report_unreadable(self, path: str, reason: str) -> None:
        """Warn the user that a sample is skipped."""
        message = f"Skipping {path}: {reason}"
        self._reporter.send(Warned(code="unreadable_picture", message=message, rank=self._spec.rank))

    def _report_cache(self, choice: str, reason: str) -> None:
        """Report where the loader caches decoded images, and the reason for this choice."""
        self._reporter.send(Chosen(field="picture_cache", choice=choice, why=reason))


def get_size_limits(job: Job, task: Task, model: nn.Module) -> SizeLimits:
    """Return the limits for varying image sizes, which exclude sizes that are too small for the model."""
    limits = (model.size_limits if isinstance(model, LoadableDetector) else None) or USUAL_LIMITS
    name, min_side = job.model.name, 0
    if name in MODELS:
        min_side = MODELS[name].min_image_size
    elif name in task.list_models():
        min_side = task.describe_model(name).min_image_size
    smallest = math.ceil(min_side / limits.step) * limits.step  # sizes are multiples of the step
    return limits._replace(smallest=max(limits.smallest, smallest))


def create_image_loader(
    job: Job,
    task: Task,
    splits: Splits,
    images: ImageSet,
    sampler: GlobalBatchSampler,
    *,
    limits: SizeLimits = USUAL_LIMITS,
    **settings: Any,
) -> BatchLoader:
    """Create a loader for `images`, which belong to one of the job's `splits`.

    If `sampler` shuffles, the loader yields augmented training batches. If their image sizes vary, they are
    within `limits`. `settings` are additional arguments of BatchLoader.
    """
    size, is_training = task.get_image_size(job), sampler.shuffle
    varies_size = is_training and bool(set(varying_size_fields(job)) - set(task.entry.without))
    mean, std = get_normalization(job, task, splits)

    def draw_side(epoch: int, batch_index: int) -> int:
        """Return the side of the images in a batch, in pixels."""
        return _draw_side(sides_of_epoch(job, size, epoch, limits), sampler.streams, epoch, batch_index)

    return BatchLoader(
        images,
        sampler,
        size=size,
        channels=splits.channels,
        augmentation=job.augmentation.name if is_training else "none",
        transforms=augmentation.transforms(job) if is_training else (),
        mirror=augmentation.should_mirror(job, splits.classes, images=images.mirror),
        epochs=job.training.epochs,
        resized=None if is_training else validation_side(job, task.entry, size),
        side_of_batch=draw_side if varies_size else None,
        mean=mean,
        std=std,
        cache=job.data.picture_cache,
        **settings,
    )


def _draw_side(sides: Sequence[int], streams: RandomStreams, epoch: int, batch_index: int) -> int:
    """Select the side length of a batch's training images from `sides` at random. All ranks select the same.

    The first batch of a run has the largest images, so that insufficient memory shows at once.
    """
    if (epoch, batch_index) == (1, 0):
        return sides[-1]
    return sides[streams.derive_seed(Purpose.SIZE, epoch=epoch, batch=batch_index) % len(sides)]


def get_normalization(job: Job, task: Task, splits: Splits) -> Statistics:
    """Return the mean and standard deviation of each image channel, from the dataset or, by default, from the task."""
    return splits.statistics or task.get_normalization(job, splits.channels)


def get_preprocessing(job: Job, task: Task, splits: Splits) -> Preprocessing:
    """Return the framing and normalization of samples that the model of `job` is trained with, for its later uses."""
    mean, std = get_normalization(job, task, splits)
    train = splits.train
    if isinstance(train, SampleSet):
        return Preprocessing(
            framing="", mean=tuple(mean), std=tuple(std), features=train.features, values=train.label_values
        )
    low, high = (train.bands.low, train.bands.high) if train.bands is not None else ((), ())
    return Preprocessing(framing=train.framing, mean=tuple(mean), std=tuple(std), low=low, high=high)
