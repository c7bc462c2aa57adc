"""A task of the user's own, in a Python file that is run only with consent: its data, model, loss and measures."""

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

from engine.contract.catalogue import did_you_mean
from engine.contract.job import FIELDS, Job, fields_with
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.idx import Bytes
from engine.data.formats.registry import FORMATS, KINDS
from engine.data.loading.base_loader import Finish
from engine.data.randomness import Purpose, RandomStreams
from engine.data.splits import dataset_error
from engine.data.transforms.device_transforms import Statistics
from engine.metrics import torchmetrics_states
from engine.metrics.base import Metric
from engine.models import user_file, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.model_surgery import find_head, set_heads
from engine.tasks.base import DatasetInfo, Objective, Task, Visualization
from engine.tasks.classification.task import IMAGENET
from engine.tasks.custom.entry import TASK
from engine.tasks.custom_file import OwnTask

REMEDY = "Fix the file, then allow it again."
BLANK_SIDE = 64
LOSS = TASK.entry.metrics[0]


class Custom(Task):
    entry = TASK.entry

    def model_names(self) -> tuple[str, ...]:
        return ()

    def model_info(self, model: str) -> ModelInfo:
        raise KeyError(model)

    def splits(self, job: Job) -> Splits:
        return opened(job).splits()

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        own = opened(job)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.training.seed)
            model = own.call("build_model", classes, channels)
        if not isinstance(model, nn.Module):
            raise own.wrong(f"build_model returns {_kind(model)}, not a torch.nn.Module")
        model = model.cpu().train()
        head = find_head(model, classes) if classes else None
        if job.model.weights_file:
            state, source = weights.from_file(job.model.weights_file), job.model.weights_file
            weights.load(model, state, head=head, channels=channels, field="weights_file", source=source)
        elif job.model.pretrained:
            message = f"Footplate has no pretrained weights for {own.file.name}."
            raise TaskError("pretrained", message, weights.SCRATCH)
        if job.model.freeze_epochs and head is None:
            message = f"{own.file.name} has no layer with {classes} outputs that could be trained as the head."
            raise TaskError("freeze_epochs", message, "Train all layers.")
        set_heads(model, [head] if head is not None else [], freeze=bool(job.model.freeze_epochs))
        if job.data.dataset:
            own.try_out(model, channels)
        return model

    def image_size(self, job: Job) -> int:
        if job.data.image_size is not None:
            return job.data.image_size
        own = opened(job)
        if not job.data.dataset or not isinstance(own.splits().train, SampleSet):
            return int(own.task.image_size)
        shape = own.example()[0].shape
        return shape[-1] if len(shape) == 3 else 0

    def normalisation(self, job: Job, channels: int) -> Statistics:
        mean, std = opened(job).task.statistics or IMAGENET
        if len(mean) == channels:
            return mean, std
        return (sum(mean) / len(mean),) * channels, (sum(std) / len(std),) * channels

    def objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        return OwnObjective(opened(job))

    def example_shape(self, job: Job, channels: int) -> tuple[int, ...]:
        train = opened(job).splits().train
        if isinstance(train, SampleSet):
            return tuple(opened(job).example()[0].shape)
        return super().example_shape(job, channels)

    def finish(self, job: Job, streams: RandomStreams, rank: int) -> Finish | None:
        own = opened(job)
        if type(own.task).transform is OwnTask.transform:
            return None

        def transformed(inputs: Tensor, targets: Tensor, epoch: int, batch_index: int) -> tuple[Tensor, Tensor]:
            if not len(targets):
                return inputs, targets
            with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
                torch.manual_seed(streams.number(Purpose.TRANSFORM, epoch=epoch, batch=batch_index, rank=rank))
                made: Any = own.task.transform(inputs, targets)
            if not isinstance(made, tuple) or [type(each) for each in made] != [Tensor, Tensor]:
                raise own.wrong(f"transform returns {_kind(made)}, not a tuple of inputs and targets")
            return made[0], made[1]

        return transformed


