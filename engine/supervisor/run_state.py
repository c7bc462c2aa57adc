"""States of an execution, and the table of transitions between them."""

from __future__ import annotations

from enum import Enum, auto


class RunState(Enum):
    """State of one execution of a run, from its supervisor's start to its end."""

    IDENTIFYING = auto()  # `RunStarted` isn't logged: the names of the GPUs are pending
    QUEUED = auto()  # the start gate is closed: weights, queue, GPU check or imports are pending
    TRAINING = auto()  # workers run
    RESTARTING = auto()  # the workers of a failed attempt end; another attempt follows
    FAILING = auto()  # the workers end after a failure that ends the run
    ENDING = auto()  # the workers end because a user or a signal asked for it
    RELEASING = auto()  # no worker is left; GPUs release their memory
    FINISHED = auto()  # only `RunFinished` remains to be logged


class Trigger(Enum):
    """Cause of a transition."""

    IDENTIFIED = auto()
    GATE_OPENED = auto()
    FAILED_FOR_RETRY = auto()
    FAILED_FOR_GOOD = auto()
    END_REQUESTED = auto()
    WORKERS_GONE = auto()
    MEMORY_RELEASED = auto()


_S, _T = RunState, Trigger

TRANSITIONS: dict[tuple[RunState, Trigger], RunState] = {
    (_S.IDENTIFYING, _T.IDENTIFIED): _S.QUEUED,
    (_S.QUEUED, _T.GATE_OPENED): _S.TRAINING,
    (_S.QUEUED, _T.FAILED_FOR_GOOD): _S.FAILING,
    (_S.QUEUED, _T.END_REQUESTED): _S.ENDING,
    (_S.TRAINING, _T.FAILED_FOR_RETRY): _S.RESTARTING,
    (_S.TRAINING, _T.FAILED_FOR_GOOD): _S.FAILING,
    (_S.TRAINING, _T.END_REQUESTED): _S.ENDING,
    (_S.TRAINING, _T.WORKERS_GONE): _S.RELEASING,
    (_S.RESTARTING, _T.FAILED_FOR_GOOD): _S.FAILING,
    (_S.RESTARTING, _T.END_REQUESTED): _S.ENDING,
    (_S.RESTARTING, _T.WORKERS_GONE): _S.TRAINING,
    (_S.FAILING, _T.END_REQUESTED): _S.FAILING,
    (_S.FAILING, _T.WORKERS_GONE): _S.RELEASING,
    (_S.ENDING, _T.FAILED_FOR_GOOD): _S.FAILING,
    (_S.ENDING, _T.END_REQUESTED): _S.ENDING,
    (_S.ENDING, _T.WORKERS_GONE): _S.RELEASING,
    (_S.RELEASING, _T.MEMORY_RELEASED): _S.FINISHED,
}
"""Next state by state and trigger. Any other pair is a bug, and ends the run as a failure of Footplate."""

HAS_WORKERS = frozenset((_S.TRAINING, _S.RESTARTING, _S.FAILING, _S.ENDING))
"""States that end when the last worker has exited. In `FAILING` and `ENDING`, none may have been started."""
BEFORE_END = frozenset((_S.IDENTIFYING, _S.QUEUED, *HAS_WORKERS))
"""States in which stop and pause have an effect."""
USES_GATE = frozenset((_S.IDENTIFYING, _S.QUEUED, _S.TRAINING, _S.RESTARTING, _S.FAILING))
"""States in which the queue slot is acquired or renewed."""
