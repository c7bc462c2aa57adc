"""Preview of augmented training images: ``python -m engine.training.preview``.

The images are those of the first epochs, loaded as they are in training. The process exits silently on an interrupt,
when its output is closed, and when its parent exits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from PIL import Image

from engine.checks.training_checks import augmentation_problems
from engine.contract import augmentation
from engine.contract.dataset import MAX_PREVIEW_SIDE, PREVIEW_EPOCHS, PreviewImage, PreviewRequest
from engine.contract.problems import Problem, errors
from engine.data.datasets.images import DatasetError
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.idx import Bytes
from engine.data.drawing import encode_png, to_rgb
from engine.data.loading.sampler import GlobalBatchSampler, RankSamples
from engine.data.randomness import RandomStreams
from engine.models.base import TaskError
from engine.processes.requests import RequestError, serve_request
from engine.tasks.base import DatasetInfo
from engine.tasks.registry import TASKS
from engine.training.dataloaders import create_image_loader, get_normalization

PREVIEW_BATCH = 8
"""Number of images in a batch, small enough that the first images appear soon."""


def render(request: PreviewRequest, emit: Callable[[PreviewImage], None]) -> bool:
    """Augment the requested training images as in the first epochs, and call `emit` with each of them.

    Return True if the job's augmentation may mirror images. Raises TaskError and DatasetError.
    """
    job = request.job
    task = TASKS[job.task]
    if problems := errors(augmentation_problems(job)):
        raise TaskError.of(problems[0])
    splits = task.open_splits(job)
    if isinstance(splits.train, SampleSet):
        raise TaskError("task", "The samples of this task are not images.", "Their augmentation can't be previewed.")
    objective = task.create_objective(job, DatasetInfo(splits.classes, splits.channels))
    sampler = _FixedSampler(request.samples, len(splits.train), RandomStreams(job.training.seed))
    loader = create_image_loader(
        job.with_fields(picture_cache="off", multi_scale=0.0),  # without sizes that vary by batch
        task,
        splits,
        splits.train,
        sampler,
        threads=job.data.loader_workers,
        device=torch.device("cpu"),
        on_unreadable=lambda path, reason: None,
    )
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in get_normalization(job, task, splits))
    try:
        for epoch in range(1, min(PREVIEW_EPOCHS, job.training.epochs) + 1):
            rows = (
                (inputs, target)
                for batch in loader.epoch(epoch)
                for inputs, target in zip(batch.inputs, batch.targets, strict=True)
            )
            for sample, (inputs, target) in zip(request.samples, rows, strict=True):
                image = to_rgb((inputs * std + mean).numpy())
                drawn = objective.show_truth(image, target).image
                emit(PreviewImage(sample, epoch, size=image.shape[0], png=_encode_small_png(drawn)))
    finally:
        loader.close()
    return augmentation.should_mirror(job, splits.classes, images=splits.train.mirror)


class _FixedSampler(GlobalBatchSampler):
    """Sampler that yields the same samples in every epoch, in small batches."""

    def __init__(self, samples: Sequence[int], length: int, streams: RandomStreams) -> None:
        super().__init__(length, PREVIEW_BATCH, rank=0, world_size=1, streams=streams)
        self._chosen = np.array(samples, np.int64)

    def __len__(self) -> int:
        return (len(self._chosen) + self.batch_size - 1) // self.batch_size

    @property
    def max_local_batch(self) -> int:
        return self.batch_size

    def iterate_epoch(self, epoch: int, start: int = 0) -> Iterator[RankSamples]:
        for step in range(start, len(self)):
            indices = self._chosen[step * self.batch_size : (step + 1) * self.batch_size]
            yield RankSamples(indices, len(indices))


def _encode_small_png(image: Bytes) -> bytes:
    """Encode an image, reduced to at most `MAX_PREVIEW_SIDE` pixels per side, as a PNG."""
    small = Image.fromarray(image)
    small.thumbnail((MAX_PREVIEW_SIDE, MAX_PREVIEW_SIDE))
    return encode_png(np.asarray(small))


def answer_request(request: PreviewRequest, emit: Callable[[PreviewImage], None]) -> bool:
    """Run `render`, and convert each of its exceptions to a RequestError."""
    try:
        return render(request, emit)
    except TaskError as error:
        raise RequestError(error.problem) from error
    except DatasetError as error:
        raise RequestError(*error.problems) from error
    except Exception as error:  # a custom task may raise any error
        message = f"The images can't be shown: {type(error).__name__}: {error}."
        raise RequestError(Problem("", message, "Start a training for details.")) from error


if __name__ == "__main__":
    serve_request("footplate-show", PreviewRequest, answer_request)
