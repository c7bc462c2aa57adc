"""What a file gives, compared with what the model gives: sample by sample, by the task's measures, and in time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from engine.contract.inference.conversion import QUALITY_SAMPLES, TOLERANCE, Difference
from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.samples import SampleSet
from engine.inference.conversion.exportable import WIDTH, Exportable, widened
from engine.inference.sweep import batches
from engine.inference.trained_model import CannotLoad, TrainedModel
from engine.models.base import TaskError

BATCH_SIZES = (1, 3)
MEASURE_S = 60.0
"""Measuring ends after so long, at fewer samples."""
LATENCY_S, LATENCY_RUNS = 2.0, 30
NEAR = 1e-3
"""Two detections are the same where they differ by no more than this share of the image's side, and in their scores."""
MOST_UNMATCHED = 0.02
"""The share of detections that one of both may have alone: where a box lies at a threshold, rounding decides."""

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Samples:
    """What a file is compared on. `inputs` [n, ...] are some of the model's, at least as many as the largest batch."""

    kind: Literal["validation", "random"]
    inputs: Tensor
    val: ImageSet | SampleSet | None = None
    train: ImageSet | SampleSet | None = None


def samples_of(model: TrainedModel) -> Samples:
    """Those of the run's dataset, or random ones where it is gone. Raises CannotLoad for a task of the user's own
    whose dataset is gone.
    """
    splits: Splits | None
    try:
        splits = model.task.splits(model.job)
        inputs = next(inputs_of(model, splits.val, max(BATCH_SIZES)))
        inputs = inputs[torch.arange(max(BATCH_SIZES)) % len(inputs)]
        return Samples("validation", inputs, splits.val, splits.train)
    except (DatasetError, TaskError, StopIteration) as error:
        if model.task.entry.file:
            problems = error.problems if isinstance(error, DatasetError) else ()
            raise CannotLoad(*problems) from error
    shape = model.task.example_shape(model.job, model.channels)
    drawn = torch.Generator().manual_seed(0)
    if not model.size:
        return Samples("random", torch.randn(max(BATCH_SIZES), *shape, generator=drawn))
    pixels = torch.randint(0, 256, (max(BATCH_SIZES), *shape), generator=drawn, dtype=torch.uint8)
    return Samples("random", model.normalised(pixels))


def inputs_of(model: TrainedModel, samples: ImageSet | SampleSet, batch_size: int) -> Iterator[Tensor]:
    """The model's inputs for samples in an order drawn by the run's seed, batch by batch."""
    for batch in batches(model, samples, batch_size=batch_size, only=_drawn(model, len(samples))):
        if len(batch.inputs):
            yield batch.inputs


def _drawn(model: TrainedModel, count: int) -> np.ndarray:
    """Up to `QUALITY_SAMPLES` of so many samples, in an order drawn by the run's seed: in a folder they lie by
    class.
    """
    return np.random.default_rng(model.job.training.seed).permutation(count)[:QUALITY_SAMPLES]


def differences(model: TrainedModel, export: Exportable, run: Run, inputs: Tensor) -> tuple[Difference, ...]:
    """How far what `run` gives is from what the model gives, for batches of `BATCH_SIZES` of its inputs; where the
    file takes any size, the last of them are twice as wide.
    """
    made = []
    for batch_size in BATCH_SIZES:
        given = inputs[:batch_size]
        if WIDTH in export.axes.values() and batch_size == BATCH_SIZES[-1]:
            given = widened(given)
        theirs, ours = run(export.given(given)), reference(model, given)
        if model.task.entry.predicts == "objects":
            made.append(unlike_detections(ours, theirs, model.size))
        else:
            same = ours.shape == theirs.shape
            most = float((ours - theirs).abs().max()) if same else float("inf")
            made.append(Difference(batch_size=batch_size, difference=most, largest_output=float(ours.abs().max())))
    return tuple(made)


@torch.inference_mode()
def reference(model: TrainedModel, inputs: Tensor) -> Tensor:
    """What the model gives in fp32, as far as the file gives it."""
    return model.objective.exported_outputs(model.module(inputs).float(), inputs)


def holds(differences: tuple[Difference, ...], detections: int) -> bool:
    """Whether a file in fp32 gives what the model gives, up to rounding; of a detector that gives so many
    `detections` of an image at most.
    """
    return all(
        each.difference <= TOLERANCE * max(1.0, each.largest_output)
        and each.unmatched <= MOST_UNMATCHED * each.batch_size * detections
        for each in differences
    )


@dataclass(frozen=True)
class Measured:
    """The task's measures of the model and of the file, of so many `samples`."""

    torch: dict[str, float]
    file: dict[str, float]
    samples: int


def measured(
    model: TrainedModel, export: Exportable, run: Run, val: ImageSet | SampleSet, progressed: Callable[[float], None]
) -> Measured:
    """Both on up to `QUALITY_SAMPLES` validation samples, within `MEASURE_S`. `progressed` is told the share that is
    done.
    """
    ours, theirs = model.objective.metric(), model.objective.metric()
    only = _drawn(model, len(val))
    done, begun = 0, time.monotonic()
    for batch in batches(model, val, batch_size=max(BATCH_SIZES), only=only):
        if len(batch.inputs):
            ours.update(reference(model, batch.inputs), batch.targets)
            theirs.update(run(export.given(batch.inputs)), batch.targets)
            done += len(batch.inputs)
            progressed(done / len(only))
        if time.monotonic() - begun > MEASURE_S:
            break
    both = [dict(metric.compute()) for metric in (ours, theirs)]
    for each in both:
        if not model.objective.exports_all_outputs:
            each.pop("loss", None)
    return Measured(both[0], both[1], done)


def latencies(model: TrainedModel, export: Exportable, run: Run, inputs: Tensor) -> tuple[float, float]:
    """The milliseconds that one sample takes in the file and in the model: medians."""
    one = inputs[:1]
    given = export.given(one)
    return _median_ms(lambda: run(given)), _median_ms(lambda: reference(model, one))


def _median_ms(run: Callable[[], object]) -> float:
    run()
    taken: list[float] = []
    while len(taken) < 3 or (sum(taken) < LATENCY_S and len(taken) < LATENCY_RUNS):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return 1000 * statistics.median(taken)


def unlike_detections(ours: Tensor, theirs: Tensor, size: int) -> Difference:
    """Of detections [n, k, 6 or more] of both, each of ours beside the nearest of theirs of the same class."""
    most, unmatched = 0.0, 0
    for one, other in zip(ours, theirs, strict=True):
        one, other = one[one[:, 4] > 0], other[other[:, 4] > 0]  # noqa: PLW2901
        scale = torch.ones(one.shape[1])
        scale[:4] = size
        away = ((one / scale)[:, None] - (other / scale)[None]).abs()
        away[..., 5] *= 2  # never near another class
        apart = away.amax(2)
        near = apart.amin(1) <= NEAR if len(other) else torch.zeros(len(one), dtype=torch.bool)
        back = apart.amin(0) <= NEAR if len(one) else torch.zeros(len(other), dtype=torch.bool)
        unmatched += int((~near).sum() + (~back).sum())
        if near.any():
            most = max(most, float(apart[near].amin(1).max()))
    return Difference(batch_size=len(ours), difference=most, largest_output=1.0, unmatched=unmatched)


def width_of(model: TrainedModel) -> int:
    """How many detections the model gives of an image at most; 0 of other models."""
    return int(getattr(model.module, "most", 0)) if model.task.entry.predicts == "objects" else 0
