"""Group of workers that start and stop together."""

from __future__ import annotations

import math
import os
import selectors
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import msgspec
import psutil

from engine.contract.devices import is_gpu
from engine.contract.events import AnyEvent, Failed, LogLine, Warned
from engine.contract.protocol import Command, FrameError, Pause, SaveElsewhere, Stop
from engine.contract.worker import BY_ENVIRONMENT, Heartbeat, WorkerDone, WorkerSpec
from engine.processes import failures
from engine.processes.shutdown import FAILED_S, STOP_S, Shutdown, kill_all
from engine.processes.watchdog import LIMITS, HangWatch, Limits
from engine.processes.worker_process import Worker, WorkerProcess, can_fork
from engine.system import plugins
from engine.system.private_network import PrivateNetwork

SETTLE_S = 0.5
"""Seconds to wait for the root cause after a failure that may be a consequence of another failure."""
LINGER_S = 10.0
"""Maximum time to wait for workers to exit after their last message, in seconds."""
PRIVATE_NETWORK = "The ranks are connected by a private network, which other users of this machine can't reach."
SHARED_NETWORK = "The ranks are connected by the machine's own loopback interface, since {reason}."
UVM_DEVICE = "/dev/nvidia-uvm"
_TICK_S = 0.05
_KINDS_WITHOUT_SAVING = ("fault", "out_of_memory", "lost_machine", "lost_gpu")
"""Kinds of failures that leave the other ranks unable to save their state, because they wait for the failed rank."""


