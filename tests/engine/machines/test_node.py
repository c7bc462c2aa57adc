"""Process that serves a run on a remote machine: the run's folder there, its workers, and their end."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from msgspec import structs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from engine.contract.devices import Nvml
from engine.contract.hosts import PORTS
from engine.contract.job import Job
from engine.contract.nodes import (
    FROM_NODE,
    FromWorker,
    KeepAlive,
    KillWorker,
    Listening,
    NodeFacts,
    NodeFailed,
    NodeRequest,
    Rendezvous,
    Sampled,
    ToNode,
    WorkerEnded,
)
from engine.contract.protocol import ENCODE
from engine.contract.worker import BY_ENVIRONMENT, FROM_WORKER, WorkerDone, WorkerSpec
from engine.machines import addresses, agent, devices, files
from engine.machines import node as node_module
from engine.machines.files import BEST, RESUME, NodeFiles, _kill_node, node_folder
from engine.machines.node import _find_missing_gpus, fetch_weights
from engine.machines.rendezvous import OneAddressRendezvous
from engine.machines.worker import WorkerHello, _receive_line
from engine.machines.worker_server import WorkerServer
from engine.runs.folder import RunFolder, create_run
from engine.runs.queue import QueueSlot, list_waiting
from engine.system import file_locks, paths
from tests.engine.checks.machines import gpu, machine
from tests.engine.supervisor.supervised import wait_until_exited
from tests.support.waiting import wait_until

MEET = Rendezvous(local_address="127.0.0.1", address="127.0.0.1", port=29400, infiniband=False)
BLOCKED_AGENT = """
import threading
agent.Agent.__init__ = lambda *_: threading.Event().wait()
"""


AGENT_OF_KILLED_WORKER = """
import threading
class Agent:
    def __init__(self, *_):
        print("output of a library", flush=True)
        self.killed = threading.Event()
    def kill(self):
        self.killed.set()
    def wait(self):
        return {1: None if self.killed.wait(5) else 0}
agent.Agent = Agent
"""


NODE_WITH_WORKER = """
import os, subprocess, sys
class Agent:
    def __init__(self, request, rendezvous, listener, path):
        self.arguments = [sys.executable, "-c", {worker!r}, str(path), str(rendezvous.port == listener.getsockname()[1])]
    def wait(self):
        return dict.fromkeys((0, 1), subprocess.run(self.arguments, env=os.environ | {{"RANK": "0"}}).returncode)
agent.Agent = Agent
node.usable_cores = lambda: 7
"""
WORKER = """
import os, sys
from engine.contract.protocol import ENCODE
from engine.contract.worker import WorkerDone
from engine.machines import worker
def train(spec, _function, channel):
    is_copy = spec.run_folder != "" and spec.job.checkpoints.resume_from == os.path.join(spec.run_folder, "resume.pt")
    print(spec.rank, spec.threads, spec.rendezvous, is_copy, sys.argv[2], os.environ["OMP_NUM_THREADS"])
    sys.stdout.flush()
    channel.sendall(ENCODE.encode(WorkerDone(stopped=True)) + b"\\n")
    return 7
worker.run_worker = train
worker.run(sys.argv[1])
"""


AGENTS = """
import msgspec
from pathlib import Path
from engine.contract.nodes import NodeRequest, Rendezvous
from engine.machines.agent import Agent, AgentFailed
request = msgspec.json.decode({request!r}, type=NodeRequest)
rendezvous = msgspec.json.decode({rendezvous!r}, type=Rendezvous)
killed, dead, failed = (Agent(request, rendezvous, None, Path("socket")) for _ in range(3))
killed.kill()
dead._process.terminate()
print(killed.wait())
for each in (dead, failed):
    try:
        print(each.wait())
    except AgentFailed as error:
        print(error)
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


def start_node(script: str, *messages: ToNode) -> subprocess.Popen[bytes]:
    """Start a node after the Python code `script` has replaced parts of it, and send it `messages`."""
    code = f"from engine.machines import agent, node\nagent.preload = lambda: None\n{script}\nnode.serve()"
    node = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=paths.PACKAGES
    )
    assert node.stdin is not None
    for message in messages:
        node.stdin.write(ENCODE.encode(message) + b"\n")
    node.stdin.flush()
    return node


def test_killed_worker_ends_while_its_agent_is_starting(tmp_path: Path) -> None:
    with start_node(BLOCKED_AGENT, make_request(tmp_path), MEET, KillWorker(rank=1, hard=False)) as node:
        assert node.stdout is not None
        received = map(FROM_NODE.decode, node.stdout)
        assert next(each for each in received if isinstance(each, WorkerEnded)) == WorkerEnded(rank=1, code=None)
    assert node.returncode == 0
    assert not list((paths.home() / "nodes").glob("*"))