class Opened:
    """The user's task of one job, and the data that it has opened for it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.file, made = _class_of(job.model.name, job.model.model_file_sha256)
        self.task: OwnTask = user_file.guarded(self.file, f"in {made.__name__}()", made)
        self.task.job = job
        self._splits: Splits | None = None
        self._example: tuple[Tensor, Tensor] | None = None

    def call(self, name: str, *given: Any) -> Any:
        """Call a method of the task. Raises TaskError with the line that fails."""
        return user_file.guarded(self.file, f"in {name}", getattr(self.task, name), *given)

    def wrong(self, what: str) -> TaskError:
        return TaskError("model", f"{self.file.name}: {what}.", REMEDY)

    def splits(self) -> Splits:
        if self._splits is None:
            made = self.call("datasets")
            self._splits = self._own_splits(made) if made is not None else self._of_annotations()
        return self._splits

    def example(self) -> tuple[Tensor, Tensor]:
        """Return an input and a target with the shapes and types of samples."""
        if self._example is None:
            splits = self.splits()
            train = splits.train
            if isinstance(train, SampleSet):
                self._example = _first(self, train)
            else:
                size = Custom().image_size(self.job)
                loaded = torch.zeros((1, train.planes, size, size), dtype=torch.uint8) if train.planes else None
                targets = train.batch_targets(train.targets_of(np.zeros(1, np.int64)), loaded, None, size)
                self._example = torch.zeros(splits.channels, size, size), targets[0]
        return self._example

    def try_out(self, model: nn.Module, channels: int) -> None:
        """Run the functions of the file on two samples, so that errors are reported before the training."""
        given, target = self.example()
        inputs, targets = torch.stack([given, given]), torch.stack([target, target])
        inputs = inputs.float() if inputs.is_floating_point() else inputs
        model.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                outputs = user_file.guarded(self.file, f"on inputs of {list(inputs.shape)}", model, inputs)
                if not isinstance(outputs, Tensor) or not outputs.ndim or len(outputs) != 2:
                    what = f"for two inputs the model returns {_kind(outputs)}; expected a tensor of [2, ...]"
                    raise self.wrong(what)
                user_file.guarded(self.file, "in loss", self.losses, outputs.float(), targets)
                rows = user_file.guarded(self.file, "in measure", self.values, outputs.float(), targets)
                metrics = self.metrics()
                user_file.guarded(self.file, "in summarise", self.summarised, rows.double(), metrics)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # two samples are few to compute a metric of
                    for name, metric in metrics.items():
                        user_file.guarded(self.file, f"in the metric “{name}”", metric.update, outputs.float(), targets)
                        user_file.guarded(self.file, f"in the metric “{name}”", self.computed, name, metric)
        finally:
            model.train()

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        made: Any = self.task.loss(outputs, targets)
        if not isinstance(made, Tensor) or made.shape != (len(outputs),):
            raise self.wrong(f"loss returns {_kind(made)}; expected one loss per sample, [{len(outputs)}]")
        return made

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the measured values of each sample, [n, k]."""
        made: Any = self.task.measure(outputs, targets)
        if not isinstance(made, Tensor) or made.ndim != 2 or len(made) != len(outputs):
            raise self.wrong(f"measure returns {_kind(made)}; expected one row per sample, [{len(outputs)}, k]")
        return made

    def metrics(self) -> dict[str, Any]:
        """Return new torchmetrics metrics by the ids of the file's measures that they compute."""
        made: Any = self.call("metrics")
        if not isinstance(made, dict):
            raise self.wrong(f"metrics returns {_kind(made)}, not a dict")
        known = {measure.id for measure in self.task.measures}
        for name, metric in made.items():
            if name not in known:
                raise self.wrong(f"metrics returns “{name}”, which is not in `measures`")
            if not torchmetrics_states.parts_of(metric):
                raise self.wrong(f"metrics returns {_kind(metric)} for “{name}”, not a torchmetrics.Metric")
            torchmetrics_states.keep_apart(metric)
        return made

    def computed(self, name: str, metric: Any) -> float:
        """Return the value of one of the file's torchmetrics metrics."""
        made: Any = metric.compute()
        if not isinstance(made, int | float) and not (isinstance(made, Tensor) and made.numel() == 1):
            raise self.wrong(f"the metric “{name}” returns {_kind(made)}; expected a single number")
        return float(made)

    def summarised(self, values: Tensor, metrics: Collection[str]) -> dict[str, float]:
        """Return the file's measures except those of `metrics`, by id, from the values of all samples, float64 [N, k]."""
        measures = [measure for measure in self.task.measures if measure.id not in metrics]
        told = list(self.task.summarise(values))
        if len(told) != len(measures):
            raise self.wrong(f"summarise returns {len(told)} values for {len(measures)} measures")
        return {measure.id: float(value) for measure, value in zip(measures, told, strict=True)}

    def _own_splits(self, made: Any) -> Splits:
        if not isinstance(made, tuple) or len(made) != 2 or not all(isinstance(each, SampleSet) for each in made):
            raise self.wrong(f"datasets returns {_kind(made)}, not two SampleSets, for training and validation")
        train, val = made
        for name, samples in (("training", train), ("validation", val)):
            if not len(samples):
                message = f"{self.file.name} finds no samples for {name} in {self.job.data.dataset}."
                raise TaskError("dataset", message, "Choose the folder with its samples.")
        given, _ = _first(self, train)
        channels = int(given.shape[0]) if given.ndim else 1
        return Splits(tuple(self.task.classes), channels, "files", train, val)

    def _of_annotations(self) -> Splits:
        job = self.job
        kinds = list(dict.fromkeys((*KINDS, *(kind for each in FORMATS.values() for kind in each.kinds))))
        unknown = [name for name in self.task.annotations if name not in kinds]
        if unknown or not self.task.annotations:
            what = (
                f"there are no annotations “{unknown[0]}”"
                if unknown
                else "it has no annotations, and datasets returns nothing"
            )
            raise TaskError("model", f"{self.file.name}: {what}.", did_you_mean(unknown[0] if unknown else "", kinds))
        return open_splits(
            job.data.dataset,
            val_fraction=job.data.val_fraction,
            seed=job.training.seed,
            kinds=self.task.annotations,
            format=job.data.format,
        )


