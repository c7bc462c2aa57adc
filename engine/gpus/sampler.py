"""One snapshot of all devices per interval, whatever NVML does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

from engine.contract.devices import Snapshot, SnapshotRequest
from engine.gpus.cpu import CpuReader
from engine.gpus.cuda_order import CudaOrder
from engine.gpus.host import foreign_pids
from engine.gpus.lifeline import Parent
from engine.gpus.watch import NvmlWatch, Patience

FIRST_LOAD_S = 0.12
"""The first snapshot waits this long, since a processor's load needs two looks at its clocks."""
LOOK_S = 0.5
"""How often the parent and the reader are looked after between two snapshots."""
RATES_FROM = 2
"""The reading from which on rates are known."""
ONCE_S = 40.0
"""The longest that a single snapshot waits for NVML and CUDA."""


class Sampler:
    """Makes snapshots until the parent ends. `close` ends the processes below it.

    With `basics` only use, memory, power and temperature of the GPUs are told, and the pids of their processes.
    """

    def __init__(self, interval_s: float, patience: Patience | None = None, *, basics: bool = False) -> None:
        self._interval_s = interval_s
        self._news = threading.Event()
        self._shown = SnapshotRequest()
        self._watch = NvmlWatch(interval_s, self._news, patience or Patience(), basics=basics)
        self._watch.poll()
        self._order = CudaOrder(self._news)
        self._cpu = CpuReader()
        self._host = socket.gethostname()
        self._foreign_pids = foreign_pids()

    def show(self, shown: SnapshotRequest) -> None:
        """What is asked for from now on. May be called on any thread."""
        self._shown = shown
        self._news.set()

    def snapshots(self, parent: Parent) -> Iterator[Snapshot]:
        """One now, one at each of NVML's first two answers, then one per interval and at once when what is shown
        changes, while `parent` lives.

        Where NVML answers, a snapshot follows each of its readings at once, so that what is told is new.
        """
        due = time.monotonic() + FIRST_LOAD_S
        early = float("inf")  # from when on a new reading brings the next snapshot
        told = 0
        shown = self._shown
        while parent.alive():
            now = time.monotonic()
            if self._shown != shown:
                shown, early = self._shown, now
            if now >= due or (now >= early and self._watch.readings > told):
                told = self._watch.readings
                last = due if due <= now < due + self._interval_s / 2 else now
                early = last + (0.0 if told < RATES_FROM else 0.8 * self._interval_s)
                due = last + self._interval_s * (1.2 if self._watch.nvml.status == "ok" else 1.0)
                yield self.snapshot()
            else:
                self._look(due)

    def once(self, parent: Parent) -> Snapshot:
        """A single snapshot, when NVML and CUDA have answered or were given up."""
        start = time.monotonic()
        while parent.alive():
            waited_s = time.monotonic() - start
            answered = self._watch.readings >= RATES_FROM or self._watch.nvml.status != "ok"
            complete = self._watch.heard and answered and not self._order.pending
            if waited_s >= FIRST_LOAD_S and (complete or waited_s > ONCE_S):
                break
            self._look(start + FIRST_LOAD_S if complete else start + ONCE_S)
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        """All devices as last heard of."""
        return Snapshot(
            time=time.time(),
            host=self._host,
            nvml=self._watch.nvml,
            gpus=self._order.numbered(self._watch.gpus),
            cpu=self._cpu.read(),
            topology=self._watch.topology,
            foreign_pids=self._foreign_pids,
            nvml_call_s=self._watch.call_s,
        )

    def close(self) -> None:
        """Ends the processes that ask NVML and CUDA."""
        self._watch.close()
        self._order.close()

    def _look(self, until: float) -> None:
        """Looks after the processes below as soon as one has news, else a little later, at `until` at the latest."""
        self._news.wait(max(0.0, min(LOOK_S, until - time.monotonic())))
        self._news.clear()
        self._watch.show(self._shown)
        self._watch.poll()
        self._order.poll(self._watch.gpus)
