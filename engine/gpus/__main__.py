"""The sampler: `python -m engine.gpus` prints a snapshot of all devices, as one JSON line, per interval."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import msgspec

from engine.gpus.lifeline import Parent
from engine.gpus.sampler import Sampler
from engine.gpus.watch import Patience


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints until the parent ends or nobody reads; 0 then, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    parent = Parent()
    patience = Patience(
        silent_s=options.silent, first_s=options.first, retry_s=options.retry, look_again_s=options.again
    )
    sampler = Sampler(options.interval, patience)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.gpus", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--interval", type=_interval_s, default=1.0, metavar="S", help="seconds between snapshots")
    parser.add_argument("--once", action="store_true", help="print one complete snapshot and end")
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
