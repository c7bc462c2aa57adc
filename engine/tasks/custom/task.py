"""Task defined by a user's Python file: its data, model, loss and metrics.

The file runs only with the user's consent.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.contract.catalogue import suggest_name
from engine.contract.job import FIELDS, Job, fields_with_trait
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.idx import Bytes
from engine.data.formats.registry import FORMATS, KINDS
from engine.data.loading.base_loader import Finish
from engine.data.randomness import Purpose, RandomStreams
from engine.data.splits import dataset_error
from engine.data.transforms.device_transforms import Statistics, fit_statistics
from engine.metrics import torchmetrics_states
from engine.metrics.base import Metric
from engine.models import user_file, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.encoders import IMAGENET
from engine.models.model_surgery import find_head
from engine.models.registry import mark_heads
from engine.system.format import counted
from engine.tasks.base import DatasetInfo, Objective, Task, Visualization
from engine.tasks.custom.entry import TASK
from engine.tasks.custom.interface import CustomTask

REMEDY = "Fix the file, then allow it again."
BLANK_SIDE = 64
"""Side length of the blank image that stands for an input that can't be shown as an image."""
LOSS_METRIC = TASK.entry.metrics[0]
"""Catalogue entry of the mean loss, which every custom task reports in addition to its own metrics."""


class Custom(Task):
    """Task that a user's Python file defines. It has no built-in models."""

    entry = TASK.entry

    def list_models(self) -> tuple[str, ...]:
        return ()

    def describe_model(self, model: str) -> ModelInfo:
        raise KeyError(model)

    def open_splits(self, job: Job) -> Splits:
        return load_task(job).open_splits()

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        """Build the user's model, load its weights, and mark its last layer as the head.

        New weights depend only on the job's seed. Raises TaskError if the user's code fails or the model doesn't fit
        the job.
        """
        loaded = load_task(job)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.training.seed)
            model = loaded.call_method("build_model", classes, channels)
        if not isinstance(model, nn.Module):
            raise loaded.create_error(f"build_model returns {_describe_value(model)}, not a torch.nn.Module")
        model = model.cpu().train()
        head = find_head(model, classes) if classes else None  # found by its number of outputs
        if job.model.pretrained and not job.model.weights_file:
            message = f"Footplate has no pretrained weights for {loaded.file.name}."
            raise TaskError("pretrained", message, weights.SCRATCH_REMEDY)
        initial = weights.read_initial(job, loaded.file.name)
        if initial is not None:
            weights.load(model, initial, head=head, channels=channels)
        mark_heads(job, model, [head] if head is not None else [], loaded.file.name, classes)
        if job.data.dataset:  # otherwise there are no samples to try it on
            loaded.try_out(model)
        return model

    def get_image_size(self, job: Job) -> int:
        """Return the side of the model's images in pixels, or 0 if samples are not images.

        If the job sets no size, it is the default size of the user's task or, if the user's code reads the data, the
        width of a training sample. To find this out, the dataset is opened, and a sample is loaded.
        """
        if job.data.image_size is not None:
            return job.data.image_size
        loaded = load_task(job)
        if not job.data.dataset or not isinstance(loaded.open_splits().train, SampleSet):
            return int(loaded.task.image_size)
        shape = loaded.get_example()[0].shape
        return shape[-1] if len(shape) == 3 else 0

    def get_normalization(self, job: Job, channels: int) -> Statistics:
        """Return the mean and standard deviation of each channel from the user's task, by default those of ImageNet.

        If they are for another number of channels, each channel gets their average.
        """
        return fit_statistics(load_task(job).task.statistics or IMAGENET, channels)

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        return CustomObjective(load_task(job))

    def get_example_shape(self, job: Job, channels: int) -> tuple[int, ...]:
        """Return the shape of the first training sample, or that of an image if Footplate reads the folder.

        For this, the dataset is opened, and a sample is loaded.
        """
        loaded = load_task(job)
        if isinstance(loaded.open_splits().train, SampleSet):
            return tuple(loaded.get_example()[0].shape)
        return super().get_example_shape(job, channels)

    def create_batch_transform(self, job: Job, streams: RandomStreams, rank: int) -> Finish | None:
        """Return a function that applies the user's transform to each batch, or None if the user's task has none.

        Its random numbers depend only on the seed, the epoch, the index of the batch and the rank.
        """
        loaded = load_task(job)
        if type(loaded.task).transform is CustomTask.transform:
            return None

        def transform(inputs: Tensor, targets: Tensor, epoch: int, batch_index: int) -> tuple[Tensor, Tensor]:
            """Call the user's transform with random numbers for this batch. Raises TaskError for an unusable result."""
            if not len(targets):
                return inputs, targets
            with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
                torch.manual_seed(streams.derive_seed(Purpose.TRANSFORM, epoch=epoch, batch=batch_index, rank=rank))
                batch: Any = loaded.task.transform(inputs, targets)
            if not isinstance(batch, tuple) or [type(each) for each in batch] != [Tensor, Tensor]:
                raise loaded.create_error(
                    f"transform returns {_describe_value(batch)}, not a tuple of inputs and targets"
                )
            return batch[0], batch[1]

        return transform