def opened(job: Job) -> Opened:
    """Return the task in the job's file with its data, opened only once. Raises TaskError."""
    key = job.with_fields(**{name: FIELDS[name].default for name in fields_with("resolved")})
    if key not in _opened:
        _opened.clear()
        _opened[key] = Opened(job)
    return _opened[key]


_opened: dict[Job, Opened] = {}


@lru_cache(maxsize=4)
def _class_of(path: str, agreed_sha256: str) -> tuple[Path, type[OwnTask]]:
    """Return the file and the class of the task in it."""
    file, module = user_file.opened(path, agreed_sha256)
    made = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, OwnTask) and each.__module__ == module.__name__
    ]
    if len(made) != 1:
        count = "no class" if not made else "more than one class"
        remedy = "Define one: class MyTask(OwnTask), with OwnTask from engine.tasks.custom_file."
        raise TaskError("model", f"{file.name} has {count} derived from OwnTask.", remedy)
    missing = sorted(made[0].__abstractmethods__)
    if missing:
        message = f"{made[0].__name__} in {file.name} has no {' and no '.join(missing)}."
        raise TaskError("model", message, "Define the missing ones.")
    return file, made[0]


def _first(own: Opened, samples: SampleSet) -> tuple[Tensor, Tensor]:
    """Return the first sample of a split that can be read."""
    for index in range(len(samples)):
        try:
            made = user_file.guarded(own.file, "in load", samples.load, index, 0)
        except UnreadableImage:
            continue  # the loader names it
        if not isinstance(made, tuple) or [isinstance(each, Tensor) for each in made] != [True, True]:
            raise own.wrong(f"load returns {_kind(made)}, not a tuple of an input and a target, both tensors")
        return made[0], made[1]
    raise DatasetError(
        [dataset_error("None of the training samples can be read.", "Choose a folder of intact samples.")]
    )


