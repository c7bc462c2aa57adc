"""Compare a converted file with its model: outputs, metrics and latency."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from engine.contract.inference.conversion import QUALITY_SAMPLES, TOLERANCE, Difference
from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.samples import SampleSet
from engine.inference.conversion.exportable import WIDTH, Exportable, double_width
from engine.inference.sweep import iterate_batches
from engine.inference.trained_model import CannotLoad, TrainedModel
from engine.models.base import TaskError

BATCH_SIZES = (1, 3)
MAX_METRICS_S = 60.0
"""Maximum time in seconds for computing metrics. Samples that are not processed by then are omitted."""
LATENCY_S, LATENCY_RUNS = 2.0, 30
MATCH_TOLERANCE = 1e-3
"""Maximum difference of two matching detections, in scores and in coordinates relative to the side of the image."""
MAX_UNMATCHED = 0.02
"""Maximum fraction of unmatched detections in an equivalent file. Rounding may add or remove boxes near a threshold."""

RunBatch = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ComparisonSamples:
    """Samples on which a converted file is compared with its model.

    Attributes:
        kind: "validation", or "random" if the dataset can't be read.
        inputs: Model inputs [n, ...], with n at least the largest batch size.
        val: Validation samples, or None for random samples.
        train: Training samples, or None for random samples.
    """

    kind: Literal["validation", "random"]
    inputs: Tensor
    val: ImageSet | SampleSet | None = None
    train: ImageSet | SampleSet | None = None


def load_samples(model: TrainedModel) -> ComparisonSamples:
    """Load validation and training samples from the run's dataset, or generate random inputs if it can't be read.

    Raises CannotLoad for a user-defined task whose dataset can't be read.
    """
    splits: Splits | None
    try:
        splits = model.task.open_splits(model.job)
        inputs = next(iterate_inputs(model, splits.val, max(BATCH_SIZES)))
        inputs = inputs[torch.arange(max(BATCH_SIZES)) % len(inputs)]  # repeats samples if there are too few
        return ComparisonSamples("validation", inputs, splits.val, splits.train)
    except (DatasetError, TaskError, StopIteration) as error:
        if model.task.entry.file:  # random inputs may not suit a user-defined task
            problems = error.problems if isinstance(error, DatasetError) else ()
            raise CannotLoad(*problems) from error
    shape = model.task.get_example_shape(model.job, model.channels)
    generator = torch.Generator().manual_seed(0)
    if not model.size:  # the samples are not images
        return ComparisonSamples("random", torch.randn(max(BATCH_SIZES), *shape, generator=generator))
    pixels = torch.randint(0, 256, (max(BATCH_SIZES), *shape), generator=generator, dtype=torch.uint8)
    return ComparisonSamples("random", model.normalize(pixels))


def iterate_inputs(model: TrainedModel, samples: ImageSet | SampleSet, batch_size: int) -> Iterator[Tensor]:
    """Yield batches of model inputs in a random order that depends only on the run's seed."""
    for batch in iterate_batches(model, samples, batch_size=batch_size, selected=_draw_samples(model, len(samples))):
        if len(batch.inputs):
            yield batch.inputs


def _draw_samples(model: TrainedModel, count: int) -> np.ndarray:
    """Return up to `QUALITY_SAMPLES` random indices below `count`.

    The order is random because folders are sorted by class. It depends only on the run's seed.
    """
    return np.random.default_rng(model.job.training.seed).permutation(count)[:QUALITY_SAMPLES]


def compare_outputs(
    model: TrainedModel, export: Exportable, run_file: RunBatch, inputs: Tensor
) -> tuple[Difference, ...]:
    """Return the difference between the outputs of a converted file and of the model, for each of the `BATCH_SIZES`.

    `run_file` runs the file on a batch. If the file accepts images of any size, the images in the last batch are twice
    as wide.
    """
    differences = []
    for batch_size in BATCH_SIZES:
        batch = inputs[:batch_size]
        if WIDTH in export.axes.values() and batch_size == BATCH_SIZES[-1]:
            batch = double_width(batch)
        actual, expected = run_file(export.to_input(batch)), compute_reference_outputs(model, batch)
        if model.task.entry.predicts == "objects":
            differences.append(compare_detections(expected, actual, model.size))
        else:
            has_same_shape = expected.shape == actual.shape
            largest = float((expected - actual).abs().max()) if has_same_shape else float("inf")
            differences.append(
                Difference(batch_size=batch_size, difference=largest, largest_output=float(expected.abs().max()))
            )
    return tuple(differences)


@torch.inference_mode()
def compute_reference_outputs(model: TrainedModel, inputs: Tensor) -> Tensor:
    """Return the model's outputs in fp32, without those that exported files don't include."""
    return model.objective.select_exported_outputs(model.module(inputs).float(), inputs)


