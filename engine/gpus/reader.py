"""The process that asks NVML: `python -m engine.gpus.reader INTERVAL AGAIN [--only-basics] [--some-lost]` prints one
`Reading` per INTERVAL. Lines on its standard input say what is on screen (`SnapshotRequest`), from then on.

It ends when NVML cannot be used (having said why), and when a GPU has been lost for AGAIN seconds, since only a
new process can find it again; the watchdog starts that. With --some-lost a GPU was lost before it began, of which NVML
may know nothing any more.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

import msgspec

from engine.contract.devices import Nvml, SnapshotRequest
from engine.gpus import sentences
from engine.gpus.installation import denied_files
from engine.gpus.lifeline import end_with_parent
from engine.gpus.nvml.nvml_reader import NvmlReader, NvmlUnavailable
from engine.gpus.reading import Reading

RATES_S = 0.25
"""What grows is known as a rate from the second reading on, so that one comes early."""


class Watched:
    """What is on screen, as last said; `news` is set when that changed."""

    def __init__(self) -> None:
        self.shown = SnapshotRequest()
        self.news = threading.Event()

    def take(self, line: bytes) -> None:
        """A line of our input."""
        self.shown = msgspec.json.decode(line, type=SnapshotRequest)
        self.news.set()


def main() -> int:
    """Reads until NVML fails or the watchdog ends. Whatever happens is said as a `Reading`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the watchdog
    watched = Watched()
    end_with_parent(watched.take)
    interval_s, look_again_s = float(sys.argv[1]), float(sys.argv[2])
    basics, some_lost = "--only-basics" in sys.argv, "--some-lost" in sys.argv
    try:
        _read_on(interval_s, look_again_s, watched, basics=basics, some_lost=some_lost)
    except NvmlUnavailable as state:
        _say(Reading(Nvml(state.status, state.message)))
    except Exception as error:  # what no one foresaw is told rather than lost
        _say(Reading(Nvml(*sentences.failed(f"{type(error).__name__}: {error}"))))
    return 0


def _read_on(interval_s: float, look_again_s: float, watched: Watched, *, basics: bool, some_lost: bool) -> None:
    reader = NvmlReader(basics=basics)
    driver = (reader.driver_version, reader.cuda_version, denied_files())
    told = None
    pause_s = min(interval_s, RATES_S)
    tick = time.monotonic()
    lost_at = tick if some_lost else None
    while lost_at is None or tick - lost_at < look_again_s:
        watched.news.clear()
        gpus = reader.read(watched.shown)
        topology = reader.topology if reader.topology is not told else None
        told = reader.topology
        nobody = sentences.SLEEPING if reader.any_asleep else sentences.NO_GPU
        nvml = Nvml("ok", "" if gpus else nobody, *driver)
        _say(Reading(nvml, gpus, topology, round(reader.call_s, 6)))
        if reader.any_lost and lost_at is None:
            lost_at = tick
        tick = max(tick + pause_s, time.monotonic())
        pause_s = interval_s
        if watched.news.wait(max(0.0, tick - time.monotonic())):  # what has come into sight is told at once
            tick = time.monotonic()


def _say(reading: Reading) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(reading) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise SystemExit(0) from None


if __name__ == "__main__":
    sys.exit(main())
