"""Supervisor's connections to the machines of a run, with scripted machines."""

from __future__ import annotations

import selectors
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    Failed,
    LogLine,
    PhaseChanged,
    Predicted,
    PredictedSample,
    Waiting,
    Warned,
)
from engine.contract.hosts import SLURM, Host, put_host
from engine.contract.job import Job
from engine.contract.nodes import (
    DatasetDigest,
    FromWorker,
    Listening,
    NodeFacts,
    NodeFailed,
    NodeRequest,
    Rendezvous,
    Sampled,
    WorkerEnded,
)
from engine.contract.protocol import ENCODE
from engine.contract.worker import WorkerDone
from engine.machines import nodes as nodes_module
from engine.machines.files import LAST
from engine.machines.nodes import RETURN_S, Nodes
from engine.processes.group import Group
from engine.processes.watchdog import LIMITS
from engine.runs.folder import RunFolder, create_run
from engine.system.slurm import srun_command
from tests.engine.machines.scripted_link import ScriptedLink
from tests.support.clock import Clock
from tests.support.specs import make_worker_spec

JOB = Job.from_fields(strategy="ddp", devices=("cpu", "node1:cpu", "node1:cpu", "node2:cpu"))
SMALLER = JOB.with_fields(devices=("cpu", "node1:cpu", "node1:cpu"))
DATASET = DatasetDigest(files=3, size_bytes=300, names="abc")
VERSIONS = {"footplate": "1", "torch": "2"}


class Transfers:
    """Replacement for `FileTransfers` that transfers nothing.

    Attributes:
        requests: Requested transfers: "fetch" or "send", path, and the callback with which a test ends the transfer.
        calls: Names of the other methods that were called.
        saved: Argument `saved` of each call of `fetch`.
    """

    def __init__(self, run: RunFolder, command: list[str], log: Path, keep: int) -> None:
        self.command = command
        self.requests: list[tuple[str, str, Callable[[str], None]]] = []
        self.calls: list[str] = []
        self.saved: list[object] = []

    def fetch(self, path: str, on_done: Callable[[str], None], saved: object = None) -> None:
        self.requests.append(("fetch", path, on_done))
        self.saved.append(saved)

    def send(self, path: str, source: Path, sha256: object, on_done: Callable[[str], None]) -> None:
        self.requests.append(("send", path, on_done))

    def poll(self) -> None:
        self.calls.append("poll")

    def give_up(self) -> None:
        self.calls.append("give up")

    def close(self) -> None:
        self.calls.append("close")


class Run:
    """Run on this machine, node1 (two ranks) and node2.

    `without` is the result of `job_without_machine`: the job without a machine, or the reason why it is needed.
    """

    def __init__(self, attempt: int, job: Job = JOB) -> None:
        self.events: list[AnyEvent] = []
        self.samples: list[object] = []
        self.without: Job | str = "It's needed."
        self.folder = create_run(job)
        self.selector = selectors.DefaultSelector()
        specs = [
            make_worker_spec(job, rank=rank, run_folder=str(self.folder.path))
            for rank in range(len(job.parallel.devices))
        ]
        self.group = Group(self.events.append, self.selector, LIMITS)
        self.nodes = Nodes(
            self.folder,
            specs,
            self.group,
            self.selector,
            on_event=self.events.append,
            on_samples=self.samples.append,
            attempt=attempt,
            job_without_machine=lambda name: self.without,
        )
        self.nodes._inputs.result()
        self.nodes.launch()

    def links(self) -> list[ScriptedLink]:
        return [node.link for node in self.nodes.nodes]  # type: ignore[misc]

    def report_facts(self, *changes: dict[str, Any]) -> None:
        """Let all machines report their facts. `changes[i]` overrides the facts of machine i."""
        for number, link in enumerate(self.links()):
            values = {"versions": VERSIONS, "inputs": {"dataset": DATASET}, "time": 0.0, "free_bytes": 1}
            values |= {"address": f"10.0.0.{number}", "client_address": "10.0.0.9"} if number else {}
            link.receive(NodeFacts(**(values | (changes[number] if changes else {}))))
        self.nodes.poll()

    def start(self) -> None:
        self.report_facts()
        self.links()[0].receive(Listening(address="10.0.0.9", port=29401))

    def failure(self) -> Failed:
        self.group.watch()
        assert self.group.failure is not None
        return self.group.failure