class LoadedTask:
    """Task defined by the Python file of a job, together with the job's data."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.file, task = _load_task_class(job.model.name, job.model.model_file_sha256)
        self.task: CustomTask = user_file.call_user_code(self.file, f"in {task.__name__}()", task)
        self.task.job = job
        # Set when they are first needed.
        self._splits: Splits | None = None
        self._example: tuple[Tensor, Tensor] | None = None

    def call_method(self, name: str, *args: Any) -> Any:
        """Call the method `name` of the user's task. If it fails, raise TaskError with the failing line of the file."""
        return user_file.call_user_code(self.file, f"in {name}", getattr(self.task, name), *args)

    def create_error(self, reason: str) -> TaskError:
        """Create an error for a fault in the user's file. `reason` is the end of its message."""
        return TaskError("model", f"{self.file.name}: {reason}.", REMEDY)

    def open_splits(self) -> Splits:
        """Return the job's datasets, opened by the user's code or from annotations. The result is cached."""
        if self._splits is None:
            datasets = self.call_method("datasets")
            self._splits = self._open_annotations() if datasets is None else self._convert_datasets(datasets)
        return self._splits

    def get_example(self) -> tuple[Tensor, Tensor]:
        """Return an example input and target with the shapes and types of the samples. The result is cached."""
        if self._example is None:
            splits = self.open_splits()
            train = splits.train
            if isinstance(train, SampleSet):
                self._example = self._load_first_sample(train)
            else:
                size = Custom().get_image_size(self.job)
                loaded = torch.zeros((1, train.planes, size, size), dtype=torch.uint8) if train.planes else None
                # The images were not moved, so there is no placement.
                targets = train.batch_targets(train.targets_of(np.zeros(1, np.int64)), loaded, None, size)
                self._example = torch.zeros(splits.channels, size, size), targets[0]
        return self._example

    def try_out(self, model: nn.Module) -> None:
        """Run the model and the file's functions on two samples, so that their errors are reported before training.

        The model is in training mode afterwards.
        """
        sample, target = self.get_example()
        inputs, targets = torch.stack([sample, sample]), torch.stack([target, target])
        inputs = inputs.float() if inputs.is_floating_point() else inputs  # as the loader does
        model.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                outputs = user_file.call_user_code(self.file, f"on inputs of {list(inputs.shape)}", model, inputs)
                if not isinstance(outputs, Tensor) or not outputs.ndim or len(outputs) != 2:
                    raise self.create_error(
                        f"for two inputs the model returns {_describe_value(outputs)}; expected a tensor of [2, ...]"
                    )
                user_file.call_user_code(self.file, "in loss", self.compute_losses, outputs.float(), targets)
                rows = user_file.call_user_code(self.file, "in measure", self.measure, outputs.float(), targets)
                metrics = self.build_metrics()
                user_file.call_user_code(self.file, "in summarize", self.summarize, rows.double(), metrics)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # metrics may warn about so few samples
                    for name, metric in metrics.items():
                        when = f"in the metric “{name}”"
                        user_file.call_user_code(self.file, when, metric.update, outputs.float(), targets)
                        user_file.call_user_code(self.file, when, self.compute_metric, name, metric)
        finally:
            model.train()

    def compute_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Call the file's `loss` and validate that it returns one loss per sample, [n]."""
        losses: Any = self.task.loss(outputs, targets)
        if not isinstance(losses, Tensor) or losses.shape != (len(outputs),):
            raise self.create_error(
                f"loss returns {_describe_value(losses)}; expected one loss per sample, [{len(outputs)}]"
            )
        return losses

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Call the file's `measure` and validate the values that it returns for each sample, [n, k]."""
        values: Any = self.task.measure(outputs, targets)
        if not isinstance(values, Tensor) or values.ndim != 2 or len(values) != len(outputs):
            raise self.create_error(
                f"measure returns {_describe_value(values)}; expected one row per sample, [{len(outputs)}, k]"
            )
        return values

    def build_metrics(self) -> dict[str, Any]:
        """Create the file's torchmetrics metrics, keyed by their ids, and validate them."""
        metrics: Any = self.call_method("build_metrics")
        if not isinstance(metrics, dict):
            raise self.create_error(f"build_metrics returns {_describe_value(metrics)}, not a dict")
        declared = {entry.id for entry in self.task.metrics}
        for name, metric in metrics.items():
            if name not in declared:
                raise self.create_error(f"build_metrics returns “{name}”, which is not in `metrics`")
            if not torchmetrics_states.list_metrics(metric):
                raise self.create_error(
                    f"build_metrics returns {_describe_value(metric)} for “{name}”, not a torchmetrics.Metric"
                )
            torchmetrics_states.disable_sync(metric)
        return metrics

    def compute_metric(self, name: str, metric: Any) -> float:
        """Compute the torchmetrics metric with the id `name`. Raises TaskError unless the result is a single number."""
        value: Any = metric.compute()
        if not isinstance(value, int | float) and not (isinstance(value, Tensor) and value.numel() == 1):
            raise self.create_error(f"the metric “{name}” returns {_describe_value(value)}; expected a single number")
        return float(value)

    def summarize(self, rows: Tensor, computed: Collection[str]) -> dict[str, float]:
        """Call the file's `summarize` with the values [N, k] of all samples, and return the metrics by id.

        These are all metrics of the task except those whose ids are in `computed`.
        """
        entries = [entry for entry in self.task.metrics if entry.id not in computed]
        values = list(self.task.summarize(rows))
        if len(values) != len(entries):
            raise self.create_error(
                f"summarize returns {counted(len(values), 'value')} for {counted(len(entries), 'metric')}"
            )
        return {entry.id: float(value) for entry, value in zip(entries, values, strict=True)}

    def _convert_datasets(self, datasets: Any) -> Splits:
        """Validate the value returned by the file's `datasets` and convert it to splits. Raises TaskError.

        The first training sample is loaded to find out the number of channels.
        """
        if not isinstance(datasets, tuple) or [isinstance(split, SampleSet) for split in datasets] != [True, True]:
            raise self.create_error(
                f"datasets returns {_describe_value(datasets)}, not two SampleSets, for training and validation"
            )
        train, val = datasets
        for name, samples in (("training", train), ("validation", val)):
            if not len(samples):
                message = f"{self.file.name} finds no samples for {name} in {self.job.data.dataset}."
                raise TaskError("dataset", message, "Choose the folder with its samples.")
        sample, _ = self._load_first_sample(train)
        channels = int(sample.shape[0]) if sample.ndim else 1
        return Splits(tuple(self.task.classes), channels, format="files", train=train, val=val)

    def _open_annotations(self) -> Splits:
        """Open the dataset of the job with the kinds of annotations that the file requests.

        Raises TaskError and DatasetError.
        """
        job = self.job
        # Formats of plug-ins may have further kinds.
        all_kinds = [*KINDS, *(kind for format_ in FORMATS.values() for kind in format_.kinds)]
        kinds = list(dict.fromkeys(all_kinds))
        if not self.task.annotations:
            reason = "it has no annotations, and datasets returns nothing"
            raise TaskError("model", f"{self.file.name}: {reason}.", suggest_name("", kinds))
        unknown = [name for name in self.task.annotations if name not in kinds]
        if unknown:
            reason = f"there are no annotations “{unknown[0]}”"
            raise TaskError("model", f"{self.file.name}: {reason}.", suggest_name(unknown[0], kinds))
        return open_splits(
            job.data.dataset,
            val_fraction=job.data.val_fraction,
            seed=job.training.seed,
            kinds=self.task.annotations,
            format=job.data.format,
        )

    def _load_first_sample(self, samples: SampleSet) -> tuple[Tensor, Tensor]:
        """Return the input and the target of the first readable sample. Raises DatasetError if there is none."""
        for index in range(len(samples)):
            try:
                sample = user_file.call_user_code(self.file, "in load", samples.load, index, 0)  # epoch 0
            except UnreadableImage:
                continue  # the loader reports it
            if not isinstance(sample, tuple) or [isinstance(each, Tensor) for each in sample] != [True, True]:
                raise self.create_error(
                    f"load returns {_describe_value(sample)}, not a tuple of an input and a target, both tensors"
                )
            return sample[0], sample[1]
        raise DatasetError(
            [dataset_error("None of the training samples can be read.", "Choose a folder of intact samples.")]
        )


