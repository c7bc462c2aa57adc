"""The sampler: `python -m engine.gpus` prints a snapshot of all devices, as one JSON line, per interval.

With --listen, each line of its standard input says what is on screen (`engine.contract.devices.SnapshotRequest`), so
that no more than that is asked for.
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
from engine.gpus.lifeline import Parent, take_lines
from engine.gpus.sampler import Sampler
from engine.gpus.watch import Patience


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints until the parent ends or nobody reads; 0 then, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    parent = Parent()
    patience = Patience(
        silent_s=options.silent, first_s=options.first, retry_s=options.retry, look_again_s=options.again
    )
    sampler = Sampler(options.interval, patience, basics=options.only_basics)
    if options.listen:
        show = functools.partial(_show, sampler)
        threading.Thread(target=take_lines, args=(show,), name="listener", daemon=True).start()
    try:
        snapshots = iter([sampler.once(parent)]) if options.once else sampler.snapshots(parent)
        for snapshot in snapshots:
            sys.stdout.buffer.write(msgspec.json.encode(snapshot) + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the flush at exit complains
    except KeyboardInterrupt:
        return 130
    finally:
        sampler.close()
    return 0


def _show(sampler: Sampler, line: bytes) -> None:
    try:
        sampler.show(msgspec.json.decode(line, type=SnapshotRequest))
    except msgspec.DecodeError as error:
        print(f"Skipping a line that could not be parsed: {error}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.gpus",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--interval", type=_interval_s, default=1.0, metavar="S", help="seconds between snapshots")
    parser.add_argument("--once", action="store_true", help="print one complete snapshot and end")
    parser.add_argument("--listen", action="store_true", help="take what is on screen from standard input")
    parser.add_argument(
        "--only-basics",
        action="store_true",
        help="report only utilization, memory, power, temperature and the pids of processes",
    )
    patience = Patience()
    for option, default, meaning in (
        ("--silent", patience.silent_s, "seconds of NVML's silence until it counts as stuck"),
        ("--first", patience.first_s, "the same for its first answer, for which it wakes the GPUs"),
        ("--retry", patience.retry_s, "seconds until an NVML that is absent is asked again"),
        ("--again", patience.look_again_s, "seconds until a lost GPU is looked for again"),
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
