"""Agreement between ranks on what to do after a step, such as saving a checkpoint.

The ranks exchange their requests while they compute the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.strategies.collectives import Collectives


class Requests(NamedTuple):
    """Requests for a stop, a checkpoint, a report, or a recording of the next step by the profiler.

    Each field is True if a single rank or, after an exchange, any of the ranks makes the request.
    """

    stop: bool = False
    checkpoint: bool = False
    report: bool = False
    record: bool = False


class Agreement:
    """Exchange of requests between all ranks after each training step and each validation batch.

    The result of a call is read in the next call, so that no rank has to wait for the slowest one at every step. A
    request therefore takes effect one step later, at the same step on all ranks. A single rank gets its requests back
    immediately.
    """

    def __init__(self, collectives: Collectives, world_size: int) -> None:
        self._collectives = collectives
        self._is_alone = world_size == 1
        self._result: Callable[[], list[int]] | None = None  # waits for the pending exchange, and returns its maxima
        self._sent = Requests()  # this rank's requests in the pending exchange

    def exchange(self, requests: Requests, *, at_once: bool = False) -> Requests:
        """Send this rank's requests, and return those that any rank sent in the previous call.

        With `at_once`, or if the result contains a stop or a checkpoint, the requests of this call are included in the
        result, too. A request that was already sent in the previous call is not sent again. All ranks must call it
        together, with the same `at_once`.
        """
        if self._is_alone:
            return requests
        agreed = self._take_result()
        new = Requests(*(request and not was_sent for request, was_sent in zip(requests, self._sent, strict=True)))
        self._result, self._sent = self._collectives.start_all_reduce_max(list(map(int, new))), new
        if at_once or agreed.stop or agreed.checkpoint:
            latest = self._take_result()
            agreed = Requests(*(is_old or is_late for is_old, is_late in zip(agreed, latest, strict=True)))
            self._sent = Requests()
        return agreed

    def discard_pending(self) -> None:
        """Wait for the pending exchange and ignore its result."""
        self._take_result()
        self._sent = Requests()

    def _take_result(self) -> Requests:
        """Wait for the pending exchange and return the requests of all ranks. Without one, all requests are False."""
        result, self._result = self._result, None
        return Requests(*map(bool, result())) if result is not None else Requests()
