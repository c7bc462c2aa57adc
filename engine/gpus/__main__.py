"""Sampler process: `python -m engine.gpus` prints a snapshot of all devices at regular intervals, as lines of JSON.

With --listen, each line of standard input is an `engine.contract.devices.SnapshotRequest` that names the visible
panels. Only quantities for these panels are read.
"""

from __future__ import annotations

import argparse
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import msgspec

from engine.contract.device_history import HistoryWriter, history_file
from engine.contract.devices import Snapshot, SnapshotRequest
from engine.gpus.cpu import CpuReader
from engine.gpus.cuda_order import CudaOrder
from engine.gpus.host import has_foreign_pids
from engine.gpus.parent_process import Parent, read_lines
from engine.gpus.quantities import read_values
from engine.gpus.watch import NvmlWatch, Timeouts

FIRST_SNAPSHOT_S = 0.12
"""Seconds until the first snapshot, since measuring the processor's load takes two readings."""
POLL_INTERVAL_S = 0.5
"""Maximum time in seconds between polls of the parent and the reader."""
FIRST_READING_WITH_RATES = 2
"""Number of the first reading that contains rates, which need two readings."""
SINGLE_SNAPSHOT_TIMEOUT_S = 40.0
"""Timeout for a single snapshot, in seconds."""