def test_worker_killed_before_its_agent_exists_does_not_run(tmp_path: Path) -> None:
    with start_node(AGENT_OF_KILLED_WORKER, make_request(tmp_path), KillWorker(rank=1, hard=False), MEET) as node:
        assert node.stdout is not None
        ends = (each for each in map(FROM_NODE.decode, node.stdout) if isinstance(each, WorkerEnded))
        assert [end.code for end in itertools.islice(ends, 2)] == [None, None]


@pytest.mark.parametrize(
    ("function", "error", "cause"),
    [
        ("node.digest_inputs", "OSError('the disk has failed')", "OSError: the disk has failed"),
        ("agent.Agent", "agent.AgentFailed('the agent has failed')", "the agent has failed"),
    ],
    ids=["facts", "agent"],
)
def test_failed_node_reports_its_failure(tmp_path: Path, function: str, error: str, cause: str) -> None:
    script = f"from unittest.mock import Mock\n{function} = Mock(side_effect={error})"
    with start_node(script, make_request(tmp_path), MEET) as node:
        assert node.stdout is not None
        messages = itertools.islice(map(FROM_NODE.decode, node.stdout), 20)  # the others are heartbeats
        failure = next((message for message in messages if isinstance(message, NodeFailed)), None)
    assert failure == NodeFailed(cause=f"node1: {cause}")


def test_node_downloads_no_unused_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    job = Job.from_fields(model="timm:test_resnet", pretrained=True)
    for fields in ({"resume_from": "/last.pt"}, {"weights_file": "/weights.pt"}, {"pretrained": False}):
        assert fetch_weights(job.with_fields(**fields)) == ""
    with pytest.raises(FileNotFoundError):
        fetch_weights(job)


def test_invalid_message_ends_the_node() -> None:
    with start_node(BLOCKED_AGENT) as node:
        try:
            assert node.stdin is not None
            node.stdin.write(b"?\n")
            node.stdin.flush()
            assert node.wait(60) == 0
        finally:
            node.kill()


def test_node_runs_its_workers_and_sends_their_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.9 50022 192.0.2.7 22")  # the given address is used instead
    request = make_request(tmp_path)
    (spec,) = request.specs
    specs = tuple(
        structs.replace(spec, rank=rank, job=spec.job.with_fields(resume_from="/far/last.pt"), devices=("cpu", "cpu"))
        for rank in (0, 1)
    )
    request = structs.replace(request, node=0, specs=specs, port=34500, address="127.0.0.1")
    with start_node(NODE_WITH_WORKER.format(worker=WORKER), request, MEET) as node:
        assert node.stdout is not None
        ends: dict[int, WorkerEnded] = {}
        others: list[object] = []
        for message in map(FROM_NODE.decode, node.stdout):
            if isinstance(message, WorkerEnded):
                ends[message.rank] = message
            elif not isinstance(message, KeepAlive):
                others.append(message)
            if len(ends) == 2 and any(isinstance(each, NodeFacts) for each in others):
                break
    assert node.returncode == 0
    (listening,) = (each for each in others if isinstance(each, Listening))
    assert (listening.address, listening.port in range(34500, 34500 + PORTS)) == ("127.0.0.1", True)
    (facts,) = (each for each in others if isinstance(each, NodeFacts))
    assert (facts.address, facts.client_address, facts.problem) == ("127.0.0.1", "192.0.2.9", "")
    (sent,) = (each for each in others if isinstance(each, FromWorker))
    assert (sent.rank, FROM_WORKER.decode(bytes(sent.message))) == (0, WorkerDone(stopped=True))
    log = f"0 3 {BY_ENVIRONMENT} True True 3\n".encode()
    assert ends == {0: WorkerEnded(rank=0, code=7, files={"worker-0.log": log}), 1: WorkerEnded(rank=1, code=7)}
    assert not list((paths.home() / "nodes").glob("*"))


def test_lost_and_missing_gpus_have_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = gpu(0, uuid="GPU-a"), gpu(1, uuid="GPU-lost", lost=True)
    request = make_request(tmp_path)

    def find(nvml: Nvml, *devices: str) -> tuple[tuple[str, ...], str]:
        monkeypatch.setattr(node_module, "snapshot", lambda: machine(*gpus, nvml=nvml))
        specs = (structs.replace(request.specs[0], devices=devices, rank=0),)
        return _find_missing_gpus(structs.replace(request, specs=specs))

    assert find(Nvml("ok"), "GPU-a", "cpu") == ((), "")
    lost, reason = find(Nvml("ok"), "GPU-a", "GPU-lost")
    assert (lost, "GPU-lost) is lost" in reason) == (("GPU-lost",), True)
    assert find(Nvml("absent", "No driver."), "cpu") == ((), "")
    missing = find(Nvml("absent", "No driver."), "GPU-d", "GPU-c", "GPU-a")
    assert missing == ((), "There is no GPU GPU-c, GPU-d. No driver.")