def load_task(job: Job) -> LoadedTask:
    """Load the task from a job's file. The most recently loaded task is cached. Raises TaskError."""
    # Fields that may be determined only after the dataset was opened are ignored, so that the task is not loaded again.
    key = job.with_fields(**{name: FIELDS[name].default for name in fields_with_trait("resolved")})
    if key not in _last_task:
        _last_task.clear()
        _last_task[key] = LoadedTask(job)
    return _last_task[key]


_last_task: dict[Job, LoadedTask] = {}
"""Most recently loaded task, by the key that `load_task` computes from its job."""


@lru_cache(maxsize=4)
def _load_task_class(path: str, agreed_sha256: str) -> tuple[Path, type[CustomTask]]:
    """Return the path of the file and the task class defined in it.

    `agreed_sha256` is the hash of the content that the user allowed. Raises TaskError.
    """
    file, module = user_file.load_module(path, agreed_sha256)
    task_classes = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, CustomTask) and each.__module__ == module.__name__
    ]
    if len(task_classes) != 1:
        count = "no class" if not task_classes else "more than one class"
        remedy = "Define one: class MyTask(CustomTask), with CustomTask from engine.tasks.custom.interface."
        raise TaskError("model", f"{file.name} has {count} derived from CustomTask.", remedy)
    missing = sorted(task_classes[0].__abstractmethods__)
    if missing:
        message = f"{task_classes[0].__name__} in {file.name} has no {' and no '.join(missing)}."
        raise TaskError("model", message, "Define the missing ones.")
    return file, task_classes[0]


