"""Base class for requests to ``python -m engine.inference``, and the requests for live predictions and drawings.

The answer to a request is the path of the result file. Its content is a Struct that depends on the request.
"""

from __future__ import annotations

import msgspec

from engine.contract.devices import CPU
from engine.contract.images import LegendEntry
from engine.contract.messages import Done, Progress, Refused


class InferenceRequest(msgspec.Struct, tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Request for work with the model of a run.

    Attributes:
        run: Folder of the run.
        checkpoint: "best", "last", or the number of an epoch.
        devices: Devices for the work, which waits in the queue until they are free.
        batch_size: Batch size per device, or None for an automatic choice.
        at_once: True to share the devices with other work instead of waiting for them.
    """

    run: str
    checkpoint: str = "best"
    devices: tuple[str, ...] = (CPU,)
    batch_size: int | None = None
    at_once: bool = False


INFERENCE = msgspec.json.Decoder(Progress | Refused | Done[str])


FRAME_FILE = "frame.msgpack"
"""Name of the file with the latest frame in the folder `out`. It is replaced atomically with every frame."""


class LiveRequest(InferenceRequest, tag="live", frozen=True, kw_only=True):
    """Request to run the model on each frame of `source`, a video file or a camera ("camera:0"), on the first device.

    The latest `LiveFrame` is saved in a file of the folder `out`, whose path is the answer. A video is played at its
    recorded speed at most. With a camera, predictions continue until the process is stopped.
    """

    source: str
    out: str


class LiveFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Frame at the model's input size, as a JPEG with the prediction drawn on it, and a text about the prediction.

    `number` counts from 1. `images_per_second` is the speed over the last frames, including reading and drawing.
    """

    number: int
    jpeg: bytes
    text: str
    images_per_second: float


decode_frame = msgspec.msgpack.Decoder(LiveFrame).decode


DRAWINGS_FILE = "shown.json"
"""Name of the file with a `SampleDrawings` in the folder `out`. Paths in it are relative to that folder."""


class ShowRequest(InferenceRequest, tag="show", frozen=True, kw_only=True):
    """Request to draw annotations and predictions for `samples` of an evaluation, and save them in a folder.

    Samples are drawn as the model receives them. `evaluation` is the folder of the evaluation, and `samples` are
    indices in its `Samples`. Only the first device is used. The answer is the path of a `SampleDrawings`.
    """

    evaluation: str
    samples: tuple[int, ...]
    out: str


class SampleDrawing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """PNGs with the annotations and the prediction for one sample.

    `legend` contains the indices of the legend entries that occur in them.
    """

    number: int
    truth_png: str
    prediction_png: str
    truth_words: str = ""
    prediction_words: str = ""
    legend: tuple[int, ...] = ()


class SampleDrawings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of a `ShowRequest`. Samples that can no longer be read are omitted."""

    legend: tuple[LegendEntry, ...] = ()
    samples: tuple[SampleDrawing, ...] = ()


decode_drawings = msgspec.json.Decoder(SampleDrawings).decode
