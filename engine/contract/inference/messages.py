"""Base of the orders for work with a trained model (``python -m engine.inference``), live predictions and drawings.

The answer is the path of the result's file, a Struct of the order's kind.
"""

from __future__ import annotations

import msgspec

from engine.contract.devices import CPU
from engine.contract.images import LegendEntry
from engine.contract.messages import Done, Progress, Refused


class Order(msgspec.Struct, tag_field="order", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Request for work with the model of a run.

    Attributes:
        run: Folder of the run.
        checkpoint: "best", "last", or the number of an epoch.
        devices: Devices, for which the work waits in the queue.
        batch_size: Batch size per device; None for an automatic choice.
    """

    run: str
    checkpoint: str = "best"
    devices: tuple[str, ...] = (CPU,)
    batch_size: int | None = None


INFERENCE = msgspec.json.Decoder(Progress | Refused | Done[str])


FRAME_FILE = "frame.msgpack"
"""File in the folder `out`, replaced atomically with every frame."""


class LiveOrder(Order, tag="live", frozen=True, kw_only=True):
    """Request to predict for each frame of `source`, a video file or a camera ("camera:0"), on the first device.

    The latest `LiveFrame` is in the folder `out`, whose path is the answer. A video is played at most at its recorded speed;
    a camera runs until the process is stopped.
    """

    source: str
    out: str


class LiveFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Frame as the model received it, a JPEG with the prediction drawn in, and the prediction in words.

    `number` counts from 1; `images_per_second` is the speed over the last frames, including reading and drawing.
    """

    number: int
    jpeg: bytes
    text: str
    images_per_second: float


decode_frame = msgspec.msgpack.Decoder(LiveFrame).decode


DRAWINGS_FILE = "shown.json"
"""File in the folder `out`; its paths are relative to that folder."""


class ShowOrder(Order, tag="show", frozen=True, kw_only=True):
    """Request to draw truth and prediction of `samples` of an evaluation, as the model receives them, into a folder.

    `evaluation` is its folder and `samples` are indices in its `Samples`. Only the first device is used. The answer is the path
    of a `SampleDrawings`.
    """

    evaluation: str
    samples: tuple[int, ...]
    out: str


class SampleDrawing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """PNGs of truth and prediction of one sample; `legend` has the indices of the legend's entries that occur in them."""

    number: int
    truth_png: str
    prediction_png: str
    truth_words: str = ""
    prediction_words: str = ""
    legend: tuple[int, ...] = ()


class SampleDrawings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of a `ShowOrder`; samples that can no longer be read are omitted."""

    legend: tuple[LegendEntry, ...] = ()
    samples: tuple[SampleDrawing, ...] = ()


decode_drawings = msgspec.json.Decoder(SampleDrawings).decode