Start = Callable[..., Run]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1000.0)
    monkeypatch.setattr(nodes_module, "time", clock)
    return clock


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Start]:
    """Return a function that starts a run with scripted machines."""
    monkeypatch.setattr(nodes_module, "NodeLink", ScriptedLink)
    monkeypatch.setattr(nodes_module, "FileTransfers", Transfers)
    monkeypatch.setattr(nodes_module, "digest_inputs", lambda job: {"dataset": DATASET})
    monkeypatch.setattr(nodes_module, "versions", lambda: VERSIONS)
    put_host(Host(name="node1", address="10.0.0.1", port=2001))
    runs: list[Run] = []

    def start(attempt: int = 0, job: Job = JOB) -> Run:
        runs.append(Run(attempt, job))
        return runs[-1]

    yield start
    for run in runs:
        run.selector.close()


def test_machines_are_ordered_met_and_adopted(start: Start) -> None:
    run = start(2)
    requests = [link.sent[0] for link in run.links()]
    assert all(isinstance(request, NodeRequest) for request in requests)
    assert [(o.title, o.node, o.nodes, o.attempt, [s.rank for s in o.specs], o.address, o.port) for o in requests] == [
        ("this machine", 0, 3, 2, [0], "", 29400),
        ("node1", 1, 3, 2, [1, 2], "10.0.0.1", 2001),
        ("node2", 2, 3, 2, [3], "", 29400),
    ]
    assert [bool(request.run_folder) for request in requests] == [True, False, False]
    assert [link.log.name for link in run.links()] == ["node-0.log", "node-1.log", "node-2.log"]
    assert [link.command[0] for link in run.links()][1:] == ["ssh", "ssh"]
    run.report_facts({"infiniband": True}, {}, {"infiniband": True})
    first, *others = run.links()
    assert first.sent[1:] == [Rendezvous(local_address="10.0.0.9", address="", port=0, infiniband=False)]
    assert run.group.workers == []
    first.receive(Listening(address="10.0.0.9", port=29401))
    assert [link.sent[1:] for link in others] == [
        [Rendezvous(local_address=f"10.0.0.{n}", address="10.0.0.9", port=29401, infiniband=False)] for n in (1, 2)
    ]
    assert [worker.rank for worker in run.group.workers] == [0, 1, 2, 3]
    (line,) = run.events
    assert isinstance(line, LogLine)
    assert "10.0.0.9, port 29401" in line.text
    others[1].receive(Sampled(samples=()))
    assert run.samples == [()]


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        (({}, {"versions": VERSIONS | {"torch": "3"}}, {}), ["node1 has PyTorch 3, and this machine 2"]),
        (({}, {}, {"versions": VERSIONS | {"footplate": "0"}}), ["node2 has Footplate 0, and this machine 1"]),
        (({}, {"inputs": {}}, {"problem": "No space."}), ["node1 has no dataset", "node2: No space."]),
        (({}, {"address": "", "client_address": ""}, {"client_address": ""}), ["The address of this machine"]),
        (({}, {"lost_gpus": ("GPU-a",), "problem": "GPU-a is gone."}, {}), ["node1: GPU-a is gone."]),
    ],
    ids=["torch", "footplate", "inputs", "address", "lost GPU"],
)
def test_differing_machines_fail_the_run(start: Start, changes: tuple[dict[str, Any], ...], causes: list[str]) -> None:
    run = start()
    run.report_facts(*changes)
    failed = run.failure()
    assert failed.kind == "error"
    assert [failed.cause.count(cause) for cause in causes] == [1] * len(causes)
    assert failed.devices == ()
    assert run.group.workers == []


