"""The run's own process: from the first event to the last, whatever happens in between."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
import traceback
from types import FrameType

import msgspec
import psutil

from engine import linux
from engine.contract import paths
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import DeviceSample, is_gpu
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    CommandReceived,
    DevicesFree,
    DevicesSampled,
    Failed,
    LogLine,
    Outcome,
    PhaseChanged,
    RunFinished,
    RunStarted,
    Warned,
)
from engine.contract.job import Job
from engine.contract.protocol import FrameError, Stop
from engine.contract.runs import RunFolder, SupervisorFile
from engine.contract.worker import Heartbeat, WorkerDone, WorkerSpec
from engine.supervisor import endpoint, environment, failures, imports
from engine.supervisor.ending import FAILED_S, STOP_S, Ending
from engine.supervisor.log import EventLog
from engine.supervisor.sampling import Sampler
from engine.supervisor.server import Command, Server
from engine.supervisor.worker_process import WORKER, WorkerProcess, can_fork

SILENT_S = 120.0
"""A worker that says nothing for this long, not even that it lives, is warned about."""
SETTLE_S = 0.5
"""After a first failure, how long others are waited for before the cause is named."""
SNAPSHOT_S = 3.0
"""How long the start of a run on GPUs waits for their names."""
FREE_S = 10.0
"""How long the GPUs' memory may take to be seen free."""
DRAIN_S = 3.0
"""How long clients may take to read the end."""
CPU_SAMPLER_DELAY_S = 2.0
"""On the CPU the sampler's own start would take from the first steps' time."""

_TICK_S = 0.5
_SHORT_TICK_S = 0.05


