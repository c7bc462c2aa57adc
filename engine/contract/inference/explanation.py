"""How a model is asked what it looks at, and what is kept of the answer."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.inference.messages import Order

Method = Literal["grad-cam", "eigen-cam"]
"""Grad-CAM (Selvaraju et al. 2017) weighs the channels of a layer by the gradient of a class's score. Eigen-CAM
(Muhammad and Yeasin
2020) shows the first principal component of the layer's activations: it needs no gradient, and knows of no class."""

EXPLANATION_FILE = "explanation.json"
"""In the folder `out`; the paths in it are relative to that folder."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels of the image file, turned upright."""


class ExplainOrder(Order, tag="explain", frozen=True, kw_only=True):
    """Draws what in the images `paths` (files, and folders of them) speaks for the `classes`, into the folder `out`,
    on the first of the devices.

    `classes` are names of the model's classes; without any, the one that the model finds itself: the most probable of
    an image, the most frequent of a mask, that of a detector's surest detections.
    """

    paths: tuple[str, ...]
    out: str
    classes: tuple[str, ...] = ()
    method: Method = "grad-cam"


class HeatMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What speaks for one class in one image.

    `overlay` and `raw` are paths of PNGs in the image's own shape (its long side at most
    `engine.inference.explanation.drawing.MOST` pixels): the map over the image in colours, and the map by itself in
    grey, white where it is strongest.

    `class_name` is "" where the method knows of no class. `score` is how sure the model is, from 0 to 1, None where
    it has no such number. `box` is the detection that is explained. `empty`: nothing speaks for the class, so the map
    is black. `note` says in a sentence what else is to be known of the map, "" where nothing is.
    """

    class_name: str
    overlay: str
    raw: str
    score: float | None = None
    box: Box | None = None
    empty: bool = False
    note: str = ""


class ExplainedImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One image and its maps, in the order of the classes asked for; without any, `reason` says why in a sentence.

    `predicted` is what the model finds in it, in words. `seen` is the part of the image that the model was given.
    `side_by_side` is the path of a PNG of the image and its overlays next to each other, "" where there is but one
    map.
    """

    path: str
    predicted: str = ""
    maps: tuple[HeatMap, ...] = ()
    side_by_side: str = ""
    seen: Box | None = None
    reason: str = ""


class Explanation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What came of an ExplainOrder. `layer` is the name of the layer whose activations are shown, in the module's own
    naming, `grid` the height and width of its map, which say how fine the maps can be. `checkpoint` is a file's
    name.
    """

    run: str
    checkpoint: str
    task: str
    method: Method
    layer: str
    grid: tuple[int, int]
    images: tuple[ExplainedImage, ...]


decode_explanation = msgspec.json.Decoder(Explanation).decode