def test_machines_without_gpus_fail_a_restart(start: Start) -> None:
    job = JOB.with_fields(devices=("node1:GPU-a", "node1:GPU-b", "node2:GPU-a"))
    run = start(1, job)
    run.report_facts({"lost_gpus": ("GPU-a",), "problem": "GPU-a is gone."}, {})
    failed = run.failure()
    assert (failed.kind, failed.devices, failed.cause) == ("lost_gpu", ("node1:GPU-a",), "node1: GPU-a is gone.")


def test_slurm_nodes_share_the_run_folder(start: Start) -> None:
    put_host(Host(name="", environment=("A=1",)))
    run = start(job=JOB.with_fields(devices=("cpu", f"{SLURM}n7:cpu")))
    local, node = run.links()
    assert local.command == ["env", "A=1", sys.executable, "-m", "engine.machines.node"]
    assert node.command == srun_command("n7", ["node"])
    assert [request.run_folder for request in (local.sent[0], node.sent[0])] == [str(run.folder.path)] * 2  # type: ignore[union-attr]
    run.start()
    assert [each.files for each in run.nodes.nodes] == [None, None]


def test_single_machine_meets_at_loopback(start: Start) -> None:
    run = start(job=JOB.with_fields(devices=("node1:cpu", "node1:cpu")))
    run.start()
    assert run.links()[0].sent[1:] == [Rendezvous(local_address="127.0.0.1", address="", port=0, infiniband=False)]
    assert run.events == []


def test_checkpoint_is_copied_before_the_rendezvous(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        nodes_module,
        "required_files",
        lambda run, job, has_rank_0: dict.fromkeys(["a.pt", "b.pt"] + ["best.pt"] * has_rank_0, run.job_file),
    )
    from_node1 = start(job=JOB.with_fields(devices=("node1:cpu", "cpu", "node2:cpu")))
    from_node1.report_facts()
    transfers: list[Any] = [node.files for node in from_node1.nodes.nodes]
    sent = [[path for _, path, _ in each.requests] if each else [] for each in transfers]
    assert sent == [["a.pt", "b.pt", "best.pt"], [], ["a.pt", "b.pt"]]
    assert transfers[0].command[-2:] == ["--exchange", from_node1.folder.run_id]
    run = start()
    run.links()[1].receive(Waiting(position=1))
    run.report_facts()
    waiting, phase = (event for event in run.events if isinstance(event, Waiting | PhaseChanged))
    assert (waiting, phase) == (Waiting(position=1), PhaseChanged(phase="starting"))
    requests = [request for node in run.nodes.nodes[1:] for request in node.files.requests]  # type: ignore[union-attr]
    assert [request[:2] for request in requests] == [("send", "a.pt"), ("send", "b.pt")] * 2
    for *_, on_done in requests[:-1]:
        on_done("")
    assert len(run.links()[0].sent) == 1
    requests[-1][-1]("")
    assert isinstance(run.links()[0].sent[1], Rendezvous)
    run = start()
    run.report_facts()
    run.nodes.nodes[2].files.requests[0][-1]("disk full")  # type: ignore[union-attr]
    failed = run.failure()
    assert "copied to node2: disk full" in failed.cause
    assert failed.kind == "fault"


def message(rank: int, event: Any) -> FromWorker:
    return FromWorker(rank=rank, message=msgspec.Raw(ENCODE.encode(event)))