def is_equivalent(differences: tuple[Difference, ...], detections: int) -> bool:
    """Return True if a converted fp32 file differs from the model only by rounding.

    `detections` is the maximum number of detections per image, or 0 if the model is not a detector.
    """
    return all(
        each.difference <= TOLERANCE * max(1.0, each.largest_output)
        and each.unmatched <= MAX_UNMATCHED * each.batch_size * detections
        for each in differences
    )


@dataclass(frozen=True)
class ComparedMetrics:
    """Metrics of the model (`torch`) and of the converted file (`file`) on the same samples.

    `samples` is the number of these samples.
    """

    torch: dict[str, float]
    file: dict[str, float]
    samples: int


def compare_metrics(
    model: TrainedModel,
    export: Exportable,
    run_file: RunBatch,
    val: ImageSet | SampleSet,
    on_progress: Callable[[float], None],
) -> ComparedMetrics:
    """Compute the metrics of the model and of the converted file on validation samples.

    At most `QUALITY_SAMPLES` samples are used, and no more batches are started after `MAX_METRICS_S` seconds.
    """
    expected, actual = model.objective.create_metric(), model.objective.create_metric()
    indices = _draw_samples(model, len(val))
    processed, started = 0, time.monotonic()
    for batch in iterate_batches(model, val, batch_size=max(BATCH_SIZES), selected=indices):
        if len(batch.inputs):  # unreadable samples are left out of their batch
            expected.update(compute_reference_outputs(model, batch.inputs), batch.targets)
            actual.update(run_file(export.to_input(batch.inputs)), batch.targets)
            processed += len(batch.inputs)
            on_progress(processed / len(indices))
        if time.monotonic() - started > MAX_METRICS_S:
            break
    torch_values, file_values = expected.compute(), actual.compute()
    if not model.objective.exports_all_outputs:  # the loss needs the outputs that the file lacks
        torch_values, file_values = (
            {name: value for name, value in values.items() if name != "loss"} for values in (torch_values, file_values)
        )
    return ComparedMetrics(torch_values, file_values, processed)


def measure_latencies(
    model: TrainedModel, export: Exportable, run_file: RunBatch, inputs: Tensor
) -> tuple[float, float]:
    """Return the median latency for one sample with the converted file and with the model, in milliseconds."""
    sample = inputs[:1]
    file_input = export.to_input(sample)
    file_ms = _measure_median_ms(lambda: run_file(file_input))
    torch_ms = _measure_median_ms(lambda: compute_reference_outputs(model, sample))
    return file_ms, torch_ms


def _measure_median_ms(run: Callable[[], object]) -> float:
    """Return the median duration of a call in milliseconds, after one call to warm up."""
    run()
    durations: list[float] = []
    while len(durations) < 3 or (sum(durations) < LATENCY_S and len(durations) < LATENCY_RUNS):
        started = time.perf_counter()
        run()
        durations.append(time.perf_counter() - started)
    return 1000 * statistics.median(durations)


def compare_detections(expected: Tensor, actual: Tensor, size: int) -> Difference:
    """Return the difference between expected and actual detections [n, k, 6 or more] for images of `size` pixels.

    A row holds x1, y1, x2, y2 in pixels, the score (0 for padding), the class, and any additional outputs. Each
    detection is compared with the nearest detection in the other tensor. Detections of different classes never match,
    because `MATCH_TOLERANCE` is less than 1.
    """
    largest, unmatched = 0.0, 0
    for expected_rows, actual_rows in zip(expected, actual, strict=True):
        expected_found, actual_found = expected_rows[expected_rows[:, 4] > 0], actual_rows[actual_rows[:, 4] > 0]
        scale = torch.ones(expected_found.shape[1])
        scale[:4] = size  # boxes are compared as fractions of the side, so all values are at most about 1
        gaps = ((expected_found / scale)[:, None] - (actual_found / scale)[None]).abs()
        distance = gaps.amax(2)
        if not distance.numel():  # at least one side has no detections
            unmatched += len(expected_found) + len(actual_found)
            continue
        nearest = distance.amin(1)
        is_matched = nearest <= MATCH_TOLERANCE
        unmatched += int((~is_matched).sum() + (distance.amin(0) > MATCH_TOLERANCE).sum())
        if is_matched.any():
            largest = max(largest, float(nearest[is_matched].max()))
    return Difference(batch_size=len(expected), difference=largest, largest_output=1.0, unmatched=unmatched)


def get_max_detections(model: TrainedModel) -> int:
    """Return the maximum number of detections per image, or 0 if the model is not a detector."""
    module: Any = model.module
    return int(module.max_detections) if model.task.entry.predicts == "objects" else 0
