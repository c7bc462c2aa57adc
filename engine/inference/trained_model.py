"""Load and use the model of a run, with its weights and preprocessing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.contract.devices import CPU
from engine.contract.events import Planned
from engine.contract.images import Preprocessing, validation_side
from engine.contract.inference.prediction import TILED
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.unlabeled_images import get_bands
from engine.data.decoding.idx import Bytes
from engine.data.decoding.images import frame
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.reading import describe_failure, read_image
from engine.data.decoding.tiff import Bands
from engine.data.decoding.view import View
from engine.data.drawing import to_rgb
from engine.data.splits import printable
from engine.data.transforms.device_transforms import Normalization
from engine.inference.placing import combine_bands, to_prediction
from engine.inference.tiles import ImageInMemory, RowReader, Tiling, detect_in_tiles, iterate_tiled_maps
from engine.models.base import TaskError
from engine.processes.requests import RequestError
from engine.runs.folder import OLDER_CHECKPOINT, RunFolder
from engine.strategies.base import autocast, memory_format
from engine.strategies.memory import run_in_parts
from engine.tasks.base import DatasetInfo, Objective, Task, add_plugin_metrics
from engine.tasks.predictions import Prediction, Raw, RawScores
from engine.tasks.registry import TASKS
from engine.training.checkpointing.checkpoint_files import DamagedCheckpoint, read_checkpoint
from engine.training.dataloaders import get_preprocessing


class CannotLoad(RequestError):  # noqa: N818
    """Raised when the model of a run can't be used."""


@dataclass(frozen=True)
class TrainingFacts:
    """Facts about the model of a run that are known without its weights.

    The fields have the same meaning as in `TrainedModel`.
    """

    job: Job
    task: Task
    classes: tuple[str, ...]
    channels: int
    size: int
    preprocessing: Preprocessing

    def create_objective(self) -> Objective:
        """Create the objective of the training, without class weights. Raises CannotLoad."""
        job, dataset_info = self.job.with_fields(class_weights="none"), DatasetInfo(self.classes, self.channels)
        with convert_errors():
            return add_plugin_metrics(self.task.create_objective(job, dataset_info))


