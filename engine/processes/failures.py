"""Plain words for a worker that failed, and which of several failures was the cause."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.contract.events import Failed
from engine.system.format import exit_words

TAIL_LINES = 5
_TAIL_BYTES = 8192
_PEER_LOST = re.compile(
    r"closed by peer|connection reset|broken pipe|connection refused|nccl|gloo|timed out|socket|store", re.IGNORECASE
)

CERTAIN, OWN, FOLLOWING = 0, 1, 2


class Failure(NamedTuple):
    """A rank's failure and how near to the cause it is: `CERTAIN` to be it, a fault of its `OWN`, or one that may be
    `FOLLOWING` from another's.
    """

    event: Failed
    weight: int


def death(rank: int, exit_code: int, log: Path) -> Failed:
    """The failure of a worker that exited without reporting an error."""
    how = exit_words(exit_code)
    if exit_code >= 0:
        how += " without reporting an error"
    elif -exit_code == getattr(signal, "SIGBUS", 0):
        how += "; a memory-mapped file (the dataset's idx file or the cache) was truncated, or its disk failed"
    tail = log_tail(log)
    said = f" Last lines of {log.name}: {tail}" if tail else f" {log.name} is empty."
    return Failed(cause=f"Rank {rank} {how}.{said}", rank=rank, kind="fault")


def log_tail(log: Path) -> str:
    """The last lines of a worker's log."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return "\n".join([line for line in lines if line.strip()][-TAIL_LINES:])


def weight(event: Failed) -> int:
    """How likely a failure that a rank reports follows from another's: lower is nearer to the cause."""
    return FOLLOWING if _PEER_LOST.search(event.cause) else OWN


def weight_of_death(event: Failed, exit_code: int) -> int:
    """The same for a rank that ended without a word. One that a signal ended did not die of a lost connection; only
    SIGABRT is what PyTorch ends itself with, as NCCL's watchdog does when another rank is gone.
    """
    if exit_code < 0 and -exit_code != signal.SIGABRT:
        return CERTAIN
    return weight(event)


def root_cause(failures: Sequence[Failure]) -> Failure:
    """Of failures that came together, the one that caused the others: a rank that tells of a lost connection mostly
    tells of another's death. Among equals the first to come is taken.
    """
    return min(failures, key=lambda failure: failure.weight)
