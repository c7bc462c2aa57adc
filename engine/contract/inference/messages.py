"""Requests for work with a trained model, and messages about its progress.

``python -m engine.inference`` reads one order as JSON from its standard input, to the end of the stream, and prints one
message per line: progress, then `Done` or `Refused`.
"""

from __future__ import annotations

import msgspec

from engine.contract.devices import CPU
from engine.contract.problems import Problem


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


class Progress(msgspec.Struct, tag="progress", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Progress of the work.

    `fraction` is from 0 to 1 and `what` describes the current activity. `seconds_left` and `images_per_second` (over all
    devices) are None while unknown. `warnings` are new since the previous message.
    """

    fraction: float
    what: str
    seconds_left: float | None = None
    images_per_second: float | None = None
    warnings: tuple[str, ...] = ()


class Done(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Last message after success; `path` is the result's file, a Struct of the order's kind."""

    path: str


class Refused(msgspec.Struct, tag="refused", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Last message of work that could not be done, with all problems."""

    problems: tuple[Problem, ...]


Message = Progress | Done | Refused
MESSAGE = msgspec.json.Decoder(Message)