def _describe_value(value: Any) -> str:
    """Describe a value that the user's code returned, for an error message, e.g. "a tensor of [2, 3]" or "a list"."""
    if isinstance(value, Tensor):
        return f"a tensor of {list(value.shape)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


class CustomMetric(Metric):
    """Metrics of a custom task.

    `rows` [N, 1 + k] hold the loss of each sample and the values that the file measures for it. Metrics from
    torchmetrics keep their state separately.
    """

    def __init__(self, loaded: LoadedTask) -> None:
        self.counters = torch.zeros(1, dtype=torch.float64)
        self.rows = torch.empty((0, 0), dtype=torch.float64)
        self._loaded = loaded
        self._metrics = loaded.build_metrics()

    def reset(self) -> None:
        super().reset()
        for metric in self._metrics.values():
            metric.reset()

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch's losses and values to `rows`, and update the metrics from torchmetrics on the batch's device."""
        losses = self._loaded.compute_losses(outputs, targets)[:, None]
        self.add_rows(torch.cat([losses.double(), self._loaded.measure(outputs, targets).double()], 1).cpu())
        for metric in self._metrics.values():
            metric.to(outputs.device).update(outputs, targets)

    def sync(self, all_gather: Callable[[Any], list[Any]]) -> None:
        """Move the states of the metrics from torchmetrics to the CPU, and merge them over all ranks.

        `all_gather` returns the values that all ranks passed to it. All ranks must call this method together.
        """
        for metric in self._metrics.values():
            torchmetrics_states.load_merged(metric, all_gather(torchmetrics_states.move_states_to_cpu(metric)))

    def compute(self) -> dict[str, float]:
        """Return the metrics in the task's order, followed by the mean loss, by metric id, or {} without samples."""
        if not len(self.rows):
            return {}
        losses, sample_values = self.rows[:, 0], self.rows[:, 1:]
        values = self._loaded.summarize(sample_values, computed=self._metrics)  # all metrics but those of torchmetrics
        for name, metric in self._metrics.items():
            value = self._loaded.compute_metric(name, metric)
            if math.isfinite(value):  # a correlation of constant values, for example, is undefined
                values[name] = value
        ordered = {entry.id: values[entry.id] for entry in self._loaded.task.metrics if entry.id in values}
        return ordered | {LOSS_METRIC.id: float(losses.mean())}


