"""Processes that load the samples of user-defined classes, since Python runs only one of several threads at a time.

A server process opens the dataset again, which loads plug-ins and the user's file, and then forks a process for each
loader thread that needs one. A rank can't fork them itself, because it has threads and may use a GPU.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Literal, NamedTuple

import numpy as np
import psutil
import torch
from torch import Tensor

from engine.contract.job import Job
from engine.data.datasets.images import DatasetError
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.loading.agreement import compute_fingerprint
from engine.data.randomness import Purpose, RandomStreams
from engine.data.splits import dataset_error
from engine.processes.worker_process import can_fork
from engine.system import linux, paths
from engine.system.format import describe_exit
from engine.tasks.registry import TASKS

SLOW_S = 1e-3
"""Minimum processor time for a sample, in seconds, for its transfer from a process to be worthwhile."""
WORTHWHILE_S = 30.0
"""Minimum processor time for all samples of a run, in seconds, for starting processes."""
BLOCKED = 0.3
"""Minimum time that two threads wait for each other, relative to their processor time, for starting processes.

The ratio is about 1 if only one of the threads runs at a time.
"""
MEASURED_S, ROUNDS = 0.1, 3
"""Seconds for which samples are loaded to measure processor time and waiting, and number of tries with two threads."""
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # its threads would prevent a fork
    "OMP_WAIT_POLICY": "passive",  # torch's threads in one process must not spin while another one needs the core
}
_FORK = 0
"""Request to the server to fork another process.

