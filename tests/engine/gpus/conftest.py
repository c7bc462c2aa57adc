"""Fixtures: the GPU sampler as a real process, with the stub of NVIDIA's libraries."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.contract.devices import NvmlReading, Snapshot, SnapshotRequest
from tests.support.nvml_stub import NvmlStub

ROOT = Path(__file__).parents[3]


class RunningSampler:
    """GPU sampler (`python -m engine.gpus`) in a process, and a reader of its snapshots."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine.gpus", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
        )
        self._snapshots: queue.Queue[Snapshot] = queue.Queue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def next(self, timeout_s: float = 120.0) -> Snapshot:
        """Wait for the sampler's next snapshot for at most `timeout_s`, and return it."""
        return self._snapshots.get(timeout=timeout_s)

    def wait_for(self, condition: Callable[[Snapshot], bool], timeout_s: float = 120.0) -> Snapshot:
        """Wait for at most `timeout_s` until a snapshot meets `condition`, and return this snapshot."""
        deadline = time.monotonic() + timeout_s
        snapshot = None
        while time.monotonic() < deadline:
            snapshot = self.next(max(0.01, deadline - time.monotonic()))
            if condition(snapshot):
                return snapshot
        raise AssertionError(f"not within {timeout_s} s; last: {snapshot}")

    def send_request(self, request: SnapshotRequest) -> None:
        """Send a request to the sampler, which must have been started with --listen."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(request) + b"\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._snapshots.put(msgspec.json.decode(line, type=Snapshot))


Start = Callable[..., RunningSampler]


def has_gpus(snapshot: Snapshot) -> bool:
    return bool(snapshot.gpus)


def readings(stub: NvmlStub) -> Iterator[NvmlReading]:
    """Yield the readings of a process that calls NVML. The process is terminated when the generator is closed."""
    command = [sys.executable, "-m", "engine.gpus.reader", "0.1", "60"]
    environment = os.environ | stub.environment
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as reader:
        assert reader.stdout is not None
        try:
            for line in reader.stdout:
                yield msgspec.json.decode(line, type=NvmlReading)
        finally:
            reader.kill()


def readers_of(sampler: RunningSampler) -> list[psutil.Process]:
    """Return the child processes of `sampler` that call NVML."""
    return [child for child in psutil.Process(sampler.process.pid).children() if reads_nvml(child)]


def reads_nvml(process: psutil.Process) -> bool:
    try:
        return "engine.gpus.reader" in process.cmdline()
    except psutil.Error:  # the process has just ended
        return False


@pytest.fixture
def nvml_stub(compiled_stub: NvmlStub, tmp_path: Path) -> NvmlStub:
    """Return the stub of NVIDIA's libraries. Its answers come from a file of the test, written by `NvmlStub.write`."""
    return NvmlStub(compiled_stub.folder, tmp_path / "profile")


@pytest.fixture
def old_nvml_stub(compiled_old_stub: NvmlStub, tmp_path: Path) -> NvmlStub:
    """Return the stub of an old driver, which lacks newer functions. A file of this test determines its answers."""
    return NvmlStub(compiled_old_stub.folder, tmp_path / "profile")


@pytest.fixture
def start_sampler() -> Iterator[Start]:
    """Return a function that starts GPU samplers, which are terminated after the test.

    Its argument `stub` replaces the driver. Without `stub`, there is no driver.
    """
    started: list[RunningSampler] = []

    def start(*arguments: str, stub: NvmlStub | None = None, **environment: str) -> RunningSampler:
        libraries = stub.environment if stub else {}
        sampler = RunningSampler(*arguments, environment=os.environ | libraries | environment)
        started.append(sampler)
        return sampler

    yield start
    for sampler in started:
        sampler.end()
