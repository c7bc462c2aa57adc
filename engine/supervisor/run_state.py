"""States of an execution, and the table of their transitions."""

from __future__ import annotations

from enum import Enum, auto


class RunState(Enum):
    """State of an execution of a run between the start of its supervisor and its end."""

    IDENTIFYING = auto()  # `RunStarted` has not been logged, because the names of the GPUs are pending
    QUEUED = auto()  # the start gate is closed: weights, queue slot, GPU check or imports are pending
    TRAINING = auto()  # workers are running
    RESTARTING = auto()  # the workers of a failed attempt are exiting; another attempt follows
    FAILING = auto()  # workers are exiting after a failure that ends the run
    ENDING = auto()  # workers are exiting at the request of a user or a signal
    RELEASING = auto()  # all workers have exited; GPUs are releasing their memory
    FINISHED = auto()  # `RunFinished` is the only event that is still logged


class Trigger(Enum):
    """Reason for which an execution of a run enters its next state."""

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
"""Next state for each state and trigger. If another combination occurs, this is a bug, and the run fails."""

HAS_WORKERS = frozenset((_S.TRAINING, _S.RESTARTING, _S.FAILING, _S.ENDING))
"""States that end when the last worker has exited. In `FAILING` and `ENDING`, there may be no workers to wait for."""
BEFORE_END = frozenset((_S.IDENTIFYING, _S.QUEUED, *HAS_WORKERS))
"""States that a stop or pause command ends."""
USES_GATE = frozenset((_S.IDENTIFYING, _S.QUEUED, _S.TRAINING, _S.RESTARTING, _S.FAILING))
"""States that poll the start gate to get or to renew the queue slot."""