Any other request is the id of a process whose exit code is requested.
"""

SplitName = Literal["train", "val"]


def should_use_processes(samples: SampleSet, loads: int) -> bool:
    """Load some samples, and return True if separate processes would load `samples` faster than threads.

    This is so if a user-defined class takes much processor time and blocks other threads when it loads samples. A copy
    of the dataset must also fit into the free memory. `loads` is the number of samples that this rank loads in the run.
    Always False for classes of `engine`, and on systems other than Linux.
    """
    if sys.platform != "linux" or type(samples).__module__.partition(".")[0] == "engine":
        return False
    alone = _measure_load(samples, threading.Barrier(1))
    if alone.sample_s < SLOW_S or alone.sample_s * loads < WORTHWHILE_S:
        return False
    with ThreadPoolExecutor(2) as pool:
        start = threading.Barrier(2)
        pairs = [list(pool.map(lambda _: _measure_load(samples, start), range(2))) for _ in range(ROUNDS)]
    # Additional blocking of a thread, as a fraction of its processor time, if another thread loads samples, too. On a
    # busy machine, threads also block each other while one waits for a core, so the smallest value is the best estimate.
    blocked = min(sum(each.blocked for each in pair) / 2 for pair in pairs) - alone.blocked
    return blocked > BLOCKED and psutil.virtual_memory().available > 2 * psutil.Process().memory_info().rss


class _LoadCost(NamedTuple):
    """Cost of loading a sample.

    Attributes:
        sample_s: Processor time in seconds.
        blocked: Time for which other threads blocked this thread, relative to its processor time.
    """

    sample_s: float
    blocked: float


def _measure_load(samples: SampleSet, start: threading.Barrier) -> _LoadCost:
    """Load samples for `MEASURED_S` seconds, at least one, and measure how long this thread computes and is blocked.

    The measurement begins when all threads have arrived at `start`.
    """
    start.wait()
    started_at, processor_s, queued_s = time.perf_counter(), time.thread_time(), linux.read_core_wait_s()
    count = 0
    while not count or time.perf_counter() - started_at < MEASURED_S:
        with suppress(Exception):  # the loader reports it
            samples.load(count % len(samples), 1)
        count += 1
    processor_s = time.thread_time() - processor_s
    blocked_s = time.perf_counter() - started_at - processor_s - (linux.read_core_wait_s() - queued_s)
    return _LoadCost(processor_s / count, blocked_s / processor_s)


class _Process(NamedTuple):
    """Process that loads samples, and the connection to it."""

    pid: int
    connection: Connection[Any, Any]


class SampleProcesses:
    """Processes that load samples for the loader threads of this rank, each for one thread at a time.

    They are forked by a server process, which has opened the dataset. Until the server is ready, the threads load the
    samples themselves. They also do so if the server can't open the same dataset or can't fork. Create this object in
    the main thread, because the processes exit when that thread does. `on_log` receives text for the log of the run.
    """

    def __init__(self, job: Job, splits: Splits, on_log: Callable[[str], None]) -> None:
        """Start the server process, which opens the dataset of `job`. `splits` are those that this rank has opened."""
        self._splits = splits
        self._on_log = on_log
        self._idle: deque[_Process] = deque()
        self._lock = threading.Lock()
        self._state: Literal["starting", "ready", "unusable"] = "starting"
        self._control, remote = Pipe()
        with remote:
            self._server = subprocess.Popen(
                [sys.executable, "-u", "-m", __name__, str(os.getpid()), str(remote.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[remote.fileno()],
                cwd=paths.PACKAGES,
                env=os.environ | _ENVIRONMENT,
            )
        with suppress(OSError):  # `_poll_server` reports that the server has exited
            self._control.send((job, os.getcwd(), torch.get_num_threads()))

    def wait(self, timeout_s: float) -> bool:
        """Wait until the server has opened the dataset or exited. Return False after the time limit."""
        return self._control.poll(timeout_s)

    def load(self, split: SplitName, index: int, epoch: int) -> Sample:
        """Load a sample as `SampleSet.load` does, with the same errors.

        If no process is available, this process loads the sample. Raises DatasetError if the process that loads it is killed.
        """
        samples = _find_samples(self._splits, split)
        process = self._acquire()
        if process is None:  # none is available
            return samples.load(index, epoch)
        try:
            process.connection.send((split, index, epoch))
            arrays = process.connection.recv()
        except (EOFError, OSError):
            raise self._create_exit_error(process.pid, samples.path(index)) from None
        self._idle.append(process)
        if arrays is None:
            return samples.load(index, epoch)  # raises the error in this process, with its traceback
        inputs, targets = (torch.from_numpy(array).view(dtype).view(shape) for array, dtype, shape in arrays)
        return inputs, targets

    def close(self) -> None:
        """Kill all processes."""
        self._server.kill()  # the others exit with it
        self._server.wait()
        self._control.close()
        for process in self._idle:
            process.connection.close()

    def _acquire(self) -> _Process | None:
        """Return an idle process, or fork a new one. Return None while the server can't fork processes."""
        with suppress(IndexError):
            return self._idle.pop()
        with self._lock:
            if not self._poll_server():
                return None
            connection, remote = Pipe()
            with remote, suppress(EOFError, OSError):  # sending a sample to the process reports it
                self._control.send(_FORK)
                send_handle(self._control, remote.fileno(), self._server.pid)
                return _Process(self._control.recv(), connection)
            return _Process(self._server.pid, connection)  # the server has exited

    def _poll_server(self) -> bool:
        """Return True if the server can fork processes.

        Reads the server's message once it has arrived, and logs then if processes load the samples, or why threads do.
        """
        if self._state == "starting" and self._control.poll():
            try:
                opened, problem = self._control.recv()
            except (EOFError, OSError):
                opened, problem = 0, f"their server {describe_exit(self._server.wait())}"
            if not problem and opened != compute_fingerprint(self._splits):
                problem = "opening the dataset again has found other samples"
            self._state = "unusable" if problem else "ready"
            self._on_log(f"Threads load samples, not processes: {problem}" if problem else "Processes load samples")
        return self._state == "ready"

    def _create_exit_error(self, pid: int, path: str) -> DatasetError:
        """Create the error for a process that has exited while it loaded the sample `path`.

        Its exit code is requested from the server that has forked it.
        """
        try:
            with self._lock:
                self._control.send(pid)
                code: int = self._control.recv()
        except (EOFError, OSError):
            code = self._server.wait()
        message = f"The process that loaded {path} {describe_exit(code)}."
        return DatasetError([dataset_error(message, "Use fewer loader workers, or check the code that loads samples.")])


