"""Start the process that calls NVML (the reader), and replace it when it hangs or crashes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import msgspec

from engine.contract.devices import Gpu, Nvml, NvmlReading, SnapshotRequest, Topology, Xid
from engine.gpus import sentences
from engine.gpus.child import LineChild
from engine.gpus.nvml.driver_files import UNKNOWN_UUID
from engine.gpus.nvml.xids import MAX_XIDS

MAX_BACK_OFF_S = 60.0


@dataclass(frozen=True)
class Timeouts:
    """Timeouts and pauses for the reader, in seconds."""

    silent_s: float = 5.0
    """Silence after which the user is notified. A reader that has answered before is replaced."""
    first_s: float = 30.0
    """Silence after which a reader that has never answered is replaced. Waking a GPU takes a second or two."""
    retry_s: float = 30.0
    """Pause between attempts while NVML can't be used, for example because the driver is not loaded."""
    rediscover_s: float = 60.0
    """Time between searches for a lost GPU."""
    back_off_s: float = 1.0
    """Pause after the first hang or crash. It doubles with each further timeout."""
    stable_s: float = 60.0
    """Duration of normal operation after which earlier hangs and crashes no longer count."""


class NvmlWatch:
    """Latest state of the GPUs from NVML. It survives hangs and crashes of the reader.

    Attributes:
        gpus: Latest readings of the GPUs. A GPU that NVML no longer lists stays, marked as lost.
        topology: Links between the GPUs, or None if unknown.
        call_s: Time that calls to NVML took in the last reading, in seconds.
        has_status: True after the first result of the reader, even if it is a failure.
        readings: Number of messages from the reader.

    Args:
        interval_s: Seconds between readings.
        changed: Event that is set when the reader has sent a message or exited.
        timeouts: Timeouts for the reader.
        basics: True to read only basic quantities.
    """

    def __init__(
        self, interval_s: float, changed: threading.Event, timeouts: Timeouts, *, basics: bool = False
    ) -> None:
        self.nvml = Nvml("not_answering", sentences.ASKING)
        self.gpus: tuple[Gpu, ...] = ()
        self.topology: Topology | None = None
        self.call_s: float | None = None
        self.has_status = False
        self.readings = 0
        self._interval_s = interval_s
        self._changed = changed
        self._timeouts = timeouts
        self._basics = basics
        self._request = SnapshotRequest()
        self._earlier_xids: dict[str, tuple[Xid, ...]] = {}  # Xids from previous readers, by UUID
        self._failures = 0  # failures in a row, which lengthen the pause before the next start
        self._child: LineChild | None = None  # current reader
        self._killed: LineChild | None = None  # previous reader, which may still hang in the driver
        self._start_at = 0.0  # earliest time for the next start (time.monotonic, like all times here)
        self._started = 0.0  # start of the current reader
        self._last_line = 0.0  # last message of the current reader, or its start
        self._has_answered = False  # True after the first message of the current reader
        self._silent_since: float | None = None  # last message of any reader, or the first start

    def poll(self) -> None:
        """Process the reader's messages, kill it if it has been silent for too long, and start it if none is running.

        Never blocks. A failed reader is replaced in a later call, after a pause and the exit of all killed readers.
        """
        now = time.monotonic()
        if self._child is None:
            if self.has_status and self.nvml.status == "not_answering":
                self._report_silence(now)  # its text contains the duration of the silence
            if now >= self._start_at and self._has_killed_reader_exited():
                self._start(now)
            return
        has_ended = self._child.has_ended()  # before the lines are taken, so that none arrives later
        for line in self._child.take_lines():
            self._on_line(line, now)
        silent_s = now - self._last_line - self._interval_s
        max_silent_s = self._timeouts.silent_s if self._has_answered else self._timeouts.first_s
        if has_ended:
            self._on_exit(self._child, now)
        elif silent_s > max_silent_s:
            self._kill_silent(self._child, now)
        elif silent_s > self._timeouts.silent_s:
            self._report_silence(now)

    def request(self, request: SnapshotRequest) -> None:
        """Set the quantities that are read from now on."""
        if request != self._request:
            self._request = request
            if self._child is not None:
                self._child.send(_encode(request))

    def close(self) -> None:
        """Kill the reader without waiting, since it may be stuck in a driver call."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _start(self, now: float) -> None:
        """Start a reader, and send it the current request for quantities."""
        self._started = self._last_line = now
        if self._silent_since is None:
            self._silent_since = now
        self._has_answered = False
        self._earlier_xids = {gpu.uuid: gpu.xids for gpu in self.gpus if gpu.xids}
        arguments = [str(self._interval_s), str(self._timeouts.rediscover_s)]
        if self._basics:
            arguments.append("--only-basics")
        if any(gpu.lost for gpu in self.gpus):
            arguments.append("--some-lost")
        self._child = LineChild("engine.gpus.reader", *arguments, changed=self._changed)
        if self._request != SnapshotRequest():  # the reader starts with this one
            self._child.send(_encode(self._request))

    def _on_line(self, line: bytes, now: float) -> None:
        """Store the reading in a line of the reader. Lines that can't be decoded are ignored."""
        try:
            reading = msgspec.json.decode(line, type=NvmlReading)
        except msgspec.DecodeError:
            return  # the driver's library may print lines of its own
        self.readings += 1
        self._last_line = self._silent_since = now
        self._has_answered = True
        self._set_status(reading.nvml)
        if reading.nvml.status == "ok":
            self.gpus = merge_lost(self.gpus, tuple(self._add_earlier_xids(gpu) for gpu in reading.gpus))
            self.topology = reading.topology or self.topology
            self.call_s = reading.call_s
        if now - self._started > self._timeouts.stable_s:
            self._failures = 0  # the next failure leads to a short pause again

    def _add_earlier_xids(self, gpu: Gpu) -> Gpu:
        """Add the Xids that earlier readers have reported to `gpu`. Each reader sees only the Xids of its lifetime."""
        earlier = self._earlier_xids.get(gpu.uuid)
        return msgspec.structs.replace(gpu, xids=(*earlier, *gpu.xids)[-MAX_XIDS:]) if earlier else gpu

    def _on_exit(self, child: LineChild, now: float) -> None:
        """Handle the exit of the reader: report a crash, and schedule the next start."""
        self._child = None
        cause = child.exit_reason()
        if cause is not None or not self._has_answered:
            self._set_status(sentences.create_crashed_state(cause or "it exited without reporting an error"))
            self._schedule_retry(now)
        elif self.nvml.status == "ok":  # the reader has exited so that a new one searches for a lost GPU
            self._start_at = now + self._timeouts.back_off_s
        else:
            self._start_at = now + self._timeouts.retry_s

    def _kill_silent(self, child: LineChild, now: float) -> None:
        """Kill a reader that has not responded in time, and schedule the next start."""
        child.kill()
        self._child, self._killed = None, child
        self._report_silence(now)
        self._schedule_retry(now)

    def _schedule_retry(self, now: float) -> None:
        """Schedule the next start after a failure. The pause doubles with each failure in a row."""
        self._start_at = now + min(MAX_BACK_OFF_S, self._timeouts.back_off_s * 2**self._failures)
        self._failures += 1

    def _has_killed_reader_exited(self) -> bool:
        """Return True if no killed reader is left.

        As long as there is one, a new reader would hang in the same driver call.
        """
        if self._killed is not None and self._killed.has_ended():
            self._killed = None
        return self._killed is None

    def _report_silence(self, now: float) -> None:
        """Set NVML's status to a text for the user with the time since the reader's last message.

        The status is kept if NVML could not be used before.
        """
        if self.has_status and not self.gpus and self.nvml.status not in ("ok", "not_answering"):
            return
        since = now if self._silent_since is None else self._silent_since
        self._set_status(sentences.create_silent_state(max(0.0, now - since - self._interval_s)))

    def _set_status(self, nvml: Nvml) -> None:
        """Store the state of NVML, after which `has_status` is True."""
        self.has_status = True
        self.nvml = nvml


