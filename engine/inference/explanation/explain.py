"""Explain the model of a run on images. A worker on one device writes heat maps to a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.catalogue import predictions_of, suggest_name
from engine.contract.inference.explanation import (
    EXPLANATION_FILE,
    Box,
    ExplainedImage,
    ExplainRequest,
    Explanation,
    HeatMap,
)
from engine.contract.problems import Problem
from engine.data.datasets.images import UnreadableImage
from engine.data.datasets.samples import SampleSet
from engine.data.datasets.unlabeled_images import get_bands
from engine.data.decoding.idx import Bytes
from engine.data.decoding.image_files import is_image
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.reading import describe_failure, read_image
from engine.data.decoding.view import View
from engine.data.drawing import draw_boxes, encode_png
from engine.data.splits import printable
from engine.inference.devices import OnProgress, run_on_devices
from engine.inference.explanation.explainer import Explainer, TargetHeatMap
from engine.inference.explanation.feature_maps import NoFeatureMap
from engine.inference.prediction.sources import find_files
from engine.inference.trained_model import CannotLoad, TrainedModel, find_checkpoint
from engine.inference.worker import Shard
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.tasks.custom.task import convert_to_image


def explain(request: ExplainRequest, on_progress: OnProgress) -> Path:
    """Write heat maps that explain a model's outputs for images, as `request` describes.

    Only the first of the requested devices is used. Returns the path of the file with the `Explanation`. Raises
    CannotLoad.
    """
    out = Path(request.out).absolute()
    request = msgspec.structs.replace(
        request,
        paths=tuple(os.path.abspath(os.path.expanduser(path)) for path in request.paths),
        out=str(out),
        devices=request.devices[:1],
    )
    problems = _find_problems(request)
    files = []
    try:
        files = _list_images(request)
    except CannotLoad as error:
        problems += error.problems
    if problems:
        raise CannotLoad(*problems)
    find_checkpoint(RunFolder(request.run), request.checkpoint)  # raises CannotLoad if there is none
    try:
        paths.make_folder(out)
    except OSError as error:
        raise CannotLoad(_create_write_problem(out, error)) from error
    with tempfile.TemporaryDirectory() as folder:
        run_on_devices(request, Path(folder), on_progress, total=len(files), what="Explaining images")
    return out / EXPLANATION_FILE


def explain_images(request: ExplainRequest, model: TrainedModel, shard: Shard) -> None:
    """Explain the requested images one after another, and write the heat maps.

    The file with the `Explanation` is written last. Restricts cuDNN to deterministic algorithms. Raises CannotLoad.
    """
    # The same images then get the same heat maps.
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    explainer = Explainer(model, request.method)
    classes = [model.classes.index(name) for name in request.classes]
    writer = _HeatMapWriter(Path(request.out), model)
    images: list[ExplainedImage] = []
    unreadable: list[UnreadableImage] = []
    # Listed here, since JSON can't carry names that are not UTF-8.
    for number, path in enumerate(_list_images(request)):
        try:
            example = _load_example(model, path)
            images.append(writer.write(number, path, example, explainer.explain(example.inputs, classes)))
        except UnreadableImage as error:
            shard.warn_unreadable(error.path, error.reason)
            unreadable.append(error)
            images.append(ExplainedImage(path=error.path, reason=f"It can't be read: {error.reason}."))
        except NoFeatureMap as error:
            raise CannotLoad(Problem("run", str(error), "Choose a run of another model.")) from error
        shard.advance(1)
    if len(unreadable) == len(images):
        message = f"None of the images can be read. The first, {unreadable[0].path}: {unreadable[0].reason}."
        raise CannotLoad(Problem("paths", message, "Choose other files."))
    layer = explainer.layer
    explanation = Explanation(
        run=request.run,
        checkpoint=model.checkpoint,
        task=model.task.entry.id,
        method=request.method,
        layer=layer.name if layer else "",
        grid=layer.grid if layer else (0, 0),
        images=tuple(images),
    )
    paths.write_atomically(writer.folder / EXPLANATION_FILE, msgspec.json.encode(explanation))


class _Example(NamedTuple):
    """Image whose prediction is explained.

    Attributes:
        inputs: Model input, [1, C, s, s].
        image: Image as RGB, uint8 [h, w, 3], possibly reduced.
        size: Height and width of the original image in pixels.
        view: Position of the image in the model input.
    """

    inputs: Tensor
    image: Bytes
    size: tuple[int, int]
    view: View


def _load_example(model: TrainedModel, path: str) -> _Example:
    """Load an image for the explanation of its prediction. Raises UnreadableImage."""
    if not model.preprocessing.framing:
        return _load_sample(model, path)
    try:
        pixels = decode_pixels(read_image(path), model.channels, get_bands(model.preprocessing))
    except Exception as error:  # decoders raise many errors for broken files
        raise UnreadableImage(printable(path), describe_failure(error)) from error
    size = (pixels.shape[0], pixels.shape[1])
    return _Example(model.inputs([pixels]), to_rgb(pixels), size, model.view(*size))


def _load_sample(model: TrainedModel, path: str) -> _Example:
    """Load a sample of a user-defined task, whose code prepares the model input. Raises UnreadableImage."""
    splits = model.task.open_splits(model.job)
    for split in (splits.val, splits.train):
        assert isinstance(split, SampleSet)
        for index in range(len(split)):
            if os.path.join(os.path.abspath(split.folder), split.path(index)) == printable(path):
                inputs, _ = split.load(index, 0)  # epoch 0
                if inputs.ndim != 3:
                    raise UnreadableImage(printable(path), "it is not an image as the task loads it")
                image = convert_to_image(inputs.numpy())
                size = (image.shape[0], image.shape[1])
                view = View(1.0, 1.0, 0.0, 0.0)  # the drawn image is the input
                return _Example(inputs[None].to(model.device), image, size, view)
    raise UnreadableImage(
        printable(path), "it is not a sample of the run's dataset, and the task makes its inputs itself"
    )


class _HeatMapWriter:
    """Writer that saves heat maps as PNG images in a folder."""

    def __init__(self, folder: Path, model: TrainedModel) -> None:
        self.folder = folder
        self._model = model

    def write(self, number: int, path: str, example: _Example, explained: Sequence[TargetHeatMap]) -> ExplainedImage:
        """Write the heat maps for one image, and return a description with their paths relative to the folder.

        `number` is the position of the image in the request, which makes the file names unique.
        """
        name_prefix = f"{number:04d}-{Path(printable(path)).stem[:40]}"
        input_side = example.inputs.shape[-1]
        maps, drawings = [], [example.image]  # the first drawing is the image itself
        for index, explained_target in enumerate(explained):
            projected, is_visible = project(explained_target.heat, example.view, example.size, example.image.shape[:2])
            target = explained_target.target
            drawing = overlay(example.image, projected, is_visible)
            box = None
            if target.box is not None:
                left, top, right, bottom = example.view.convert_boxes(np.array([target.box]), *example.size)[0].tolist()
                box = (left, top, right, bottom)  # in pixels of the original image
                scale = drawing.shape[0] / example.size[0]
                label = f"{target.class_name} {target.score:.0%}"
                drawing = draw_boxes(drawing, np.array([box]) * scale, classes=[0], labels=[label])  # one color for all
            drawings.append(drawing)
            maps.append(
                HeatMap(
                    class_name=target.class_name,
                    score=target.score,
                    box=box,
                    note=target.note,
                    empty=not projected.any(),
                    overlay=self._save(f"{name_prefix}-{index}.png", drawing),
                    raw=self._save(f"{name_prefix}-{index}-raw.png", to_gray_levels(projected)),
                )
            )
        name = f"{name_prefix}-side-by-side.png"
        side_by_side_file = self._save(name, join_side_by_side(drawings)) if len(maps) > 1 else ""
        return ExplainedImage(
            path=printable(path),
            maps=tuple(maps),
            side_by_side=side_by_side_file,
            region=find_visible_box(example.view, example.size, input_side),
            predicted=self._describe_prediction(example.inputs),
            reason="" if maps else "The model detects nothing in it, or nothing of the classes asked for.",
        )

    def _describe_prediction(self, inputs: Tensor) -> str:
        """Run the model on one image, [1, C, s, s], and return its prediction as text."""
        side = inputs.shape[-1]
        blank = np.zeros((side, side, 3), np.uint8)
        return self._model.objective.show_prediction(blank, self._model.outputs(inputs)[0].cpu()).text

    def _save(self, name: str, image: Bytes) -> str:
        """Write an image to the folder as PNG, and return its file name."""
        paths.write_atomically(self.folder / name, encode_png(image))
        return name


def _find_problems(request: ExplainRequest) -> list[Problem]:
    """Return the problems with a request for heat maps.

    Examples are a run without a model, unknown classes, and an output folder with other files.
    """
    run = RunFolder(request.run)
    job, planned = run.job(), run.read_plan()
    if job is None or planned is None:
        return [Problem("run", f"{run.run_id} has no model.", "Choose a run that has a checkpoint.")]
    problems = []
    if predictions_of(job.task) == "points":
        message = "A model of point clouds can't be explained: it has no map of features over an image."
        problems.append(Problem("run", message, "Choose a run whose samples are images."))
    for name in request.classes:
        if name not in planned.classes:
            message = f"The model has no class “{name}”." if planned.classes else "The model has no classes."
            remedy = suggest_name(name, list(planned.classes)) if planned.classes else "Leave the class out."
            problems.append(Problem("classes", message, remedy))
    out = Path(request.out)
    try:
        is_file = out.exists() and not out.is_dir()
        # A folder with an earlier explanation may be overwritten.
        if is_file or (out.is_dir() and any(out.iterdir()) and not (out / EXPLANATION_FILE).exists()):
            problems.append(Problem("out", f"{out} already exists and contains other files.", "Choose a new folder."))
    except OSError as error:
        problems.append(_create_write_problem(out, error))
    return problems


def _create_write_problem(out: Path, error: OSError) -> Problem:
    """Return the problem that heat maps can't be written to the folder `out`."""
    return Problem("out", f"The folder {out} can't be used: {error.strerror}.", "Choose another folder.")


