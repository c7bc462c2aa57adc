"""A run's model with its weights, and what its inputs are made by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import structs
from torch import Tensor, nn

from engine.contract.devices import CPU, is_gpu
from engine.contract.events import Planned
from engine.contract.image_sizes import validation_side
from engine.contract.job import Job
from engine.contract.preprocessing import Preprocessing
from engine.contract.problems import Problem
from engine.data.datasets.images import DatasetError
from engine.data.decoding.idx import Bytes
from engine.data.decoding.images import frame
from engine.data.transforms.device_transforms import Normalisation
from engine.models.base import TaskError
from engine.runs.folder import OLDER_CHECKPOINT, RunFolder
from engine.strategies.base import memory_format
from engine.strategies.memory import in_parts_that_fit
from engine.tasks import TASKS
from engine.tasks.base import DatasetInfo, Objective, Task, with_added_metrics
from engine.training.checkpointing.checkpoint_files import DamagedCheckpoint, read_checkpoint
from engine.training.dataloaders import preprocessing


class CannotLoad(Exception):  # noqa: N818 - the texts say what stands in the way
    """A run's model can't be used; `problems` say why and what to do."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(" ".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True)
class Learnt:
    """What a run has learnt from; its fields are as in `TrainedModel`."""

    job: Job
    task: Task
    classes: tuple[str, ...]
    channels: int
    size: int
    preprocessing: Preprocessing

    def objective(self) -> Objective:
        """What it learnt, without weights of classes. Raises CannotLoad."""
        counts = [0.0] * len(self.classes)
        about = DatasetInfo(self.classes, self.channels, lambda: counts)
        with reasons():
            return with_added_metrics(self.task.objective(structs.replace(self.job, class_weights="none"), about))


@dataclass(eq=False)
class TrainedModel:
    """The plain model of a run, in evaluation mode on `device`, with the weights of one of its checkpoints.

    `classes` and `channels` are those of the training's dataset; `size` is the side of the square images that the model is given, in
    pixels, 0 of samples that are not images. `sha256` tells the checkpoint from others.
    """

    run: RunFolder
    job: Job
    task: Task
    module: nn.Module
    objective: Objective
    classes: tuple[str, ...]
    channels: int
    size: int
    preprocessing: Preprocessing
    checkpoint: str
    sha256: str
    device: torch.device

    def __post_init__(self) -> None:
        mean, std = (torch.tensor(values) for values in (self.preprocessing.mean, self.preprocessing.std))
        self._normalise = Normalisation(mean, std, self.device)
        self._format = memory_format(self.job)

    @property
    def resized(self) -> int:
        """The side of the square that an image is made into, of which the middle of `size` is given to the model."""
        return validation_side(self.job, self.task.entry, self.size)

    def inputs(self, images: Sequence[Bytes]) -> Tensor:
        """What the model is given for images, each uint8 [h, w, channels] or, of one channel, [h, w]: float32 [n, channels, size,
        size] on its device. Raises ValueError for images of other channels or another type."""
        return self.normalised(torch.from_numpy(np.stack([self._framed(image) for image in images])))

    def normalised(self, pixels: Tensor) -> Tensor:
        """uint8 [n, channels, size, size] as the model's inputs, on its device."""
        return self._normalise(pixels.to(self.device), self._format)

    @torch.inference_mode()
    def outputs(self, inputs: Tensor) -> Tensor:
        """The model's outputs for a batch of inputs, float32 on its device, in the precision of the training. Where memory runs
        out, the batch goes through it in smaller parts. Raises DoesNotFit where a single sample does not fit."""
        made, _ = in_parts_that_fit(
            lambda parts: torch.cat([self._forward(part) for part in inputs.tensor_split(parts)]), 1, len(inputs)
        )
        return made

    def _forward(self, inputs: Tensor) -> Tensor:
        precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.job.precision)
        with torch.autocast(self.device.type, precision, enabled=precision is not None):
            outputs: Tensor = self.module(inputs)
        return outputs.float()

    def _framed(self, image: Bytes) -> Bytes:
        image = image[:, :, None] if image.ndim == 2 else image
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != self.channels:
            shape = " x ".join(map(str, image.shape))
            raise ValueError(f"The model takes uint8 [h, w, {self.channels}], not {image.dtype} of {shape}.")
        margin = (self.resized - self.size) // 2
        inside = slice(margin, margin + self.size)
        return frame(image, self.resized, self.preprocessing.framing)[:, inside, inside]


