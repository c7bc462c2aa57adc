"""Keeps a process asking NVML, and knows what was last heard of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import msgspec

from engine.contract.devices import Gpu, Nvml, SnapshotRequest, Topology, Xid
from engine.gpus import sentences
from engine.gpus.child import LineChild
from engine.gpus.nvml.sleep import UNKNOWN_UUID
from engine.gpus.nvml.xids import KEPT
from engine.gpus.reading import Reading

MAX_BACK_OFF_S = 60.0


@dataclass(frozen=True)
class Patience:
    """How long to wait for NVML, in seconds."""

    silent_s: float = 5.0
    """Silence after which the user is told; a reader that had answered before is then replaced."""
    first_s: float = 30.0
    """Silence of a new reader until it is replaced: without persistence mode each GPU takes a second or two."""
    retry_s: float = 30.0
    """Pause before asking again when NVML cannot be used, say since the driver is not loaded."""
    look_again_s: float = 60.0
    """How long a GPU stays lost until it is looked for again."""
    back_off_s: float = 1.0
    """Pause after the first hang or crash, doubled by each further one."""
    calm_s: float = 60.0
    """A reader that answered for this long clears what went before."""


class NvmlWatch:
    """What NVML says, whatever happens to the process that asks it.

    `nvml`, `gpus` and `topology` are the latest; GPUs once seen keep their rows. `call_s` is what NVML's own calls took
    for them. `readings` counts the reader's lines; `heard` turns true when there is anything to tell, good or bad.
    With `basics` the reader asks for the basics only.
    """

    def __init__(self, interval_s: float, news: threading.Event, patience: Patience, *, basics: bool = False) -> None:
        self.nvml = Nvml("not_answering", sentences.ASKING)
        self.gpus: tuple[Gpu, ...] = ()
        self.topology: Topology | None = None
        self.call_s: float | None = None
        self.heard = False
        self.readings = 0
        self._interval_s = interval_s
        self._news = news
        self._patience = patience
        self._basics = basics
        self._shown = SnapshotRequest()
        self._earlier_xids: dict[str, tuple[Xid, ...]] = {}
        self._failures = 0
        self._child: LineChild | None = None
        self._doomed: LineChild | None = None
        self._start_at = 0.0
        self._started = 0.0
        self._last_line = 0.0
        self._answered = False
        self._silent_since: float | None = None

    def poll(self) -> None:
        """Takes what came, and starts or replaces the reader where that is due. Never waits."""
        now = time.monotonic()
        if self._child is None:
            if self.heard and self.nvml.status == "not_answering":
                self._tell_silence(now)
            if now >= self._start_at and self._last_is_gone():
                self._start(now)
            return
        over = self._child.ended()
        for line in self._child.lines():
            self._take(line, now)
        silent_s = now - self._last_line - self._interval_s
        if over:
            self._after_end(self._child, now)
        elif silent_s > (self._patience.silent_s if self._answered else self._patience.first_s):
            self._replace(self._child, now)
        elif silent_s > self._patience.silent_s:
            self._tell_silence(now)

    def show(self, shown: SnapshotRequest) -> None:
        """What is asked for from now on."""
        if shown != self._shown:
            self._shown = shown
            if self._child is not None:
                self._child.tell(_line(shown))

    def close(self) -> None:
        """Ends the reader, without waiting for one that is stuck in a driver call."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _start(self, now: float) -> None:
        self._started = self._last_line = now
        self._silent_since = now if self._silent_since is None else self._silent_since
        self._answered = False
        self._earlier_xids = {gpu.uuid: gpu.xids for gpu in self.gpus if gpu.xids}
        arguments = [str(self._interval_s), str(self._patience.look_again_s)]
        if self._basics:
            arguments.append("--only-basics")
        if any(gpu.lost for gpu in self.gpus):
            arguments.append("--some-lost")
        self._child = LineChild("engine.gpus.reader", *arguments, news=self._news)
        if self._shown != SnapshotRequest():
            self._child.tell(_line(self._shown))

    def _take(self, line: bytes, now: float) -> None:
        try:
            reading = msgspec.json.decode(line, type=Reading)
        except msgspec.DecodeError:
            return  # the driver's library, too, may print
        self.readings += 1
        self._last_line = self._silent_since = now
        self._answered = True
        self._tell(reading.nvml)
        if reading.nvml.status == "ok":
            self.gpus = with_lost(self.gpus, tuple(self._with_earlier_xids(gpu) for gpu in reading.gpus))
            self.topology = reading.topology or self.topology
            self.call_s = reading.call_s
        if now - self._started > self._patience.calm_s:
            self._failures = 0

    def _with_earlier_xids(self, gpu: Gpu) -> Gpu:
        """A reader knows the Xids of its own time only."""
        earlier = self._earlier_xids.get(gpu.uuid)
        return msgspec.structs.replace(gpu, xids=(*earlier, *gpu.xids)[-KEPT:]) if earlier else gpu

    def _after_end(self, child: LineChild, now: float) -> None:
        self._child = None
        cause = child.cause_of_end()
        if cause is not None or not self._answered:
            self._tell(sentences.crashed(cause or "it exited without reporting an error"))
            self._fail(now)
        elif self.nvml.status == "ok":  # to look for a lost GPU again
            self._start_at = now + self._patience.back_off_s
        else:
            self._start_at = now + self._patience.retry_s

    def _replace(self, child: LineChild, now: float) -> None:
        child.kill()
        self._child, self._doomed = None, child
        self._tell_silence(now)
        self._fail(now)

    def _fail(self, now: float) -> None:
        self._start_at = now + min(MAX_BACK_OFF_S, self._patience.back_off_s * 2**self._failures)
        self._failures += 1

    def _last_is_gone(self) -> bool:
        """Whether a killed reader has ended; while a driver call holds it, another would only get stuck beside it."""
        if self._doomed is not None and self._doomed.ended():
            self._doomed = None
        return self._doomed is None

    def _tell_silence(self, now: float) -> None:
        """How long NVML has said nothing, to whichever reader."""
        since = now if self._silent_since is None else self._silent_since
        self._tell(sentences.not_answering(max(0.0, now - since - self._interval_s)))

    def _tell(self, nvml: Nvml) -> None:
        self.heard = True
        self.nvml = nvml