@dataclass(eq=False)
class TrainedModel:
    """Model of a run in evaluation mode, with the weights of a checkpoint.

    Attributes:
        run: Folder of the run.
        job: Job of the run.
        task: Task of the job.
        module: Model on `device`.
        objective: Objective of the training, without class weights.
        classes: Names of the classes in the training data.
        channels: Number of channels in the training data.
        size: Side length of the model's square input in pixels, or 0 if samples are not images.
        preprocessing: Preprocessing of samples in the training.
        checkpoint: File name of the checkpoint.
        sha256: Hash of the checkpoint.
        device: Device of the model.
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
        self._normalize = Normalization(mean, std, self.device)
        self._memory_format = memory_format(self.job)

    @property
    def resized_side(self) -> int:
        """Side length of the squares to which images are resized, before their center of `size` pixels is cropped."""
        return validation_side(self.job, self.task.entry, self.size)

    def predict(
        self,
        images: Iterable[Bytes | str | Path],
        *,
        threshold: float = 0.5,
        tile: int | None = None,
        overlap: float = 0.2,
        batch_size: int | None = None,
    ) -> list[Prediction]:
        """Run the model on images, and return their predictions in order.

        See `predictions` for the arguments.
        """
        return list(self.predictions(images, threshold=threshold, tile=tile, overlap=overlap, batch_size=batch_size))

    def predictions(
        self,
        images: Iterable[Bytes | str | Path],
        *,
        threshold: float = 0.5,
        tile: int | None = None,
        overlap: float = 0.2,
        batch_size: int | None = None,
    ) -> Iterator[Prediction]:
        """Yield predictions for images in order, in pixels of the original images.

        Args:
            images: Arrays uint8 [h, w, channels] or paths of files.
            threshold: Minimum score of detections, and minimum probability of labels and lines.
            tile: Side length of tiles in pixels, or None for no tiles. Images with a longer side are processed in
                tiles.
            overlap: Fraction of the side by which tiles overlap.
            batch_size: Number of images per batch, or None for the batch size of the training.

        Raises:
            ValueError: The model can't process such images.
            UnreadableImage: A file can't be read.
        """
        if not self.preprocessing.framing:  # the samples are not images
            raise ValueError(f"A model of {self.task.entry.title} takes no images; give `outputs` its inputs.")
        remaining = iter([images] if isinstance(images, str | Path | np.ndarray) else images)
        batch_size = batch_size or self.job.training.batch_size
        max_side = sys.maxsize if tile is None else tile
        while batch := list(islice(remaining, batch_size)):
            pixels = [self._read_pixels(image) for image in batch]
            small = [image for image in pixels if max(image.shape[:2]) <= max_side]
            small_predictions = iter(self._predict_resized(small, threshold))
            for image in pixels:
                if max(image.shape[:2]) <= max_side:
                    yield next(small_predictions)
                else:
                    yield self.predict_in_tiles(ImageInMemory(image), Tiling(max_side, overlap, batch_size), threshold)

    def predict_in_tiles(self, picture: RowReader, tiling: Tiling, threshold: float = 0.5) -> Prediction:
        """Run the model on a large image in tiles, and return the prediction for the full image.

        `threshold` is the minimum score of detections, and minimum probability of lines. Raises ValueError unless the
        task predicts pixels, lines or objects.
        """
        predicts = self.task.entry.predicts
        if predicts not in TILED:
            raise ValueError(f"{self.task.entry.title} does not look at images in tiles; leave out `tile`.")
        if predicts == "objects":
            return detect_in_tiles(self, picture, tiling, threshold)
        bands = iterate_tiled_maps(self, picture, tiling)
        return combine_bands(bands, is_lines=predicts == "lines", classes=self.classes, threshold=threshold)

    def prediction(
        self, output: Tensor, model_input: Tensor, sides: tuple[int, int], threshold: float = 0.5
    ) -> Prediction:
        """Convert the model's output for a sample, on the CPU, to a prediction for an image of `sides` (height, width).

        `model_input` is the sample itself, which a custom task may draw its prediction on. `threshold` is the minimum
        score of detections, and minimum probability of labels and lines. Raises TypeError if the sample is not an
        image.
        """
        scores = self.objective.compute_scores(output, self.size)
        if isinstance(scores, RawScores):
            drawn = self.objective.show_prediction(self.to_display(model_input), output)
            return Raw(classes=self.classes, output=output.numpy(), drawing=drawn.image, drawing_text=drawn.text)
        return to_prediction(scores, self.view(*sides), sides, self.classes, threshold)

    def to_display(self, model_input: Tensor) -> npt.NDArray[Any]:
        """Convert a model input to an image for display, uint8 [h, w, 3].

        If it has more than three channels, the first three are used. An input that is not an image is returned
        unchanged.
        """
        if not self.preprocessing.framing:  # the samples are not images
            return model_input.cpu().numpy()
        mean, std = (
            torch.tensor(values)[:, None, None] for values in (self.preprocessing.mean, self.preprocessing.std)
        )
        return to_rgb((model_input.float().cpu() * std + mean).numpy())

    def _predict_resized(self, images: list[Bytes], threshold: float) -> list[Prediction]:
        """Run the model on a batch of images that are resized to its input, as in training."""
        if not images:
            return []
        inputs = self.inputs(images)
        outputs = self.outputs(inputs).cpu()
        return [
            self.prediction(output, model_input, image.shape[:2], threshold)
            for output, model_input, image in zip(outputs, inputs, images, strict=True)
        ]

    def _read_pixels(self, image: Bytes | str | Path) -> Bytes:
        """Read an image file, or return the pixels themselves. Raises UnreadableImage."""
        if isinstance(image, str | Path):
            try:
                return decode_pixels(read_image(str(image)), self.channels, self.bands)
            except Exception as error:  # decoders raise many errors for broken files
                raise UnreadableImage(printable(str(image)), describe_failure(error)) from error
        return image

    @property
    def bands(self) -> Bands | None:
        """Conversion from TIFF bands to channels, or None if the training did not select bands."""
        return get_bands(self.preprocessing)

    def view(self, height: int, width: int) -> View:
        """Return the position of an image of the given size in the model's square input."""
        return View.of(height, width, self.size, self.resized_side, self.preprocessing.framing)

    def inputs(self, images: Sequence[Bytes]) -> Tensor:
        """Convert images to model inputs, float32 [n, channels, size, size] on the device.

        `images` are uint8 [h, w, channels] or [h, w]. Raises ValueError for another type or number of channels.
        """
        return self.normalize(torch.from_numpy(np.stack([self.frame_image(image) for image in images])))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalize pixels, uint8 [n, channels, size, size], and return model inputs on the model's device."""
        return self._normalize(pixels.to(self.device), self._memory_format)

    @torch.inference_mode()
    def outputs(self, inputs: Tensor) -> Tensor:
        """Run the model on a batch of inputs with the precision of the training. Returns float32 outputs on the device.

        The batch is split if memory runs out. Raises DoesNotFit if a single sample does not fit.
        """
        outputs, _ = run_in_parts(
            lambda count: torch.cat([self._forward(chunk) for chunk in inputs.tensor_split(count)]), 1, len(inputs)
        )
        return outputs

    def _forward(self, inputs: Tensor) -> Tensor:
        """Run the model on inputs that fit into memory, with autocast as in training. Returns float32."""
        with autocast(self.device, self.job.precision.name):
            outputs: Tensor = self.module(inputs)
        return outputs.float()

    def frame_image(self, image: Bytes) -> Bytes:
        """Resize and crop an image to the model's input size, uint8 [channels, size, size].

        `image` is uint8 [h, w, channels] or [h, w]. Raises ValueError for another type or number of channels.
        """
        image = image[:, :, None] if image.ndim == 2 else image
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != self.channels:
            shape = " x ".join(map(str, image.shape))
            raise ValueError(f"The model takes uint8 [h, w, {self.channels}], not {image.dtype} of {shape}.")
        margin = (self.resized_side - self.size) // 2
        inside = slice(margin, margin + self.size)
        return frame(image, self.resized_side, self.preprocessing.framing)[:, inside, inside]


