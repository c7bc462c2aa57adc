"""``torchrun … -m engine.machines.torchrun JOB``: one worker of a run whose processes torchrun has started.

JOB is a job file, or a job as JSON (see `footplate torchrun`). The process of rank 0 is also the run's supervisor. It
creates the run folder, writes the event log and serves the window. On each other machine, the first process creates a
folder. The specs for the other ranks on its machine are passed in files in the user's runtime folder. The names of the
files contain the process id of torchrun's agent, the parent of all these processes.
"""

from __future__ import annotations

import os
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
from engine.machines.addresses import bind_collectives, local_address
from engine.machines.files import node_folder, remove_node_folder
from engine.processes.worker_process import WORKER, run_worker, worker_environment
from engine.runs.consent import record_consent
from engine.runs.folder import RunFolder, create_run, process_start
from engine.supervisor.environment import usable_cores
from engine.supervisor.execution import supervise
from engine.supervisor.restart_policy import RestartPolicy, world_size
from engine.system import linux, paths, stdio
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.format import counted
from engine.system.plain_text import escape

_POLL_S = 0.05
_CHUNK_BYTES = 1 << 16
_REFUSED = 2


@dataclass(frozen=True)
class TorchrunProcess:
    """Ranks of this process, numbers of processes, address of rank 0 and number of restarts, as set by torchrun."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master: str
    port: int
    restarts: int

    @property
    def is_single_machine(self) -> bool:
        return self.local_world_size == self.world_size

    @property
    def local_ranks(self) -> range:
        """Ranks on this machine, which torchrun numbers consecutively."""
        first = self.rank - self.local_rank
        return range(first, first + self.local_world_size)

    def spec_file(self, rank: int) -> Path:
        """Return the path of the file with the spec of a rank on this machine.

        Its name contains the start time of torchrun's agent, because a later agent may get the same process id.
        """
        agent = os.getppid()
        return paths.runtime_folder() / f"torchrun-{agent}-{int(process_start(agent) * 1000)}-{rank}.json"


def read_torchrun_process() -> TorchrunProcess:
    """Read torchrun's environment variables. Raises KeyError or ValueError if torchrun did not start this process."""
    return TorchrunProcess(
        rank=int(os.environ["RANK"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_world_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        master=os.environ["MASTER_ADDR"],
        port=int(os.environ["MASTER_PORT"]),
        restarts=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
    )


def main(arguments: Sequence[str]) -> int:
    """Train as one of torchrun's ranks, and return the exit code. `arguments` has one item, JOB.

    Rank 0 supervises the run. On each machine, the first rank creates the specs of all ranks there.
    """
    linux.die_with_parent(os.getppid())
    if len(arguments) != 1:
        return _refuse([Problem("", "One job is expected.", "Give a job file, or the line of `footplate torchrun`.")])
    try:
        process = read_torchrun_process()
    except (KeyError, ValueError):
        return _refuse([Problem("", "torchrun did not start this process.", "See `footplate torchrun`.")])
    job, problems = _read_job(arguments[0])
    if job is not None:
        problems += _find_mismatches(job, process)
    if job is None or errors(problems):
        return _refuse(problems if process.local_rank == 0 else [])  # once per machine
    if job.model.model_file_sha256:
        record_consent(job.model.name, job.model.model_file_sha256)  # only to the content named on the command line
    if not process.is_single_machine:
        bind_collectives(local_address(process.master, process.port))
    if process.rank == 0:
        return _supervise(job, process)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # rank 0, the supervisor, stops all ranks; torchrun kills remaining ones
    if process.local_rank > 0:
        return _train(_receive_spec(process))
    folder = paths.make_private_folder(node_folder(f"torchrun-{os.getpid()}"))
    try:
        specs = RestartPolicy(RunFolder(folder), job).prepare_start()
        [local_spec] = _distribute_specs(specs, process)
        return _train(local_spec)
    finally:
        remove_node_folder(folder)


def _read_job(text: str) -> tuple[Job | None, list[Problem]]:
    """Read the job from the command line, a path or JSON. Returns None for the job if it can't be read."""
    if not text.startswith("{"):
        return load_job(Path(text))
    try:
        return job_from_values(msgspec.json.decode(text, type=dict[str, object]))
    except msgspec.DecodeError as error:
        return None, [Problem("", f"The job is not JSON: {error}.", "Copy the whole line of `footplate torchrun`.")]


def _find_mismatches(job: Job, process: TorchrunProcess) -> list[Problem]:
    """Return the reasons why the processes that torchrun has started can't train a job."""
    problems = []
    if world_size(job) != process.world_size:
        message = f"The job has {counted(world_size(job), 'worker')}, and torchrun started {process.world_size}."
        problems.append(Problem("devices", message, "Start as many processes as the job has devices."))
    elif len({host_of(job.parallel.devices[rank]) for rank in process.local_ranks}) > 1:
        message = "torchrun's processes on this machine belong to devices of several machines."
        remedy = "Give --node-rank and --nproc-per-node as `footplate torchrun` does."
        problems.append(Problem("devices", message, remedy))
    if process.restarts:
        message = "Footplate does not continue a run that torchrun restarts."
        problems.append(Problem("", message, "Leave --max-restarts at 0, and `footplate resume` the run."))
    return problems


def _refuse(problems: list[Problem]) -> int:
    """Print `problems` to standard error, and return the exit code for a job that can't run."""
    for problem in problems:
        print(escape(f"footplate: {problem}"), file=sys.stderr, flush=True)
    return _REFUSED


def _supervise(job: Job, process: TorchrunProcess) -> int:
    """Supervise the run, which trains rank 0 in a child of this process, and return the exit code.

    The run folder and the outcome are printed to torchrun's terminal. All other output goes to supervisor.log.
    """
    run = create_run(job)
    print(f"Run {run.run_id} in {escape(str(run.path))}", file=sys.stderr, flush=True)
    with os.fdopen(os.dup(2), "w", errors="backslashreplace") as terminal:
        stdio.redirect_output(run.path / "supervisor.log")
        code = supervise(run.path, distribute=lambda specs: _distribute_specs(specs, process))
        last = run.last_event()
        if isinstance(last, RunFinished):
            print(escape(f"Run {run.run_id} {last.outcome}. {last.cause}".rstrip()), file=terminal)
    return code


def _distribute_specs(specs: list[WorkerSpec], process: TorchrunProcess) -> list[WorkerSpec]:
    """Write the specs of the other ranks on this machine to files, and return the spec of this process."""
    threads = max(1, usable_cores() // process.local_world_size)
    local_specs = [msgspec.structs.replace(specs[rank], threads=threads) for rank in process.local_ranks]
    if not process.is_single_machine:  # machines can't share a rendezvous file
        local_specs = [msgspec.structs.replace(spec, rendezvous=BY_ENVIRONMENT) for spec in local_specs]
    local, *others = local_specs
    for spec in others:
        paths.write_atomically(process.spec_file(spec.rank), ENCODE.encode(spec))
    return [local]


def _receive_spec(process: TorchrunProcess) -> WorkerSpec:
    """Wait for the file with the spec of this process, which local rank 0 writes. Read the spec, and delete the file.

    The file is written only once the run has its devices, so this may wait as long as the run is in the queue.
    """
    path = process.spec_file(process.rank)
    while not path.exists():
        time.sleep(_POLL_S)
    spec = msgspec.json.decode(read_file(path, MAX_RESULT_BYTES), type=WorkerSpec)
    path.unlink()
    return spec


def _train(spec: WorkerSpec) -> int:
    """Train as a rank other than 0, without a connection to the supervisor. Returns the exit code.

    Failures are printed to torchrun's terminal.
    """
    os.environ.update(worker_environment(spec))
    reader, writer = socket.socketpair()
    thread = threading.Thread(target=_print_failures, args=(reader,), name="channel", daemon=True)
    thread.start()
    try:
        return run_worker(spec, WORKER, writer)
    finally:
        writer.close()
        thread.join()


def _print_failures(channel: socket.socket) -> None:
    """Read the worker's messages until it closes the channel, and print its failures to standard error."""
    frames = Frames()
    with channel:
        while data := channel.recv(_CHUNK_BYTES):
            for message in map(FROM_WORKER.decode, frames.feed(data)):
                if isinstance(message, Failed):
                    print(escape(f"Rank {message.rank}: {message.cause}"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    stdio.exit_now(main(sys.argv[1:]))
