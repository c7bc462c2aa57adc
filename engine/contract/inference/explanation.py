"""Messages for explaining a model's predictions with heat maps."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.inference.messages import InferenceRequest

Method = Literal["grad-cam", "eigen-cam"]
"""Method of explanation.

Grad-CAM (Selvaraju et al. 2017) weights the channels of a layer by the gradient of a class's score. Eigen-CAM (Muhammad
and Yeasin 2020) shows the first principal component of the layer's activations and needs neither gradients nor classes.
"""

EXPLANATION_FILE = "explanation.json"
"""Name of the file with an `Explanation` in the folder `out`. Paths in it are relative to that folder."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels of the upright image."""


class ExplainRequest(InferenceRequest, tag="explain", frozen=True, kw_only=True):
    """Request to draw heat maps of the `classes` for images (files and folders), and save them in the folder `out`.

    Only the first device is used. Without `classes`, it explains the most probable class of an image, the most frequent
    class in a mask, or the classes of a detector's most confident detections.
    """

    paths: tuple[str, ...]
    out: str
    classes: tuple[str, ...] = ()
    method: Method = "grad-cam"


class HeatMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Heat map for one class in one image.

    Attributes:
        class_name: Class, or "" for a method without classes.
        overlay: Path of a PNG of the colored map over the image. Its longer side is at most
            `engine.inference.explanation.explain.MAX_DRAWN_SIDE` pixels.
        raw: Path of a PNG of the map in gray, with white for the maximum.
        score: Confidence of the model in the class from 0 to 1, or None if the task has no confidences.
        box: Box of the explained detection. None for tasks other than detection.
        empty: True if the map is entirely black, because nothing in the image supports the class.
        note: Sentence with additional information.
    """

    class_name: str
    overlay: str
    raw: str
    score: float | None = None
    box: Box | None = None
    empty: bool = False
    note: str = ""


class ExplainedImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Image with one heat map per requested class, in the order of the request.

    Attributes:
        predicted: Prediction in words.
        side_by_side: Path of a PNG of the image next to its overlays, or "" if there is only one map.
        region: Region of the image that the model received, or None if the image can't be read.
        reason: Sentence that explains why there are no maps, or "" if there are any.
    """

    path: str
    predicted: str = ""
    maps: tuple[HeatMap, ...] = ()
    side_by_side: str = ""
    region: Box | None = None
    reason: str = ""


class Explanation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of an `ExplainRequest`.

    `layer` is the name of the layer whose activations are shown, and `grid` the height and width of its map, which
    limit the resolution. `checkpoint` is a file name.
    """

    run: str
    checkpoint: str
    task: str
    method: Method
    layer: str
    grid: tuple[int, int]
    images: tuple[ExplainedImage, ...]


decode_explanation = msgspec.json.Decoder(Explanation).decode
