"""``footplate node``: train on one of several machines, started through ssh and controlled by the run's supervisor.

The node exits with its supervisor. When standard input is closed, or no frame has arrived for `SILENCE_S`, it kills
everything that it has started. It never restarts workers. On the supervisor's own machine, ``python -m
engine.machines.node`` does the same.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec
import psutil

from engine.checks.gpu_checks import describe_lost_gpus
from engine.checks.node_checks import digest_inputs, versions
from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.devices import host_of, is_gpu
from engine.contract.events import EVENT, Failed
from engine.contract.job import Job
from engine.contract.nodes import (
    KillWorker,
    Listening,
    NodeFacts,
    NodeFailed,
    NodeRequest,
    Rendezvous,
    WorkerCommand,
    WorkerEnded,
)
from engine.contract.protocol import FrameError
from engine.contract.worker import BY_ENVIRONMENT, WorkerSpec
from engine.machines import addresses, agent
from engine.machines.devices import snapshot, start_sampling
from engine.machines.files import NodeFiles, make_scratch
from engine.machines.link import SupervisorLink
from engine.machines.worker_server import WorkerServer
from engine.runs.consent import record_consent
from engine.runs.folder import RunFolder
from engine.runs.queue.slot import QueueSlot
from engine.runs.queue.tickets import CannotQueue
from engine.supervisor.environment import usable_cores
from engine.system import linux, paths
from engine.system.children import run_child
from engine.system.format import describe_exit

QUEUE_POLL_S = 0.5
QUEUE_TIMEOUT_S = 600.0
"""Maximum time in seconds that a run waits for devices that other runs on this machine use."""
_LOG_BYTES = 1 << 18
"""Maximum number of bytes that are sent to the supervisor from the end of a worker's log and of its traceback.

Both fit into one frame.
"""


def serve() -> int:
    """Run a run's workers on this machine once, controlled by the supervisor. Returns the exit code."""
    link = SupervisorLink()
    linux.name_process("footplate-node")
    faulthandler.enable(all_threads=False)
    os.chdir(paths.PACKAGES)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input is the signal to end
    node = _Node(link, make_scratch())
    link.start_heartbeats()
    agent.preload()
    return node.run()


def fetch_weights(job: Job) -> str:
    """Download or verify the pretrained weights for `job`. Returns the error, or "" if it succeeds."""
    needs_weights = job.model.pretrained and not job.model.weights_file and not job.checkpoints.resume_from
    weights = weights_of(job, load_catalogue()) if needs_weights else None
    if weights is None:
        return ""
    command = [sys.executable, "-m", "engine.models.fetch", msgspec.json.encode(weights).decode()]
    done = run_child(command, timeout_s=None, cwd=str(paths.PACKAGES))
    causes = [event.cause for event in map(EVENT.decode, done.stdout.splitlines()) if isinstance(event, Failed)]
    if causes:
        return causes[0]
    if not done.returncode:
        return ""
    return f"The process that downloads the pretrained weights {describe_exit(done.returncode)}."