class Sampler:
    """Sampler that takes snapshots of all devices. `close` stops its child processes.

    If `basics` is True, only utilization, memory, power and temperature of GPUs are read, and the ids of processes on
    them.
    """

    def __init__(self, interval_s: float, timeouts: Timeouts | None = None, *, basics: bool = False) -> None:
        self._interval_s = interval_s
        self._changed = threading.Event()
        self._request = SnapshotRequest()
        self._watch = NvmlWatch(interval_s, self._changed, timeouts or Timeouts(), basics=basics)
        self._watch.poll()
        self._order = CudaOrder(self._changed)
        self._cpu = CpuReader()
        self._host = socket.gethostname()
        self._foreign_pids = has_foreign_pids()

    def request(self, request: SnapshotRequest) -> None:
        """Set the quantities that are read from now on, and wake the sampler. Any thread may call this."""
        self._request = request
        self._changed.set()

    def snapshots(self, parent: Parent) -> Iterator[Snapshot]:
        """Yield snapshots until `parent` exits.

        The first snapshot comes immediately, one more comes after each of NVML's first two answers, and then one per
        interval. A new request is answered immediately. If NVML responds, a snapshot directly follows its reading, so
        that values are fresh.
        """
        due_at = time.monotonic() + FIRST_SNAPSHOT_S  # time of the next snapshot, even without a new reading
        send_readings_from = float("inf")  # earliest time at which a new reading is sent immediately
        sent_readings = 0
        request = self._request
        while parent.alive():
            now = time.monotonic()
            if self._request != request:
                request, send_readings_from = self._request, now
            has_new_reading = self._watch.readings > sent_readings
            if now >= due_at or (has_new_reading and now >= send_readings_from):
                sent_readings = self._watch.readings
                # A small delay of a due snapshot must not delay all later ones.
                has_small_delay = due_at <= now < due_at + self._interval_s / 2
                sent_at = due_at if has_small_delay else now
                # The next reading is expected one interval later: accept it 20 % earlier, and wait 20 % longer for it.
                has_rates = sent_readings >= FIRST_READING_WITH_RATES
                send_readings_from = sent_at + 0.8 * self._interval_s if has_rates else sent_at
                due_at = sent_at + self._interval_s * (1.2 if self._watch.nvml.status == "ok" else 1.0)
                yield self.snapshot()
            else:
                self._poll_children(due_at)

    def take_single_snapshot(self, parent: Parent) -> Snapshot:
        """Return a single snapshot, as soon as NVML and CUDA have answered or timed out."""
        start = time.monotonic()
        while parent.alive():
            waited_s = time.monotonic() - start
            has_rates = self._watch.readings >= FIRST_READING_WITH_RATES or self._watch.nvml.status != "ok"
            is_complete = self._watch.has_status and has_rates and not self._order.pending
            timeout_s = FIRST_SNAPSHOT_S if is_complete else SINGLE_SNAPSHOT_TIMEOUT_S
            if waited_s >= timeout_s:
                break
            self._poll_children(start + timeout_s)
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        """Return the latest state of all devices."""
        return Snapshot(
            time=time.time(),
            host=self._host,
            nvml=self._watch.nvml,
            gpus=self._order.with_cuda_index(self._watch.gpus),
            cpu=self._cpu.read(),
            topology=self._watch.topology,
            foreign_pids=self._foreign_pids,
            nvml_call_s=self._watch.call_s,
        )

    def close(self) -> None:
        """Stop the processes that call NVML and CUDA."""
        self._watch.close()
        self._order.close()

    def _poll_children(self, until: float) -> None:
        """Wait until a child process reports a change, but not beyond the time `until` or `POLL_INTERVAL_S`.

        Then poll the child processes. `until` is a value of `time.monotonic`.
        """
        self._changed.wait(max(0.0, min(POLL_INTERVAL_S, until - time.monotonic())))
        self._changed.clear()
        self._watch.request(self._request)
        self._watch.poll()
        self._order.poll(self._watch.gpus)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print snapshots until the parent exits or closes the pipe. Returns 0, or 130 after Ctrl+C."""
    options = _create_parser().parse_args(arguments)
    parent = Parent()
    timeouts = Timeouts(
        silent_s=options.silent, first_s=options.first, retry_s=options.retry, rediscover_s=options.again
    )
    sampler = Sampler(options.interval, timeouts, basics=options.only_basics)
    if options.listen:
        on_line = functools.partial(_on_request_line, sampler)
        threading.Thread(target=read_lines, args=(on_line,), name="listener", daemon=True).start()
    history = HistoryWriter(history_file()) if options.save_history else None
    try:
        snapshots = iter([sampler.take_single_snapshot(parent)]) if options.once else sampler.snapshots(parent)
        for snapshot in snapshots:
            sys.stdout.buffer.write(msgspec.json.encode(snapshot) + b"\n")
            sys.stdout.buffer.flush()
            if history is not None:
                history.add(snapshot.time, read_values(snapshot))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # avoids an error when Python flushes at exit
    except KeyboardInterrupt:
        return 130
    finally:
        sampler.close()
    return 0


def _on_request_line(sampler: Sampler, line: bytes) -> None:
    """Pass the request in a line of standard input to the sampler. An invalid line is reported and skipped."""
    try:
        sampler.request(msgspec.json.decode(line, type=SnapshotRequest))
    except msgspec.DecodeError as error:
        print(f"Skipping a line that could not be parsed: {error}", file=sys.stderr, flush=True)


def _create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.gpus",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--interval", type=_interval_s, default=1.0, metavar="S", help="seconds between snapshots")
    parser.add_argument("--once", action="store_true", help="print one complete snapshot and exit")
    parser.add_argument("--listen", action="store_true", help="read the visible panels from standard input")
    parser.add_argument(
        "--only-basics",
        action="store_true",
        help="report only utilization, memory, power, temperature and process ids",
    )
    parser.add_argument("--save-history", action="store_true", help="save readings for the window's next start")
    timeouts = Timeouts()
    for option, default, meaning in (
        ("--silent", timeouts.silent_s, "seconds without an answer after which NVML counts as stuck"),
        ("--first", timeouts.first_s, "the same for its first answer, which wakes the GPUs"),
        ("--retry", timeouts.retry_s, "seconds between attempts to load a missing NVML"),
        ("--again", timeouts.rediscover_s, "seconds between searches for a lost GPU"),
    ):
        parser.add_argument(option, type=float, default=default, metavar="S", help=meaning)
    return parser


def _interval_s(text: str) -> float:
    """Parse the argument of --interval. Raises ArgumentTypeError and ValueError, which argparse reports to the user."""
    value = float(text)
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError("choose an interval between 0.05 and 3600 seconds")
    return value


if __name__ == "__main__":
    sys.exit(main())
