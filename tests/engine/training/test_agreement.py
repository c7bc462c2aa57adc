"""Requests that ranks exchange after each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.strategies.collectives import Collectives
from engine.training.agreement import Agreement, Requests

NONE, STOP, SAVE, REPORT = Requests(), Requests(stop=True), Requests(checkpoint=True), Requests(report=True)


class _OtherRank(Collectives):
    """Collectives with a simulated second rank. In each exchange, it sends the next of the requests `others`."""

    def __init__(self, *others: Requests) -> None:
        self.others = list(others)
        self.log: list[str] = []
        self.sent: list[Requests] = []

    def start_all_reduce_max(self, flags: Sequence[int]) -> Callable[[], list[int]]:
        other = self.others.pop(0) if self.others else NONE
        self.sent.append(Requests(*map(bool, flags)))
        number = len(self.sent)
        self.log.append(f"start {number}")

        def result() -> list[int]:
            self.log.append(f"read {number}")
            return [max(mine, int(theirs)) for mine, theirs in zip(flags, other, strict=True)]

        return result


def test_result_is_read_after_the_next_step() -> None:
    collectives = _OtherRank(REPORT)
    agreement = Agreement(collectives, 2)
    assert [agreement.exchange(NONE) for _ in range(3)] == [NONE, REPORT, NONE]
    assert collectives.log == ["start 1", "read 1", "start 2", "read 2", "start 3"]


def test_request_takes_effect_once() -> None:
    collectives = _OtherRank()
    agreement = Agreement(collectives, 2)
    # The metrics remain pending until the agreed report.
    assert [agreement.exchange(each) for each in (REPORT, REPORT, NONE)] == [NONE, REPORT, NONE]
    assert collectives.sent == [REPORT, NONE, NONE]


def test_checkpoint_requested_at_different_steps_is_saved_once() -> None:
    agreement = Agreement(_OtherRank(NONE, SAVE), 2)
    assert [agreement.exchange(each) for each in (SAVE, SAVE, NONE, NONE)] == [NONE, SAVE, NONE, NONE]


def test_last_step_waits_for_requests() -> None:
    collectives = _OtherRank(NONE, STOP)
    agreement = Agreement(collectives, 2)
    assert agreement.exchange(REPORT) == NONE
    assert agreement.exchange(NONE, at_once=True) == Requests(stop=True, report=True)
    assert collectives.log[-1] == "read 2"
    assert agreement.exchange(REPORT, at_once=True) == REPORT
    agreement.exchange(REPORT)
    assert collectives.sent[2:] == [REPORT, REPORT], "the first one has taken effect"


def test_stop_includes_the_requests_of_its_step() -> None:
    agreement = Agreement(_OtherRank(STOP, REPORT), 2)
    assert [agreement.exchange(NONE) for _ in range(3)] == [NONE, Requests(stop=True, report=True), NONE]


def test_dropped_request_is_sent_again() -> None:
    collectives = _OtherRank()
    agreement = Agreement(collectives, 2)
    agreement.exchange(STOP)
    agreement.discard_pending()
    assert collectives.log == ["start 1", "read 1"]
    assert [agreement.exchange(STOP), agreement.exchange(STOP)] == [NONE, STOP]
    assert collectives.sent[1] == STOP


def test_single_rank_does_not_wait() -> None:
    collectives = _OtherRank()
    assert Agreement(collectives, 1).exchange(STOP) == STOP
    assert not collectives.log
