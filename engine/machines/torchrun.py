"""``torchrun … -m engine.machines.torchrun JOB``: one worker of a run whose processes torchrun starts, without
Footplate's ssh.

JOB is a job file, or a job as JSON (see `footplate torchrun`). Rank 0's process is the run's supervisor: it makes the
run's folder, writes the event log, serves the window, and has a worker of its own. The first process of each other
machine makes a folder there. It hands the orders of its machine's other ranks to them by files in the user's runtime
folder, named after torchrun's agent, which is the parent of all.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.contract.devices import host_of
from engine.contract.events import Failed, RunFinished
from engine.contract.job import Job, job_from_values, load_job
from engine.contract.problems import Problem, errors
from engine.contract.protocol import ENCODE, Frames
from engine.contract.worker import BY_ENVIRONMENT, FROM_WORKER, WorkerSpec
from engine.machines.addresses import interface_of, towards
from engine.machines.node_files import node_folder
from engine.processes.worker_process import WORKER, run_worker, worker_environment
from engine.runs.consent import agree
from engine.runs.folder import RunFolder, create_run, process_start
from engine.supervisor.environment import usable_cores
from engine.supervisor.execution import supervise
from engine.supervisor.restart_policy import RestartPolicy, world_size
from engine.system import linux, paths, stdio
from engine.system.plain_text import escaped

_LOOK_S = 0.05
_CHUNK = 1 << 16
_REFUSED = 2


@dataclass(frozen=True)
class Place:
    """This process among torchrun's, by the variables that it set."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master: str
    port: int
    restarts: int

    @property
    def alone(self) -> bool:
        """Whether all ranks are on this machine."""
        return self.local_world_size == self.world_size

    @property
    def local_ranks(self) -> range:
        first = self.rank - self.local_rank
        return range(first, first + self.local_world_size)

    def orders_file(self, rank: int) -> Path:
        agent = os.getppid()
        return paths.runtime_folder() / f"torchrun-{agent}-{int(process_start(agent) * 1000)}-{rank}.json"


def place() -> Place:
    """Raises KeyError, ValueError where torchrun did not start this process."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    rank, local_rank, world, local_world = (int(os.environ[name]) for name in names)
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return Place(rank, local_rank, world, local_world, master, port, int(os.environ["TORCHELASTIC_RESTART_COUNT"]))


def main(arguments: Sequence[str]) -> int:
    """Trains; the exit code."""
    linux.die_with_parent(os.getppid())
    if len(arguments) != 1:
        return _refuse([Problem("", "One job is expected.", "Give a job file, or the line of `footplate torchrun`.")])
    try:
        here = place()
    except (KeyError, ValueError):
        return _refuse([Problem("", "torchrun did not start this process.", "See `footplate torchrun`.")])
    job, problems = _read(arguments[0])
    if job is not None:
        problems += _misfits(job, here)
    if job is None or errors(problems):
        return _refuse(problems if here.local_rank == 0 else [])
    if job.model_file_sha256:
        agree(job.model, job.model_file_sha256)  # to that content alone, as the line says
    if not here.alone:
        _talk_over(towards(here.master, here.port))
    if here.rank == 0:
        return _lead(job, here)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # rank 0 ends all in order; torchrun kills what it has to wait for
    if here.local_rank > 0:
        return _train(_receive(here))
    folder = paths.private_folder(node_folder(f"torchrun-{os.getpid()}"))
    try:
        return _train(_hand_out(RestartPolicy(RunFolder(folder), job).orders(), here)[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(text: str) -> tuple[Job | None, list[Problem]]:
    if not text.startswith("{"):
        return load_job(Path(text))
    try:
        return job_from_values(msgspec.json.decode(text, type=dict[str, object]))
    except msgspec.DecodeError as error:
        return None, [Problem("", f"The job is not JSON: {error}.", "Copy the whole line of `footplate torchrun`.")]


def _misfits(job: Job, here: Place) -> list[Problem]:
    """In what torchrun's processes are not those that the job needs."""
    found = []
    if world_size(job) != here.world_size:
        message = f"The job has {world_size(job)} workers, and torchrun started {here.world_size}."
        found.append(Problem("devices", message, "Start as many processes as the job has devices."))
    elif len({host_of(job.devices[rank]) for rank in here.local_ranks}) > 1:
        message = "torchrun's processes on this machine belong to devices of several machines."
        found.append(Problem("devices", message, "Give --node-rank and --nproc-per-node as `footplate torchrun` does."))
    if here.restarts:
        message = "Footplate does not continue a run that torchrun restarts."
        found.append(Problem("", message, "Leave --max-restarts at 0, and `footplate resume` the run."))
    return found


def _refuse(problems: list[Problem]) -> int:
    for problem in problems:
        print(escaped(f"footplate: {problem}"), file=sys.stderr, flush=True)
    return _REFUSED


def _talk_over(address: str) -> None:
    """Binds the workers' sockets to the interface that has `address`, unless the user has named another."""
    interface = interface_of(address)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # else NCCL takes every interface that begins so


def _lead(job: Job, here: Place) -> int:
    """Supervises the run, with rank 0's worker; torchrun's terminal is told where it is and how it ended."""
    run = create_run(job)
    print(f"Run {run.run_id} in {escaped(str(run.path))}", file=sys.stderr, flush=True)
    with os.fdopen(os.dup(2), "w", errors="backslashreplace") as terminal:
        stdio.redirect(run.path / "supervisor.log")
        code = supervise(run.path, share=lambda orders: _hand_out(orders, here))
        end = run.last_event()
        if isinstance(end, RunFinished):
            print(escaped(f"Run {run.run_id} {end.outcome}. {end.cause}".rstrip()), file=terminal)
    return code


def _hand_out(orders: list[WorkerSpec], here: Place) -> list[WorkerSpec]:
    """Gives the other ranks of this machine theirs; returns this process's own."""
    threads = max(1, usable_cores() // here.local_world_size)
    own, *others = (
        msgspec.structs.replace(
            orders[rank], threads=threads, rendezvous=orders[rank].rendezvous if here.alone else BY_ENVIRONMENT
        )
        for rank in here.local_ranks
    )
    for spec in others:
        paths.put_into_place(here.orders_file(spec.rank), ENCODE.encode(spec))
    return [own]


def _receive(here: Place) -> WorkerSpec:
    """This process's orders, once they are there: a run may have to wait for its devices."""
    path = here.orders_file(here.rank)
    while not path.exists():
        time.sleep(_LOOK_S)
    spec = msgspec.json.decode(path.read_bytes(), type=WorkerSpec)
    path.unlink()
    return spec


def _train(spec: WorkerSpec) -> int:
    """Trains as a rank that rank 0's supervisor does not hear; why it failed goes to torchrun's terminal."""
    os.environ.update(worker_environment(spec))
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=_tell_failures, args=(ours,), name="channel", daemon=True)
    thread.start()
    try:
        return run_worker(spec, WORKER, theirs)
    finally:
        theirs.close()
        thread.join()


def _tell_failures(channel: socket.socket) -> None:
    frames = Frames()
    with channel:
        while data := channel.recv(_CHUNK):
            for message in map(FROM_WORKER.decode, frames.feed(data)):
                if isinstance(message, Failed):
                    print(escaped(f"Rank {message.rank}: {message.cause}"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the supervisor may still be importing PyTorch in a thread