class _Node:
    """Process that runs a run's workers on this machine. `run` uses the main thread. Another one handles messages."""

    def __init__(self, link: SupervisorLink, scratch: Path) -> None:
        self._link, self._scratch = link, scratch  # connection to the supervisor, and folder for sockets
        # Messages of the supervisor, for the main thread.
        self._requests: queue.SimpleQueue[NodeRequest] = queue.SimpleQueue()
        self._rendezvous: queue.SimpleQueue[Rendezvous] = queue.SimpleQueue()
        self._workers: WorkerServer | None = None  # connections to the workers
        self._files: NodeFiles | None = None
        self._agent: agent.Agent | None = None  # torch's process that starts the workers
        self._is_cancelled = False
        """True after the supervisor has cancelled workers that had not started."""

    def run(self) -> int:
        """Run the workers of the supervisor's first request, and send it their exit codes or the failure.

        Doesn't return: the thread that receives messages exits the process with `end`.
        """
        threading.Thread(target=self._receive, name="frames", daemon=True).start()
        request = self._requests.get()
        try:
            self._train(request)
        except agent.AgentFailed as error:
            self._link.send(NodeFailed(cause=f"{request.title}: {error}"))
        except Exception as error:
            self._report_exception(request, error)
        threading.Event().wait()  # until `end` exits the process
        return 0

    def _report_exception(self, request: NodeRequest, error: Exception) -> None:
        """Print the traceback of an error, and report to the supervisor that this machine has failed."""
        traceback.print_exc()
        self._link.send(NodeFailed(cause=f"{request.title}: {type(error).__name__}: {error}"))

    def end(self) -> None:
        """Kill all processes that this node has started, remove its files, and exit."""
        if self._workers is not None:
            self._workers.close()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._files is not None:
            self._files.close()
        os._exit(0)

    # In the main thread

    def _train(self, request: NodeRequest) -> None:
        """Prepare the run folder, report the facts of this machine, and run its workers in one attempt.

        Returns once the exit codes of all workers have been sent to the supervisor. From then on, SIGTERM is ignored. If
        the job has a model file, this user's consent to it is saved on this machine. Raises AgentFailed, OSError,
        TimeoutError.
        """
        job = request.specs[0].job
        if job.model.model_file_sha256:  # the user has agreed to this content where the run was started
            record_consent(job.model.name, job.model.model_file_sha256)
        assert self._files is not None
        self._files.open()
        specs = tuple(self._adapt_spec(request, spec) for spec in request.specs)
        self._workers = WorkerServer(specs, self._link.send, self._scratch)
        threading.Thread(target=self._send_facts, args=(request,), name="facts", daemon=True).start()
        rendezvous, listener = self._open_rendezvous(request)
        spec = request.specs[0]
        if host_of(spec.devices[spec.rank]):  # the supervisor samples its own machine
            start_sampling(request, self._link.send)
        self._agent = agent.Agent(request, rendezvous, listener, self._workers.socket_path)
        if self._is_cancelled:  # before the agent existed
            self._agent.kill()
        codes = self._agent.wait()
        # At the end of a job, SLURM sends this signal, which would end the process before it removes its files.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._workers.finish()
        for rank, code in codes.items():
            self._link.send(WorkerEnded(rank=rank, code=code, files=self._files.read_worker_files(rank, _LOG_BYTES)))

    def _open_rendezvous(self, request: NodeRequest) -> tuple[Rendezvous, socket.socket | None]:
        """Wait for the rendezvous from the supervisor. On the first machine in `request`, listen for the others.

        The first machine reports its address and port to the supervisor. Returns the rendezvous with these and the
        listening socket, which is None on the other machines.
        """
        rendezvous = self._rendezvous.get()
        if request.node != 0:
            return rendezvous, None
        listener = addresses.listen(rendezvous.local_address, request.port, request.attempt)
        port = listener.getsockname()[1]
        self._link.send(Listening(address=rendezvous.local_address, port=port))
        return msgspec.structs.replace(rendezvous, address=rendezvous.local_address, port=port), listener

    def _adapt_spec(self, request: NodeRequest, spec: WorkerSpec) -> WorkerSpec:
        """Return the spec of a worker, adapted to the paths and the number of cores of this machine."""
        assert self._files is not None
        resume_from = spec.job.checkpoints.resume_from
        if resume_from:
            resume_from = str(self._files.resume_from(resume_from))
        return msgspec.structs.replace(
            spec,
            run_folder=str(self._files.folder),
            job=spec.job.with_fields(resume_from=resume_from),
            rendezvous=BY_ENVIRONMENT,
            threads=max(1, usable_cores() // len(request.specs)),
        )

    # In threads

    def _send_facts(self, request: NodeRequest) -> None:
        """Send the facts about this machine once its weights and devices are ready, or the error that prevents it."""
        try:
            self._link.send(self._prepare(request))
        except Exception as error:
            self._report_exception(request, error)

    def _prepare(self, request: NodeRequest) -> NodeFacts:
        """Download the weights, reserve the devices, and return the facts that the supervisor compares.

        After a problem, which the facts then contain, nothing is downloaded or reserved.
        """
        assert self._files is not None
        job = request.specs[0].job
        ssh_address, remote_address = addresses.connection_addresses()
        address, problem = request.address or ssh_address, ""
        try:
            if address:
                addresses.interface_of(address)
        except ValueError as error:
            problem = f"{error}. Set it with `footplate hosts add --address`."
        lost, missing = _find_missing_gpus(request)
        problem = problem or missing
        if not problem:
            problem = fetch_weights(job)
        if not problem:
            problem = self._reserve_devices(request)
        return NodeFacts(
            versions=versions(),
            inputs=digest_inputs(job),
            address=address,
            client_address=remote_address,
            infiniband=addresses.has_infiniband(),
            time=time.time(),
            free_bytes=shutil.disk_usage(self._files.folder).free,
            lost_gpus=lost,
            problem=problem,
        )

    def _reserve_devices(self, request: NodeRequest) -> str:
        """Wait in this machine's queue for the devices. Returns a reason if the run can't have them, otherwise "".

        If the machine is the supervisor's, or a SLURM node with access to the original run folder, the devices are
        already reserved. The waiting time is limited, since two runs may wait for each other's devices.
        """
        assert self._files is not None
        if request.run_folder:
            return ""
        spec = request.specs[0]
        job = spec.job.with_fields(devices=spec.local_devices, wait_for_others=False)
        slot = QueueSlot(RunFolder(str(self._files.folder)), job, request.run_id)
        deadline = time.monotonic() + QUEUE_TIMEOUT_S
        behind: tuple[str, ...] = ()
        try:
            while time.monotonic() < deadline:
                if waiting := slot.poll():
                    behind = waiting.behind
                    self._link.send(waiting)
                if slot.has_devices:
                    threading.Thread(target=_hold_devices, args=(slot,), name="slot", daemon=True).start()
                    return ""
                time.sleep(QUEUE_POLL_S)
        except CannotQueue as error:
            return str(error)
        slot.close()
        return f"Its devices have been used by {', '.join(behind)} for {QUEUE_TIMEOUT_S / 60:.0f} minutes."

    def _receive(self) -> None:
        """Handle the supervisor's messages. When the connection ends, or a message is invalid, end the process."""
        try:
            for message in self._link.messages():
                self._on_message(message)
        except (FrameError, msgspec.DecodeError) as error:
            print(f"The supervisor sent an invalid message: {error}", file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
        self.end()

    def _on_message(self, message: object) -> None:
        """Handle a message of the supervisor. The request to train is queued for the main thread."""
        match message:
            case NodeRequest():
                self._files = NodeFiles(message)  # before `end` may be called, which removes them
                self._requests.put(message)
            case Rendezvous():
                self._rendezvous.put(message)
            case WorkerCommand() if self._workers is not None:
                self._workers.send(message.rank, message.command)
            case KillWorker():
                self._kill(message)

    def _kill(self, message: KillWorker) -> None:
        """Send a signal to a worker. If it has not connected to this node, kill torch's agent with all workers.

        If there is no agent, no worker exists, and the exit of the worker is reported at once. Importing torch, which
        precedes the agent's start, may take longer than the supervisor waits for the report.
        """
        if self._workers is not None and self._workers.kill(message.rank, hard=message.hard):
            return
        self._is_cancelled = True
        if self._agent is not None:
            self._agent.kill()
        else:
            self._link.send(WorkerEnded(rank=message.rank, code=None))


def _hold_devices(slot: QueueSlot) -> NoReturn:
    """Hold the reservation of `slot` until this process exits, even if the queue's folder is cleared."""
    while True:
        slot.poll()
        time.sleep(QUEUE_POLL_S)


def _find_missing_gpus(request: NodeRequest) -> tuple[tuple[str, ...], str]:
    """Return the requested GPUs that NVML has lost, and a sentence about requested GPUs that are lost or don't exist.

    The sentence is "" if all GPUs are available.
    """
    required = {device for device in request.specs[0].local_devices if is_gpu(device)}
    if not required:
        return (), ""
    state = snapshot()
    lost = describe_lost_gpus(required, state)
    if lost:
        return tuple(lost), " ".join(lost.values())
    missing = sorted(required - {gpu.uuid for gpu in state.gpus})
    if not missing:
        return (), ""
    return (), f"There is no GPU {', '.join(missing)}. {state.nvml.message}".strip()


if __name__ == "__main__":
    serve()