def _kind(made: Any) -> str:
    if isinstance(made, Tensor):
        return f"a tensor of {list(made.shape)}"
    return "nothing" if made is None else f"a {type(made).__name__}"


class OwnMetric(Metric):
    """Metrics of a custom task.

    `rows` [N, 1 + k] are the loss of each sample and the values that the file measures; metrics of torchmetrics have their
    own state.
    """

    def __init__(self, own: Opened) -> None:
        self.counters = torch.zeros(1, dtype=torch.float64)
        self.rows = torch.empty((0, 0), dtype=torch.float64)
        self._own = own
        self._metrics = own.metrics()

    def reset(self) -> None:
        super().reset()
        for metric in self._metrics.values():
            metric.reset()

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        if not len(targets):
            return
        losses = self._own.losses(outputs, targets)[:, None]
        self.add_rows(torch.cat([losses.double(), self._own.values(outputs, targets).double()], 1).cpu())
        for metric in self._metrics.values():
            metric.to(outputs.device).update(outputs, targets)

    def sync(self, all_gather: Callable[[Any], list[Any]]) -> None:
        for metric in self._metrics.values():
            torchmetrics_states.take_over(metric, all_gather(torchmetrics_states.states_of(metric)))

    def compute(self) -> dict[str, float]:
        if not len(self.rows):
            return {}
        values = self._own.summarised(self.rows[:, 1:], self._metrics)
        values |= {name: self._own.computed(name, metric) for name, metric in self._metrics.items()}
        told = {measure.id: values[measure.id] for measure in self._own.task.measures}
        # A metric may have nothing to say of some data, as a correlation of what does not vary.
        kept = {name: value for name, value in told.items() if name not in self._metrics or math.isfinite(value)}
        return kept | {LOSS.id: float(self.rows[:, 0].mean())}


class OwnObjective(Objective):
    """Objective of the file's task."""

    def __init__(self, own: Opened) -> None:
        measures = (*(measure for measure in own.task.measures if measure.id != LOSS.id), LOSS)
        self.entry = msgspec.structs.replace(Custom.entry, metrics=measures)
        known = [measure.id for measure in measures]
        if own.job.checkpoints.best_by and own.job.checkpoints.best_by not in known:
            message = f"“{own.job.checkpoints.best_by}” is not a metric of {own.file.name}."
            raise TaskError("best_by", message, did_you_mean(own.job.checkpoints.best_by, known))
        self._own = own

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._own.losses(outputs, targets)

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        return self._own.task.correct(outputs, targets)

    def metric(self) -> Metric:
        return OwnMetric(self._own)

    def blank_targets(self, inputs: Tensor) -> Tensor:
        _, target = self._own.example()
        return target.to(inputs.device).expand(len(inputs), *target.shape).clone()

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        return self._shown(image, target, predicted=False)

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        return self._shown(image, output, predicted=True)

    def _shown(self, image: npt.NDArray[Any], value: Tensor, *, predicted: bool) -> Visualization:
        return self._own.task.show(as_image(image), value, predicted=predicted)


def as_image(given: npt.NDArray[Any]) -> Bytes:
    """Convert an input to an image, uint8 [h, w, 3].

    Of channels [c, h, w], the first three or the first are stretched to their range; other inputs become a blank image.
    """
    if given.dtype == np.uint8 and given.ndim == 3 and given.shape[2] == 3:
        return given
    if given.ndim == 2:
        given = given[None]
    if given.ndim != 3:
        return np.zeros((BLANK_SIDE, BLANK_SIDE, 3), np.uint8)
    planes = given[:3] if len(given) >= 3 else given[:1].repeat(3, 0)
    values = planes.astype(np.float64)
    least, most = float(values.min()), float(values.max())
    return np.rint((values - least) * (255 / max(most - least, 1e-12))).astype(np.uint8).transpose(1, 2, 0).copy()
