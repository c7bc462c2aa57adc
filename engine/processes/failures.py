"""Descriptions of worker failures, and the choice of the failure that has caused the others."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.contract.devices import is_gpu
from engine.contract.events import Failed
from engine.processes.nccl_errors import extract_description, find_known_error, is_nccl_error
from engine.system.files import read_end
from engine.system.format import describe_exit

TAIL_LINES = 5
_TAIL_BYTES = 8192
_PEER_LOST = re.compile(
    r"closed by peer|connection reset|broken pipe|connection refused|nccl|gloo|timed out|socket|store", re.IGNORECASE
)

FOLLOWING, LIKELY, CERTAIN = 0, 1, 2
"""Certainty of a failure that may follow from another one, is probably the root cause, or certainly is it."""


class Failure(NamedTuple):
    """Failure of a rank, and the certainty that it is not a consequence of another failure.

    The failure with the highest certainty is considered the root cause.
    """

    event: Failed
    certainty: int


def describe_death(rank: int, exit_code: int, log: Path) -> Failed:
    """Describe the failure of a worker that exited with `exit_code` without reporting an error.

    The cause contains the last lines of the worker's file `log`. The kind of the failure is "fault" if a restart may
    help, or "error" if it would happen again.
    """
    exit_text = describe_exit(exit_code)
    if exit_code >= 0:
        exit_text += " without reporting an error"
    elif -exit_code == getattr(signal, "SIGBUS", 0):  # Windows has no SIGBUS
        exit_text += "; a memory-mapped file (the dataset's idx file or the cache) was truncated, or its disk failed"
    tail = log_tail(log)
    nccl_error = find_known_error(tail) if is_nccl_error(tail) else None
    if nccl_error is not None:
        cause = f"{nccl_error.meaning} Rank {rank} {exit_text}: {extract_description(tail)}"
        return Failed(cause=cause, rank=rank, kind="fault" if nccl_error.is_transient else "error")
    log_text = f"Last lines of {log.name}: {tail}" if tail else f"{log.name} is empty."
    return Failed(cause=f"Rank {rank} {exit_text}. {log_text}", rank=rank, kind="fault")


def describe_stuck(ranks: Collection[int], devices: Iterable[str]) -> Failed:
    """Describe the failure of the workers `ranks`, which have survived SIGKILL.

    The cause is the driver of the GPU if one of the run's `devices` is a GPU, otherwise a slow machine or disk.
    """
    text = f"Rank {', '.join(map(str, sorted(ranks)))} can't be killed"
    if any(map(is_gpu, devices)):
        cause = f"{text}: it hangs in a call of the GPU's driver. Restart the machine."
    else:
        cause = (
            f"{text}: its machine is overloaded, or a disk or network folder doesn't respond. Check them, then train "
            "again."
        )
    return Failed(cause=cause, rank=min(ranks))


def log_tail(log: Path) -> str:
    """Return the last `TAIL_LINES` lines of a worker's log file that aren't blank, or "" if it can't be read."""
    try:
        lines = read_end(log, _TAIL_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return ""
    return "\n".join([line for line in lines if line.strip()][-TAIL_LINES:])


def certainty_of_report(event: Failed) -> int:
    """Return the certainty (`FOLLOWING` or `LIKELY`) that a failure reported by a rank is the root cause.

    It is lower for a lost connection, which is usually a consequence of another rank's death.
    """
    return FOLLOWING if event.kind == "fault" and _PEER_LOST.search(event.cause) else LIKELY


def certainty_of_death(event: Failed, exit_code: int) -> int:
    """Return the certainty that the failure `event`, a worker's exit without a reported error, is the root cause.

    A worker that was killed by a signal certainly caused the group's failure, except for SIGABRT: NCCL's watchdog
    aborts a process with it after another rank has exited. For other exit codes, see `certainty_of_report`.
    """
    if exit_code < 0 and -exit_code != signal.SIGABRT:
        return CERTAIN
    return certainty_of_report(event)


def find_root_cause(failures: Sequence[Failure]) -> Failure:
    """Return the failure that has most certainly caused the other failures. Among equals, return the earliest."""
    return max(failures, key=lambda failure: failure.certainty)
