"""Detection of hanging ranks, with a simulated clock."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.events import Failed, Warned
from engine.contract.worker import Heartbeat
from engine.processes.watchdog import LIMITS, HangWatch, Limits

HEARTBEAT_S = 1.0


class Ranks:
    """Simulated ranks with a watchdog.

    Each rank sends its heartbeat in `beats` every second. A rank whose entry is None sends none.
    """

    def __init__(self, *beats: Heartbeat | None, limits: Limits = LIMITS) -> None:
        self.now = 1000.0
        self.heartbeats = list(beats)
        self.since = [self.now] * len(beats)
        self.stopped: set[int] = set()  # ranks that a signal has suspended
        self.watch = HangWatch(len(beats), self.now, limits, lambda rank: 40 + rank if rank in self.stopped else None)
        self.events: list[Failed | Warned] = []

    def set(self, rank: int, heartbeat: Heartbeat | None) -> None:
        self.heartbeats[rank], self.since[rank] = heartbeat, self.now

    def run(self, seconds: float) -> list[Failed | Warned]:
        """Advance the clock by `seconds`, or until a rank is reported as hanging. Return the events."""
        events: list[Failed | Warned] = []
        end = self.now + seconds
        while self.now < end and not any(isinstance(found, Failed) for found in events):
            self.now += HEARTBEAT_S
            for rank, heartbeat in enumerate(self.heartbeats):
                if heartbeat is not None:
                    fields: dict[str, Any] = {
                        "activity": heartbeat.activity,
                        "longest_step_s": heartbeat.longest_step_s,
                    }
                    fields |= {
                        "thread_state": heartbeat.thread_state,
                        "location": heartbeat.location,
                        "seconds": self.now - self.since[rank],
                    }
                    self.watch.on_message(rank, self.now, Heartbeat(heartbeat.step, **fields))
            found = self.watch.check(self.now)
            events += [found] if found is not None else []
        return events

    def advance(self, seconds: float) -> None:
        """Advance the clock while all ranks make progress. No event may occur."""
        for _ in range(int(seconds)):
            self.since = [self.now] * len(self.heartbeats)
            assert self.run(1) == []


def make_heartbeat(activity: Any, step: int = 7, longest: float = 0.5, **fields: Any) -> Heartbeat:
    return Heartbeat(step, activity=activity, longest_step_s=longest, **fields)


STEP, AGREE = make_heartbeat("step"), make_heartbeat("agree")
COMPUTING = make_heartbeat("step", thread_state="working", location="forward (net.py, line 7)")
READING = make_heartbeat("data", thread_state="reading", location="get (loader.py, line 9)")
WAITING = make_heartbeat("step", thread_state="waiting", location="_engine_run_backward (graph.py, line 8)")


def test_silent_rank_fails_with_its_last_activity() -> None:
    ranks = Ranks(STEP, STEP, STEP)
    ranks.advance(20)
    ranks.set(1, None)
    (failed,) = ranks.run(30)
    assert isinstance(failed, Failed)
    assert (failed.rank, failed.step) == (1, 8)
    assert "Rank 1 has not responded for 11 s, while other ranks still do" in failed.cause
    assert "rank 1 was computing step 8" in failed.cause
    assert "worker-1.log" in failed.cause


def test_silent_ranks_are_all_named() -> None:
    ranks = Ranks(STEP, STEP, STEP, STEP)
    ranks.advance(20)
    for rank in (0, 2, 3):
        ranks.set(rank, None)
    ranks.watch.on_message(3, ranks.now + 0.6)
    ranks.stopped = {2}
    warned, failed = ranks.run(30)
    assert (type(warned), warned.rank) == (Warned, 2)
    assert "kill -CONT 42" in str(warned)
    assert "Ranks 0, 2 and 3 have not responded for 10 s" in str(failed)
    assert "hanging" in str(failed), "only one of them was stopped"
    assert "rank 0 was computing step 8 and rank 2 was computing step 8 and rank 3 was" in str(failed)
    assert "worker-0.log and worker-2.log and worker-3.log" in str(failed)


def test_stopped_rank_warns_long_before_it_fails() -> None:
    ranks = Ranks(STEP, STEP)
    ranks.advance(20)
    for rank in (0, 1):
        ranks.set(rank, None)
    ranks.stopped = {1}
    *warnings, failed = ranks.run(200)
    assert [(event.code, event.rank) for event in warnings if isinstance(event, Warned)] == [
        ("stopped", 1),
        ("silent", 0),
    ]
    assert isinstance(failed, Failed)
    assert (failed.rank, failed.step, ranks.now) == (1, 8, 1020 + 4 + LIMITS.stopped + 1)


def test_time_limit_of_a_stopped_rank_restarts_if_it_was_resumed() -> None:
    ranks = Ranks(STEP)
    ranks.advance(20)
    ranks.set(0, None)
    ranks.stopped = {0}
    assert len(ranks.run(LIMITS.stopped)) == 1
    ranks.now += 3600
    assert isinstance(ranks.watch.check(ranks.now), Warned), "this process may have been stopped, too"
    ranks.stopped = set()
    assert [event.code for event in ranks.run(20) if isinstance(event, Warned)] == ["silent"]
    ranks.stopped = {0}
    assert [event.code for event in ranks.run(LIMITS.stopped) if isinstance(event, Warned)] == ["stopped"]
    assert isinstance(ranks.run(2)[-1], Failed)


def test_silence_limit_is_longer_before_training() -> None:
    ranks = Ranks(make_heartbeat(""), make_heartbeat(""))
    ranks.advance(10)
    ranks.set(1, None)
    assert ranks.run(LIMITS.silent_preparing - 2) == []
    assert isinstance(ranks.run(10)[-1], Failed)


def test_rank_that_never_starts_fails() -> None:
    ranks = Ranks(STEP, None)
    warned, failed = ranks.run(400)
    assert isinstance(failed, Failed)
    assert (warned.rank, failed.rank, failed.step, ranks.now) == (1, 1, None, 1000 + LIMITS.first_step + 1)
    assert "rank 1 had not started yet" in failed.cause


def test_silence_of_all_ranks_warns_long_before_it_fails() -> None:
    ranks = Ranks(STEP, STEP)
    ranks.advance(10)
    ranks.set(0, None)
    ranks.set(1, None)
    events = ranks.run(2000)
    assert [(type(event), event.rank) for event in events] == [(Warned, 0), (Warned, 1), (Failed, 0)]
    assert ranks.now == pytest.approx(1010 + 10 * LIMITS.silent_warning + 1)


def test_silence_of_a_single_rank_warns_once() -> None:
    ranks = Ranks(STEP)
    ranks.advance(10)
    ranks.set(0, None)
    assert [type(event) for event in ranks.run(1000)] == [Warned]
    ranks.set(0, STEP)
    ranks.advance(10)
    ranks.set(0, None)
    assert [type(event) for event in ranks.run(1000)] == [Warned]


def test_gap_between_checks_is_not_silence() -> None:
    ranks = Ranks(STEP, STEP)
    ranks.advance(20)
    for _ in range(2):
        ranks.now += 3600
        assert ranks.watch.check(ranks.now) is None
    ranks.now += 3600
    ranks.watch.on_message(0, ranks.now, STEP)  # the first rank to respond, just before the other
    assert ranks.watch.check(ranks.now) is None
    ranks.advance(20)
    ranks.set(1, None)
    assert ranks.run(8) == []
    ranks.now += 3600
    assert ranks.watch.check(ranks.now) is None
    assert "Rank 1 has not responded for 14 s" in str(ranks.run(10)), "8 s of them before the gap"


def test_ranks_delayed_together_do_not_fail() -> None:
    ranks = Ranks(STEP, STEP)
    ranks.advance(20)
    for rank in (0, 1):
        ranks.set(rank, None)
    assert ranks.run(60) == []
    ranks.watch.on_message(0, ranks.now, STEP)
    assert ranks.watch.check(ranks.now) is None
    ranks.set(0, STEP)
    assert ranks.run(3) == []
    ranks.watch.on_message(1, ranks.now, STEP)
    ranks.set(1, STEP)
    ranks.advance(20)


def test_removed_rank_is_not_silent() -> None:
    ranks = Ranks(STEP, STEP)
    ranks.advance(20)
    ranks.set(1, None)
    ranks.watch.remove_rank(1)
    assert ranks.run(600) == []


def test_working_rank_blocks_waiting_ranks() -> None:
    ranks = Ranks(WAITING, COMPUTING, AGREE)
    events = ranks.run(100)
    assert ranks.now == pytest.approx(1031)
    (failed,) = events
    assert isinstance(failed, Failed)
    assert (failed.rank, failed.step) == (1, 8)
    assert "Rank 1 blocks the run: for 31 s rank 1 has been computing step 8" in failed.cause
    assert "in forward (net.py, line 7)" in failed.cause
    assert "while ranks 0 and 2 wait" in failed.cause


def test_stuck_limit_grows_with_the_longest_step() -> None:
    slow = [
        make_heartbeat("step", longest=longest, thread_state=state)
        for longest, state in ((10.0, "waiting"), (2.0, "working"))
    ]
    ranks = Ranks(*slow)
    assert ranks.run(199) == []
    assert isinstance(ranks.run(5)[-1], Failed)


def test_first_step_may_take_minutes() -> None:
    ranks = Ranks(
        make_heartbeat("step", 0, 0.0, thread_state="waiting"), make_heartbeat("step", 0, 0.0, thread_state="working")
    )
    assert ranks.run(299) == []
    (failed,) = ranks.run(5)
    assert failed.rank == 1
    assert isinstance(failed, Failed)
    assert failed.step == 1


@pytest.mark.parametrize("reading", [READING, make_heartbeat("data")])
def test_slow_disk_warns_long_before_it_fails(reading: Heartbeat) -> None:
    ranks = Ranks(WAITING, reading)
    events = ranks.run(1000)
    assert [type(event) for event in events] == [Warned, Failed]
    assert "Rank 1 blocks the run: for 31 s rank 1 has been loading the images of step 8" in str(events[0])
    assert "while rank 0 waits" in str(events[0])
    assert ranks.now == pytest.approx(1000 + 10 * LIMITS.stuck + 1)
    assert isinstance(events[1], Failed)
    assert (events[0].rank, events[1].rank, events[1].step) == (1, 1, 8)


def test_waiting_ranks_are_all_described() -> None:
    ranks = Ranks(WAITING, AGREE)
    (failed,) = ranks.run(100)
    assert isinstance(failed, Failed)
    assert failed.rank is None
    assert "no single rank is blocking the others" in failed.cause
    assert "rank 0 has been computing step 8, in _engine_run_backward (graph.py, line 8)" in failed.cause
    assert "rank 1 has been waiting for the other ranks after step 7" in failed.cause


def test_busy_rank_is_not_blamed_if_no_rank_is_known_to_wait() -> None:
    ranks = Ranks(COMPUTING, STEP)
    warned, failed = ranks.run(1000)
    assert (type(warned), failed.rank) == (Warned, None)
    assert "rank 0 has been" in str(failed)
    assert "rank 1 has been" in str(failed)


def test_slow_step_of_all_ranks_warns_first() -> None:
    ranks = Ranks(COMPUTING, make_heartbeat("evaluate", thread_state="working"))
    assert [type(event) for event in ranks.run(10 * LIMITS.stuck)] == [Warned]
    (failed,) = ranks.run(5)
    assert isinstance(failed, Failed)
    assert "rank 1 has been validating after step 7" in failed.cause


@pytest.mark.parametrize(
    ("activity", "step", "activity_text"), [("", None, "preparing the training"), ("save", 7, "saving after step 7")]
)
@pytest.mark.parametrize(("thread_state", "limits"), [("working", 10), ("waiting", 1)])
def test_hang_while_preparing_or_saving_fails(
    activity: str, step: int | None, activity_text: str, thread_state: str, limits: int
) -> None:
    ranks = Ranks(make_heartbeat(activity, thread_state=thread_state), make_heartbeat("agree", thread_state="waiting"))
    events = ranks.run(5000)
    assert [type(event) for event in events] == [Warned, Failed][-len(events) :]
    assert ranks.now == pytest.approx(1000 + limits * LIMITS.first_step + 1)
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.rank, failed.step) == (0 if thread_state == "working" else None, step)
    assert activity_text in failed.cause


def test_single_rank_without_progress_warns_once() -> None:
    ranks = Ranks(COMPUTING)
    (warned,) = ranks.run(5000)
    assert isinstance(warned, Warned)
    assert "No progress for 31 s: rank 0 has been computing step 8" in warned.message


def test_single_rank_that_waits_for_its_gpu_fails() -> None:
    events = Ranks(WAITING).run(5000)
    assert [type(event) for event in events] == [Warned, Failed]


def test_progress_of_one_rank_is_progress() -> None:
    ranks = Ranks(WAITING, COMPUTING)
    ranks.run(20)
    ranks.set(1, COMPUTING)
    assert ranks.run(29) == []


def test_progress_allows_another_warning() -> None:
    ranks = Ranks(COMPUTING)
    assert len(ranks.run(100)) == 1
    ranks.advance(5)
    assert len(ranks.run(100)) == 1
