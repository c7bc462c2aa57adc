"""Detection of hanging ranks from their messages and their silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.contract.events import Failed, Warned
from engine.contract.worker import Heartbeat, ThreadState

MAX_CHECK_INTERVAL_S = 2.0
"""Maximum time in seconds between two checks by a supervisor that is not delayed.

After a longer time, silence of the ranks is not counted.
"""
MAX_MESSAGE_INTERVAL_S = 3.0
"""Maximum time in seconds between two messages of a rank that does not hang."""
PATIENCE_FACTOR = 10.0
"""Factor on the time limits for ranks that read images, prepare or save, since a slow disk is not a failure.

It also applies to a rank that no other rank waits for.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits for ranks in seconds.

    - `silent`: A rank hangs if it sends no message for this time while other ranks do.
    - `silent_preparing`: The value of `silent` before the training, when imports and user code may block the
      interpreter.
    - `silent_warning`: The user is warned if no rank sends a message for this time. Several ranks hang after
      `PATIENCE_FACTOR` times as long.
    - `stopped`: A rank hangs if a signal has suspended it for this time.
    - `stuck`: The user is warned if all ranks send messages but make no progress for this time, or for `stuck_steps`
      times
      the longest step, if that is longer. `HangWatch._get_failure_limit` determines when they hang.
    - `first_step`: The value of `stuck` before a step has been timed, and of `silent` before a worker's first
      heartbeat.
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
class _RankState:
    """State of a rank, as known from its messages.

    Attributes:
        steady_since: Time since which it has sent messages without a long silence.
        heartbeat: Last heartbeat, or None.
        heartbeat_at: Time of the last heartbeat.
        is_silence_reported: True if the current silence was reported.
        stopped_at: Time at which it was noticed that a signal has suspended it, or None.
    """

    last_message_at: float
    steady_since: float
    heartbeat: Heartbeat | None = None
    heartbeat_at: float = 0.0
    is_silence_reported: bool = False
    stopped_at: float | None = None

    def get_activity_s(self, now: float) -> float:
        """Return the duration of the rank's current activity until now, in seconds."""
        return self.heartbeat.seconds + now - self.heartbeat_at if self.heartbeat is not None else 0.0

    @property
    def thread_state(self) -> ThreadState:
        """State of the rank's main thread: working, reading or waiting, or "" if it is unknown.

        It is determined from the thread's stack or, if that was not inspected, from its activity.
        """
        assert self.heartbeat is not None
        by_activity: dict[str, ThreadState] = {"data": "reading", "agree": "waiting"}
        return self.heartbeat.thread_state or by_activity.get(self.heartbeat.activity, "")

    @property
    def description(self) -> str:
        """Words about the rank's activity and code location that follow its name: "has been computing step 7"."""
        assert self.heartbeat is not None
        location = f", in {self.heartbeat.location}" if self.heartbeat.location else ""
        return f"has been {_describe_activity(self.heartbeat)}{location}"