class Supervisor:
    """Supervises one execution of `job` in the folder of `run`; `run_to_end` is all there is to call.

    `worker` names the function that each rank runs; `modules` are imported before the workers are started
    (none where they are there already); `fork` decides how workers are started, by default by what the
    system offers; `tcp` asks for a loopback endpoint.
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
    ) -> None:
        self._run = run
        self._job = job
        self._worker = worker
        self._fork = fork
        self._world_size = world_size(job)
        self._modules = imports.modules_for(self._world_size) if modules is None else modules
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        self._signals: list[int] = []
        self._began = time.monotonic()
        self._log = EventLog(run.events_file)
        endpoint.sweep()
        self._endpoint = endpoint.open_endpoint(run.path, tcp=tcp)
        self._server = Server(self._endpoint, self._log, run.run_id, self._selector, self._command)
        self._sampler = Sampler(self._selector, job.devices, self._sampled)
        self._imports: imports.ImportThread | None = None
        self._workers: list[WorkerProcess] = []
        self._started = False
        self._launched = False
        self._stop_asked = False
        self._ending: Ending | None = None
        self._failures: list[tuple[float, failures.Failure]] = []
        self._named_cause: str | None = None
        self._checkpoints: dict[str, None] = {}
        self._gone_at: float | None = None
        self._finished = False
        self._rendezvous = paths.runtime_folder() / f"{endpoint.socket_name(run.path)}.store"

    def run_to_end(self) -> int:
        """Runs the job. Returns 0 if it was completed or stopped, else 1."""
        outcome: Outcome = "failed"
        try:
            self._announce()
            self._prepare()
            while not self._finished:
                self._turn(_SHORT_TICK_S if self._near_the_end else _TICK_S)
                self._advance()
            outcome = self._outcome()
            cause = self._cause(outcome)
        except Exception as error:
            traceback.print_exc()
            self._kill_all()
            cause = f"Footplate itself failed: {type(error).__name__}: {error}. The traceback is in supervisor.log."
            self._log.append(Failed(cause=cause, traceback_file="supervisor.log"))
        self._finish(outcome, cause)
        return 0 if outcome != "failed" else 1

    # The loop

    @property
    def _near_the_end(self) -> bool:
        """Whether something is awaited that no file tells of."""
        ended = any(worker.done is not None or worker.channel is None for worker in self._workers)
        return ended or self._ending is not None or bool(self._failures)

    def _announce(self) -> None:
        process = psutil.Process()
        linux.name_process("footplate-run")
        content = SupervisorFile(pid=process.pid, start_time=process.create_time(), endpoint=self._endpoint.text)
        self._run.write_supervisor(content)

    def _prepare(self) -> None:
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._wake_up)
        self._sampler.start(0.0 if any(map(is_gpu, self._job.devices)) else CPU_SAMPLER_DELAY_S)
        if self._modules and self._fork:
            self._imports = imports.ImportThread(self._modules)
            self._selector.register(self._imports.done, selectors.EVENT_READ, self._imported)

    def _turn(self, timeout: float) -> None:
        for key, mask in self._selector.select(timeout):
            key.data(mask)
        self._log.retry()
        self._sampler.tick()
        self._server.tick()

    def _advance(self) -> None:
        if not self._started:
            self._start_when_known()
        if self._started and not self._launched and self._imports is None and not self._stop_asked:
            self._launch()
        self._watch()
        if self._ending is not None:
            self._ending.step()
        if self._all_gone():
            self._wait_for_memory()
        self._server.tick()

    def _start_when_known(self) -> None:
        waiting = any(map(is_gpu, self._job.devices)) and self._sampler.latest is None
        if not waiting or time.monotonic() > self._began + SNAPSHOT_S:
            self._start()

    def _start(self) -> None:
        self._started = True
        self._log.append(
            RunStarted(
                run_id=self._run.run_id,
                job=self._job,
                devices=environment.run_devices(self._job.devices, self._world_size, self._sampler.latest),
                world_size=self._world_size,
                environment=environment.describe(self._sampler.latest),
                supervisor_pid=os.getpid(),
            )
        )
        self._log.append(PhaseChanged(phase="starting"))

    def _launch(self) -> None:
        self._launched = True
        self._rendezvous.unlink(missing_ok=True)
        fork = self._fork and can_fork()
        for rank in range(self._world_size):
            spec = WorkerSpec(
                run_folder=str(self._run.path),
                job=self._job,
                rank=rank,
                world_size=self._world_size,
                devices=self._job.devices,
                rendezvous=str(self._rendezvous),
                threads=max(1, environment.usable_cores() // self._world_size),
            )
            worker = WorkerProcess(spec, self._worker, fork=fork)
            self._workers.append(worker)
            assert worker.channel is not None
            self._selector.register(worker.channel, selectors.EVENT_READ, lambda _, w=worker: self._hear(w))
        self._sampler.own({worker.pid for worker in self._workers})

    # What comes in

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        """Between any two instructions of the loop: so it is only noted, and the loop is woken."""
        self._signals.append(number)

    def _wake_up(self, _mask: int) -> None:
        self._wakeup.recv(4096)
        while self._signals:
            self._stop(signal.Signals(self._signals.pop(0)).name)

    def _imported(self, _mask: int) -> None:
        assert self._imports is not None
        self._selector.unregister(self._imports.done)
        self._imports.join()
        fault, self._imports = self._imports.fault, None
        if fault is not None:
            self._launched = True
            self._fail(Failed(cause=f"PyTorch could not be imported: {fault}. `footplate doctor` tells more."), 0)

    def _sampled(self, samples: tuple[DeviceSample, ...]) -> None:
        if self._started and self._gone_at is None:
            self._log.append(DevicesSampled(samples=samples))

    def _command(self, command: Command) -> None:
        if isinstance(command, Stop):
            self._stop("stop")
            return
        self._log.append(CommandReceived(command="checkpoint_now"))
        for worker in self._workers:
            worker.send(command)

    def _stop(self, asked_by: str) -> None:
        if self._gone_at is not None:
            return
        if not self._started:
            self._start()  # a stop that comes this early still has a start before it in the log
        self._log.append(CommandReceived(command=asked_by))
        if self._stop_asked:
            if self._ending is not None:
                self._ending.hurry()
            return
        self._stop_asked = True
        self._log.append(PhaseChanged(phase="stopping"))
        if self._ending is None:
            self._ending = Ending(self._workers, STOP_S)

    def _hear(self, worker: WorkerProcess) -> None:
        channel = worker.channel
        assert channel is not None
        try:
            messages = worker.receive()
        except (FrameError, msgspec.DecodeError) as error:
            self._fail(Failed(cause=f"Rank {worker.rank} broke the rules of its channel: {error}", rank=worker.rank), 0)
            worker.close()
            messages = []
        if worker.channel is None:
            self._selector.unregister(channel)
        for message in messages:
            self._take(worker, message)

    def _take(self, worker: WorkerProcess, message: AnyEvent | Heartbeat | WorkerDone) -> None:
        match message:
            case Heartbeat():
                pass
            case WorkerDone():
                worker.done = message
            case Failed():
                self._fail(message, failures.weight(message))
            case CheckpointSaved(path=path):
                self._checkpoints[path] = None
                self._log.append(message)
            case _:
                self._log.append(message)

    # Failure and the end

    def _watch(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.poll() is None:
                if now - worker.heard_at > SILENT_S and not worker.warned_silent:
                    worker.warned_silent = True
                    text = f"Rank {worker.rank} has said nothing for {SILENT_S:.0f} s; it may hang. Stop ends it."
                    self._log.append(Warned(code="silent", message=text, rank=worker.rank))
                continue
            while worker.channel is not None:  # what it said before it died
                self._hear(worker)
            if worker.done is None or worker.exit_code != 0:
                self._died(worker)
        if self._failures and self._named_cause is None:
            first = self._failures[0][0]
            if now - first > SETTLE_S or all(worker.exit_code is not None for worker in self._workers):
                self._name_the_cause()

    def _died(self, worker: WorkerProcess) -> None:
        known = {failure.event.rank for _, failure in self._failures}
        forced = self._ending is not None and worker.rank in self._ending.forced
        if worker.rank not in known and not forced and self._named_cause is None:
            assert worker.exit_code is not None
            event = failures.death(worker.rank, worker.exit_code, worker.log)
            self._fail(event, failures.BY_SIGNAL if worker.exit_code < 0 else failures.OWN)

    def _fail(self, event: Failed, weight: int) -> None:
        if self._named_cause is None:
            self._failures.append((time.monotonic(), failures.Failure(event, weight)))
        else:
            self._log.append(LogLine(text=event.cause, level="error", rank=event.rank))

    def _name_the_cause(self) -> None:
        root = failures.root_cause([failure for _, failure in self._failures])
        self._named_cause = root.event.cause
        self._log.append(root.event)
        for _, failure in self._failures:
            if failure is not root:
                self._log.append(LogLine(text=failure.event.cause, level="error", rank=failure.event.rank))
        if self._ending is None:
            self._ending = Ending(self._workers, FAILED_S)
        else:
            self._ending.hurry(FAILED_S)

    def _all_gone(self) -> bool:
        if self._failures and self._named_cause is None:
            return False
        if not self._workers:
            return self._ending is not None or self._named_cause is not None
        return all(worker.exit_code is not None and worker.channel is None for worker in self._workers)

    def _wait_for_memory(self) -> None:
        now = time.monotonic()
        if self._gone_at is None:
            self._gone_at = now
        verified = self._sampler.free(self._gone_at)
        if verified or now > self._gone_at + FREE_S:
            since = self._ending.began if self._ending is not None else self._gone_at
            self._log.append(DevicesFree(seconds=round(now - since, 3), verified=verified))
            self._finished = True

    def _outcome(self) -> Outcome:
        if self._named_cause is not None:
            return "failed"
        if self._workers and all(worker.done is not None and not worker.done.stopped for worker in self._workers):
            return "completed"
        return "stopped"

    def _cause(self, outcome: Outcome) -> str:
        if outcome == "failed":
            return self._named_cause or ""
        if outcome == "stopped" and self._ending is not None and self._ending.forced:
            ranks = ", ".join(map(str, sorted(self._ending.forced)))
            return f"Rank {ranks} did not end when asked and was ended by a signal."
        return ""

    def _finish(self, outcome: Outcome, cause: str) -> None:
        self._gone_at = time.monotonic()
        best = next((worker.done for worker in self._workers if worker.done is not None and worker.done.best), None)
        self._log.append(
            RunFinished(
                outcome=outcome,
                cause=cause,
                seconds=round(time.monotonic() - self._began, 3),
                best=best.best if best is not None else {},
                best_epoch=best.best_epoch if best is not None else None,
                checkpoints=tuple(path for path in self._checkpoints if (self._run.path / path).exists()),
            )
        )
        self._rendezvous.unlink(missing_ok=True)
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
        self._server.close()
        self._sampler.close()
        self._log.close()

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill(hard=True)
        for worker in self._workers:
            while worker.poll() is None:
                time.sleep(_SHORT_TICK_S)


def world_size(job: Job) -> int:
    """How many worker processes the job's strategy has: one per device, or one that drives them all."""
    strategy = load_catalogue().strategy(job.strategy)
    return len(job.devices) if strategy is None or strategy.process_per_device else 1
