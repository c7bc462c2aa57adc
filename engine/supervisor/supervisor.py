"""Supervision of one execution of a run, with its workers, log, clients and devices."""

from __future__ import annotations

import os
import pkgutil
import selectors
import sys
import time
import traceback
from collections.abc import Callable
from typing import Literal, Protocol

from engine.checks.findings.history import History
from engine.checks.findings.run_end import find_verdict
from engine.checks.gpu_checks import describe_lost_gpus
from engine.contract.devices import DeviceSample, has_remote_devices, host_of, is_gpu
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    Chosen,
    CommandReceived,
    DevicesFree,
    DevicesSampled,
    Failed,
    Outcome,
    PhaseChanged,
    Restarting,
    RunFinished,
    RunStarted,
    Verdict,
    Warned,
)
from engine.contract.job import AUTO_STRATEGY, Job
from engine.contract.protocol import Adjust, CheckpointNow, Command, Pause, SaveElsewhere, Stop
from engine.contract.worker import WorkerSpec
from engine.processes import imports
from engine.processes.failures import CERTAIN, describe_stuck
from engine.processes.group import SETTLE_S, Group
from engine.processes.signals import PAUSING, Signals
from engine.processes.watchdog import LIMITS, Limits
from engine.processes.worker_process import WORKER, can_fork
from engine.runs.folder import RunFolder, SupervisorFile, process_start
from engine.runs.resume import last_execution
from engine.supervisor import endpoint, environment
from engine.supervisor.event_log import EventLog
from engine.supervisor.notices.run_notices import RunNotifier
from engine.supervisor.restart_policy import RestartPolicy
from engine.supervisor.run_state import BEFORE_END, HAS_WORKERS, TRANSITIONS, USES_GATE, RunState, Trigger
from engine.supervisor.sampling import Sampler
from engine.supervisor.server import Server
from engine.supervisor.start_gate import GPU_STATE_S, StartGate
from engine.system import linux, paths
from engine.system.format import listed

GPU_NAMES_TIMEOUT_S = 3.0
"""Maximum time that a run waits at its start for the names of its GPUs, in seconds."""
MEMORY_RELEASE_TIMEOUT_S = 10.0
"""Maximum time to wait for the GPUs to release their memory, in seconds."""
DRAIN_S = 3.0
"""Maximum time to wait for clients to read the last events, in seconds."""
LISTEN_RETRY_S = 1.0
"""Seconds between attempts to open a new socket after the old one has become unreachable."""
ROOT_CAUSE_TIMEOUT_S = 3.0
"""Seconds to wait for the root cause after a failure on one of several machines.

The failure may be a consequence of the loss of another machine, which is noticed later.
"""
NODES = "engine.machines.nodes:Nodes"
"""Class that manages workers on several machines. It is given by name, because its module imports this one."""

Distribute = Callable[[list[WorkerSpec]], list[WorkerSpec]]
"""Function that starts workers in other processes. It returns the specs of those that the supervisor must start."""

_TICK_S = 0.5
_SHORT_TICK_S = 0.02


class Nodes(Protocol):
    """Other machines that take part in one start of a run's workers. See `engine.machines.nodes.Nodes`."""

    @property
    def has_quiet_node(self) -> bool: ...
    def launch(self) -> None: ...
    def poll(self) -> None: ...
    def close(self) -> None: ...