def merge_lost(known: tuple[Gpu, ...], listed: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Merge the GPUs that NVML lists now (`listed`) with those known before, and return all in order.

    A known GPU that is missing is marked as lost, in its old position. If a MIG instance is missing although its GPU is
    listed, it was removed, not lost. A GPU that a new reader reports as lost keeps its earlier values, if any.
    """
    now = time.time()
    # Placeholders have no real UUID, so they can't be found in `listed`.
    known = tuple(gpu for gpu in known if not gpu.uuid.startswith(UNKNOWN_UUID))
    listed = _restore_earlier_values(known, listed, now)
    rows = list(listed)
    uuids = [gpu.uuid for gpu in listed]  # of `rows`
    responding = {gpu.uuid for gpu in listed if not gpu.lost}
    for number, gpu in enumerate(known):
        is_removed_instance = gpu.mig is not None and gpu.mig.parent_uuid in responding
        if gpu.uuid not in uuids and not is_removed_instance:
            # Insert it after the last of the GPUs that preceded it.
            rows_before = [uuids.index(other.uuid) for other in known[:number] if other.uuid in uuids]
            position = max(rows_before, default=-1) + 1
            rows.insert(position, _mark_lost(gpu, now))
            uuids.insert(position, gpu.uuid)
    return tuple(rows)


def _restore_earlier_values(known: tuple[Gpu, ...], listed: tuple[Gpu, ...], now: float) -> tuple[Gpu, ...]:
    """Return the GPUs in `listed`. Newly lost GPUs get their last values from `known`.

    The UUID of a lost GPU may be unknown. The GPU is then found by its NVML index among the GPUs that are missing in
    `listed`. `now` is in seconds since the epoch.
    """
    uuids = {gpu.uuid for gpu in listed}
    known_by_uuid = {gpu.uuid: gpu for gpu in known}
    missing_by_index = {gpu.nvml_index: gpu for gpu in known if gpu.uuid not in uuids and gpu.mig is None}
    restored = []
    for gpu in listed:
        has_no_values = gpu.lost and gpu.lost_since is None  # made from the driver's files, not from an earlier reading
        earlier = (known_by_uuid.get(gpu.uuid) or missing_by_index.get(gpu.nvml_index)) if has_no_values else None
        restored.append(gpu if earlier is None else _mark_lost(earlier, now))
    return tuple(restored)


def _mark_lost(gpu: Gpu, now: float) -> Gpu:
    """Return a copy of `gpu` marked as lost since `now` (seconds since the epoch), unless it was lost before."""
    return gpu if gpu.lost else msgspec.structs.replace(gpu, lost=True, lost_since=now)


def _encode(request: SnapshotRequest) -> bytes:
    """Return a request as a line of the reader's standard input."""
    return msgspec.json.encode(request) + b"\n"
