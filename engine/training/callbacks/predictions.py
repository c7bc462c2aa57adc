"""Predictions for some validation samples, saved as images in the run folder after every validation."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.contract.events import Predicted, PredictedSample, Warned
from engine.data.datasets.images import ImageSet, UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.decoding.idx import Bytes
from engine.data.drawing import encode_png
from engine.data.splits import Labels
from engine.data.transforms.device_transforms import Placement
from engine.metrics.base import Metric
from engine.strategies.base import Strategy
from engine.system import paths
from engine.tasks.base import Visualization
from engine.training.callbacks.callback import Callback
from engine.training.split_loader import SplitLoader

_T = TypeVar("_T")

FOLDER = "predictions"
MAX_SETS = 120
"""Maximum number of validations whose predictions are kept.

If there are more, every second one in the older half is deleted.
"""


def _select_evenly(length: int, count: int) -> list[int]:
    """Return `count` evenly spaced indices into a sequence of length `length`, or all indices if it is shorter."""
    count = min(count, length)
    return [number * length // count for number in range(count)]


def _load_readable(
    load: Callable[[int], _T], indices: Sequence[int], all_reduce_max: Callable[[Sequence[int]], list[int]]
) -> tuple[list[int], list[_T]]:
    """Load the samples at `indices`, and return the indices and values of those that every rank could read.

    `load` returns the sample at an index. `all_reduce_max` receives 1 for each sample that this rank can't read and 0
    for the others, and returns the maxima over all ranks. Unreadable samples aren't reported here, because the
    validation reports them.
    """
    loaded: list[_T | None] = []
    for index in indices:
        try:
            loaded.append(load(index))
        except UnreadableImage:
            loaded.append(None)
    unreadable = all_reduce_max([int(sample is None) for sample in loaded])  # 1 if any rank can't read the sample
    readable_indices: list[int] = []
    samples: list[_T] = []
    for index, sample, is_unreadable in zip(indices, loaded, unreadable, strict=True):
        if sample is not None and not is_unreadable:
            readable_indices.append(index)
            samples.append(sample)
    return readable_indices, samples


class PickedImages(ImageSet):
    """Evenly spaced images of a split, which are decoded and kept in memory.

    Images that a rank can't read are left out. `indices` are the images' indices in the split. The model sees only the
    central square with a side of `middle` pixels. `all_reduce_max` returns the maxima over all ranks of a list of
    flags, so that the ranks agree on the readable images.
    """

    def __init__(
        self,
        images: ImageSet,
        count: int,
        size: int,
        channels: int,
        *,
        middle: int | None = None,
        all_reduce_max: Callable[[Sequence[int]], list[int]] = list,
    ) -> None:
        """Load `count` images as squares with a side of `size` pixels. Without `middle`, the model sees full images."""
        margin = (size - (middle or size)) // 2
        self._visible = slice(margin, margin + (middle or size))  # rows and columns of the square that the model sees
        self._images = images
        self.planes, self.mirror = images.planes, images.mirror
        self.indices, self._loaded = _load_readable(
            lambda index: images.load(index, size, channels), _select_evenly(len(images), count), all_reduce_max
        )
        self._channels = channels

    def __len__(self) -> int:
        return len(self.indices)

    def targets_of(self, samples: Labels) -> Tensor:
        return self._images.targets_of(np.array(self.indices, np.int64)[samples])

    def path(self, index: int) -> str:
        return self._images.path(self.indices[index])

    def load(self, index: int, size: int, channels: int) -> Tensor:
        """Return the decoded image `index`, which already has the requested size and number of channels."""
        return self._loaded[index]

    def batch_targets(self, rows: Tensor, planes: Tensor | None, placement: Placement | None, size: int) -> Tensor:
        return self._images.batch_targets(rows, planes, placement, size)

    def get_drawing_input(self, index: int) -> Bytes:
        """Return the RGB pixels of an image to draw a prediction on, uint8 [h, w, 3].

        They are the central square that the model sees, before normalization. A gray channel is repeated. Channels
        after the third are dropped.
        """
        pixels = self._loaded[index][: self._channels, self._visible, self._visible].permute(1, 2, 0).numpy()
        return np.ascontiguousarray(pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1].repeat(3, 2))


class PickedSamples(SampleSet):
    """Evenly spaced samples of a split, which are loaded as in a validation and kept in memory.

    Samples that a rank can't read are left out. `indices` are the samples' indices in the split. `all_reduce_max`
    returns the maxima over all ranks of a list of flags, so that the ranks agree on the readable samples.
    """

    def __init__(
        self, samples: SampleSet, count: int, *, all_reduce_max: Callable[[Sequence[int]], list[int]] = list
    ) -> None:
        self._samples = samples
        self.indices, self._loaded = _load_readable(
            lambda index: samples.load(index, 0), _select_evenly(len(samples), count), all_reduce_max
        )

    def __len__(self) -> int:
        return len(self.indices)

    def path(self, index: int) -> str:
        return self._samples.path(self.indices[index])

    def load(self, index: int, epoch: int) -> Sample:
        """Return the picked sample with the number `index`, as it was loaded for epoch 0. `epoch` is ignored."""
        return self._loaded[index]

    def get_drawing_input(self, index: int) -> npt.NDArray[Any]:
        """Return the input of a sample to draw a prediction on, as the dataset has returned it."""
        return self._loaded[index][0].numpy()


class RankSamples(NamedTuple):
    """Samples whose predictions are saved, and the part of them that this rank predicts.

    `samples` are the samples of all ranks, `positions` the positions of this rank's samples in them, and `split_loader`
    loads this rank's samples.
    """

    samples: PickedImages | PickedSamples
    positions: list[int]
    split_loader: SplitLoader


class Predictions(Callback):
    """Callback that predicts the same samples after every validation and saves the results as images.

    Each rank predicts some of the samples. `pick` loads them before the first prediction. The rank that has the model's
    outputs draws them and writes the images to the run folder, and rank 0 reports them. If drawing or writing fails,
    this is reported once, and the training continues.
    """

    def __init__(
        self,
        folder: Path,
        strategy: Strategy,
        pick: Callable[[], RankSamples],
        send: Callable[[Predicted | Warned], None],
    ) -> None:
        self._folder = folder
        self._strategy = strategy
        self._pick = pick
        self._send = send
        self._rank_samples: RankSamples | None = None  # None before the first validation
        self._failed = False  # True once saving has failed, which is then not tried again

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        """Predict this rank's samples, save them as images, and report those of all ranks on rank 0.

        If there are more than `MAX_SETS` sets of predictions, rank 0 also deletes some of the older ones. All ranks
        call it together.
        """
        self._rank_samples = rank_samples = self._rank_samples or self._pick()
        outputs = _Outputs()
        self._strategy.evaluate(rank_samples.split_loader.epoch(1), outputs, lambda: False)  # without an early stop
        drawn: list[PredictedSample] = []
        if outputs.outputs and not self._failed:
            try:
                drawn = self._draw_samples(rank_samples, step, outputs.outputs, outputs.targets)
            except Exception as error:  # drawing may be custom code; a disk may be full
                self._failed = True
                message = f"Predictions are no longer saved: {type(error).__name__}: {error}."
                self._send(Warned(code="predictions_failed", message=message))
        by_rank = self._strategy.collectives.gather_objects(drawn)
        if by_rank is None:  # on all ranks but rank 0
            return
        samples = sorted(itertools.chain(*by_rank), key=lambda sample: sample.prediction_png)
        self._delete_some_sets()
        if samples:
            legend = self._strategy.objective.legend
            self._send(Predicted(epoch=epoch, step=step, samples=tuple(samples), legend=legend))

    def _draw_samples(
        self, rank_samples: RankSamples, step: int, outputs: list[Tensor], targets: list[Tensor]
    ) -> list[PredictedSample]:
        """Draw the ground truth and the prediction of each of this rank's samples, and save both in the run folder.

        Returns the samples with the paths of these images.
        """
        objective = self._strategy.objective
        drawn = []
        for position, output, target in zip(rank_samples.positions, outputs, targets, strict=True):
            image = rank_samples.samples.get_drawing_input(position)
            truth = objective.show_truth(image, target)
            prediction = objective.show_prediction(image, output)
            drawn.append(
                PredictedSample(
                    name=rank_samples.samples.path(position),
                    truth_png=self._write("truth", position, truth),
                    prediction_png=self._write(f"{step:09d}", position, prediction),
                    truth_words=truth.text,
                    prediction_words=prediction.text,
                    legend=tuple(sorted({*truth.legend, *prediction.legend})),
                )
            )
        return drawn

    def _write(self, name: str, position: int, visualization: Visualization) -> str:
        """Write the image of sample number `position`, and return its path relative to the run folder.

        `name` is the subfolder: "truth" for the ground truth, which is written only once, or the number of the step.
        """
        path = Path(FOLDER, name, f"{position:03d}.png")
        target = self._folder / path
        if name != "truth" or not target.exists():
            paths.make_folder(target.parent)
            paths.write_atomically(target, encode_png(visualization.image, visualization.cloud))
        return path.as_posix()

    def _delete_some_sets(self) -> None:
        """Delete every second set of predictions in the older half if there are more than `MAX_SETS`."""
        sets = sorted(path for path in (self._folder / FOLDER).glob("[0-9]*") if path.is_dir())
        if len(sets) > MAX_SETS:
            for path in sets[1 : len(sets) // 2 : 2]:
                shutil.rmtree(path, ignore_errors=True)


class _Outputs(Metric):
    """Metric that collects each sample's output and target on the CPU. Their shapes may differ between batches."""

    def __init__(self) -> None:
        self.counters = torch.zeros(1, dtype=torch.float64)
        self.outputs: list[Tensor] = []
        self.targets: list[Tensor] = []

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Append the outputs and targets of a batch, one item per sample."""
        self.outputs.extend(outputs.cpu())
        self.targets.extend(targets.cpu())

    def compute(self) -> dict[str, float]:
        return {}