class Group:
    """Workers that were started together, and are all stopped when one of them fails.

    Args:
        on_event: Called with the events of the workers.
        selector: Selector whose loop receives the workers' messages.
        limits: Times after which a rank counts as hanging.
        root_cause_timeout_s: Seconds to wait for the root cause if all known failures may be consequences of another
            failure.
        can_root_cause_follow: Function that returns True if the root cause may still be reported after
            `root_cause_timeout_s`.
    """

    def __init__(
        self,
        on_event: Callable[[AnyEvent], object],
        selector: selectors.BaseSelector,
        limits: Limits,
        *,
        root_cause_timeout_s: float = SETTLE_S,
        can_root_cause_follow: Callable[[], bool] = lambda: False,
    ) -> None:
        self.workers: list[Worker] = []
        self.failure: Failed | None = None
        """Failure that has caused the others, or None. It is reported once."""
        self.holds_unsaved_state = False
        """True if a worker's final state could not be written to the disk, and is only in memory."""
        self._on_event = on_event
        self._selector = selector
        self._limits = limits
        self._root_cause_timeout_s, self._can_root_cause_follow = root_cause_timeout_s, can_root_cause_follow
        self._watchdog: HangWatch | None = None  # None before the workers are started
        self._shutdown: Shutdown | None = None  # None while the workers shall run
        self._failures: list[failures.Failure] = []  # in the order of arrival
        self._first_failed_at = 0.0  # time at which the first of them arrived
        self._all_closed_at: float | None = None  # time at which all workers had closed their channels

    def launch(self, specs: Sequence[WorkerSpec], function: str, *, fork: bool) -> None:
        """Start a worker for each of the `specs`, which runs `function` (see `WorkerProcess`).

        If `fork` is True, workers are forked from this process, otherwise each is a new interpreter.
        """
        network = self._open_network(specs, fork=fork)
        self.adopt(WorkerProcess(spec, function, fork=fork, network=network) for spec in specs)
        if network is not None:
            network.close()

    def _open_network(self, specs: Sequence[WorkerSpec], *, fork: bool) -> PrivateNetwork | None:
        """Create a private network if the ranks need one and the system allows it, and log whether it is used.

        Returns None if the ranks use the machine's network. Only forked workers (`fork`) can use a private one.
        """
        # Without a rendezvous, the ranks don't communicate. With BY_ENVIRONMENT, some are on other machines.
        has_local_rendezvous = specs[0].rendezvous not in ("", BY_ENVIRONMENT)
        if sys.platform != "linux" or len(specs) < 2 or not has_local_rendezvous:
            return None
        network = None
        reason = explain_shared_network(specs, fork=fork)
        if not reason:
            try:
                network = PrivateNetwork()
            except OSError as error:
                reason = f"this system allows no private one ({error.strerror})"
        self._on_event(LogLine(text=PRIVATE_NETWORK if network is not None else SHARED_NETWORK.format(reason=reason)))
        return network

    def adopt(self, workers: Iterable[Worker]) -> None:
        """Add workers in the order of their ranks, and receive their messages from now on."""
        for worker in workers:
            self.workers.append(worker)
            worker.listen(self._selector, partial(self._receive, worker))
        self._watchdog = HangWatch(len(self.workers), time.monotonic(), self._limits, self._find_stopped_pid)

    # State

    @property
    def is_ending(self) -> bool:
        """True while workers are exiting or failing.

        During this time, `watch` must be called often, because the exit of a worker doesn't wake the selector.
        """
        is_any_done = any(worker.done is not None or worker.channel is None for worker in self.workers)
        return is_any_done or self._shutdown is not None or bool(self._failures)

    @property
    def is_gone(self) -> bool:
        """True if all workers have exited and all their messages have been processed.

        Only valid after a call of `watch`, which reports the root cause of failures once all workers have exited.
        """
        if not self.workers:  # before the start, only a stop or a failure ends the group
            return self._shutdown is not None or self.failure is not None
        return all(worker.exit_code is not None and worker.channel is None for worker in self.workers)

    @property
    def is_completed(self) -> bool:
        """True if every worker has completed the training."""
        return bool(self.workers) and all(
            worker.done is not None and not worker.done.stopped for worker in self.workers
        )

    @property
    def unsaved_reason(self) -> str:
        """Reason why the final state isn't on the disk, or "" if it is."""
        return next(
            (worker.done.unsaved for worker in self.workers if worker.done is not None and worker.done.unsaved), ""
        )

    @property
    def best(self) -> WorkerDone | None:
        """Final message of the worker that has reported the best metrics, or None if no worker has."""
        return next((worker.done for worker in self.workers if worker.done is not None and worker.done.best), None)

    @property
    def forced(self) -> set[int]:
        """Ranks that were sent a signal because they did not stop in time."""
        return self._shutdown.forced if self._shutdown is not None else set()

    @property
    def stuck(self) -> set[int]:
        """Ranks that survived SIGKILL, for example in a call to the GPU driver, before they had finished their work."""
        stuck = self._shutdown.stuck if self._shutdown is not None else set()
        return {worker.rank for worker in self.workers if worker.rank in stuck and worker.done is None}

    @property
    def ending_since(self) -> float | None:
        """Time (monotonic) since which the workers are being stopped, or None."""
        return self._shutdown.started if self._shutdown is not None else None

    # Commands

    def send(self, command: Command) -> None:
        """Send a command to all workers."""
        for worker in self.workers:
            worker.send(command)

    def stop(self, message: Stop | Pause) -> None:
        """Ask the workers to finish their current step, save their state, and exit."""
        if self._shutdown is None:
            self._shutdown = Shutdown(self.workers, STOP_S, message)

    def save_elsewhere(self, command: SaveElsewhere) -> None:
        """Tell all workers to save the final state in another folder. If they are being stopped, give them more time."""
        self.send(command)
        self.extend()

    def extend(self) -> None:
        """Give stopping workers more time, unless `escalate` was called."""
        if self._shutdown is not None:
            self._shutdown.extend(STOP_S)

    def escalate(self) -> None:
        """Stop waiting for workers that have been asked to stop, and send signals to them."""
        if self._shutdown is not None:
            self._shutdown.escalate()
            self._shutdown.step()

    def kill(self) -> None:
        """Kill all workers, and wait until they have exited."""
        kill_all(self.workers)

    def fail(self, event: Failed, certainty: int) -> None:
        """Add a failure of a rank, with the `certainty` (see `failures`) that it is the root cause.

        If the root cause is already known, the failure is only logged.
        """
        if self.failure is None:
            if not self._failures:
                self._first_failed_at = time.monotonic()
            self._failures.append(failures.Failure(event, certainty))
        else:
            self._on_event(LogLine(text=event.cause, level="error", rank=event.rank))

    def watch(self) -> None:
        """Handle workers that have exited, hang or have failed, and send signals to those that don't stop in time.

        Reports the root cause once it is known. This must be called often until `is_gone` is True.
        """
        for worker in self.workers:
            if worker.poll() is None:
                continue
            while worker.channel is not None:  # read the messages that it sent before its exit
                self._receive(worker)
            if (worker.done is None or worker.exit_code != 0) and not worker.is_stopped_for_another:
                self._on_death(worker)
        self._check_hangs()
        if self._failures and self.failure is None and self._is_root_cause_known():
            self._report_cause()
        self._kill_lingering()
        if self._shutdown is not None:
            self._shutdown.step()

    def _is_root_cause_known(self) -> bool:
        """Return True if no failure that is still to be reported can be the cause of the known failures."""
        highest = max(failure.certainty for failure in self._failures)
        if highest == failures.CERTAIN or all(worker.exit_code is not None for worker in self.workers):
            return True
        waited_s = time.monotonic() - self._first_failed_at
        if highest == failures.LIKELY:
            return waited_s > SETTLE_S
        return waited_s > self._root_cause_timeout_s and not self._can_root_cause_follow()

    def _check_hangs(self) -> None:
        """Add a failure if a rank hangs, or report a warning if it may hang. Skipped after the first failure."""
        if self._watchdog is None or self._failures:
            return
        event = self._watchdog.check(time.monotonic())
        if isinstance(event, Failed):
            self.fail(event, failures.CERTAIN)
        elif event is not None:
            self._on_event(event)

    def _find_stopped_pid(self, rank: int) -> int | None:
        """Return the pid of a worker that is suspended by a signal, otherwise None.

        Signals from a debugger do not count.
        """
        pid = self.workers[rank].pid
        if not pid:  # the worker is on another machine
            return None
        with suppress(psutil.Error):
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                return pid
        return None

    def _on_death(self, worker: Worker) -> None:
        """Add a failure for a worker that has exited.

        Nothing is added if the worker was sent a signal, if it has reported a failure itself, or if the root cause of
        the group's failure is already known.
        """
        has_failed = any(failure.event.rank == worker.rank for failure in self._failures)
        if has_failed or worker.rank in self.forced or self.failure is not None:
            return
        assert worker.exit_code is not None
        event = failures.describe_death(worker.rank, worker.exit_code, worker.log)
        self.fail(event, failures.certainty_of_death(event, worker.exit_code))

    def _report_cause(self) -> None:
        """Report the failure that has caused the others, log the other failures, and stop the remaining workers."""
        root = failures.find_root_cause(self._failures)
        self.failure = root.event
        self._on_event(root.event)
        for failure in self._failures:
            if failure is not root:
                self._on_event(LogLine(text=failure.event.cause, level="error", rank=failure.event.rank))
        if self._shutdown is not None:
            self._shutdown.escalate(FAILED_S)
        elif root.event.kind in _KINDS_WITHOUT_SAVING:  # the other ranks wait for the failed one
            self._shutdown = Shutdown(self.workers, orderly_s=0.0, message=None)
        else:
            self._shutdown = Shutdown(self.workers, orderly_s=FAILED_S, message=Stop())

    def _kill_lingering(self) -> None:
        """Start to stop workers that have closed their channels, but have not exited after `LINGER_S`.

        This may happen because a thread of a library is running.
        """
        is_any_open = any(worker.channel is not None for worker in self.workers)
        if self._shutdown is not None or not self.workers or is_any_open:
            return
        now = time.monotonic()
        if self._all_closed_at is None:
            self._all_closed_at = now
        if now - self._all_closed_at > LINGER_S:
            # Nobody reads the message. With it, the shutdown begins with SIGTERM rather than with SIGKILL.
            self._shutdown = Shutdown(self.workers, orderly_s=0.0, message=Stop())

    # Messages

    def _receive(self, worker: Worker) -> None:
        """Handle the messages of a worker. After an invalid message, add a failure, and close the channel."""
        try:
            messages = worker.receive()
        except (FrameError, msgspec.DecodeError) as error:
            failed = Failed(cause=f"Rank {worker.rank} sent an invalid message: {error}", rank=worker.rank)
            self.fail(failed, failures.CERTAIN)
            worker.close()
            messages = []
        assert self._watchdog is not None
        if messages:
            self._watchdog.on_message(worker.rank, time.monotonic())
        if worker.channel is None:
            self._watchdog.remove_rank(worker.rank)
        for message in messages:
            self._handle(worker, message)

    def _handle(self, worker: Worker, message: AnyEvent | Heartbeat | WorkerDone) -> None:
        """Handle a message of a worker. Events other than failures are passed to `on_event`."""
        match message:
            case Heartbeat():
                assert self._watchdog is not None
                self._watchdog.on_message(worker.rank, time.monotonic(), message)
            case WorkerDone():
                worker.done = message
            case Failed():
                self.fail(message, failures.certainty_of_report(message))
            case _:
                if isinstance(message, Warned) and message.code == "unsaved":
                    self.holds_unsaved_state = True
                self._on_event(message)