class Supervisor:
    """Supervisor for one execution of `job` in the folder of `run`. `run_to_end` executes it.

    Args:
        worker: Function that runs on each rank, as MODULE:NAME.
        modules: Modules that are imported before workers are forked. By default, those that the job's workers need.
        fork: True to fork workers instead of starting new interpreters.
        tcp: True to listen on loopback TCP even if Unix sockets are available.
        limits: Seconds after which a rank counts as hanging.
        distribute: Function that is passed the specs of all ranks, starts some of them in other processes, as under
            torchrun, and returns the specs of those that the supervisor must start. Such runs don't restart after
            failures.
    """

    def __init__(
        self,
        run: RunFolder,
        job: Job,
        *,
        worker: str = WORKER,
        modules: tuple[str, ...] | None = None,
        fork: bool = sys.platform == "linux",
        tcp: bool = False,
        limits: Limits = LIMITS,
        distribute: Distribute | None = None,
    ) -> None:
        self._run = run
        self._job = job
        self._worker, self._fork, self._limits, self._distribute = worker, fork, limits, distribute
        self._execution = last_execution(run) + 1
        self._worked_before_s = run.worked_s()  # duration of the earlier executions
        self._uses_other_machines = distribute is None and has_remote_devices(job.parallel.devices)
        self._state = RunState.IDENTIFYING
        self._state_since = self._started_at = time.monotonic()
        self._requested_outcome: Literal["paused", "stopped"] | None = None
        self._failure: Failed | None = None
        """Failure that ends the run, or None."""
        self._attempt = 0  # number of starts of workers on several machines
        self._listen_at = 0.0  # earliest time for the next attempt to open a socket

        local_devices = tuple(device for device in job.parallel.devices if not host_of(device))
        self._on_gpus = any(map(is_gpu, local_devices))  # GPUs of this machine
        # On several machines, each one reports its lost GPUs when it reconnects.
        self._checks_lost_gpus = self._on_gpus and not self._uses_other_machines
        self._selector = selectors.DefaultSelector()
        self._log = EventLog(run.events_file)
        endpoint.remove_stale_sockets()
        listening = endpoint.open_endpoint(run.path, tcp=tcp)
        self._server = Server(listening, self._log, run.run_id, self._selector, self._on_command)
        self._sampler = Sampler(self._selector, local_devices, self._on_samples)
        self._restart_policy = RestartPolicy(run, job)
        if modules is None:
            modules = imports.modules_for(self._restart_policy.world_size)
        # Only workers that are forked here profit from modules that this process imports.
        local_modules = modules if fork and not self._uses_other_machines else ()
        self._start_gate = StartGate(run, job, self._sampler, self._selector, local_modules)
        self._notices = RunNotifier(run, job, self._log.append)
        self._group = self._create_group()
        self._nodes: Nodes | None = None  # machines of the current attempt, if the run uses several
        self._history = History()  # summary of the events of all executions
        if self._execution > 1:
            for event in run.events():
                self._history.add(event)

    def run_to_end(self) -> int:
        """Run the job to its end. Return 1 if it failed or its last state is not on the disk, otherwise 0."""
        outcome: Outcome = "failed"
        finding: Verdict | None = None
        try:
            self._announce()
            Signals(self._selector, self._on_signal)
            self._advance()
            while self._state is not RunState.FINISHED:
                self._poll_once()
                self._advance()
            outcome, cause = self._determine_outcome()
            finding = find_verdict(self._history, self._restart_policy.job, outcome)
        except Exception as error:
            traceback.print_exc()
            self._group.kill()
            internal = f"Footplate itself failed: {type(error).__name__}: {error}. The traceback is in supervisor.log."
            cause = paths.explain_full_disk(error) or internal
            self._record(Failed(cause=cause, traceback_file="supervisor.log"))
        if finding is not None:
            self._record(finding)
        self._finish(outcome, cause)
        return 1 if outcome in ("failed", "unsaved") else 0

    # Loop

    def _transition(self, trigger: Trigger) -> None:
        """Enter the next state after `trigger`. A transition that isn't in the table raises KeyError."""
        self._state = TRANSITIONS[self._state, trigger]
        self._state_since = time.monotonic()

    def _announce(self) -> None:
        """Write `supervisor.json`, which tells clients where to connect."""
        linux.name_process("footplate-run")
        content = SupervisorFile(
            pid=os.getpid(),
            start_time=process_start(os.getpid()),
            endpoint=self._server.endpoint.text,
            execution=self._execution,
        )
        self._run.write_supervisor(content)

    def _poll_once(self) -> None:
        """Wait for messages, at most for a tick, and handle them. Then poll the log, sampler and notices.

        This may open another socket, or end the run if another program has changed its log.
        """
        for key, mask in self._selector.select(_SHORT_TICK_S if self._group.is_ending else _TICK_S):
            key.data(mask)
        self._log.retry()
        self._stop_if_log_damaged()
        self._listen_again_if_removed()
        self._sampler.tick()
        self._notices.tick()

    def _stop_if_log_damaged(self) -> None:
        """End the run if another program has changed its log."""
        warning = self._log.check_file() if self._state in BEFORE_END else None
        if warning is not None:
            self._record(warning)
            if self._requested_outcome is None:
                self._request_end("stopped", "")

    def _listen_again_if_removed(self) -> None:
        """Open another socket if clients can't reach the old one, for example because a logout has removed it."""
        if self._server.endpoint.is_reachable or time.monotonic() < self._listen_at:
            return
        try:
            self._server.listen(endpoint.open_endpoint(self._run.path))
            self._announce()
        except OSError as error:
            self._listen_at = time.monotonic() + LISTEN_RETRY_S
            print(f"Clients can't find this run: {error}", flush=True)

    def _advance(self) -> None:
        """Poll the start gate, workers, machines and clients. Enter the run's next state if its conditions are met."""
        if self._state is RunState.IDENTIFYING:
            is_pending = self._on_gpus and self._sampler.latest is None
            if not is_pending or time.monotonic() > self._state_since + GPU_NAMES_TIMEOUT_S:
                self._record_start()
                self._transition(Trigger.IDENTIFIED)
        if self._state in USES_GATE:
            self._step_gate()
        if self._nodes is not None:
            self._nodes.poll()
        self._group.watch()
        if self._state in HAS_WORKERS and self._group.is_gone and not self._should_await_gpu_check():
            self._on_workers_gone()
        if self._state is RunState.RELEASING:
            self._await_free_memory()
        self._server.tick()

    def _on_workers_gone(self) -> None:
        """Start the next attempt after the exit of all workers, or begin to release the devices if the run ends."""
        self._close_nodes()
        if self._group.stuck and self._failure is None:
            self._on_stuck_workers()
        if self._state is RunState.RESTARTING:
            self._drop_lost_gpus()  # may end the run instead
        self._transition(Trigger.WORKERS_GONE)
        if self._state is RunState.TRAINING:  # after `RESTARTING`
            self._group = self._create_group()
            self._launch()

    def _record_start(self) -> None:
        """Log the start of the run, its strategy if the job leaves the choice to Footplate, and the first phase.

        The start contains the names of those devices that are known by now.
        """
        world_size = self._restart_policy.world_size
        self._record(
            RunStarted(
                run_id=self._run.run_id,
                job=self._job,
                devices=environment.run_devices(self._job.parallel.devices, world_size, self._sampler.latest),
                world_size=world_size,
                environment=environment.describe_environment(self._sampler.latest),
                supervisor_pid=os.getpid(),
                execution=self._execution,
                worked_s=self._worked_before_s,
            )
        )
        if self._job.parallel.strategy == AUTO_STRATEGY:
            is_alone = len(self._job.parallel.devices) < 2
            why = (
                "the run has one device"
                if is_alone
                else "the run has several devices, and this strategy trains every model"
            )
            self._record(Chosen(field="strategy", choice=self._job.resolved_strategy, why=why))
        self._record(PhaseChanged(phase="starting"))

    def _step_gate(self) -> None:
        """Poll the start gate, log its events, and start the workers once it is open."""
        is_identified = self._state is not RunState.IDENTIFYING
        self._start_gate.step(are_devices_named=is_identified)
        if not is_identified:
            return  # the log must begin with the start of the run
        for event in self._start_gate.take_events():
            self._record(event)
        if self._state is RunState.QUEUED:
            if self._start_gate.failure is not None:
                self._group.fail(self._start_gate.failure, CERTAIN)
            elif self._start_gate.is_open:
                self._transition(Trigger.GATE_OPENED)
                self._launch()

    def _create_group(self) -> Group:
        """Create a group for the workers of the next start."""
        return Group(
            self._on_worker_event,
            self._selector,
            self._limits,
            root_cause_timeout_s=ROOT_CAUSE_TIMEOUT_S if self._uses_other_machines else SETTLE_S,
            # A silent machine may still report that it was the first to fail.
            can_root_cause_follow=lambda: self._nodes is not None and self._nodes.has_quiet_node,
        )

    def _launch(self) -> None:
        """Start the workers, for the first time or after a failure."""
        specs = self._restart_policy.prepare_start()
        if self._uses_other_machines:
            nodes: Nodes = pkgutil.resolve_name(NODES)(
                self._run,
                specs,
                self._group,
                self._selector,
                on_event=self._on_worker_event,
                on_samples=self._on_samples,
                attempt=self._attempt,
                job_without_machine=self._restart_policy.job_without_machine,
            )
            nodes.launch()
            self._nodes = nodes
            self._attempt += 1
            return
        if self._distribute is not None:
            specs = self._distribute(specs)
        self._group.launch(specs, self._worker, fork=self._fork and can_fork())
        self._sampler.worker_pids = {worker.pid for worker in self._group.workers}

    def _close_nodes(self) -> None:
        """Stop all processes on other machines, and disconnect from them."""
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None

    # Events and commands

    def _record(self, event: AnyEvent) -> None:
        """Add an event to the log, which clients read, and pass it to the history and the notifications."""
        self._history.add(event)
        self._log.append(event)
        self._notices.on_event(event)

    def _on_worker_event(self, event: AnyEvent) -> None:
        """Log an event of a worker. For a failure, decide about a restart, and log this decision instead."""
        if isinstance(event, Failed):
            event = self._on_failure(event)
        elif isinstance(event, CheckpointSaved):
            self._restart_policy.on_checkpoint(event)
        self._record(event)

    def _on_failure(self, failed: Failed) -> Failed | Restarting:
        """Decide whether the run restarts after a failure. Return the event with the decision."""
        can_restart = self._requested_outcome is None and self._distribute is None
        decision = self._restart_policy.handle_failure(failed) if can_restart else failed
        if isinstance(decision, Restarting):
            self._transition(Trigger.FAILED_FOR_RETRY)
        else:
            self._failure = decision
            self._transition(Trigger.FAILED_FOR_GOOD)
        return decision

    def _should_await_gpu_check(self) -> bool:
        """Return True if a restart must wait for a new snapshot, which shows the GPUs that remain.

        The restart waits for at most `GPU_STATE_S`.
        """
        if self._state is not RunState.RESTARTING or not self._checks_lost_gpus:
            return False
        return self._sampler.latest_at <= self._state_since and time.monotonic() < self._state_since + GPU_STATE_S

    def _drop_lost_gpus(self) -> None:
        """Remove lost GPUs from the job before a restart, or end the run if that isn't possible.

        With lost GPUs, the restarted workers would only fail again.
        """
        if not self._checks_lost_gpus:
            return
        lost = describe_lost_gpus(self._restart_policy.job.parallel.devices, self._sampler.latest)
        if not lost:
            return
        failed = Failed(cause=" ".join(lost.values()), kind="lost_gpu", devices=tuple(lost))
        decision = self._restart_policy.handle_failure(failed)  # if the run restarts, the policy's job has no lost GPUs
        self._sampler.drop(lost)
        if isinstance(decision, Failed):
            self._failure = decision
            self._transition(Trigger.FAILED_FOR_GOOD)
        self._record(decision)

    def _on_stuck_workers(self) -> None:
        """End the run as failed because a worker has survived SIGKILL. Its device may be unusable."""
        self._failure = describe_stuck(self._group.stuck, self._restart_policy.job.parallel.devices)
        self._record(self._failure)
        self._transition(Trigger.FAILED_FOR_GOOD)

    def _on_samples(self, samples: tuple[DeviceSample, ...]) -> None:
        """Log samples of the devices if they are reserved for the run and the run has not ended."""
        is_running = self._state is not RunState.IDENTIFYING and self._state in BEFORE_END
        if is_running and self._start_gate.has_slot:
            self._record(DevicesSampled(samples=samples))

    def _on_signal(self, name: str) -> None:
        """End the run because of the signal `name`. SLURM's warning pauses it, so that its job can be requeued."""
        self._request_end("paused" if name == PAUSING else "stopped", name)

    def _on_command(self, command: Command) -> None:
        """Execute a client's command. Commands for the workers are logged by name and passed on to them."""
        if self._state is RunState.FINISHED:
            return  # nothing follows `RunFinished` in the log
        match command:
            case Stop():
                self._request_end("stopped", "stop")
            case Pause():
                self._request_end("paused", "pause")
            case Adjust(loader_workers=count):
                self._restart_policy.set_loader_workers(count)
                self._forward(command, f"use_{count}_loader_workers")
            case CheckpointNow():
                self._forward(command, "checkpoint_now")
            case SaveElsewhere():
                self._save_elsewhere(command)

    def _forward(self, command: Command, name: str) -> None:
        """Log a command under `name`, and send it to all workers."""
        self._record(CommandReceived(command=name))
        self._group.send(command)

    def _save_elsewhere(self, command: SaveElsewhere) -> None:
        """Let the workers save their final state in another folder, or warn if there is nothing to save."""
        self._record(CommandReceived(command="save_elsewhere"))
        if self._group.holds_unsaved_state:
            self._group.save_elsewhere(command)
            return
        message = (
            "Nothing was saved elsewhere: the run hasn't reached its final state, or that is already saved "
            "in its own folder."
        )
        self._record(Warned(code="not_saved_elsewhere", message=message))

    def _request_end(self, outcome: Literal["paused", "stopped"], command: str) -> None:
        """Let the workers save their state and exit, so that the run ends as paused or stopped.

        The first call asks the workers to stop, and every later call stops them by force. A later call can change the
        outcome from "paused" to "stopped", but not back. `command` is the command to log, or "".
        """
        if self._state not in BEFORE_END:
            return
        if self._state is RunState.IDENTIFYING:
            self._record_start()  # the log must begin with the start
            self._transition(Trigger.IDENTIFIED)
        if command:
            self._record(CommandReceived(command=command))
        previous = self._requested_outcome
        if previous is None or (previous, outcome) == ("paused", "stopped"):
            self._requested_outcome = outcome
            self._record(PhaseChanged(phase="pausing" if outcome == "paused" else "stopping"))
            self._start_gate.cancel()
        if previous is None:
            self._group.stop(Pause() if outcome == "paused" else Stop())
        else:
            self._group.escalate()
        self._transition(Trigger.END_REQUESTED)

    # End

    def _await_free_memory(self) -> None:
        """Wait for the GPUs to release their memory, and log the time until then. Give up after `MEMORY_RELEASE_TIMEOUT_S`."""
        was_used = bool(self._group.workers)  # False for a run that ended in the queue
        is_free = not was_used or self._sampler.is_memory_free(self._state_since)
        if is_free or time.monotonic() > self._state_since + MEMORY_RELEASE_TIMEOUT_S:
            seconds = time.monotonic() - (self._group.ending_since or self._state_since)
            self._record(DevicesFree(seconds=round(seconds, 3), verified=is_free))
            self._transition(Trigger.MEMORY_RELEASED)

    def _determine_outcome(self) -> tuple[Outcome, str]:
        """Return the outcome of the run, and its cause, which is "" if nothing went wrong."""
        if self._failure is not None:
            return "failed", self._failure.cause
        if self._group.unsaved_reason:
            return "unsaved", self._group.unsaved_reason
        if self._group.is_completed:
            return "completed", ""
        outcome = self._requested_outcome or "stopped"
        if self._log.damage:
            return outcome, self._log.damage
        if self._group.forced and self._group.failure is None:
            ranks = listed(map(str, sorted(self._group.forced)))
            is_single = len(self._group.forced) == 1
            who, were = ("Rank", "was") if is_single else ("Ranks", "were")
            return outcome, f"{who} {ranks} did not exit when asked and {were} killed."
        return outcome, ""

    def _finish(self, outcome: Outcome, cause: str) -> None:
        """Log the end of the run, give clients time to read it, and close all connections."""
        self._state = RunState.FINISHED
        self._close_nodes()
        self._start_gate.close()
        results = self._group.best or self._history  # killed workers report no best metrics, but the log has them
        self._record(
            RunFinished(
                outcome=outcome,
                execution=self._execution,
                cause=cause,
                seconds=round(time.monotonic() - self._started_at, 3),
                best=results.best,
                best_epoch=results.best_epoch,
                checkpoints=self._history.checkpoints(self._run.path),
            )
        )
        self._restart_policy.remove_rendezvous()
        self._log.retry(at_once=True)
        self._server.tick()
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            ready = self._selector.select(_SHORT_TICK_S)
            for key, mask in ready:
                key.data(mask)
            self._server.tick()
            if not ready and self._server.is_drained:  # new clients receive the end, too
                break
        self._notices.close()
        self._server.close()
        self._sampler.close()
        self._log.close()
