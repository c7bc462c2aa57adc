"""Process that serves a run on a remote machine: the run's folder there, its workers, and their end."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import structs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from engine.contract.job import Job
from engine.contract.nodes import FROM_NODE, KillWorker, NodeFailed, NodeRequest, Rendezvous, ToNode, WorkerEnded
from engine.contract.protocol import ENCODE
from engine.contract.worker import WorkerSpec
from engine.machines import agent, files
from engine.machines.files import NodeFiles, _kill_node, node_folder
from engine.machines.worker import WorkerHello
from engine.machines.worker_server import WorkerServer
from engine.system import file_locks, paths
from tests.engine.supervisor.supervised import wait_until_exited

MEET = Rendezvous(local_address="127.0.0.1", address="127.0.0.1", port=29400, infiniband=False)
BLOCKED_AGENT = """
import threading
from engine.machines import agent, node
agent.preload = lambda: None
agent.Agent.__init__ = lambda *_: threading.Event().wait()
node.serve()
"""


NODE_WITHOUT_FACTS = """
from engine.machines import agent, node
agent.preload = lambda: None
def fail(_job):
    raise OSError("the disk has failed")
node.digest_inputs = fail
node.serve()
"""


WORKER_WITH_CHILD = """
import socket, subprocess
channel = socket.socket(socket.AF_UNIX)
channel.connect({socket!r})
channel.sendall({hello!r})
channel.recv(1)  # the server has registered this worker
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
child.wait()
"""


def make_request(folder: Path) -> NodeRequest:
    spec = WorkerSpec(
        run_folder="",
        job=Job.from_fields(dataset=str(folder), devices=("cpu", "node1:cpu")),
        rank=1,
        world_size=2,
        devices=("cpu", "node1:cpu"),
        rendezvous="",
        threads=1,
    )
    return NodeRequest(run_id="run", attempt=0, title="node1", node=1, nodes=2, specs=(spec,), port=29400)


def test_killed_worker_ends_while_its_agent_is_starting(tmp_path: Path) -> None:
    messages: tuple[ToNode, ...] = (
        make_request(tmp_path),
        MEET,
        KillWorker(rank=1, hard=False),
    )
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED_AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=paths.PACKAGES
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        for message in messages:
            node.stdin.write(ENCODE.encode(message) + b"\n")
        node.stdin.flush()
        received = map(FROM_NODE.decode, node.stdout)
        assert next(each for each in received if isinstance(each, WorkerEnded)) == WorkerEnded(rank=1, code=None)
    assert node.returncode == 0
    assert not list((paths.home() / "nodes").glob("*"))


def test_node_without_facts_reports_its_failure(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NODE_WITHOUT_FACTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=paths.PACKAGES
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        node.stdin.write(ENCODE.encode(make_request(tmp_path)) + b"\n")
        node.stdin.flush()
        messages = itertools.islice(map(FROM_NODE.decode, node.stdout), 20)  # the others are heartbeats
        failure = next((message for message in messages if isinstance(message, NodeFailed)), None)
    assert failure == NodeFailed(cause="node1: OSError: the disk has failed")


def test_folder_is_recreated_after_earlier_node_has_removed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = paths.make_private_folder(node_folder("run"))
    descriptor = file_locks.lock_file(folder / "node.lock")
    assert descriptor is not None

    def end_earlier_node(_seconds: float) -> None:
        shutil.rmtree(folder)
        os.close(descriptor)

    monkeypatch.setattr(files.time, "sleep", end_earlier_node)
    NodeFiles(make_request(folder)).open()
    assert (folder / "node.lock").read_text() == str(os.getpid())
    assert (folder / "checkpoints").is_dir()


@pytest.mark.parametrize("is_used", [True, False], ids=["used", "abandoned"])
def test_close_before_open_removes_only_an_abandoned_folder(is_used: bool) -> None:
    folder = paths.make_private_folder(node_folder("run"))
    descriptor = file_locks.lock_file(folder / "node.lock")
    assert descriptor is not None
    if not is_used:
        os.close(descriptor)
    NodeFiles(make_request(folder)).close()
    assert folder.exists() == is_used
    if is_used:
        os.close(descriptor)


def test_open_removes_abandoned_folders_of_this_machine_only() -> None:
    old, recent, of_other_machine = (
        node_folder("old"),
        node_folder("recent"),
        node_folder("other").with_name("elsewhere"),
    )
    for folder in (old, recent, of_other_machine):
        paths.make_private_folder(folder)
        (folder / "node.lock").touch()
        if folder is not recent:
            os.utime(folder / "node.lock", (0, 0))
    opened = NodeFiles(make_request(old))
    opened.open()
    assert [folder.exists() for folder in (old.parent, recent, of_other_machine)] == [False, True, True]
    opened.close()


def test_kill_ends_the_children_of_a_worker(tmp_path: Path) -> None:
    (spec,) = make_request(tmp_path).specs
    server = WorkerServer([spec], lambda _message: None, tmp_path)
    script = WORKER_WITH_CHILD.format(socket=str(server.socket_path), hello=ENCODE.encode(WorkerHello(rank=1)) + b"\n")
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        child = psutil.Process(int(worker.stdout.readline()))
        assert server.kill(1, hard=True)
        wait_until_exited([psutil.Process(worker.pid), child])
    server.close()


def test_workers_that_torch_ends_after_a_failure_have_no_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[Any] = []
    failures = {1: ProcessFailure(local_rank=0, pid=1, exitcode=7, error_file="")}

    def launch(config: Any, _run: object) -> Callable[[str], None]:
        configs.append(config)

        def fail(_node_socket: str) -> None:
            raise ChildFailedError("worker", failures)

        return fail

    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", launch)
    request = make_request(tmp_path)
    specs = (*request.specs, structs.replace(request.specs[0], rank=2))
    request = structs.replace(request, specs=specs, attempt=3, nodes=5)
    assert agent.launch_workers(request, MEET, None, str(tmp_path / "socket")) == {1: 7, 2: None}
    (config,) = configs
    assert (config.run_id, config.nproc_per_node, config.max_restarts) == ("run-3", 2, 0)
    assert (config.min_nodes, config.max_nodes, config.rdzv_endpoint) == (5, 5, "127.0.0.1:29400")
    assert os.listdir(tmp_path) == []


def test_kill_node_ends_another_node_with_its_descendants(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid
            if pid == 404:
                raise psutil.NoSuchProcess(pid)

        def name(self) -> str:
            return "bash" if self.pid == 9 else "footplate-node"

        def children(self, *, recursive: bool) -> list[Process]:
            assert recursive
            return [Process(self.pid + 1), Process(self.pid + 2)]

        def kill(self) -> None:
            if self.pid == 21:
                raise psutil.NoSuchProcess(self.pid)
            killed.append(self.pid)

    monkeypatch.setattr(psutil, "Process", Process)
    for pid in (b"9", b"404", b"many", str(os.getpid()).encode(), b"20"):
        _kill_node(pid)
    assert killed == [22, 20]
