"""The process that asks NVML: `python -m engine.gpus.reader INTERVAL AGAIN` prints one `Reading` per INTERVAL.

It ends when NVML cannot be used (having said why), and when a GPU has been lost for AGAIN seconds, since only a
new process can find it again; the watchdog starts that.
"""

from __future__ import annotations

import signal
import sys
import time

import msgspec

from engine.contract.devices import Nvml
from engine.gpus import sentences
from engine.gpus.lifeline import end_with_parent
from engine.gpus.nvml import NvmlReader, NvmlUnavailable
from engine.gpus.reading import Reading

SLOW_LANE_S = 2.0
"""Lists of processes take milliseconds of the driver's lock, so they are asked for less often."""


def main() -> int:
    """Reads until NVML fails or the watchdog ends. Whatever happens is said as a `Reading`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the watchdog
    end_with_parent()
    interval_s, look_again_s = float(sys.argv[1]), float(sys.argv[2])
    try:
        _read_on(interval_s, look_again_s)
    except NvmlUnavailable as state:
        _say(Reading(Nvml(state.status, state.message)))
    except Exception as error:  # what no one foresaw is told rather than lost
        _say(Reading(Nvml(*sentences.failed(f"{type(error).__name__}: {error}"))))
    return 0


def _read_on(interval_s: float, look_again_s: float) -> None:
    reader = NvmlReader()
    nvml = Nvml("ok", driver_version=reader.driver_version)
    slow_due = 0.0
    lost_at: float | None = None
    tick = time.monotonic()
    while lost_at is None or tick - lost_at < look_again_s:
        slow = tick >= slow_due
        if slow:
            slow_due = tick + SLOW_LANE_S - interval_s / 2
        gpus = reader.read(slow=slow)
        _say(Reading(nvml if gpus else Nvml("ok", sentences.NO_GPU, reader.driver_version), gpus))
        if reader.any_lost and lost_at is None:
            lost_at = tick
        tick = max(tick + interval_s, time.monotonic())
        time.sleep(max(0.0, tick - time.monotonic()))


def _say(reading: Reading) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(reading) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise SystemExit(0) from None


if __name__ == "__main__":
    sys.exit(main())
