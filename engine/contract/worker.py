"""Messages between a supervisor and its workers, over a socket pair with the frames of `protocol`.

A worker sends events (with `n` and `time` of 0), `Heartbeat` and finally `WorkerDone`. The supervisor sends `Command`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.devices import host_of, local_device
from engine.contract.events import AnyEvent
from engine.contract.job import Job
from engine.contract.protocol import Command

BY_ENVIRONMENT = "env://"
"""Rendezvous through the environment variables that torch's elastic agent has set."""

Activity = Literal["", "data", "step", "agree", "evaluate", "save"]
"""Current activity of a rank's main thread.

"" means preparation, "data" waiting for the next batch, "step" the strategy's step, "agree" exchanging numbers with
other ranks, "evaluate" a batch of the validation, and "save" a checkpoint.
"""

ThreadState = Literal["", "waiting", "reading", "working"]
"""State of a main thread that spends a long time in one activity, as determined from its stack.

"waiting" for other ranks or the device, "reading" samples, or "working" (anything else). "" means that the stack was
not inspected.
"""


class WorkerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Specification of one worker.

    `devices` are the run's devices in the order of the job. The worker with rank r uses `devices[r]`, or all of them if
    the strategy has a single process. CUDA_VISIBLE_DEVICES lists the UUIDs of the GPUs in `local_devices`, whose order
    defines the CUDA indices. `rendezvous` is the path of a FileStore, or `BY_ENVIRONMENT`. `threads` is the number of
    intra-op threads. Steps after the checkpoint up to `skip_to` are skipped without training.
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
    def local_devices(self) -> tuple[str, ...]:
        """Devices of the run on this worker's machine, by their local names."""
        host = self._host
        return tuple(local_device(device) for device in self.devices if host_of(device) == host)

    @property
    def device_index(self) -> int:
        """Index of this worker's device in `local_devices`, for a worker with one device."""
        return sum(host_of(device) == self._host for device in self.devices[: self.rank])

    @property
    def _host(self) -> str:
        """Name of the machine that this worker runs on, or "" for the machine where the run was started."""
        return host_of(self.devices[self.rank])


class Heartbeat(msgspec.Struct, tag="heartbeat", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Sign of life that a thread in the worker sends every second.

    `step` counts finished steps. `longest_step_s` is the duration of the longest one, not counting the first. The main
    thread has spent `seconds` in `activity`. If that is long, `thread_state` and `location` describe its stack.
    """

    step: int
    activity: Activity = ""
    seconds: float = 0.0
    longest_step_s: float = 0.0
    thread_state: ThreadState = ""
    location: str = ""


class WorkerDone(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Message that a worker exits normally.

    `stopped` is True if it was asked to stop before the last epoch was complete. `unsaved` is the reason why its last
    state could not be written, otherwise "".
    """

    stopped: bool
    unsaved: str = ""
    best: dict[str, float] = {}
    best_epoch: int | None = None


FROM_WORKER = msgspec.json.Decoder(AnyEvent | Heartbeat | WorkerDone)
TO_WORKER = msgspec.json.Decoder(Command)