def _list_images(request: ExplainRequest) -> list[str]:
    """Return the image files that a request names, and those in its folders, sorted by name. Raises CannotLoad."""
    return [file for file, _ in find_files(request.paths, is_image, "image", request.out)]


MAX_DRAWN_SIDE = 1600
"""Maximum length of the longer side of drawings in pixels.

More pixels would not show more, since heat maps are coarse, and writing large images takes seconds.
"""
_DIMMED_BRIGHTNESS = 0.35
"""Factor on the brightness of image regions that the model did not receive."""
_OPACITY = 0.75
"""Opacity of a heat map where its value is 1."""
_COLORS = np.array([(48, 18, 130), (50, 140, 250), (60, 220, 130), (250, 210, 50), (240, 80, 20), (170, 10, 10)])
"""RGB colors for heat map values from 0 to 1, evenly spaced."""

Floats = npt.NDArray[np.float32]


def find_visible_box(view: View, size: tuple[int, int], side: int) -> Box:
    """Return the region of an image that was visible in the model's square input, in pixels of the image.

    `view` is the position of the image in the input, `size` the height and width of the image, and `side` the side of
    the input in pixels.
    """
    left, top, right, bottom = view.convert_boxes(np.array([[0.0, 0.0, side, side]]), *size)[0].tolist()
    return left, top, right, bottom