def test_run_leaves_the_queue_after_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "QUEUE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(node_module, "QUEUE_POLL_S", 0.01)
    request = make_request(tmp_path)
    job = Job.from_fields(devices=("GPU-a",))
    spec = structs.replace(request.specs[0], job=job, rank=0, devices=("GPU-a",))
    earlier = create_run(job)
    slot, node = QueueSlot(earlier, job), node_module._Node(Mock(), tmp_path)
    slot.poll()
    node._files = NodeFiles(request)
    node._files.open()
    reason = node._reserve_devices(structs.replace(request, specs=(spec,)))
    assert reason == f"Its devices have been used by {earlier.run_id} for 0 minutes."
    assert list_waiting() == []
    slot.close()
    node._files.close()


def test_samples_of_a_machine_have_the_names_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = machine()
    line = ENCODE.encode(structs.replace(state, cpu=structs.replace(state.cpu, load_percent=7.0))).decode()
    monkeypatch.setattr(devices, "_SAMPLER", ("sh", "-c", f"echo damaged; echo '{line}'"))
    monkeypatch.setattr(devices, "CPU_SAMPLER_DELAY_S", 0.0)
    sent: list[Sampled] = []
    devices.start_sampling(make_request(tmp_path), sent.append)
    wait_until(lambda: bool(sent), "a sample")
    ((sample,),) = (each.samples for each in sent)
    assert (sample.device, sample.utilization_percent) == ("node1:cpu", 7.0)


def test_all_machines_use_the_store_of_the_first_machine() -> None:
    listener = addresses.listen("127.0.0.1", 34520)
    port = listener.getsockname()[1]
    first, second = (
        OneAddressRendezvous("127.0.0.1", port, rank=rank, nodes=2, run_id="run", timeout_s=20, listener=each)
        for rank, each in enumerate((listener, None))
    )
    with ThreadPoolExecutor() as pool:  # the first waits for the second
        infos = [*pool.map(OneAddressRendezvous.next_rendezvous, (first, second)), first.next_rendezvous()]
    assert [(info.rank, info.world_size) for info in infos] == [(0, 2), (1, 2), (0, 2)]
    infos[1].store.set("key", "value")
    assert infos[2].store.get("key") == b"value"


def test_failed_agent_has_a_reason_unless_it_was_killed(tmp_path: Path) -> None:
    elsewhere = structs.replace(MEET, local_address="192.0.2.1")
    script = AGENTS.format(request=ENCODE.encode(make_request(tmp_path)), rendezvous=ENCODE.encode(elsewhere))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, cwd=paths.PACKAGES, check=True)
    killed, dead, failed = done.stdout.decode().splitlines()
    assert killed == "{1: None}"
    assert dead == "the agent that runs the workers was killed by SIGTERM (signal 15)"
    assert failed.startswith("ValueError: No interface has the address")


@pytest.mark.parametrize(
    ("resume_from", "has_best", "has_rank_0", "expected"),
    [("", True, True, []), ("/l.pt", True, True, [RESUME, BEST]), ("/l.pt", False, True, [RESUME]), ("/l.pt", True, False, [RESUME])],
)  # fmt: skip
def test_resumed_run_requires_its_checkpoints(
    tmp_path: Path, resume_from: str, has_best: bool, has_rank_0: bool, expected: list[str]
) -> None:
    run = RunFolder(tmp_path)
    if has_best:
        run.checkpoints.mkdir()
        (tmp_path / BEST).touch()
    found = files.required_files(run, Job.from_fields(resume_from=resume_from), has_rank_0=has_rank_0)
    assert found == {name: {RESUME: Path("/l.pt"), BEST: tmp_path / BEST}[name] for name in expected}


def test_scratch_folders_of_killed_nodes_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    base = paths.runtime_folder()
    with subprocess.Popen(["true"]) as ended:
        pass
    dead, alive = (paths.make_private_folder(base / f"node-{pid}") for pid in (ended.pid, os.getppid()))
    (dead / "socket").touch()
    scratch = files.make_scratch()
    assert (dead.exists(), alive.exists(), scratch.name) == (False, True, f"node-{os.getpid()}")
    assert Path(tempfile.gettempdir()) == scratch
    for folder in (alive, scratch):
        folder.rmdir()


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


def test_worker_receives_no_byte_after_its_specification() -> None:
    node, channel = socket.socketpair()
    with node, channel:
        node.sendall(b"{}\nnext")
        channel.setblocking(False)
        assert (_receive_line(channel), channel.recv(9)) == (b"{}\n", b"next")


def test_listener_stays_open_only_in_the_agents_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_CONTEXT", Mock(Pipe=Mock(return_value=(Mock(), Mock()))))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent.Agent(make_request(tmp_path), MEET, listener, tmp_path / "socket")
        assert listener.fileno() == -1


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
