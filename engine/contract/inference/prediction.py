"""Messages for predictions on images, videos and other files."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.catalogue import PredictionKind, predictions_of
from engine.contract.images import LegendEntry
from engine.contract.inference.messages import InferenceRequest

PREDICTIONS_FILE = "predictions.json"
"""Name of the file with the `Predicted` in the results folder. It is written last."""

CAMERA = "camera:"
"""Prefix of the name of a camera among the files to predict, as in "camera:0"."""

Format = Literal["csv", "coco", "yolo", "png", "geotiff", "cloud", "json", "npy"]
"""Format of results.

- csv: predictions.csv, a row per image with the probability of each class.
- coco: predictions.coco.json, boxes with scores, and masks as RLE.
- yolo: labels/NAME.txt for each image, and data.yaml.
- png: masks/NAME.png for each image, the class number of each pixel with a palette, or gray levels for lines.
- geotiff: masks/NAME.tif, with the georeference of the source.
- cloud: clouds/NAME, the point cloud with a class per point.
- json: predictions.jsonl, a line per sample with the model's output.
- npy: outputs/NAME.npy for each sample.
"""

FORMATS: dict[PredictionKind, tuple[Format, ...]] = {
    "class": ("csv",),
    "labels": ("csv",),
    "pixels": ("png", "geotiff"),
    "lines": ("png", "geotiff"),
    "objects": ("coco", "yolo"),
    "points": ("cloud",),
    "raw": ("json", "npy"),
}
"""Formats available for each kind of predictions, the default first."""
TILED: tuple[PredictionKind, ...] = ("pixels", "lines", "objects")
"""Kinds of predictions that a model can make for a large image in overlapping tiles."""

SHOWN_ROWS = 200
"""Maximum number of results that a `Predicted` contains for display."""
NAMED_SKIPS = 1000
"""Maximum number of skipped files that are named in a `Predicted`."""


def formats_of(task: str) -> tuple[Format, ...]:
    """Return the formats for the predictions of a task, the default first."""
    return FORMATS[predictions_of(task)]


class PredictRequest(InferenceRequest, tag="predict", frozen=True, kw_only=True):
    """Request to run the model on files, folders, videos and cameras ("camera:0"), and write the results to a folder.

    Attributes:
        out: New or empty folder, or the unfinished results of an equal request, which are then continued. `devices` and
            `batch_size` may differ.
        formats: Formats of the results, or () for the default, which is "geotiff" for a TIFF with a georeference.
        overlays: True to also draw each result on its image (overlays/NAME.png, overlays/NAME.mp4 for a video).
        tile: Side of tiles for larger images, in pixels. "auto" for the model's size, or None to make full images
            square as in training.
        overlap: Overlap of neighboring tiles as a fraction of their side.
        threshold: Minimum score of a written detection, and minimum probability of a predicted label or line.
        max_frames: Maximum number of frames of each video or camera. Required for a camera.
    """

    paths: tuple[str, ...]
    out: str
    formats: tuple[Format, ...] = ()
    overlays: bool = False
    tile: int | Literal["auto"] | None = None
    overlap: float = 0.2
    threshold: float = 0.5
    max_frames: int | None = None


class SkippedFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """File for which no prediction could be made, and the reason."""

    path: str
    reason: str


class WrittenFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Results in one format. `path` is relative to the results folder, and `count` is the number of files."""

    path: str
    format: Format | Literal["overlays"]
    count: int


class PredictedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result for one sample, for display.

    Attributes:
        path: Source, or "PATH#FRAME" for a frame in a video.
        text: Prediction in words.
        classes: Indices of the predicted classes, most probable first.
        scores: Score of each class. For masks, the fraction of the image.
        overlay: File relative to the results folder, or "" if there is none.
        mask: File relative to the results folder, or "" if there is none.
    """

    path: str
    text: str
    classes: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    overlay: str = ""
    mask: str = ""


class Predicted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of a `PredictRequest`.

    Attributes:
        run: Folder of the run.
        checkpoint: Name of the checkpoint file.
        sha256: Hash of the checkpoint file.
        legend: Meaning of the colors in masks and overlays.
        samples: Number of images, frames, clouds or files.
        predicted: Number of samples with a result.
        skipped_count: Number of samples without a result.
        skipped: First `NAMED_SKIPS` skipped files.
        class_counts: Number of images, or of detected objects, with each class.
        images_per_second: Speed of all devices together, without loading the model and without results from an earlier,
            unfinished execution of the request. None if there were too few images.
        rows: First `SHOWN_ROWS` results.
        finished_at: Seconds since the epoch.
    """

    run: str
    checkpoint: str
    sha256: str
    task: str
    classes: tuple[str, ...]
    legend: tuple[LegendEntry, ...] = ()
    request: PredictRequest
    samples: int
    predicted: int
    skipped_count: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    files: tuple[WrittenFormat, ...] = ()
    class_counts: tuple[int, ...] = ()
    seconds: float
    images_per_second: float | None = None
    rows: tuple[PredictedRow, ...] = ()
    finished_at: float


PREDICTED = msgspec.json.Decoder(Predicted)