def to_rgb(pixels: Bytes) -> Bytes:
    """Convert an image, uint8 [h, w, C], to RGB with at most `MAX_DRAWN_SIDE` pixels per side.

    Of more than three channels, the first three are used.
    """
    pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1].repeat(3, 2)
    height, width = pixels.shape[:2]
    scale = MAX_DRAWN_SIDE / max(height, width)
    if scale >= 1:
        return np.ascontiguousarray(pixels)
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    image = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
    small = functional.interpolate(image, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    return np.ascontiguousarray(small.numpy())


def project(
    heat: Tensor, view: View, size: tuple[int, int], drawn_size: tuple[int, int]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Project a map [s, s] over the model's square input to the image.

    Returns the projected map, float32, and a mask of the pixels that the model received, both with the height and width
    `drawn_size`. Values are sampled at pixel centers. `view` is the position of the image in the input, and `size` the
    height and width of the image.
    """
    side = heat.shape[-1]
    rows = (torch.arange(drawn_size[0]) + 0.5) * size[0] / drawn_size[0] * view.scale_y + view.top
    columns = (torch.arange(drawn_size[1]) + 0.5) * size[1] / drawn_size[1] * view.scale_x + view.left
    is_visible = ((rows >= 0) & (rows <= side))[:, None] & ((columns >= 0) & (columns <= side))
    grid = torch.stack(torch.meshgrid(2 * columns / side - 1, 2 * rows / side - 1, indexing="xy"), -1).float()
    maps = functional.grid_sample(heat.cpu()[None, None], grid[None], padding_mode="border", align_corners=False)
    return (maps[0, 0] * is_visible).numpy(), is_visible.numpy()


def to_gray_levels(heat: Floats) -> Bytes:
    """Convert a heat map with values in 0..1 to gray levels, uint8."""
    return np.rint(heat * 255).astype(np.uint8)


def overlay(image: Bytes, heat: Floats, is_visible: npt.NDArray[np.bool_]) -> Bytes:
    """Blend a heat map [h, w] with its image, uint8 [h, w, 3]. Large values are more opaque.

    Regions that the model did not receive, where `is_visible` is False, are dimmed.
    """
    steps = np.linspace(0, 1, len(_COLORS))
    colors = np.stack([np.interp(heat, steps, _COLORS[:, channel]) for channel in range(3)], 2)
    opacity = (_OPACITY * np.sqrt(heat))[..., None]
    blended = image * np.where(is_visible, 1.0, _DIMMED_BRIGHTNESS)[..., None] * (1 - opacity) + colors * opacity
    return np.rint(blended).astype(np.uint8)


def join_side_by_side(images: list[Bytes]) -> Bytes:
    """Concatenate images of equal height with a white gap between them."""
    gap = np.full((images[0].shape[0], max(2, images[0].shape[1] // 50), 3), 255, np.uint8)
    images_and_gaps = [each for image in images for each in (image, gap)]
    return np.concatenate(images_and_gaps[:-1], 1)
