"""The run's own process: from the first event of an execution to the last, whatever happens in between."""

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
from engine.contract.devices import DeviceSample, elsewhere, host_of, is_gpu
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
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
from engine.contract.job import Job
from engine.contract.protocol import Adjust, CheckpointNow, Command, Pause, SaveElsewhere, Stop
from engine.contract.worker import WorkerSpec
from engine.processes import imports
from engine.processes.failures import CERTAIN
from engine.processes.group import SETTLE_S, Group
from engine.processes.signals import PAUSING, Signals
from engine.processes.watchdog import LIMITS, Limits
from engine.processes.worker_process import WORKER, can_fork
from engine.runs.folder import RunFolder, SupervisorFile, process_start
from engine.runs.resume import last_execution
from engine.supervisor import endpoint, environment
from engine.supervisor.admission import Admission
from engine.supervisor.event_log import EventLog
from engine.supervisor.mending import Mending
from engine.supervisor.notices.run_notices import Notices
from engine.supervisor.restart_policy import RestartPolicy
from engine.supervisor.results import Results
from engine.supervisor.sampling import Sampler
from engine.supervisor.server import Server
from engine.supervisor.weights_fetch import WeightsFetch
from engine.system import linux

SNAPSHOT_S = 3.0
"""How long the start of a run on GPUs waits for the names of the GPUs."""
FREE_S = 10.0
"""How long the GPUs may take to report their memory as free."""
DRAIN_S = 3.0
"""How long clients may take to read the last events."""

FOLLOWING_S = 3.0
"""Seconds in which the end of a machine is awaited after a failure on another one that it may have caused."""
NODES = "engine.machines.nodes:Nodes"
"""Class that runs the workers of several machines, by name: its room imports this one."""

Share = Callable[[list[WorkerSpec]], list[WorkerSpec]]

_TICK_S = 0.5
_SHORT_TICK_S = 0.02


class Nodes(Protocol):
    """Machines of one attempt; see `engine.machines.nodes.Nodes`."""

    @property
    def has_quiet_node(self) -> bool: ...
    def launch(self, group: Group) -> None: ...
    def poll(self) -> None: ...
    def close(self) -> None: ...