@pytest.mark.parametrize(("error", "file"), [("", "l.pt"), ("no such file", LAST)])
def test_checkpoint_is_reported_after_its_copy(start: Start, error: str, file: str) -> None:
    run = start()
    run.start()
    link, saved = run.links()[1], CheckpointSaved(kind="last", path=file, epoch=1, step=7, bytes=8, seconds=0.1)
    before = len(run.events)
    link.receive(message(2, saved), message(2, WorkerDone(stopped=False)), WorkerEnded(rank=2, code=0))
    link.receive(WorkerEnded(rank=1, code=0, files={"worker-1.log": b"last words", "../x": b"evil"}))
    link.receive(WorkerEnded(rank=3, code=0, files={"worker-3.log": b"of another machine"}))
    run.folder.worker_log(0).write_text("a long log")
    run.links()[0].receive(WorkerEnded(rank=0, code=0, files={"worker-0.log": b"its end"}))
    assert run.folder.worker_log(0).read_text() == "a long log", "this machine wrote it"
    assert not run.folder.worker_log(3).exists()
    assert run.folder.worker_log(1).read_text() == "last words"
    assert not (run.folder.path.parent / "x").exists()
    workers = {worker.rank: worker for worker in run.group.workers}
    assert workers[2].exit_code is None
    ((kind, path, on_done),) = run.nodes.nodes[1].files.requests  # type: ignore[union-attr]
    assert (kind, path, run.events[before:]) == ("fetch", file, [])
    assert run.nodes.nodes[1].files.saved == [saved if file == LAST else None]  # type: ignore[union-attr]
    on_done(error)
    (reported,) = run.events[before:]
    if error:
        assert isinstance(reported, Warned)
        assert (reported.code, reported.rank) == ("not_copied", 2)
        assert "from node1" in reported.message
        assert error in reported.message
    else:
        assert reported == saved
    assert (workers[1].exit_code, workers[2].exit_code, workers[3].exit_code) == (0, 0, None)


def test_predictions_are_reported_after_their_images(start: Start) -> None:
    run = start()
    run.start()
    before = len(run.events)
    (run.folder.path / "here.png").touch()
    pairs = (("a.png", "b.png"), ("a.png", "here.png"), ("", "c.png"))
    samples = tuple(
        PredictedSample(name="x", truth_png=truth, prediction_png=prediction) for truth, prediction in pairs
    )
    predicted = Predicted(epoch=1, step=7, samples=samples)
    run.links()[0].receive(message(0, predicted), WorkerEnded(rank=0, code=0))
    first, second = (node.files.requests for node in run.nodes.nodes[1:])  # type: ignore[union-attr]
    assert [path for _, path, _ in first] == ["a.png", "b.png", "c.png"]
    for _, path, on_done in first:
        on_done("no such file" if path == "b.png" else "")
    assert ([path for _, path, _ in second], run.events[before:]) == (["b.png"], [])
    assert run.group.workers[0].exit_code is None
    second[0][-1]("")
    assert (run.events[before:], run.group.workers[0].exit_code) == ([predicted], 0)


@pytest.mark.parametrize("stage", ["connecting", "training"])
def test_failed_machine_fails_the_run(start: Start, stage: str) -> None:
    run = start()
    if stage == "training":
        run.start()
    run.links()[2].receive(NodeFailed(cause="The disk is full."))
    failed = run.failure()
    assert (failed.cause, failed.kind) == ("The disk is full.", "fault" if stage == "training" else "error")
    exit_codes = [worker.poll() for worker in run.group.workers]
    assert exit_codes == ([None, None, None, -9] if stage == "training" else [])


@pytest.mark.parametrize(
    ("answered", "reason", "cause"),
    [
        (False, "", "node1"),
        (True, "", "left the run without reporting an error"),
        (True, "it sent nonsense", "node1: it sent nonsense."),
    ],
)
def test_ended_connection_is_a_lost_machine(start: Start, answered: bool, reason: str, cause: str) -> None:
    run = start()
    if answered:
        run.start()
        run.links()[1].receive(message(1, WorkerDone(stopped=False)), WorkerEnded(rank=1, code=0))
    run.links()[1].end(reason)
    failed = run.failure()
    assert cause in failed.cause
    assert (failed.rank, failed.kind) == (1, "fault" if answered else "error")
    assert [worker.exit_code for worker in run.nodes.nodes[1].workers] == ([0, -9] if answered else [])
    assert not run.nodes.has_quiet_node


