"""Process that calls NVML.

`python -m engine.gpus.reader INTERVAL REDISCOVER [--only-basics] [--some-lost]` prints one `NvmlReading` every INTERVAL
seconds. Each line of standard input is a `SnapshotRequest` for the following readings.

If NVML can't be used, the process prints a message and exits. It also exits if a GPU has been lost for REDISCOVER
seconds, since only a new process, which the watchdog starts, can find the GPU again. With --some-lost, a GPU was lost
before the process started, and NVML may no longer list it.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

import msgspec

from engine.contract.devices import Nvml, NvmlReading, SnapshotRequest
from engine.gpus import sentences
from engine.gpus.nvml.driver_files import denied_files
from engine.gpus.nvml.nvml_reader import NvmlReader, NvmlUnavailable
from engine.gpus.parent_process import end_with_parent

SECOND_READING_S = 0.25
"""Seconds between the first and the second reading. This is less than the interval, since rates need two readings."""


class RequestReceiver:
    """Receiver of requests that the parent process (the watchdog) sends for expensive GPU readings.

    `current` is the latest request. The event `changed` is set when a new request arrives.
    """

    def __init__(self) -> None:
        self.current = SnapshotRequest()
        self.changed = threading.Event()

    def on_line(self, line: bytes) -> None:
        """Decode a line of standard input, and store it as the current request."""
        self.current = msgspec.json.decode(line, type=SnapshotRequest)
        self.changed.set()


def main() -> int:
    """Print readings of all GPUs until NVML fails or the parent process exits. A failure is an `NvmlReading`, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the watchdog handles Ctrl+C
    requests = RequestReceiver()
    end_with_parent(requests.on_line)
    interval_s, rediscover_s = float(sys.argv[1]), float(sys.argv[2])
    basics, some_lost = "--only-basics" in sys.argv, "--some-lost" in sys.argv
    try:
        _read_repeatedly(interval_s, rediscover_s, requests, basics=basics, some_lost=some_lost)
    except NvmlUnavailable as state:
        _send(NvmlReading(Nvml(state.status, state.message)))
    except Exception as error:  # report unexpected errors, too
        _send(NvmlReading(Nvml(*sentences.explain_failure(f"{type(error).__name__}: {error}"))))
    return 0


def _read_repeatedly(
    interval_s: float, rediscover_s: float, requests: RequestReceiver, *, basics: bool, some_lost: bool
) -> None:
    """Print a reading every `interval_s` seconds, and immediately after a new request.

    The second reading follows the first after at most `SECOND_READING_S`, since rates need two readings. Returns
    `rediscover_s` seconds after a GPU was lost. The process then exits, and the next one searches for the GPU. If
    `some_lost` is True, a GPU was lost before the start. If `basics` is True, only basic quantities are read.
    """
    reader = NvmlReader(basics=basics)
    driver = (reader.driver_version, reader.cuda_version, denied_files())
    sent_topology = None
    pause_s = min(interval_s, SECOND_READING_S)
    read_at = time.monotonic()  # scheduled time of the reading
    lost_at = read_at if some_lost else None
    while lost_at is None or read_at - lost_at < rediscover_s:
        requests.changed.clear()
        gpus = reader.read(requests.current)
        topology = reader.topology if reader.topology is not sent_topology else None  # sent only when it has changed
        sent_topology = reader.topology
        no_gpu_text = sentences.SLEEPING if reader.has_sleeping_gpu else sentences.NO_GPU
        nvml = Nvml("ok", "" if gpus else no_gpu_text, *driver)
        _send(NvmlReading(nvml, gpus, topology, round(reader.call_s, 6)))
        if reader.has_lost_gpu and lost_at is None:
            lost_at = read_at
        read_at = max(read_at + pause_s, time.monotonic())
        pause_s = interval_s
        if requests.changed.wait(max(0.0, read_at - time.monotonic())):  # a new request is answered at once
            read_at = time.monotonic()


def _send(reading: NvmlReading) -> None:
    """Print a reading. Exit the process if the watchdog has closed the pipe."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(reading) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise SystemExit(0) from None


if __name__ == "__main__":
    sys.exit(main())
