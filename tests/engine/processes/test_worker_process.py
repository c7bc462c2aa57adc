import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from engine.contract.job import Job
from engine.contract.protocol import ENCODE, Frames, SaveElsewhere
from engine.contract.worker import TO_WORKER, WorkerDone, WorkerSpec
from engine.processes.group import run_workers
from engine.processes.worker_process import WorkerProcess
from engine.runs.folder import RunFolder
from engine.system import linux
from tests.support.specs import make_worker_spec
from tests.support.waiting import wait_until

COMMANDS = 200


def count_commands(_spec: WorkerSpec, channel: socket.socket) -> int:
    """Read commands from the channel after a delay. This is the function of a worker, which returns its exit code.

    After each read, the number of commands received so far is sent to the supervisor.
    """
    time.sleep(0.5)
    frames, count = Frames(), 0
    while count < COMMANDS:
        count += sum(isinstance(TO_WORKER.decode(line), SaveElsewhere) for line in frames.feed(channel.recv(4096)))
        channel.sendall(ENCODE.encode(WorkerDone(stopped=False, unsaved=str(count))) + b"\n")
    return 0


def start_worker(
    folder: Path, function: str = f"{__name__}:{count_commands.__name__}", *, fork: bool = True
) -> WorkerProcess:
    """Start a worker that executes `function`, with the run folder `folder`."""
    return WorkerProcess(make_worker_spec(Job(), run_folder=str(folder)), function, fork=fork)


def test_forked_worker_that_fails_early_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_kept: set[int]) -> None:
        raise OSError("full")

    monkeypatch.setattr(linux, "release_inherited_files", fail)
    worker = start_worker(tmp_path)
    with selectors.DefaultSelector() as selector:
        worker.listen(selector, lambda: None)
        try:
            wait_until(lambda: worker.poll() is not None, "the worker to end")
            assert worker.poll() == 1
        finally:
            worker.close()
        assert not selector.get_map()


def test_forked_worker_repeats_no_buffered_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for stream, fd in (("stdout", 1), ("stderr", 2)):
        monkeypatch.setattr(sys, stream, open(fd, "w", closefd=False))  # noqa: SIM115 - the child must not close it
        getattr(sys, stream).write(f"pending on {stream}")
    worker = start_worker(tmp_path, "missing:function")
    try:
        wait_until(lambda: worker.poll() is not None, "the worker to end")
        assert worker.poll() == 1
    finally:
        worker.close()
    assert "missing" in (log := RunFolder(tmp_path).worker_log(0).read_text())
    assert "pending" not in log
    assert capfd.readouterr() == ("pending on stdout", "pending on stderr")


def test_forked_worker_is_ended_by_sigterm_that_its_parent_ignores(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = start_worker(tmp_path)
    signal.signal(signal.SIGTERM, before)
    try:
        assert worker.channel is not None
        assert not worker.channel.getblocking(), "a silent worker doesn't delay its parent"
        worker.send(SaveElsewhere(folder="f"))
        wait_until(lambda: bool(worker.receive()), "a message of the worker")
        worker.kill(hard=False)
        wait_until(lambda: worker.poll() is not None, "the worker to end")
        assert worker.poll() == -signal.SIGTERM
    finally:
        worker.kill(hard=True)
        worker.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups")
def test_kill_signals_the_group_of_a_running_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []

    def kill_group(pid: int, number: int) -> None:
        sent.append((pid, number))
        if pid == 2:
            raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", kill_group)
    for pid, status in ((1, None), (2, None), (3, 0)):
        worker = cast(WorkerProcess, SimpleNamespace(pid=pid, poll=lambda status=status: status))
        for hard in (False, True):
            WorkerProcess.kill(worker, hard=hard)
    assert sent == [(pid, number) for pid in (1, 2) for number in (signal.SIGTERM, signal.SIGKILL)]


def test_run_workers_raises_after_its_time(tmp_path: Path) -> None:
    RunFolder(tmp_path).worker_log(0).parent.mkdir(exist_ok=True)
    specs = [make_worker_spec(Job(), run_folder=str(tmp_path))]
    with pytest.raises(TimeoutError):
        run_workers(specs, f"{__name__}:{count_commands.__name__}", print, seconds=0.0)


def test_send_completes_messages_that_fill_the_socket(tmp_path: Path) -> None:
    log = RunFolder(tmp_path).worker_log(0)
    log.write_text("of an earlier execution\n")
    worker = start_worker(tmp_path, fork=False)
    try:
        assert worker.channel is not None
        worker.channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(COMMANDS):
            worker.send(SaveElsewhere(folder="f" * 1000))
        counts = []
        while worker.channel is not None:
            worker.channel.settimeout(20)
            counts += [int(message.unsaved) for message in worker.receive() if isinstance(message, WorkerDone)]
        assert counts[-1] == COMMANDS
        assert log.read_text().startswith("of an earlier execution\n")
        wait_until(lambda: worker.poll() is not None, "the worker to end")
    finally:
        worker.kill(hard=True)
        worker.close()
