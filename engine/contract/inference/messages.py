"""How work with a trained model is ordered, and what is said of it.

``python -m engine.inference`` reads one order as JSON from its standard input, which it reads to the end, and prints
a message a line: how far it has come, and at last that it is done or why not.
"""

from __future__ import annotations

import msgspec

from engine.contract.devices import CPU
from engine.contract.problems import Problem


class Order(msgspec.Struct, tag_field="order", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Work with the model of the run in the folder `run`, with the weights of its `checkpoint` ("best", "last", or
    the number of an epoch), on `devices`, which are waited for in the queue. `batch_size` is for each device; None
    leaves it open.
    """

    run: str
    checkpoint: str = "best"
    devices: tuple[str, ...] = (CPU,)
    batch_size: int | None = None


class Progress(msgspec.Struct, tag="progress", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far the work has come: `fraction` is from 0 to 1, `what` a short sentence on what is being done,
    `seconds_left` and `images_per_second` (over all devices) None while they are not known. `warnings` are what has
    happened since the last message.
    """

    fraction: float
    what: str
    seconds_left: float | None = None
    images_per_second: float | None = None
    warnings: tuple[str, ...] = ()


class Done(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The last line of work that is done. `path` is the file that tells what came of it, in the kind's own Struct."""

    path: str


class Refused(msgspec.Struct, tag="refused", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The last line of work that could not be done: everything that stands in its way."""

    problems: tuple[Problem, ...]


Message = Progress | Done | Refused
MESSAGE = msgspec.json.Decoder(Message)
