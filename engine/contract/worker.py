"""What a supervisor tells a worker at its start, and what it may say to it later.

Both ends are on one socket pair with the frames of `protocol`: the worker sends events (`n` and `time` at 0),
`Heartbeat` and, as the last thing, `WorkerDone`; the supervisor sends a `Command`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.devices import host_of, there
from engine.contract.events import AnyEvent
from engine.contract.job import Job
from engine.contract.protocol import Command

BY_ENVIRONMENT = "env://"
"""The rendezvous of workers that torch's elastic agent started: by the variables that it set."""

Activity = Literal["", "data", "step", "agree", "evaluate", "save"]
"""What a rank's main thread is about, by what it may be held up by: its preparations (""), the next batch of images,
the strategy's step, the other ranks and the device's figures, a batch of the validation, or a checkpoint."""

Standing = Literal["", "waiting", "reading", "working"]
"""What the main thread's stack shows of one that stays long in one activity: it waits for other ranks or for the
device, for images, or is at work itself; "" where it has not been looked at."""


class WorkerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One worker's orders.

    `devices` are the run's devices in the order of the job: a worker of rank r that has one device uses `devices[r]`;
    a strategy that drives all from one process uses them all. CUDA_VISIBLE_DEVICES is set to the UUIDs of the GPUs
    among `own_devices`, so that CUDA's index is the number among them. `rendezvous` is the path of the FileStore's
    file, or `BY_ENVIRONMENT`; `threads` the intra-op threads for this worker. The steps after the checkpoint up to
    `skip_to` are passed over without training.
    """

    run_folder: str
    job: Job
    rank: int
    world_size: int
    devices: tuple[str, ...]
    rendezvous: str
    threads: int
    skip_to: int = 0

    @property
    def own_devices(self) -> tuple[str, ...]:
        """Those of the run's devices that are on this worker's machine, as that calls them."""
        host = self._host
        return tuple(there(device) for device in self.devices if host_of(device) == host)

    @property
    def device_index(self) -> int:
        """Which of `own_devices` is this worker's, of a worker that has one."""
        return sum(host_of(device) == self._host for device in self.devices[: self._number])

    @property
    def _number(self) -> int:
        return min(self.rank, len(self.devices) - 1)

    @property
    def _host(self) -> str:
        return host_of(self.devices[self._number])


class Heartbeat(msgspec.Struct, tag="heartbeat", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Sent once a second for as long as the worker lives, by a thread of its own.

    `step` counts the steps done, and `longest_step_s` is the longest of them but the first. The main thread has been
    at one `activity` for `seconds`; where that is long, `standing` and `location` tell what it does there.
    """

    step: int
    activity: Activity = ""
    seconds: float = 0.0
    longest_step_s: float = 0.0
    standing: Standing = ""
    location: str = ""


class WorkerDone(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The worker ends of itself: `stopped` says whether it was told to before the last epoch's end, `unsaved` why the
    disk has not taken its last state, "" where it has.
    """

    stopped: bool
    unsaved: str = ""
    best: dict[str, float] = {}
    best_epoch: int | None = None


FROM_WORKER = msgspec.json.Decoder(AnyEvent | Heartbeat | WorkerDone)
TO_WORKER = msgspec.json.Decoder(Command)
