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

import psutil

from engine import linux
from engine.contract import paths
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import DeviceSample, is_gpu
from engine.contract.events import (
    CommandReceived,
    DevicesFree,
    DevicesSampled,
    Failed,
    Outcome,
    PhaseChanged,
    RunFinished,
    RunStarted,
)
from engine.contract.job import Job
from engine.contract.protocol import Adjust, Command, Stop
from engine.contract.runs import RunFolder, SupervisorFile
from engine.contract.worker import WorkerSpec
from engine.supervisor import endpoint, environment, imports
from engine.supervisor.failures import CERTAIN
from engine.supervisor.group import Group
from engine.supervisor.hanging import LIMITS, Limits
from engine.supervisor.log import EventLog
from engine.supervisor.sampling import Sampler
from engine.supervisor.server import Server
from engine.supervisor.worker_process import WORKER, can_fork

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
    system offers; `tcp` asks for a loopback endpoint; `limits` say when a rank is held to hang.
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
        self._group = Group(self._log, self._selector, self._world_size, limits)
        self._started = False
        self._launched = False
        self._stop_asked = False
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
                self._turn(_SHORT_TICK_S if self._group.near_the_end else _TICK_S)
                self._advance()
            outcome = self._outcome()
            cause = self._cause(outcome)
        except Exception as error:
            traceback.print_exc()
            self._group.kill()
            cause = f"Footplate itself failed: {type(error).__name__}: {error}. The traceback is in supervisor.log."
            self._log.append(Failed(cause=cause, traceback_file="supervisor.log"))
        self._finish(outcome, cause)
        return 0 if outcome != "failed" else 1

    # The loop

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
        self._group.watch()
        if self._group.gone:
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
        specs = [
            WorkerSpec(
                run_folder=str(self._run.path),
                job=self._job,
                rank=rank,
                world_size=self._world_size,
                devices=self._job.devices,
                rendezvous=str(self._rendezvous),
                threads=max(1, environment.usable_cores() // self._world_size),
            )
            for rank in range(self._world_size)
        ]
        self._group.launch(specs, self._worker, fork=self._fork and can_fork())
        self._sampler.own({worker.pid for worker in self._group.workers})

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
            cause = f"PyTorch could not be imported: {fault}. `footplate doctor` tells more."
            self._group.fail(Failed(cause=cause), CERTAIN)

    def _sampled(self, samples: tuple[DeviceSample, ...]) -> None:
        if self._started and self._gone_at is None:
            self._log.append(DevicesSampled(samples=samples))

    def _command(self, command: Command) -> None:
        if isinstance(command, Stop):
            self._stop("stop")
            return
        asked = f"use_{command.loader_workers}_loader_workers" if isinstance(command, Adjust) else "checkpoint_now"
        self._log.append(CommandReceived(command=asked))
        self._group.send(command)

    def _stop(self, asked_by: str) -> None:
        if self._gone_at is not None:
            return
        if not self._started:
            self._start()  # a stop that comes this early still has a start before it in the log
        self._log.append(CommandReceived(command=asked_by))
        if self._stop_asked:
            self._group.hurry()
            return
        self._stop_asked = True
        self._log.append(PhaseChanged(phase="stopping"))
        self._group.stop()

    # The end

    def _wait_for_memory(self) -> None:
        now = time.monotonic()
        if self._gone_at is None:
            self._gone_at = now
        verified = self._sampler.free(self._gone_at)
        if verified or now > self._gone_at + FREE_S:
            since = self._group.ending_since or self._gone_at
            self._log.append(DevicesFree(seconds=round(now - since, 3), verified=verified))
            self._finished = True

    def _outcome(self) -> Outcome:
        if self._group.cause is not None:
            return "failed"
        return "completed" if self._group.completed else "stopped"

    def _cause(self, outcome: Outcome) -> str:
        if outcome == "failed":
            return self._group.cause or ""
        if outcome == "stopped" and self._group.forced:
            ranks = ", ".join(map(str, sorted(self._group.forced)))
            return f"Rank {ranks} did not end when asked and was ended by a signal."
        return ""

    def _finish(self, outcome: Outcome, cause: str) -> None:
        self._gone_at = time.monotonic()
        best = self._group.best
        self._log.append(
            RunFinished(
                outcome=outcome,
                cause=cause,
                seconds=round(time.monotonic() - self._began, 3),
                best=best.best if best is not None else {},
                best_epoch=best.best_epoch if best is not None else None,
                checkpoints=tuple(path for path in self._group.checkpoints if (self._run.path / path).exists()),
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


def world_size(job: Job) -> int:
    """How many worker processes the job's strategy has: one per device, or one that drives them all."""
    strategy = load_catalogue().strategy(job.strategy)
    return len(job.devices) if strategy is None or strategy.process_per_device else 1