def load(run: RunFolder, checkpoint: str = "best", device: str = CPU) -> TrainedModel:
    """Load the model of `run` with the weights of a checkpoint. Raises CannotLoad.

    `checkpoint` is "best", "last", the number of a saved epoch or a file name. `device` is "cpu" or another name for
    torch.device. Nothing is unpickled, and a user's model file runs only if its content was approved.
    """
    path = find_checkpoint(run, checkpoint)
    facts = read_training(run)
    job, task = facts.job, facts.task
    state, sha256 = _read_state(path)
    with convert_errors(), torch.random.fork_rng(devices=[]):
        plain = job.with_fields(pretrained=False, weights_file="", resume_from="")
        module = task.build_model(plain, len(facts.classes), facts.channels)
    _load_state(module, state, path)
    torch_device = torch.device(device)
    return TrainedModel(
        run=run,
        job=job,
        task=task,
        module=module.eval().requires_grad_(False).to(torch_device).to(memory_format=memory_format(job)),
        objective=facts.create_objective(),
        classes=facts.classes,
        channels=facts.channels,
        size=facts.size,
        preprocessing=facts.preprocessing,
        checkpoint=path.name,
        sha256=sha256,
        device=torch_device,
    )


def read_training(run: RunFolder) -> TrainingFacts:
    """Read the facts about the training of `run`, without weights. Raises CannotLoad."""
    job, planned = read_plan(run)
    task = TASKS.get(job.task)
    if task is None:
        raise CannotLoad(Problem("task", f"The run's task “{job.task}” is not installed.", "Install its package."))
    with convert_errors():
        # If the plan lacks it, the dataset is opened to determine it.
        input_preprocessing = planned.preprocessing or get_preprocessing(job, task, task.open_splits(job))
    return TrainingFacts(job, task, planned.classes, planned.channels, planned.image_size, input_preprocessing)


@contextmanager
def convert_errors() -> Iterator[None]:
    """Context manager that converts errors of tasks and datasets in its block to CannotLoad."""
    try:
        yield
    except TaskError as error:
        raise CannotLoad(error.problem) from error
    except DatasetError as error:
        raise CannotLoad(*error.problems) from error


def find_checkpoint(run: RunFolder, checkpoint: str) -> Path:
    """Return the path of a checkpoint. Raises CannotLoad if it does not exist.

    `checkpoint` is "best", "last", the number of a saved epoch or a file name.
    """
    files = {path.name: path for path in sorted(run.checkpoints.glob("*.pt"))}
    by_stem = {name.removesuffix(".pt"): path for name, path in files.items()}
    by_epoch = {match["epoch"]: path for name, path in files.items() if (match := OLDER_CHECKPOINT.fullmatch(name))}
    path = files.get(checkpoint) or by_stem.get(checkpoint) or by_epoch.get(checkpoint)
    if path is None:
        choices = [name for name in ("best", "last") if name in by_stem] + list(by_epoch)
        available = ", ".join(choices) or "none"
        raise CannotLoad(Problem("checkpoint", f"The run has no checkpoint “{checkpoint}”.", f"It has: {available}."))
    return path


def read_plan(run: RunFolder) -> tuple[Job, Planned]:
    """Return the job and the plan of a run. Raises CannotLoad if the job can't be read or no training has started."""
    job, planned = run.job(), run.read_plan()
    if job is None:
        raise CannotLoad(Problem("run", f"The job of {run.run_id} can't be read.", "Choose another run."))
    if planned is None:
        raise CannotLoad(
            Problem("run", f"{run.run_id} has not started training.", "Choose a run that has a checkpoint.")
        )
    return job, planned


def _read_state(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the weights of the model in a checkpoint, and the SHA-256 of the file. Raises CannotLoad."""
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


def _load_state(module: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Load the weights `state`, which come from the checkpoint at `path`, into the model.

    Raises CannotLoad if they don't fit.
    """
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        message = f"{path} is not a checkpoint of the run's model: {reason}"
        raise CannotLoad(Problem("checkpoint", message, "Choose a checkpoint of this run.")) from error
