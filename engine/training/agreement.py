"""Agreement of the ranks on what follows a step, exchanged while they compute the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.strategies.collectives import Collectives


class Requests(NamedTuple):
    """Requests of one rank, or of all: then each is True if any rank has it."""

    stop: bool = False
    checkpoint: bool = False
    report: bool = False
    record: bool = False


class Agreement:
    """Exchange of requests, which all ranks call after each step, or each batch of a validation.

    A result is read at the next call, so that no rank waits for the slowest one at every step: a request takes effect one
    step after the first rank had it, on all ranks after the same step. A single rank has nothing to wait for.
    """

    def __init__(self, collectives: Collectives, world_size: int) -> None:
        self._collectives = collectives
        self._is_alone = world_size == 1
        self._result: Callable[[], list[int]] | None = None
        self._sent = Requests()

    def exchange(self, requests: Requests, *, at_once: bool = False) -> Requests:
        """Send this rank's requests, and return what the ranks agreed on at the last call.

        With `at_once`, and before a stop or a checkpoint, the ranks wait for the requests of this call, too. A request that
        is on its way is not sent again.
        """
        if self._is_alone:
            return requests
        agreed = self._take()
        new = Requests(*(now and not sent for now, sent in zip(requests, self._sent, strict=True)))
        self._result, self._sent = self._collectives.start_all_reduce_max([int(each) for each in new]), new
        if at_once or agreed.stop or agreed.checkpoint:
            agreed = Requests(*(old or late for old, late in zip(agreed, self._take(), strict=True)))
            self._sent = Requests()
        return agreed

    def drop(self) -> None:
        """Complete the last exchange and ignore its result, since nothing is left to decide."""
        self._take()
        self._sent = Requests()

    def _take(self) -> Requests:
        result, self._result = self._result, None
        return Requests(*map(bool, result())) if result is not None else Requests()