def load(run: RunFolder, checkpoint: str = "best", device: str = CPU) -> TrainedModel:
    """The model of `run` with the weights of its `checkpoint`: "best", "last", the number of an epoch whose checkpoint was kept, or
    a file's name in the run's folder of checkpoints. `device` is "cpu" or one that torch.device knows.

    Nothing is unpickled, and a model file of the user's runs only where its content was agreed to. Raises CannotLoad.
    """
    path = checkpoint_path(run, checkpoint)
    known = learnt(run)
    job, task = known.job, known.task
    state, sha256 = _state(path)
    with reasons(), torch.random.fork_rng(devices=[]):
        plain = structs.replace(job, pretrained=False, weights_file="", resume_from="")
        module = task.build_model(plain, len(known.classes), known.channels)
    _fill(module, state, path)
    where = torch.device(device)
    return TrainedModel(
        run=run,
        job=job,
        task=task,
        module=module.eval().requires_grad_(False).to(where).to(memory_format=memory_format(job)),
        objective=known.objective(),
        classes=known.classes,
        channels=known.channels,
        size=known.size,
        preprocessing=known.preprocessing,
        checkpoint=path.name,
        sha256=sha256,
        device=where,
    )


def learnt(run: RunFolder) -> Learnt:
    """What `run` has learnt from, without its weights. Raises CannotLoad."""
    job, planned = _told(run)
    task = TASKS.get(job.task)
    if task is None:
        raise CannotLoad(Problem("task", f"The run's task “{job.task}” is not installed.", "Install its package."))
    with reasons():
        made_by = planned.preprocessing or _by_dataset(job, task)
    return Learnt(job, task, planned.classes, planned.channels, planned.image_size, made_by)


@contextmanager
def reasons() -> Iterator[None]:
    """What is wrong with a task or a dataset stands in the way of a run's model: as CannotLoad."""
    try:
        yield
    except TaskError as error:
        raise CannotLoad(error.problem) from error
    except DatasetError as error:
        raise CannotLoad(*error.problems) from error


def torch_device(device: str, number: int) -> str:
    """What torch calls a device of a job: a GPU is the `number`th that the process sees."""
    return f"cuda:{number}" if is_gpu(device) else CPU


def checkpoint_path(run: RunFolder, checkpoint: str) -> Path:
    """The file of a checkpoint, named as for `load`. Raises CannotLoad."""
    files = {path.name: path for path in sorted(run.checkpoints.glob("*.pt"))}
    named = {name.removesuffix(".pt"): path for name, path in files.items()}
    of_epoch = {match["epoch"]: path for name, path in files.items() if (match := OLDER_CHECKPOINT.fullmatch(name))}
    path = files.get(checkpoint) or named.get(checkpoint) or of_epoch.get(checkpoint)
    if path is None:
        known = ", ".join((*(name for name in ("best", "last") if name in named), *of_epoch)) or "none"
        raise CannotLoad(Problem("checkpoint", f"The run has no checkpoint “{checkpoint}”.", f"It has: {known}."))
    return path


def _told(run: RunFolder) -> tuple[Job, Planned]:
    job, planned = run.job(), run.planned()
    if job is None:
        raise CannotLoad(Problem("run", f"The job of {run.run_id} can't be read.", "Choose another run."))
    if planned is None:
        raise CannotLoad(Problem("run", f"{run.run_id} has not begun to train.", "Choose a run that has a checkpoint."))
    return job, planned


def _by_dataset(job: Job, task: Task) -> Preprocessing:
    """Of a run that did not keep it, by its dataset."""
    return preprocessing(job, task, task.splits(job))


def _state(path: Path) -> tuple[dict[str, Tensor], str]:
    try:
        content, sha256 = read_checkpoint(path)
    except OSError as error:
        raise CannotLoad(
            Problem("checkpoint", f"{path} can't be read: {error.strerror}.", "Check the path.")
        ) from error
    except DamagedCheckpoint as error:
        raise CannotLoad(Problem("checkpoint", f"{path} is damaged: {error}.", "Choose another checkpoint.")) from error
    state: Any = content.get("model", content) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CannotLoad(Problem("checkpoint", f"{path} holds no model.", "Choose another checkpoint."))
    return state, sha256


def _fill(module: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        message = f"{path} is not a checkpoint of the run's model: {why}"
        raise CannotLoad(Problem("checkpoint", message, "Choose a checkpoint of this run.")) from error
