"""Which rank of a run hangs, from what the ranks say and from how long they have said nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.contract.events import Failed, Warned
from engine.contract.worker import Heartbeat, Standing

GAP_S = 2.0
"""A supervisor that has not checked for this long was itself delayed, so that no rank is judged by that time."""
STEADY_S = 3.0
"""A rank whose messages come at shorter intervals is alive."""
PATIENCE = 10.0
"""How many times as long as others a rank may take that reads images (a slow disk is no fault), or for which nobody
waits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which a rank is held to hang.

    `silent`: it says nothing while others do; `silent_preparing` before training begins, when imports and the user's
    own code may hold the interpreter; `silent_warning`: it says nothing and nobody else does; `stopped`: the same of
    one that a signal has stopped, which is then taken for dead. `stuck`: nothing goes on, though all live, or after
    `stuck_steps` times the longest step, whichever is longer; `first_step`: the same before a step was timed, and for
    a worker that has yet to say its first word.
    """

    silent: float = 10.0
    silent_preparing: float = 60.0
    silent_warning: float = 120.0
    stopped: float = 120.0
    stuck: float = 30.0
    stuck_steps: float = 20.0
    first_step: float = 300.0


LIMITS = Limits()


@dataclass(slots=True)
class _Rank:
    """`heard_at` is the time of its last word, `steady_since` of the first one since it was silent last, `stopped_at`
    when it was seen to be stopped, which it still is.
    """

    heard_at: float
    steady_since: float
    beat: Heartbeat | None = None
    beat_at: float = 0.0
    warned_silent: bool = False
    stopped_at: float | None = None

    def seconds(self, now: float) -> float:
        """How long it has been at what its last heartbeat told of."""
        return self.beat.seconds + now - self.beat_at if self.beat is not None else 0.0

    @property
    def standing(self) -> Standing:
        """What it does; where its stack was not looked at, what can be told from its activity."""
        assert self.beat is not None
        by_activity: dict[str, Standing] = {"data": "reading", "agree": "waiting"}
        return self.beat.standing or by_activity.get(self.beat.activity, "")


class HangWatch:
    """Judges the ranks of one run. Times are of a monotonic clock, which stands still while the machine sleeps.
    `stopped` gives the pid of a rank's process if a signal has stopped that.
    """

    def __init__(
        self, world_size: int, now: float, limits: Limits, stopped: Callable[[int], int | None] = lambda _rank: None
    ) -> None:
        self._limits = limits
        self._stopped = stopped
        self._ranks = {rank: _Rank(now, now) for rank in range(world_size)}
        self._world_size = world_size
        self._looked_at = now
        self._warned_stuck: tuple[int, ...] | None = None

    def heard(self, rank: int, now: float, beat: Heartbeat | None = None) -> None:
        """Notes a word of `rank`'s, which may be a heartbeat."""
        one = self._ranks.get(rank)
        if one is None:
            return
        if now - one.heard_at > STEADY_S:
            one.steady_since = now
        one.heard_at = now
        one.warned_silent, one.stopped_at = False, None
        if beat is not None:
            one.beat, one.beat_at = beat, now

    def left(self, rank: int) -> None:
        """`rank` has nothing more to say: its channel is closed."""
        self._ranks.pop(rank, None)

    def judge(self, now: float) -> Failed | Warned | None:
        """What is to be said of the ranks at `now`: a `Failed` where one hangs. To be asked every second or so."""
        gap = now - self._looked_at
        self._looked_at = now
        if gap > GAP_S:
            for one in self._ranks.values():
                one.heard_at = min(now, one.heard_at + gap)
                one.beat_at = min(now, one.beat_at + gap)
                one.steady_since, one.stopped_at = now, None
        return self._silence(now) or self._standstill(now)

    def _silence(self, now: float) -> Failed | Warned | None:
        silent = [rank for rank, one in self._ranks.items() if now - one.heard_at > self._silence_limit(one)]
        limit = self._limits.silent
        others_live = any(
            now - one.heard_at < STEADY_S and now - one.steady_since > limit / 2
            for rank, one in self._ranks.items()
            if rank not in silent
        )
        if silent and others_live:
            return self._silent_failure(silent, now)
        for rank, one in self._ranks.items():
            pid = self._stopped(rank) if now - one.heard_at > STEADY_S else None
            if pid is not None and (word := self._standing_still(rank, pid, now)):
                return word
            if pid is not None:
                continue
            one.stopped_at = None
            seconds = now - one.heard_at
            if seconds > self._limits.silent_warning and not one.warned_silent:
                one.warned_silent = True
                text = f"Rank {rank} hasn't responded for {seconds:.0f} s and may be hanging. Stop ends it."
                return Warned(code="silent", message=text, rank=rank)
        return None

    def _standing_still(self, rank: int, pid: int, now: float) -> Failed | Warned | None:
        """What is to be said of a rank that a signal has stopped."""
        one = self._ranks[rank]
        if one.stopped_at is None:
            one.stopped_at = now
            text = (
                f"Rank {rank} was stopped by a signal. `kill -CONT {pid}` resumes it; if it stays stopped, "
                "the run fails."
            )
            return Warned(code="stopped", message=text, rank=rank)
        seconds = now - one.stopped_at
        if seconds <= self._limits.stopped:
            return None
        text = (
            f"Rank {rank} was stopped by a signal and hasn't resumed for {seconds:.0f} s. "
            f"{self._last_signs([rank])} See {_logs([rank])}."
        )
        return Failed(cause=text, rank=rank, step=self._step(rank), kind="fault")

    def _silence_limit(self, one: _Rank) -> float:
        if one.beat is None:
            return self._limits.first_step
        return self._limits.silent_preparing if one.beat.activity == "" else self._limits.silent

    def _silent_failure(self, silent: list[int], now: float) -> Failed:
        seconds = min(now - self._ranks[rank].heard_at for rank in silent)
        several = len(silent) > 1
        stopped = "they were" if several else "it was"
        if any(self._ranks[rank].stopped_at is None for rank in silent):
            stopped = "they are hanging or were" if several else "it is hanging or was"
        text = (
            f"{_ranks(silent)} {('have' if several else 'has')} not responded for {seconds:.0f} s, while "
            f"other ranks still do: {stopped} stopped. {self._last_signs(silent)} See {_logs(silent)}."
        )
        return Failed(cause=text, rank=silent[0], step=self._step(silent[0]), kind="fault")

    def _last_signs(self, silent: list[int]) -> str:
        beats = [(rank, self._ranks[rank].beat) for rank in silent]
        told = [
            f"rank {rank} was {_activity(beat)}" if beat else f"rank {rank} had not started yet" for rank, beat in beats
        ]
        return f"When last heard from, {' and '.join(told)}."

    def _standstill(self, now: float) -> Failed | Warned | None:
        """All live and yet nothing goes on: the culprit is the rank that does not wait for the others."""
        beats = [one.beat for one in self._ranks.values() if one.beat is not None and now - one.heard_at < STEADY_S]
        # A rank that has left is about to end, and one that is silent is judged by that.
        if len(beats) < self._world_size:
            return None
        seconds = min(one.seconds(now) for one in self._ranks.values())
        limit = self._standstill_limit(beats)
        if seconds <= limit:
            self._warned_stuck = None
            return None
        waiting = [rank for rank, one in self._ranks.items() if one.standing == "waiting"]
        busy = [rank for rank, one in self._ranks.items() if one.standing in ("working", "reading")]
        culprits = busy if waiting and busy else list(self._ranks)
        if seconds > limit * self._patience(waiting, busy, beats):
            return self._standstill_failure(culprits, seconds)
        return self._standstill_warning(culprits, seconds)

    def _patience(self, waiting: list[int], busy: list[int], beats: list[Heartbeat]) -> float:
        """How many times the limit is borne."""
        # What is under way before training and while saving has no measure: weights are fetched, a disk is slow.
        if self._world_size == 1 or any(beat.activity in ("", "save") for beat in beats):
            return float("inf")
        if busy and (not waiting or all(self._ranks[rank].standing == "reading" for rank in busy)):
            return PATIENCE
        return 1.0

    def _standstill_limit(self, beats: list[Heartbeat]) -> float:
        longest = [beat.longest_step_s for beat in beats]
        if not all(longest) or any(beat.activity == "" for beat in beats):
            return self._limits.first_step
        return max(self._limits.stuck, self._limits.stuck_steps * max(longest))

    def _standstill_failure(self, culprits: list[int], seconds: float) -> Failed:
        first = culprits[0]
        if len(culprits) < self._world_size:
            text = f"{self._held_up_by(culprits, seconds)} See {_logs(culprits)}."
        else:
            where = "; ".join(f"rank {rank} {_location(self._ranks[rank])}" for rank in culprits)
            text = (
                f"No progress for {seconds:.0f} s, and no single rank is blocking the others: {where}. See "
                f"{_logs(culprits)}."
            )
        rank = first if len(culprits) == 1 else None
        return Failed(cause=text, rank=rank, step=self._step(first), kind="fault")

    def _held_up_by(self, culprits: list[int], seconds: float) -> str:
        told = "; ".join(f"rank {rank} {_location(self._ranks[rank])}" for rank in culprits)
        others = [rank for rank in self._ranks if rank not in culprits]
        wait = "wait" if len(others) > 1 else "waits"
        holds = "block" if len(culprits) > 1 else "blocks"
        return f"{_ranks(culprits)} {holds} the run: for {seconds:.0f} s {told}, while {_ranks(others).lower()} {wait}."

    def _standstill_warning(self, culprits: list[int], seconds: float) -> Warned | None:
        if self._warned_stuck == tuple(culprits):
            return None
        self._warned_stuck = tuple(culprits)
        if len(culprits) < self._world_size:
            text = self._held_up_by(culprits, seconds)
        else:
            where = "; ".join(f"rank {rank} {_location(self._ranks[rank])}" for rank in culprits)
            text = f"No progress for {seconds:.0f} s: {where}."
        return Warned(code="stuck", message=f"{text} Stop ends the run.", rank=culprits[0])

    def _step(self, rank: int) -> int | None:
        beat = self._ranks[rank].beat
        if beat is None or beat.activity == "":
            return None
        return beat.step + (beat.activity in ("data", "step"))


def _activity(beat: Heartbeat) -> str:
    """What a rank is about, after "was"."""
    match beat.activity:
        case "":
            return "preparing the training"
        case "data":
            return f"loading the images of step {beat.step + 1}"
        case "step":
            return f"computing step {beat.step + 1}"
        case "agree":
            return f"waiting for the other ranks after step {beat.step}"
        case "evaluate":
            return f"validating after step {beat.step}"
        case "save":
            return f"saving after step {beat.step}"


def _location(one: _Rank) -> str:
    """What a rank does, after its name."""
    assert one.beat is not None
    doing = _activity(one.beat)
    at = f", in {one.beat.location}" if one.beat.location else ""
    return f"has been {doing}{at}"


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _logs(ranks: list[int]) -> str:
    return " and ".join(f"worker-{rank}.log" for rank in ranks)