def explain_shared_network(specs: Sequence[WorkerSpec], *, fork: bool) -> str:
    """Return the reason why the ranks on this machine must use the machine's network.

    The result is "" if they can use a private network. `fork` is True if the workers are forked.
    """
    job = specs[0].job
    if len(specs) < specs[0].world_size:
        return "other processes have started other ranks"
    if not fork:
        return "the workers can't be forked"
    if job.model_is_file:
        return "the model file may download something"
    if plugins.fingerprint():
        return "the installed plug-ins may use the network"
    if any(map(is_gpu, job.parallel.devices)) and not can_start_cuda():
        return "the driver's files for CUDA are created by the first program that uses it"
    return ""


def can_start_cuda() -> bool:
    """Return True if workers in a private network can start CUDA.

    The workers of users other than root are in a user namespace. The setuid program nvidia-modprobe can't create device
    files there, so these files must exist.
    """
    try:
        os.close(os.open(UVM_DEVICE, os.O_RDWR))
    except OSError:
        return os.geteuid() == 0
    return True


def run_workers(
    specs: Sequence[WorkerSpec], function: str, on_event: Callable[[AnyEvent], object], *, seconds: float = math.inf
) -> Failed | None:
    """Run `function` (see `WorkerProcess`) for each of `specs`, and return None or the failure that caused the others.

    `on_event` is called with the workers' events. An exception in this process, such as KeyboardInterrupt, kills the
    workers.

    Raises:
        TimeoutError: The workers have not finished within `seconds`.
    """
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        group = Group(on_event, selector, LIMITS)
        try:
            group.launch(specs, function, fork=can_fork())
            while not group.is_gone:
                for key, mask in selector.select(_TICK_S):
                    key.data(mask)  # the registered callback
                group.watch()
                if time.monotonic() > deadline:
                    raise TimeoutError
        finally:
            group.kill()
            for worker in group.workers:
                worker.close()
    return group.failure