def with_lost(known: tuple[Gpu, ...], seen: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs `seen` now and, as lost, those `known` from before that are not among them; rows keep their places.

    A MIG instance whose GPU is seen without it is no more, rather than lost. A GPU that a new reader finds lost has the
    row of an earlier one, as far as there is one.
    """
    now = time.time()
    known = tuple(gpu for gpu in known if not gpu.uuid.startswith(UNKNOWN_UUID))
    seen = _with_earlier_rows(known, seen, now)
    rows = list(seen)
    uuids = [gpu.uuid for gpu in seen]
    if all(gpu.uuid in uuids for gpu in known):
        return seen
    there = {gpu.uuid for gpu in seen if not gpu.lost}
    for number, gpu in enumerate(known):
        if gpu.uuid not in uuids and not (gpu.mig is not None and gpu.mig.parent_uuid in there):
            before = [uuids.index(other.uuid) for other in known[:number] if other.uuid in uuids]
            at = max(before) + 1 if before else 0
            rows.insert(at, _lost(gpu, now))
            uuids.insert(at, gpu.uuid)
    return tuple(rows)


def _with_earlier_rows(known: tuple[Gpu, ...], seen: tuple[Gpu, ...], now: float) -> tuple[Gpu, ...]:
    """Return the rows `seen`, in which GPUs that were lost before they could tell anything have their rows `known`."""
    uuids = {gpu.uuid for gpu in seen}
    same = {gpu.uuid: gpu for gpu in known}
    missing = {gpu.nvml_index: gpu for gpu in known if gpu.uuid not in uuids and gpu.mig is None}
    rows = []
    for gpu in seen:
        is_unmet = gpu.lost and gpu.lost_since is None
        earlier = (same.get(gpu.uuid) or missing.get(gpu.nvml_index)) if is_unmet else None
        rows.append(gpu if earlier is None else _lost(earlier, now))
    return tuple(rows)


def _lost(gpu: Gpu, now: float) -> Gpu:
    return gpu if gpu.lost else msgspec.structs.replace(gpu, lost=True, lost_since=now)


def _line(shown: SnapshotRequest) -> bytes:
    return msgspec.json.encode(shown) + b"\n"