def main() -> int:
    """Open the dataset, then fork a process whenever the rank requests one, and return exit codes of such processes.

    The arguments are the pid of the rank and the file descriptor of the connection to it, which ends this process when
    it is closed. The rank is first sent the fingerprint of the dataset.
    """
    parent, descriptor = map(int, sys.argv[1:])
    linux.die_with_parent(parent)
    linux.name_process("footplate-load")
    for name in ("SIGINT", "SIGUSR1"):  # schedulers send them to all processes of a run
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    control: Connection[Any, Any] = Connection(descriptor)
    job, folder, threads = control.recv()
    os.chdir(folder)
    torch.set_num_threads(1)  # more threads would prevent a fork
    splits = TASKS[job.task].open_splits(job)
    streams = RandomStreams(job.training.seed)
    _find_samples(splits, "train").streams = _find_samples(splits, "val").streams = streams
    gc.collect()
    gc.freeze()  # keeps the pages of all objects shared
    can_serve = can_fork() and not torch.cuda.is_initialized()
    # The second item is the reason why samples can't be loaded in processes, or "".
    control.send((compute_fingerprint(splits), "" if can_serve else "the code that opens the dataset starts threads"))
    with suppress(EOFError):
        while True:
            request = control.recv()
            if request == _FORK:
                handle = recv_handle(control)
                control.send(_fork(control, handle, splits, streams, threads))
                os.close(handle)
            else:  # the pid of a process that has exited
                control.send(os.waitstatus_to_exitcode(os.waitpid(request, 0)[1]))
    return 0


def _fork(control: Connection[Any, Any], handle: int, splits: Splits, streams: RandomStreams, threads: int) -> int:
    """Fork a process that loads samples, and return its id.

    Args:
        control: Connection of the server to the rank. The new process closes its copy.
        handle: Descriptor of the connection over which the new process serves samples.
        splits: Splits with the samples.
        streams: Source of the random numbers for loading a sample.
        threads: Number of threads that torch uses in the new process.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        linux.die_with_parent(parent)
        control.close()
        torch.set_num_threads(threads)  # the results of some operations depend on it
        _serve(Connection(handle), splits, streams)
    finally:
        os._exit(0)


def _serve(connection: Connection[Any, Any], splits: Splits, streams: RandomStreams) -> None:
    """Load the samples that the rank requests, and send them back, until the rank closes the connection.

    Before each sample, the random generators are seeded from `streams`.

    A request is a split, an index and an epoch. The reply is the tensors of the sample as arrays, or None if loading it
    raised an error.
    """
    while True:
        try:
            split, index, epoch = connection.recv()
        except EOFError:
            return
        number = streams.derive_seed(Purpose.LOAD, epoch=epoch, batch=index)
        random.seed(number)  # forked processes would draw the same random numbers
        np.random.seed(number & 0xFFFFFFFF)
        torch.default_generator.manual_seed(number)
        try:
            arrays = [_to_bytes(tensor) for tensor in _find_samples(splits, split).load(index, epoch)]
        except BaseException:
            arrays = None  # the rank loads the sample itself, and reports the error
        connection.send(arrays)


def _find_samples(splits: Splits, split: SplitName) -> SampleSet:
    """Return the samples of a split. Raises AssertionError if they are images."""
    samples = splits.train if split == "train" else splits.val
    assert isinstance(samples, SampleSet)
    return samples


def _to_bytes(tensor: Tensor) -> tuple[Any, torch.dtype, torch.Size]:
    """Convert a tensor to an array of bytes, its type and its shape. numpy lacks some of torch's types."""
    flat = tensor.detach().contiguous().view(-1)
    return flat.view(torch.uint8).numpy(), tensor.dtype, tensor.shape


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(1)
