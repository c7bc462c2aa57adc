"""How a model is watched at work on a camera or a video."""

from __future__ import annotations

import msgspec

from engine.contract.inference.messages import Order

FRAME_FILE = "frame.msgpack"
"""In the folder `out`; replaced as a whole with every frame."""


class LiveOrder(Order, tag="live", frozen=True, kw_only=True):
    """Predicts for each frame of `source`, a video file or a camera ("camera:0"), on the first of the devices, and
    keeps the newest `LiveFrame` in the folder `out`, whose path is the answer. A video is played no faster than it
    was recorded; a camera goes on until the work is ended.
    """

    source: str
    out: str


class LiveFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A frame as the model was given it, with what was predicted drawn on it: a JPEG, and in words. `number` counts
    from 1; `images_per_second` is the speed of the last frames, reading and drawing included.
    """

    number: int
    jpeg: bytes
    words: str
    images_per_second: float


decode_frame = msgspec.msgpack.Decoder(LiveFrame).decode