class CustomObjective(Objective):
    """Objective of a custom task, which calls the loss and metrics in the user's file."""

    def __init__(self, loaded: LoadedTask) -> None:
        metrics = (*(entry for entry in loaded.task.metrics if entry.id != LOSS_METRIC.id), LOSS_METRIC)
        self.entry = msgspec.structs.replace(Custom.entry, metrics=metrics)
        best_by, metric_ids = loaded.job.checkpoints.best_by, [entry.id for entry in metrics]
        if best_by and best_by not in metric_ids:
            message = f"“{best_by}” is not a metric of {loaded.file.name}."
            raise TaskError("best_by", message, suggest_name(best_by, metric_ids))
        self._loaded = loaded

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._loaded.compute_losses(outputs, targets)

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        return self._loaded.task.correct(outputs, targets)

    def create_metric(self) -> Metric:
        return CustomMetric(self._loaded)

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        _, target = self._loaded.get_example()
        return target.to(inputs.device).expand(len(inputs), *target.shape).clone()

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        return self._loaded.task.show(convert_to_image(image), target, predicted=False)

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        return self._loaded.task.show(convert_to_image(image), output, predicted=True)


def convert_to_image(values: npt.NDArray[Any]) -> Bytes:
    """Convert an input to an image, uint8 [h, w, 3]. Such an image is returned unchanged.

    The first three channels of an array [c, h, w] are scaled together so that they span 0 to 255. With one or two
    channels, the first one is shown in gray. An array [h, w] is a single channel. Any other input becomes a blank
    image.
    """
    if values.dtype == np.uint8 and values.ndim == 3 and values.shape[2] == 3:
        return values
    if values.ndim == 2:
        values = values[None]
    if values.ndim != 3:
        return np.zeros((BLANK_SIDE, BLANK_SIDE, 3), np.uint8)
    channels = (values[:3] if len(values) >= 3 else values[:1].repeat(3, 0)).astype(np.float64)
    low, high = float(channels.min()), float(channels.max())
    levels = np.rint((channels - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return levels.transpose(1, 2, 0).copy()