class HangWatch:
    """Watchdog that finds ranks of one run that hang or may hang. `check` returns them as a failure or a warning.

    Times are those of a monotonic clock that pauses while the machine sleeps.
    """

    def __init__(
        self, world_size: int, now: float, limits: Limits, find_stopped_pid: Callable[[int], int | None]
    ) -> None:
        """Watch all ranks from the time `now` on.

        `find_stopped_pid` returns the process id of a rank if a signal has suspended it, otherwise None.
        """
        self._limits = limits
        self._find_stopped_pid = find_stopped_pid
        self._ranks = {rank: _RankState(last_message_at=now, steady_since=now) for rank in range(world_size)}
        self._world_size = world_size
        self._checked_at = now  # time of the last check
        self._reported_culprits: tuple[int, ...] | None = None  # ranks in the last warning about missing progress

    def on_message(self, rank: int, now: float, heartbeat: Heartbeat | None = None) -> None:
        """Record that a rank has sent a message. `heartbeat` is the message if it is a heartbeat."""
        state = self._ranks.get(rank)
        if state is None:  # it was removed
            return
        if now - state.last_message_at > MAX_MESSAGE_INTERVAL_S:
            state.steady_since = now
        state.last_message_at = now
        state.is_silence_reported = False
        if heartbeat is not None:
            state.heartbeat, state.heartbeat_at = heartbeat, now

    def remove_rank(self, rank: int) -> None:
        """Stop watching a rank, whose channel has been closed."""
        self._ranks.pop(rank, None)

    def check(self, now: float) -> Failed | Warned | None:
        """Return a failure if a rank hangs, a warning if it may hang, and otherwise None.

        This must be called about once a second.
        """
        gap = now - self._checked_at
        self._checked_at = now
        if gap > MAX_CHECK_INTERVAL_S:
            # This process was delayed, and could not receive messages. The gap must not count as silence of the ranks.
            for state in self._ranks.values():
                state.last_message_at = min(now, state.last_message_at + gap)
                state.heartbeat_at = min(now, state.heartbeat_at + gap)
                state.steady_since, state.stopped_at = now, None
        return self._check_silence(now) or self._check_progress(now)

    def _check_silence(self, now: float) -> Failed | Warned | None:
        """Check whether ranks send no messages.

        Return a failure if other ranks send messages, or if all of several ranks have been silent for too long. Return
        a warning when the silence of a rank is first noticed, and otherwise None. A rank that is suspended by a signal
        has a time limit of its own.
        """
        silent = [
            rank for rank, state in self._ranks.items() if now - state.last_message_at > self._get_silence_limit(state)
        ]
        # Ranks that have only just come back after a long silence do not count as alive.
        are_others_alive = any(
            now - state.last_message_at < MAX_MESSAGE_INTERVAL_S and now - state.steady_since > self._limits.silent / 2
            for rank, state in self._ranks.items()
            if rank not in silent
        )
        if silent and are_others_alive:
            return self._create_silence_failure(silent, now)
        for rank, state in self._ranks.items():
            silence_s = now - state.last_message_at
            pid = self._find_stopped_pid(rank) if silence_s > MAX_MESSAGE_INTERVAL_S else None
            if pid is not None:
                event = self._check_stopped(rank, pid, now)
                if event is not None:
                    return event
                continue
            state.stopped_at = None
            if self._world_size > 1 and silence_s > PATIENCE_FACTOR * self._limits.silent_warning:
                text = f"No rank has responded for {silence_s:.0f} s. See {_format_logs([rank])}."
                return Failed(cause=text, rank=rank, step=self._get_current_step(rank), kind="fault")
            if silence_s > self._limits.silent_warning and not state.is_silence_reported:
                state.is_silence_reported = True
                text = f"Rank {rank} hasn't responded for {silence_s:.0f} s and may be hanging. Stop ends it."
                return Warned(code="silent", message=text, rank=rank)
        return None

    def _check_stopped(self, rank: int, pid: int, now: float) -> Failed | Warned | None:
        """Check a rank whose process `pid` is suspended by a signal.

        Return a warning at first, None after that, and a failure after the time limit.
        """
        state = self._ranks[rank]
        if state.stopped_at is None:
            state.stopped_at = now
            text = (
                f"Rank {rank} was stopped by a signal. `kill -CONT {pid}` resumes it; if it stays stopped, "
                "the run fails."
            )
            return Warned(code="stopped", message=text, rank=rank)
        seconds = now - state.stopped_at
        if seconds <= self._limits.stopped:
            return None
        text = (
            f"Rank {rank} was stopped by a signal and hasn't resumed for {seconds:.0f} s. "
            f"{self._describe_last_activities([rank])} See {_format_logs([rank])}."
        )
        return Failed(cause=text, rank=rank, step=self._get_current_step(rank), kind="fault")

    def _get_silence_limit(self, state: _RankState) -> float:
        """Return the maximum time in seconds for which a rank may send no message while others do."""
        if state.heartbeat is None:
            return self._limits.first_step
        return self._limits.silent_preparing if state.heartbeat.activity == "" else self._limits.silent

    def _create_silence_failure(self, silent: list[int], now: float) -> Failed:
        """Create the failure of the ranks `silent`, which send no messages, while other ranks do."""
        seconds = min(now - self._ranks[rank].last_message_at for rank in silent)
        is_plural = len(silent) > 1
        are_all_suspended = all(self._ranks[rank].stopped_at is not None for rank in silent)
        if are_all_suspended:
            reason = "they were stopped" if is_plural else "it was stopped"
        else:
            reason = "they are hanging or were stopped" if is_plural else "it is hanging or was stopped"
        text = (
            f"{_format_ranks(silent)} {('have' if is_plural else 'has')} not responded for {seconds:.0f} s, while "
            f"other ranks still do: {reason}. {self._describe_last_activities(silent)} See {_format_logs(silent)}."
        )
        return Failed(cause=text, rank=silent[0], step=self._get_current_step(silent[0]), kind="fault")

    def _describe_last_activities(self, ranks: list[int]) -> str:
        """Describe in a sentence what `ranks` did at their last heartbeats."""
        heartbeats = [(rank, self._ranks[rank].heartbeat) for rank in ranks]
        texts = [
            f"rank {rank} was {_describe_activity(heartbeat)}" if heartbeat else f"rank {rank} had not started yet"
            for rank, heartbeat in heartbeats
        ]
        return f"When last heard from, {' and '.join(texts)}."

    def _check_progress(self, now: float) -> Failed | Warned | None:
        """Return a failure or a warning if the ranks send messages but make no progress, otherwise None.

        It is a failure once the time limit of `_get_failure_limit` has passed. Ranks that wait for others are not
        reported as the cause if another rank is busy. The same ranks are not warned about twice, unless there was
        progress in between.
        """
        heartbeats = [
            state.heartbeat
            for state in self._ranks.values()
            if state.heartbeat is not None and now - state.last_message_at < MAX_MESSAGE_INTERVAL_S
        ]
        # A missing rank has closed its channel and is exiting, or is silent, which `_check_silence` handles.
        if len(heartbeats) < self._world_size:
            return None
        # A rank makes progress when it begins another activity, so the most recent change counts.
        seconds = min(state.get_activity_s(now) for state in self._ranks.values())
        limit = self._get_progress_limit(heartbeats)
        if seconds <= limit:
            self._reported_culprits = None
            return None
        waiting = [rank for rank, state in self._ranks.items() if state.thread_state == "waiting"]
        busy = [rank for rank, state in self._ranks.items() if state.thread_state in ("working", "reading")]
        culprits = busy if waiting and busy else list(self._ranks)  # all ranks: no single one blocks the others
        if seconds > self._get_failure_limit(limit, waiting, busy, heartbeats):
            return self._create_progress_failure(culprits, seconds)
        if self._reported_culprits == tuple(culprits):
            return None
        self._reported_culprits = tuple(culprits)
        return self._create_progress_warning(culprits, seconds)

    def _get_failure_limit(
        self, warning_limit: float, waiting: list[int], busy: list[int], heartbeats: list[Heartbeat]
    ) -> float:
        """Return the maximum time without progress, in seconds. After it, the run fails.

        `waiting` and `busy` are the ranks whose main thread waits or works, and `heartbeats` the last heartbeats of all
        ranks.
        """
        if self._world_size == 1:
            # A single rank waits only for its GPU; everything else is slow code, data or disk.
            return PATIENCE_FACTOR * warning_limit if waiting else float("inf")
        if any(heartbeat.activity in ("", "save") for heartbeat in heartbeats):
            # A download or a disk may be slow. If all ranks wait, however, they wait for each other.
            limit = max(warning_limit, self._limits.first_step)
            return PATIENCE_FACTOR * limit if busy else limit
        are_busy_reading = all(self._ranks[rank].thread_state == "reading" for rank in busy)
        if busy and (not waiting or are_busy_reading):
            # No rank waits for another one, or the others wait for a rank whose disk may be slow.
            return PATIENCE_FACTOR * warning_limit
        return warning_limit

    def _get_progress_limit(self, heartbeats: list[Heartbeat]) -> float:
        """Return the time without progress after which the user is warned, in seconds."""
        longest_steps_s = [heartbeat.longest_step_s for heartbeat in heartbeats]  # 0 before a step has been timed
        is_preparing = any(heartbeat.activity == "" for heartbeat in heartbeats)
        if 0.0 in longest_steps_s or is_preparing:
            return self._limits.first_step
        return max(self._limits.stuck, self._limits.stuck_steps * max(longest_steps_s))

    def _create_progress_failure(self, culprits: list[int], seconds: float) -> Failed:
        """Create the failure of the ranks `culprits`, possibly all, which have made no progress for `seconds`."""
        first = culprits[0]
        if len(culprits) < self._world_size:
            text = f"{self._describe_block(culprits, seconds)} See {_format_logs(culprits)}."
        else:
            text = (
                f"No progress for {seconds:.0f} s, and no single rank is blocking the others: "
                f"{self._describe_ranks(culprits)}. See {_format_logs(culprits)}."
            )
        rank = first if len(culprits) == 1 else None
        return Failed(cause=text, rank=rank, step=self._get_current_step(first), kind="fault")

    def _create_progress_warning(self, culprits: list[int], seconds: float) -> Warned:
        """Create the warning that the ranks `culprits` have made no progress for `seconds`."""
        if len(culprits) < self._world_size:
            text = self._describe_block(culprits, seconds)
        else:
            text = f"No progress for {seconds:.0f} s: {self._describe_ranks(culprits)}."
        return Warned(code="stuck", message=f"{text} Stop ends the run.", rank=culprits[0])

    def _describe_block(self, culprits: list[int], seconds: float) -> str:
        """Describe in a sentence which ranks block the others, and what they have been doing for `seconds`."""
        others = [rank for rank in self._ranks if rank not in culprits]
        wait = "wait" if len(others) > 1 else "waits"
        block = "block" if len(culprits) > 1 else "blocks"
        activities = self._describe_ranks(culprits)
        return (
            f"{_format_ranks(culprits)} {block} the run: for {seconds:.0f} s {activities}, "
            f"while {_format_ranks(others).lower()} {wait}."
        )

    def _describe_ranks(self, ranks: list[int]) -> str:
        return "; ".join(f"rank {rank} {self._ranks[rank].description}" for rank in ranks)

    def _get_current_step(self, rank: int) -> int | None:
        """Return the step that a rank is in or has completed last, or None before the training."""
        heartbeat = self._ranks[rank].heartbeat
        if heartbeat is None or heartbeat.activity == "":
            return None
        is_in_step = heartbeat.activity in ("data", "step")
        return heartbeat.step + 1 if is_in_step else heartbeat.step


def _describe_activity(heartbeat: Heartbeat) -> str:
    """Return words about an activity that follow "has been": "computing step 7"."""
    match heartbeat.activity:
        case "":
            return "preparing the training"
        case "data":
            return f"loading the images of step {heartbeat.step + 1}"
        case "step":
            return f"computing step {heartbeat.step + 1}"
        case "agree":
            return f"waiting for the other ranks after step {heartbeat.step}"
        case "evaluate":
            return f"validating after step {heartbeat.step}"
        case "save":
            return f"saving after step {heartbeat.step}"


def _format_ranks(ranks: list[int]) -> str:
    """Return words for ranks, for the start of a sentence: "Rank 1", "Ranks 0, 2 and 3"."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _format_logs(ranks: list[int]) -> str:
    return " and ".join(f"worker-{rank}.log" for rank in ranks)
