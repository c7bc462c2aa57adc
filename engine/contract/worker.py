"""What a supervisor tells a worker at its start, and what it may say to it later.

Both ends are on one socket pair with the frames of `protocol`: the worker sends events (`n` and `time` at 0),
`Heartbeat` and, as the last thing, `WorkerDone`; the supervisor sends `Stop` and `CheckpointNow`.
"""

from __future__ import annotations

import msgspec

from engine.contract.events import AnyEvent
from engine.contract.job import Job
from engine.contract.protocol import CheckpointNow, Stop


class WorkerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One worker's orders.

    `devices` are the run's devices in the order of the job: a worker of rank r that has one device uses
    `devices[r]`; a strategy that drives all from one process uses them all. The supervisor sets
    CUDA_VISIBLE_DEVICES to the GPUs' UUIDs in this order, so that CUDA's index is the place among them.
    `rendezvous` is the path of the FileStore's file; `threads` the intra-op threads for this worker.
    """

    run_folder: str
    job: Job
    rank: int
    world_size: int
    devices: tuple[str, ...]
    rendezvous: str
    threads: int


class Heartbeat(msgspec.Struct, tag="heartbeat", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Sent once a second while the worker makes progress or is in a phase that may take long."""

    step: int


class WorkerDone(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The worker ends of itself: `stopped` says whether it was told to before the last epoch's end."""

    stopped: bool
    best: dict[str, float] = {}
    best_epoch: int | None = None


FROM_WORKER = msgspec.json.Decoder(AnyEvent | Heartbeat | WorkerDone)
TO_WORKER = msgspec.json.Decoder(Stop | CheckpointNow)
