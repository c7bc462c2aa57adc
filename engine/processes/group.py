"""The workers of one run, from their start to their end: heard, watched, and ended together."""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec
import psutil

from engine.contract.events import AnyEvent, Failed, LogLine, Warned
from engine.contract.protocol import Command, FrameError, Pause, SaveElsewhere, Stop
from engine.contract.worker import Heartbeat, WorkerDone, WorkerSpec
from engine.processes import failures
from engine.processes.shutdown import FAILED_S, STOP_S, Shutdown
from engine.processes.watchdog import LIMITS, HangWatch, Limits
from engine.processes.worker_process import Worker, WorkerProcess, can_fork

SETTLE_S = 0.5
"""After a failure that may be the consequence of another, how long to wait for that one before naming the cause."""
LINGER_S = 10.0
"""How long workers that have sent their last message may take to exit."""
_POLL_S = 0.05
_NOTHING_TO_SAVE = ("fault", "out_of_memory", "lost_machine")
"""Kinds of failure after which the other ranks, which wait for the failed one, have nothing left to do."""


class Group:
    """Starts the workers of a run once, hands on to `tell` what they say, and ends all of them when one fails.

    `failure` is what the group failed of, None as long as it has not; it is told of once. Where all failures may follow
    from another, that is waited for `following_s`, and for as long as it is `in_doubt`.
    """

    def __init__(
        self,
        tell: Callable[[AnyEvent], object],
        selector: selectors.BaseSelector,
        world_size: int,
        limits: Limits,
        *,
        following_s: float = SETTLE_S,
        in_doubt: Callable[[], bool] = lambda: False,
    ) -> None:
        self.workers: list[Worker] = []
        self.failure: Failed | None = None
        self._tell = tell
        self._selector = selector
        self._world_size = world_size
        self._limits = limits
        self._following_s, self._in_doubt = following_s, in_doubt
        self._hangs: HangWatch | None = None
        self._ending: Shutdown | None = None
        self._failures: list[tuple[float, failures.Failure]] = []
        self._all_said_at: float | None = None
        self.holds_unsaved_state = False

    def launch(self, specs: Sequence[WorkerSpec], function: str, *, fork: bool) -> None:
        """Starts a worker for each of `specs`, which runs `function` (see `WorkerProcess`)."""
        for spec in specs:
            self._add(WorkerProcess(spec, function, fork=fork))
        self._watch_for_hangs()

    def take_in(self, workers: Sequence[Worker]) -> None:
        """Takes workers that have been started elsewhere, by rank."""
        for worker in workers:
            self._add(worker)
        self._watch_for_hangs()

    def _add(self, worker: Worker) -> None:
        self.workers.append(worker)
        worker.listen(self._selector, partial(self._hear, worker))

    def _watch_for_hangs(self) -> None:
        self._hangs = HangWatch(len(self.workers), time.monotonic(), self._limits, self._stopped)

    # How it stands

    @property
    def near_the_end(self) -> bool:
        """Whether something is awaited that no file tells of."""
        ended = any(worker.done is not None or worker.channel is None for worker in self.workers)
        return ended or self._ending is not None or bool(self._failures)

    @property
    def gone(self) -> bool:
        """Whether all is over: no worker is left, and what there was to say has been said."""
        if self._failures and self.failure is None:
            return False
        if not self.workers:
            return self._ending is not None or self.failure is not None
        return all(worker.exit_code is not None and worker.channel is None for worker in self.workers)

    @property
    def completed(self) -> bool:
        """Whether every worker came to the end of the training."""
        return bool(self.workers) and all(
            worker.done is not None and not worker.done.stopped for worker in self.workers
        )

    @property
    def unsaved(self) -> str:
        """Why the last state is not on disk, "" where it is."""
        return next(
            (worker.done.unsaved for worker in self.workers if worker.done is not None and worker.done.unsaved), ""
        )

    @property
    def best(self) -> WorkerDone | None:
        """The word of the worker that knows the best measures."""
        return next((worker.done for worker in self.workers if worker.done is not None and worker.done.best), None)

    @property
    def forced(self) -> set[int]:
        """The ranks that did not end when asked."""
        return self._ending.forced if self._ending is not None else set()

    @property
    def ending_since(self) -> float | None:
        return self._ending.began if self._ending is not None else None

    # What is done with it

    def send(self, command: Command) -> None:
        for worker in self.workers:
            worker.send(command)

    def stop(self, message: Stop | Pause) -> None:
        """Asks for an orderly end: the step in hand is finished and the last state is saved."""
        if self._ending is None:
            self._ending = Shutdown(self.workers, STOP_S, message)

    def save_elsewhere(self, command: SaveElsewhere) -> None:
        """Hands it on; a run that was to stop has as long again for it."""
        self.send(command)
        if self._ending is not None:
            self._ending.wait_longer(STOP_S)

    def hurry(self) -> None:
        """No longer waits for an orderly end."""
        if self._ending is not None:
            self._ending.hurry()

    def kill(self) -> None:
        """Ends all workers at once and waits for it."""
        for worker in self.workers:
            worker.kill(hard=True)
        for worker in self.workers:
            while worker.poll() is None:
                time.sleep(_POLL_S)

    def fail(self, event: Failed, weight: int) -> None:
        """Takes a failure into account, which is of a weight in `failures`."""
        if self.failure is None:
            self._failures.append((time.monotonic(), failures.Failure(event, weight)))
        else:
            self._tell(LogLine(text=event.cause, level="error", rank=event.rank))

    def watch(self) -> None:
        """Sees who has ended or hangs and does what follows from it; called often, until `gone`."""
        for worker in self.workers:
            if worker.poll() is None:
                continue
            while worker.channel is not None:  # what it said before it died
                self._hear(worker)
            if (worker.done is None or worker.exit_code != 0) and not worker.because_of_another:
                self._died(worker)
        self._judge()
        if self._failures and self.failure is None:
            certain = any(failure.weight == failures.CERTAIN for _, failure in self._failures)
            if certain or self._settled() or all(worker.exit_code is not None for worker in self.workers):
                self._name_the_cause()
        self._end_those_who_linger()
        if self._ending is not None:
            self._ending.step()

    def _settled(self) -> bool:
        """Whether no failure is awaited any more that may have been the cause of those that are known."""
        seconds = time.monotonic() - self._failures[0][0]
        if min(failure.weight for _, failure in self._failures) < failures.FOLLOWING:
            return seconds > SETTLE_S
        return seconds > self._following_s and not self._in_doubt()

    def _judge(self) -> None:
        if self._hangs is None or self._failures:
            return
        verdict = self._hangs.judge(time.monotonic())
        if isinstance(verdict, Failed):
            self.fail(verdict, failures.CERTAIN)
        elif verdict is not None:
            self._tell(verdict)

    def _stopped(self, rank: int) -> int | None:
        """The pid of a worker that a signal has stopped, None of one that was not; a debugger's does not count."""
        pid = self.workers[rank].pid
        if not pid:
            return None
        with suppress(psutil.Error):
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                return pid
        return None

    def _died(self, worker: Worker) -> None:
        known = {failure.event.rank for _, failure in self._failures}
        if worker.rank not in known and worker.rank not in self.forced and self.failure is None:
            assert worker.exit_code is not None
            event = failures.death(worker.rank, worker.exit_code, worker.log)
            self.fail(event, failures.weight_of_death(event, worker.exit_code))

    def _name_the_cause(self) -> None:
        root = failures.root_cause([failure for _, failure in self._failures])
        self.failure = root.event
        self._tell(root.event)
        for _, failure in self._failures:
            if failure is not root:
                self._tell(LogLine(text=failure.event.cause, level="error", rank=failure.event.rank))
        if self._ending is not None:
            self._ending.hurry(FAILED_S)
        elif root.event.kind in _NOTHING_TO_SAVE:
            self._ending = Shutdown(self.workers, 0.0, None)
        else:
            self._ending = Shutdown(self.workers, FAILED_S, Stop())

    def _end_those_who_linger(self) -> None:
        """A worker whose work is done and whose process does not end, held up by a thread of some library's."""
        if self._ending is not None or not self.workers or any(w.channel is not None for w in self.workers):
            return
        now = time.monotonic()
        self._all_said_at = self._all_said_at or now
        if now - self._all_said_at > LINGER_S:
            self._ending = Shutdown(self.workers, 0.0, Stop())

    # What they say

    def _hear(self, worker: Worker) -> None:
        try:
            messages = worker.receive()
        except (FrameError, msgspec.DecodeError) as error:
            broken = Failed(cause=f"Rank {worker.rank} sent an invalid message: {error}", rank=worker.rank)
            self.fail(broken, failures.CERTAIN)
            worker.close()
            messages = []
        assert self._hangs is not None
        if messages:
            self._hangs.heard(worker.rank, time.monotonic())
        if worker.channel is None:
            self._hangs.left(worker.rank)
        for message in messages:
            self._take(worker, message)

    def _take(self, worker: Worker, message: AnyEvent | Heartbeat | WorkerDone) -> None:
        match message:
            case Heartbeat():
                assert self._hangs is not None
                self._hangs.heard(worker.rank, time.monotonic(), message)
            case WorkerDone():
                worker.done = message
            case Warned(code="unsaved"):
                self.holds_unsaved_state = True
                self._tell(message)
            case Failed():
                self.fail(message, failures.weight(message))
            case _:
                self._tell(message)


def run_workers(
    specs: Sequence[WorkerSpec], function: str, emit: Callable[[AnyEvent], object], *, seconds: float = math.inf
) -> Failed | None:
    """Runs `function` (see `WorkerProcess`) for each of `specs`, to the end; why they failed, if they did.

    `emit` is given their events. Whatever is raised meanwhile, as by Ctrl+C, ends them at once. Raises TimeoutError
    where they take longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        group = Group(emit, selector, len(specs), LIMITS)
        try:
            group.launch(specs, function, fork=can_fork())
            while not group.gone:
                for key, mask in selector.select(_POLL_S):
                    key.data(mask)
                group.watch()
                if time.monotonic() > deadline:
                    raise TimeoutError
        finally:
            group.kill()
            for worker in group.workers:
                worker.close()
    return group.failure
