"""Live predictions for a camera or a video."""

from __future__ import annotations

import msgspec

from engine.contract.inference.messages import Order

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