def test_end_after_all_workers_have_exited_is_no_loss(start: Start) -> None:
    run = start()
    run.start()
    link = run.links()[1]
    for rank in (1, 2):
        link.receive(message(rank, WorkerDone(stopped=False)), WorkerEnded(rank=rank, code=0))
    link.end()
    run.group.watch()
    assert run.group.failure is None


def test_all_silent_machines_are_ended(start: Start) -> None:
    run = start()
    run.start()
    _local, one, other = run.links()
    one.silence = other.silence = "has not responded"
    one.silent_s = 3.0
    assert run.nodes.has_quiet_node
    one.has_ended = True
    assert not run.nodes.has_quiet_node
    run.nodes.poll()
    assert (one.calls, other.calls) == (["kill"], ["kill"])
    assert run.failure().cause == "node1 has not responded"
    assert [worker.poll() for worker in run.group.workers] == [None, -9, -9, -9]
    assert all("give up" in node.files.calls for node in run.nodes.nodes[1:])  # type: ignore[union-attr]


def test_restart_waits_for_machines_and_connects_to_all(start: Start, clock: Clock) -> None:
    run = start(1)
    before = run.links()
    for link in before[1:]:
        link.end()
    away = [event for event in run.events if isinstance(event, Warned)]
    assert [event.code for event in away] == ["host_away", "host_away"]
    assert "node1 to return" in away[0].message
    assert away[0].message.endswith("It's needed.")
    run.nodes.poll()
    assert [node.link is None for node in run.nodes.nodes] == [False, True, True]
    clock.now += 3.1
    run.nodes.poll()
    after = run.links()
    assert (after[0] is before[0], after[1] is before[1], after[2] is before[2]) == (True, False, False)
    assert after[2].sent == before[2].sent
    after[1].end()
    assert len(run.events) == 2  # reported once
    clock.now += RETURN_S
    run.nodes.poll()
    run.links()[1].end()
    failed = run.failure()
    assert (failed.rank, failed.kind) == (1, "fault")


def test_failed_restart_connects_to_no_machine(start: Start, clock: Clock) -> None:
    run = start(1)
    run.links()[1].end()
    run.links()[2].receive(NodeFailed(cause="The disk is full."))
    run.failure()
    clock.now += 10.0
    run.nodes.poll()
    assert run.nodes.nodes[1].link is None


def test_machine_lost_after_its_facts_fails_a_restart(start: Start) -> None:
    run = start(1)
    run.links()[1].receive(NodeFacts(versions=VERSIONS, inputs={"dataset": DATASET}, time=0.0, free_bytes=1))
    run.links()[1].end()
    assert run.failure().kind == "fault"


def test_restart_continues_without_a_lost_machine(start: Start) -> None:
    run = start(1)
    run.without = SMALLER
    run.links()[2].end()
    failed = run.failure()
    assert (failed.rank, failed.kind) == (3, "lost_machine")
    assert "continues without node2, on 3 devices" in failed.cause


def test_close_shares_the_time_among_all_machines(start: Start, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start()
    run.report_facts()
    links = run.links()
    links[1].has_ended = True
    finish = ScriptedLink.finish

    def slow_finish(link: ScriptedLink, timeout_s: float) -> None:
        finish(link, timeout_s)
        clock.now += 2.0

    monkeypatch.setattr(ScriptedLink, "finish", slow_finish)
    run.nodes.close()
    assert [link.calls for link in links] == [["close", "finish 5"], ["finish 3"], ["close", "finish 1"]]
    assert [node.files.calls[-1] for node in run.nodes.nodes[1:]] == ["close", "close"]  # type: ignore[union-attr]
