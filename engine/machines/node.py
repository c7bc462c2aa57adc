"""``footplate node``: one machine's part in a run, at the orders of the run's supervisor, which started it through ssh.

It ends with its supervisor: at the end of standard input, or when nothing has come for `SILENCE_S`, all that it has
started is killed. It never decides for itself to start anything again.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from engine.checks.node_checks import inputs_of, versions
from engine.contract.devices import host_of, is_gpu
from engine.contract.nodes import (
    FilePart,
    FileWanted,
    KillWorker,
    Listening,
    Meet,
    NodeFacts,
    NodeFailed,
    NodeOrder,
    ToWorker,
    WorkerEnded,
)
from engine.contract.protocol import FrameError
from engine.contract.worker import BY_ENVIRONMENT, WorkerSpec
from engine.machines import addresses, agent
from engine.machines.frontend import Frontend
from engine.machines.node_files import RunFiles
from engine.machines.pretrained import fetch_weights
from engine.machines.samples import start_samples
from engine.machines.scratch import make_scratch
from engine.machines.worker_server import Workers
from engine.runs.consent import agree
from engine.supervisor.environment import usable_cores
from engine.system import linux, paths

_LOG_BYTES = 1 << 18
"""How much of the end of a worker's log is handed on."""


def serve() -> int:
    """Serves one attempt of one run; returns the exit code."""
    frontend = Frontend()
    linux.name_process("footplate-node")
    faulthandler.enable(all_threads=False)
    os.chdir(paths.PACKAGES)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input says it all
    node = _Node(frontend, make_scratch())
    frontend.start_beating(lambda: node.end(1))
    agent.preload()
    return node.run()


class _Node:
    """`run` has the workers trained from the main thread; all else happens in threads."""

    def __init__(self, frontend: Frontend, scratch: Path) -> None:
        self._frontend, self._scratch = frontend, scratch
        self._meetings: queue.SimpleQueue[Meet] = queue.SimpleQueue()
        self._ordered: queue.SimpleQueue[NodeOrder] = queue.SimpleQueue()
        self._workers: Workers | None = None
        self._files: RunFiles | None = None
        self._agent: agent.Agent | None = None
        self._no_more = False
        """Whether workers are to end that have not begun."""
        self._done = threading.Event()

    def run(self) -> int:
        threading.Thread(target=self._read, name="frames", daemon=True).start()
        order = self._ordered.get()
        try:
            self._train(order)
        except agent.AgentFailed as error:
            self._frontend.say(NodeFailed(cause=f"{order.title}: {error}"))
        except Exception as error:
            traceback.print_exc()
            self._frontend.say(NodeFailed(cause=f"{order.title}: {type(error).__name__}: {error}"))
        self._done.wait()  # which ends the process
        return 0

    def end(self, code: int) -> None:
        """Kills everything that this process has started, removes what it has written, and ends it."""
        if self._workers is not None:
            self._workers.close()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        if self._files is not None:
            self._files.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(code)

    # In the main thread

    def _train(self, order: NodeOrder) -> None:
        job = order.specs[0].job
        if job.model_file_sha256:
            agree(job.model, job.model_file_sha256)  # to that content alone, as the user has where the run was started
        self._files = RunFiles(order, self._frontend.say)
        specs = tuple(self._own(order, spec) for spec in order.specs)
        self._workers = Workers(specs, self._frontend.say, self._scratch)
        threading.Thread(target=self._tell_facts, args=(order,), name="facts", daemon=True).start()
        meet = self._meetings.get()
        listener = None
        if order.node == 0:
            listener = addresses.listen(meet.own_address, order.port, order.attempt)
            port = listener.getsockname()[1]
            meet = Meet(own_address=meet.own_address, address=meet.own_address, port=port)
            self._frontend.say(Listening(address=meet.address, port=port))
        if host_of(order.specs[0].devices[order.specs[0].rank]):
            start_samples(order, self._frontend.say)
        self._agent = agent.Agent(order, meet, listener, self._workers.socket_path)
        if self._no_more:
            self._agent.kill()
        codes = self._agent.codes()
        # SLURM's, at the end of a job, would come before what is ours is removed.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._workers.finish()
        for rank, code in codes.items():
            self._files.send_worker_files(rank, _LOG_BYTES)
            self._frontend.say(WorkerEnded(rank=rank, code=code))

    def _own(self, order: NodeOrder, spec: WorkerSpec) -> WorkerSpec:
        """A worker's orders, with what only its machine knows."""
        assert self._files is not None
        resumed = spec.job.resume_from and str(self._files.resume_from(spec.job.resume_from))
        return msgspec.structs.replace(
            spec,
            run_folder=str(self._files.folder),
            job=msgspec.structs.replace(spec.job, resume_from=resumed),
            rendezvous=BY_ENVIRONMENT,
            threads=max(1, usable_cores() // len(order.specs)),
        )

    # In a thread of its own

    def _tell_facts(self, order: NodeOrder) -> None:
        assert self._files is not None
        came_to, came_from = addresses.reached_addresses()
        address, problem = order.address or came_to, ""
        try:
            if address:
                addresses.interface_of(address)
        except ValueError as error:
            problem = f"{error}. Set it with `footplate hosts add --address`."
        facts = NodeFacts(
            versions=versions(),
            inputs=inputs_of(order.specs[0].job),
            lacks=self._files.lacking(),
            address=address,
            came_from=came_from,
            time=time.time(),
            free_bytes=shutil.disk_usage(self._files.folder).free,
            problem=problem or self._missing_gpus(order) or fetch_weights(order.specs[0].job),
        )
        self._frontend.say(facts)

    def _missing_gpus(self, order: NodeOrder) -> str:
        wanted = [device for device in order.specs[0].own_devices if is_gpu(device)]
        if not wanted:
            return ""
        from engine.machines.devices import snapshot

        seen = snapshot()
        missing = sorted(set(wanted) - {gpu.uuid for gpu in seen.gpus if not gpu.lost})
        return f"There is no GPU {', '.join(missing)}. {seen.nvml.message}".strip() if missing else ""

    def _read(self) -> None:
        try:
            for message in self._frontend.messages():
                self._take(message)
        except (FrameError, msgspec.DecodeError) as error:
            print(f"The supervisor sent an invalid message: {error}", file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
        self.end(0)

    def _take(self, message: object) -> None:
        match message:
            case NodeOrder():
                self._ordered.put(message)
            case Meet():
                self._meetings.put(message)
            case ToWorker() if self._workers is not None:
                self._workers.send(message.rank, message.command)
            case KillWorker():
                self._kill(message)
            case FileWanted() if self._files is not None:
                self._files.send(message.path)
            case FilePart() if self._files is not None:
                self._files.take(message)

    def _kill(self, message: KillWorker) -> None:
        """Signals a worker; ends all where it has not begun, as it may wait for a machine that is gone."""
        if self._workers is not None and self._workers.kill(message.rank, hard=message.hard):
            return
        self._no_more = True
        if self._agent is not None:
            self._agent.kill()


if __name__ == "__main__":
    serve()
