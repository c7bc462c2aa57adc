"""What a worker's share of each split is read by."""

from __future__ import annotations

from engine.contract import augmentation
from engine.contract.events import Chosen, Warned
from engine.contract.worker import WorkerSpec
from engine.data.loader import BatchLoader
from engine.data.opening import Splits
from engine.data.pictures import PictureSet
from engine.data.randomness import RandomStreams
from engine.data.sampler import GlobalBatchSampler, even_chances
from engine.data.samples import SampleLoader, SampleSet
from engine.strategies.base import Strategy
from engine.tasks.base import Task
from engine.tasks.mixing import mixing
from engine.training.feed import Feed
from engine.training.predictions import Picked, PickedSamples, Predictions
from engine.training.report import Reporter


class Feeds:
    """Makes the feeds of one worker, after the strategy has laid the model out and the job is settled."""

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

    def train(self) -> Feed:
        """This worker's share of the training split."""
        return self._feed(self._splits.train, self._sampler(self._splits.train, shuffle=True))

    def val(self) -> Feed:
        """This worker's share of the validation split."""
        return self._feed(self._splits.val, self._sampler(self._splits.val, shuffle=False))

    def predictions(self) -> Predictions:
        """Some samples of the validation split, which are read at once."""
        job = self._spec.job
        val, size = self._splits.val, self._task.image_size(job)
        picked = (
            PickedSamples(val, job.predictions)
            if isinstance(val, SampleSet)
            else Picked(val, job.predictions, size, self._splits.channels)
        )
        sampler = self._sampler(picked, shuffle=False)
        places = [int(place) for share in sampler.epoch_from(1, 0) for place in share.indices]
        feed = self._feed(picked, sampler, kept="memory", threads=0)
        return Predictions(self._spec, self._strategy, picked, feed=feed, places=places, send=self._reporter.send)

    def _sampler(self, samples: PictureSet | SampleSet, *, shuffle: bool) -> GlobalBatchSampler:
        evenly = shuffle and self._oversamples
        return GlobalBatchSampler(
            len(samples),
            self._spec.job.batch_size,
            self._strategy.data_rank,
            self._strategy.data_world,
            self._streams,
            shuffle=shuffle,
            shares=self._strategy.shares,
            chances=even_chances(samples.targets) if evenly and isinstance(samples, PictureSet) else None,
        )

    @property
    def _oversamples(self) -> bool:
        return self._spec.job.oversample and "oversample" in self._task.entry.fields

    def _feed(
        self,
        samples: PictureSet | SampleSet,
        sampler: GlobalBatchSampler,
        *,
        kept: str = "",
        threads: int | None = None,
    ) -> Feed:
        spec, job, strategy = self._spec, self._spec.job, self._strategy
        if not strategy.loads_data:
            return Feed(len(sampler), len(samples), None)
        threads = job.loader_workers if threads is None else threads

        def on_unreadable(path: str, reason: str) -> None:
            message = f"{path} is left out: {reason}"
            self._reporter.send(Warned(code="unreadable_picture", message=message, rank=spec.rank))

        def on_chosen(choice: str, why: str) -> None:
            if sampler.shuffle and spec.rank == 0:
                self._reporter.send(Chosen(field="picture_cache", choice=choice, why=why))

        training = sampler.shuffle
        finish = self._task.finish(job, self._streams, strategy.data_rank) if training else None
        if isinstance(samples, SampleSet):
            loader = SampleLoader(
                samples,
                sampler,
                threads=threads,
                device=strategy.device,
                on_unreadable=on_unreadable,
                mark=strategy.watch.mark,
                finish=finish,
            )
            return Feed(len(sampler), len(samples), loader)
        mean, std = self._splits.statistics or self._task.normalisation(job, self._splits.channels)
        pictures = BatchLoader(
            samples,
            sampler,
            size=self._task.image_size(job),
            channels=self._splits.channels,
            augmentation=job.augmentation if training else "none",
            transforms=augmentation.transforms(job) if training else (),
            mirror=augmentation.mirrors(job, self._splits.classes, pictures=samples.mirror),
            epochs=job.epochs,
            mean=mean,
            std=std,
            threads=threads,
            device=strategy.device,
            on_unreadable=on_unreadable,
            keep=kept or job.picture_cache,
            on_chosen=on_chosen,
            mark=strategy.watch.mark,
            memory_format=strategy.memory_format,
            finish=finish or mixing(job, self._task.entry, len(self._splits.classes), self._streams, training=training),
        )
        return Feed(len(sampler), len(samples), pictures)
