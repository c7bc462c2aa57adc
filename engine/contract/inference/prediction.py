"""How a model is asked for predictions, and what is kept of them."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.catalogue import PredictionKind, predictions_of
from engine.contract.inference.messages import Order
from engine.contract.legend import LegendEntry

PREDICTIONS_FILE = "predictions.json"
"""The file in the folder of the results that is a `Predicted`; it is written last."""

CAMERA = "camera:"
"""The beginning of a source that is a camera, as in "camera:0"."""

Format = Literal["csv", "coco", "yolo", "png", "geotiff", "cloud", "json", "npy"]
"""How results are written:

csv      predictions.csv, a row per image with the probability of each class
coco     predictions.coco.json, boxes with scores, and masks as RLE
yolo     labels/NAME.txt for each image, and data.yaml
png      masks/NAME.png for each image: the number of each pixel's class, with a palette; of edges and roads grey levels
geotiff  masks/NAME.tif, with the georeference of the source
cloud    clouds/NAME, the point cloud with a class per point
json     predictions.jsonl, a line per sample with the model's output
npy      outputs/NAME.npy for each sample
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
"""Formats for each kind of predictions, the default first."""
TILED: tuple[PredictionKind, ...] = ("pixels", "lines", "objects")
"""Kinds of predictions that can be made for a large image in tiles."""

SHOWN_ROWS = 200
"""So many of the results are kept in a `Predicted` to be looked at."""
NAMED_SKIPS = 1000
"""So many of the files that were left out are named there."""


def formats_of(task: str) -> tuple[Format, ...]:
    """Return the formats for predictions of a task, the default first."""
    return FORMATS[predictions_of(task)]


class PredictOrder(Order, tag="predict", frozen=True, kw_only=True):
    """Predicts for the files and folders `paths`, videos and cameras ("camera:0") among them, and writes the results
    into the folder `out`.

    `out` is made, or empty, or holds what an equal order left: then that is continued, with nothing done twice. Equal
    means all but `devices` and `batch_size`. Any other content is refused.

    `formats`: one or more of the task's `FORMATS`; () for the usual one, which for a TIFF with a georeference is
    "geotiff". `overlays`: also draws each result on its image (overlays/NAME.png; a video becomes overlays/NAME.mp4).
    `tile`: an image with a longer side is looked at in squares of so many of its own pixels, neighbours overlapping
    by the share `overlap` of it; "auto" for tiles of the model's own size, None for whole images, made into squares
    as in training. `threshold`: the score from which a detection is written, and the probability from which a label,
    an edge or a road is predicted. `max_frames`: so many frames of each video or camera; a camera needs it.
    """

    paths: tuple[str, ...]
    out: str
    formats: tuple[Format, ...] = ()
    overlays: bool = False
    tile: int | Literal["auto"] | None = None
    overlap: float = 0.2
    threshold: float = 0.5
    max_frames: int | None = None


class Skipped(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file that was left out, and why."""

    path: str
    reason: str


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was written in one format: `path` is the file or folder, relative to the results' folder; `count` counts
    the files.
    """

    path: str
    format: Format | Literal["overlays"]
    count: int


class PredictedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One result, to be looked at. `path` is the source, and in a video "PATH#FRAME"; `words` say what was predicted.
    `classes` are those predicted by their numbers, the likeliest first, with `scores` (of dense results the shares of
    the image). `overlay` and `mask` are files, relative to the results' folder, "" where there is none.
    """

    path: str
    words: str
    classes: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    overlay: str = ""
    mask: str = ""


class Predicted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What came of an order for predictions.

    `run` is the folder, `checkpoint` the file's name in it, `sha256` its hash. `legend` says what the colours in
    masks and overlays stand for. `samples` are all images, frames, clouds or files; of these `predicted` have a
    result, the others are `skipped_count`, of which the first `NAMED_SKIPS` are named. `rows` are the first
    `SHOWN_ROWS` results. `images_per_second` counts this start's alone, over all devices, without loading the model;
    None where it did too few.
    """

    run: str
    checkpoint: str
    sha256: str
    task: str
    classes: tuple[str, ...]
    legend: tuple[LegendEntry, ...] = ()
    order: PredictOrder
    samples: int
    predicted: int
    skipped_count: int = 0
    skipped: tuple[Skipped, ...] = ()
    files: tuple[Written, ...] = ()
    class_counts: tuple[int, ...] = ()
    """Of each class how many images it was predicted in; of detections how many objects."""
    seconds: float
    images_per_second: float | None = None
    rows: tuple[PredictedRow, ...] = ()
    finished_at: float
    """In seconds since 1970."""


PREDICTED = msgspec.json.Decoder(Predicted)
