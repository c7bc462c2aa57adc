"""Base of the orders for work with a trained model (``python -m engine.inference``).

The answer is the path of the result's file, a Struct of the order's kind.
"""

from __future__ import annotations

import msgspec

from engine.contract.devices import CPU
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