class Supervisor:
    """Supervises one execution of `job` in the folder of `run`; `run_to_end` is all there is to call.

    `worker` names the function that each rank runs; `modules` are imported before the workers are started (none where
    they are there already); `fork` decides how workers are started, by default by what the system offers; `tcp` asks
    for a loopback endpoint; `limits` say when a rank is held to hang. Where somebody else starts workers too, `share`
    is given the orders of all, hands those of the others out, and returns those that are to be started here; such a
    run is not restarted.
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
        share: Share | None = None,
    ) -> None:
        self._run = run
        self._job = job
        self._worker = worker
        self._fork = fork
        self._limits = limits
        self._share = share
        self._execution = last_execution(run) + 1
        self._worked_before_s = run.worked_s()
        here = tuple(device for device in job.devices if not host_of(device))
        self._on_gpus = any(map(is_gpu, here))
        self._began = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._log = EventLog(run.events_file)
        endpoint.sweep()
        listening = endpoint.open_endpoint(run.path, tcp=tcp)
        self._server = Server(listening, self._log, run.run_id, self._selector, self._command)
        self._mending = Mending(run, lambda: self._attempts.job, self._log, self._server, self._announce)
        self._sampler = Sampler(self._selector, here, self._sampled)
        self._attempts = RestartPolicy(run, job)
        self._several = share is None and elsewhere(job.devices)
        self._nodes: Nodes | None = None
        self._attempt = 0
        if modules is None:
            modules = imports.modules_for(self._attempts.world_size)
        self._entrance = Admission(
            run, job, self._sampler, self._selector, modules if fork and not self._several else ()
        )
        self._weights = WeightsFetch(run, job, self._selector)
        self._notices = Notices(run, job, self._log)
        self._group = self._new_group()
        self._results = Results(run)
        self._history = History()
        if self._execution > 1:
            for event in run.events():
                self._history.add(event)
        self._started = False
        self._launched = False
        self._failed: Failed | Restarting | None = None
        self._unsaved = False
        """Whether the workers hold a final state that could not be written to disk."""
        self._asked: Literal["paused", "stopped"] | None = None
        self._gone_at: float | None = None
        self._finished = False

    def run_to_end(self) -> int:
        """Runs the job. Returns 1 if it failed or its last state is not on disk, else 0."""
        outcome: Outcome = "failed"
        said: Verdict | None = None
        try:
            self._announce()
            self._signals = Signals(
                self._selector, lambda name: self._end("paused" if name == PAUSING else "stopped", name)
            )
            if self._weights.done:
                self._entrance.step(named=False)
            while not self._finished:
                self._turn(_SHORT_TICK_S if self._group.near_the_end else _TICK_S)
                self._advance()
            outcome = self._outcome()
            cause = self._cause(outcome)
            said = find_verdict(self._history, self._attempts.job, outcome)
        except Exception as error:
            traceback.print_exc()
            self._group.kill()
            cause = f"Footplate itself failed: {type(error).__name__}: {error}. The traceback is in supervisor.log."
            self._log.append(Failed(cause=cause, traceback_file="supervisor.log"))
        if said is not None:
            self._log.append(said)
        self._finish(outcome, cause)
        return 1 if outcome in ("failed", "unsaved") else 0

    # The loop

    def _announce(self) -> None:
        linux.name_process("footplate-run")
        content = SupervisorFile(
            pid=os.getpid(),
            start_time=process_start(os.getpid()),
            endpoint=self._server.endpoint.text,
            execution=self._execution,
        )
        self._run.write_supervisor(content)

    def _turn(self, timeout: float) -> None:
        for key, mask in self._selector.select(timeout):
            key.data(mask)
        self._log.retry()
        if self._mending.look():
            self._group.send(CheckpointNow())
        self._sampler.tick()
        self._notices.tick()
        self._server.tick()

    def _advance(self) -> None:
        if not self._started:
            self._start_when_known()
        if not self._asked:
            self._enter()
        if self._nodes is not None:
            self._nodes.poll()
        self._group.watch()
        if self._group.gone:
            self._part()
            if isinstance(self._failed, Restarting) and not self._asked:
                self._group = self._new_group()
                self._launch()
            else:
                self._wait_for_memory()
        self._server.tick()

    def _start_when_known(self) -> None:
        waiting = self._on_gpus and self._sampler.latest is None
        if not waiting or time.monotonic() > self._began + SNAPSHOT_S:
            self._start()

    def _start(self) -> None:
        self._started = True
        world_size = self._attempts.world_size
        self._log.append(
            RunStarted(
                run_id=self._run.run_id,
                job=self._job,
                devices=environment.run_devices(self._job.devices, world_size, self._sampler.latest),
                world_size=world_size,
                environment=environment.describe(self._sampler.latest),
                supervisor_pid=os.getpid(),
                execution=self._execution,
                worked_s=self._worked_before_s,
            )
        )
        self._log.append(PhaseChanged(phase="starting"))

    def _enter(self) -> None:
        """Has the weights fetched, then waits in line for the devices; once they are this run's and all is ready, the
        workers are started.
        """
        if self._weights.done:
            self._entrance.step(named=self._started)
        for news in (self._weights.news, self._entrance.news):
            while self._started and news:
                self._log.append(news.pop(0))
        fault = self._weights.fault or self._entrance.fault
        if fault and self._failed is None:
            self._group.fail(Failed(cause=fault, field="pretrained" if self._weights.fault else ""), CERTAIN)
        elif self._started and self._entrance.open and not self._launched:
            self._launch()

    def _new_group(self) -> Group:
        return Group(
            self._tell,
            self._selector,
            self._attempts.world_size,
            self._limits,
            following_s=FOLLOWING_S if self._several else SETTLE_S,
            in_doubt=lambda: self._nodes is not None and self._nodes.has_quiet_node,
        )

    def _launch(self) -> None:
        self._launched = True
        self._failed, self._unsaved = None, False
        orders = self._attempts.orders()
        if self._several:
            nodes: Nodes = pkgutil.resolve_name(NODES)(
                self._run,
                orders,
                self._selector,
                on_event=self._tell,
                on_samples=self._sampled,
                attempt=self._attempt,
                job_without=self._attempts.without,
            )
            nodes.launch(self._group)
            self._nodes = nodes
            self._attempt += 1
            return
        if self._share is not None:
            orders = self._share(orders)
        self._group.launch(orders, self._worker, fork=self._fork and can_fork())
        self._sampler.own({worker.pid for worker in self._group.workers})

    def _part(self) -> None:
        """Has all ended on the other machines."""
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None

    # What comes in

    def _tell(self, event: AnyEvent) -> None:
        """Takes what the workers say into the log; of their failure it is decided whether the run ends with it."""
        if isinstance(event, Failed):
            self._failed = event if self._asked or self._share is not None else self._attempts.after(event)
            event = self._failed
        elif isinstance(event, CheckpointSaved):
            self._attempts.saved(event)
        elif isinstance(event, Warned) and event.code == "unsaved":
            self._unsaved = True
        self._results.take(event)
        self._history.add(event)
        self._log.append(event)

    def _sampled(self, samples: tuple[DeviceSample, ...]) -> None:
        if self._started and self._entrance.turn and self._gone_at is None:
            self._log.append(DevicesSampled(samples=samples))

    def _command(self, command: Command) -> None:
        if self._finished:
            return  # the end is the log's last word
        match command:
            case Stop():
                self._end("stopped", "stop")
            case Pause():
                self._end("paused", "pause")
            case Adjust(loader_workers=count):
                self._attempts.adjust(count)
                self._hand_on(command, f"use_{count}_loader_workers")
            case CheckpointNow():
                self._hand_on(command, "checkpoint_now")
            case SaveElsewhere():
                self._save_elsewhere(command)

    def _hand_on(self, command: Command, called: str) -> None:
        self._log.append(CommandReceived(command=called))
        self._group.send(command)

    def _save_elsewhere(self, command: SaveElsewhere) -> None:
        self._log.append(CommandReceived(command="save_elsewhere"))
        if self._unsaved:
            self._group.save_elsewhere(command)
            return
        message = (
            "Nothing was saved elsewhere: the run hasn't reached its final state, or that is already saved "
            "in its own folder."
        )
        self._log.append(Warned(code="not_saved_elsewhere", message=message))

    def _end(self, outcome: Literal["paused", "stopped"], asked_by: str) -> None:
        """Ends the workers in order; when asked again, at once. A run that is to stop is not paused any more."""
        if self._gone_at is not None:
            return
        if not self._started:
            self._start()  # what comes this early still has a start before it in the log
        self._log.append(CommandReceived(command=asked_by))
        before = self._asked
        if before is None or (before, outcome) == ("paused", "stopped"):
            self._asked = outcome
            self._log.append(PhaseChanged(phase="pausing" if outcome == "paused" else "stopping"))
            self._weights.close()
        if before is None:
            self._group.stop(Pause() if outcome == "paused" else Stop())
        else:
            self._group.hurry()

    # The end

    def _wait_for_memory(self) -> None:
        now = time.monotonic()
        if self._gone_at is None:
            self._gone_at = now
        verified = not self._launched or self._sampler.free(self._gone_at)
        if verified or now > self._gone_at + FREE_S:
            since = self._group.ending_since or self._gone_at
            self._log.append(DevicesFree(seconds=round(now - since, 3), verified=verified))
            self._finished = True

    def _outcome(self) -> Outcome:
        if isinstance(self._failed, Failed):
            return "failed"
        if self._group.unsaved:
            return "unsaved"
        return "completed" if self._group.completed else self._asked or "stopped"

    def _cause(self, outcome: Outcome) -> str:
        if isinstance(self._failed, Failed):
            return self._failed.cause
        if self._group.unsaved:
            return self._group.unsaved
        if outcome in ("paused", "stopped") and self._failed is None and self._group.forced:
            ranks = ", ".join(map(str, sorted(self._group.forced)))
            return f"Rank {ranks} did not exit when asked and was killed."
        return ""

    def _finish(self, outcome: Outcome, cause: str) -> None:
        self._finished = True
        self._part()
        self._gone_at = time.monotonic()
        self._weights.close()
        self._entrance.close()
        self._results.take_last_word(self._group.best)
        self._mending.look(at_once=True)  # what was removed in the last second is told before the end, too
        self._log.append(
            RunFinished(
                outcome=outcome,
                execution=self._execution,
                cause=cause,
                seconds=round(time.monotonic() - self._began, 3),
                best=self._results.best,
                best_epoch=self._results.best_epoch,
                checkpoints=self._results.checkpoints,
            )
        )
        self._attempts.clear()
        self._log.retry(at_once=True)
        self._server.tick()
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            ready = self._selector.select(_SHORT_TICK_S)
            for key, mask in ready:
                key.data(mask)
            self._server.tick()
            # Somebody who has just connected or said hello is to hear the end, too.
            if not ready and self._server.drained:
                break
        self._notices.close()
        self._server.close()
        self._sampler.close()
        self._log.close()
