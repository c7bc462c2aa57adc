"""Sampler process: `python -m engine.gpus` prints a snapshot of all devices per interval, one JSON line each.

With --listen, each line of standard input is an `engine.contract.devices.SnapshotRequest` that names the visible
panels, and only their quantities are read.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import threading
from collections.abc import Sequence

import msgspec

from engine.contract.devices import SnapshotRequest
from engine.gpus.lifeline import Parent, read_lines
from engine.gpus.sampler import Sampler
from engine.gpus.watch import Timeouts


def main(arguments: Sequence[str] | None = None) -> int:
    """Print snapshots until the parent exits or closes the pipe; return 0 then, 130 after Ctrl+C."""
    options = _parser().parse_args(arguments)
    parent = Parent()
    timeouts = Timeouts(
        silent_s=options.silent, first_s=options.first, retry_s=options.retry, rediscover_s=options.again
    )
    sampler = Sampler(options.interval, timeouts, basics=options.only_basics)
    if options.listen:
        request = functools.partial(_request, sampler)
        threading.Thread(target=read_lines, args=(request,), name="listener", daemon=True).start()
    try:
        snapshots = iter([sampler.once(parent)]) if options.once else sampler.snapshots(parent)
        for snapshot in snapshots:
            sys.stdout.buffer.write(msgspec.json.encode(snapshot) + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # avoids an error from the flush at exit
    except KeyboardInterrupt:
        return 130
    finally:
        sampler.close()
    return 0


def _request(sampler: Sampler, line: bytes) -> None:
    try:
        sampler.request(msgspec.json.decode(line, type=SnapshotRequest))
    except msgspec.DecodeError as error:
        print(f"Skipping a line that could not be parsed: {error}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
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
    value = float(text)
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError("choose an interval between 0.05 and 3600 seconds")
    return value


if __name__ == "__main__":
    sys.exit(main())
