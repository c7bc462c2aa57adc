"""File transfers between machines. They must not delay the heartbeats on the same connection."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.contract.events import CheckpointSaved
from engine.contract.hosts import Host
from engine.contract.job import Job
from engine.contract.nodes import FromNode, NodeFailed, RunFile, file_sha256
from engine.contract.protocol import Stop
from engine.contract.worker import WorkerSpec
from engine.machines import link as links
from engine.machines.files import LAST, RESUME, FileTransfers, _send
from engine.machines.link import NodeLink
from engine.machines.remote_worker import RemoteWorker
from engine.machines.transfer import Channel, FileConnection
from engine.processes import group as groups
from engine.processes.watchdog import LIMITS
from engine.runs.folder import RunFolder
from engine.system import paths
from tests.support.scripts import write_script
from tests.support.waiting import wait_until

SERVE = """
import sys, time
from pathlib import Path
from engine.machines.transfer import serve
time.sleep({delay})
sys.exit(serve(Path({folder!r}), "r", copies=("checkpoints/last.pt",), writable=True))
"""


class Pair:
    """Local folder of a run, and the folder of the same run on another machine."""

    def __init__(self, folder: Path) -> None:
        self.run, self.remote = RunFolder(folder / "run"), folder / "remote"
        for each in (self.run.path, self.remote):
            (each / "checkpoints").mkdir(parents=True)
        self.transfers: FileTransfers | None = None

    def connect(self, delay: float = 0.0) -> FileTransfers:
        command = [sys.executable, "-c", SERVE.format(folder=str(self.remote), delay=delay)]
        self.transfers = FileTransfers(self.run, command, self.run.path / "node-0.log", 3)
        return self.transfers

    def run_transfer(self, start: Callable[[Callable[[str], None]], None]) -> str:
        """Start a transfer and wait until it ends. Return its error message, which is "" if it succeeds.

        `start` gets a callback for the error message.
        """
        assert self.transfers is not None
        errors: list[str] = []
        start(errors.append)
        wait_until(lambda: self.transfers.poll() or bool(errors), "the end of the transfer", 20)  # type: ignore[union-attr]
        return errors[0]

    def fetch(self, path: str, saved: CheckpointSaved | None = None) -> str:
        assert self.transfers is not None
        transfers = self.transfers
        return self.run_transfer(lambda on_done: transfers.fetch(path, on_done, saved))

    def save(self, step: int) -> CheckpointSaved:
        """Write last.pt of `step` on the other machine, and return the event with which a worker reports it."""
        (self.remote / LAST).write_text(f"step {step}")
        return CheckpointSaved(kind="last", path=LAST, epoch=step // 100, step=step, bytes=8, seconds=0.0)

    def checkpoints(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.run.checkpoints.iterdir()}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    if pair.transfers is not None:
        pair.transfers.close()


def test_older_checkpoints_keep_their_steps_after_failed_fetch(pair: Pair) -> None:
    pair.connect()
    assert pair.fetch(LAST, pair.save(100)) == ""
    saved = pair.save(200)
    (pair.remote / LAST).unlink()
    assert "No such file" in pair.fetch(LAST, saved)
    for step in (300, 400, 500, 600):
        assert pair.fetch(LAST, pair.save(step)) == ""
    # Three older ones are retained.
    assert pair.checkpoints() == {
        "last.pt": "step 600",
        "epoch-3-step-300.pt": "step 300",
        "epoch-4-step-400.pt": "step 400",
        "epoch-5-step-500.pt": "step 500",
    }


def test_checkpoint_replaced_before_its_fetch_gets_the_new_step(pair: Pair) -> None:
    pair.connect()
    early = pair.save(100)
    (pair.remote / LAST).rename(pair.remote / "checkpoints/epoch-1-step-100.pt")
    late = pair.save(200)
    for saved in (early, late, pair.save(300)):
        assert pair.fetch(LAST, saved) == ""
    pair.save(400)
    assert pair.fetch(LAST, pair.save(400)) == ""
    assert pair.checkpoints() == {
        "last.pt": "step 400",
        "epoch-1-step-100.pt": "step 100",
        "epoch-3-step-300.pt": "step 300",
    }


def test_transfer_continues_after_lost_connection(pair: Pair) -> None:
    transfers = pair.connect(delay=30.0)
    pair.save(100)
    errors: list[str] = []
    transfers.fetch(LAST, errors.append)
    started = time.monotonic()
    transfers.poll()  # doesn't wait for the other end
    assert time.monotonic() - started < 1.0
    transfers.close()
    wait_until(lambda: transfers.poll() or bool(errors), "the end of the transfer", 10)  # type: ignore[func-returns-value]
    assert errors[0]
    pair.connect()
    partial = pair.run.checkpoints / f".last.pt.{file_sha256(pair.remote / LAST)[:16]}.part"
    partial.write_text("stop")
    assert pair.fetch(LAST) == "it did not arrive as it was sent"  # the copy is continued, and is then unusable
    assert not partial.exists()
    partial.write_text("step")
    assert pair.fetch(LAST) == ""
    assert pair.checkpoints() == {"last.pt": "step 100"}
    errors.clear()
    transfers.give_up()
    assert errors == []


def test_close_ends_a_command_that_is_still_writing() -> None:
    connection = FileConnection(["sh", "-c", "exec yes"], subprocess.DEVNULL)
    assert connection.close() == -signal.SIGPIPE
    assert all(stream is not None and stream.closed for stream in (connection.process.stdin, connection.process.stdout))


def test_give_up_fails_pending_transfers(pair: Pair) -> None:
    transfers = pair.connect(delay=30.0)
    errors: list[str] = []
    transfers.fetch(LAST, errors.append)
    transfers.fetch("../x", errors.append)
    transfers.give_up()
    transfers.give_up()
    transfers.fetch(LAST, errors.append)
    transfers.poll()
    assert errors == ["../x is not a file of the run's folder", "the machine is away", "the machine is away"]


def test_sent_file_arrives_and_equal_file_is_linked(pair: Pair, tmp_path: Path) -> None:
    transfers = pair.connect()
    source = tmp_path / "source.pt"
    source.write_bytes(bytes(range(256)) * 9000)
    for path in (RESUME, "checkpoints/best.pt"):
        assert pair.run_transfer(lambda on_done, path=path: transfers.send(path, source, lambda: "", on_done)) == ""  # type: ignore[misc]
        assert (pair.remote / path).read_bytes() == source.read_bytes()
    (pair.remote / LAST).write_text("newer")
    source.write_text("newer")
    digest = file_sha256(source)
    assert pair.run_transfer(lambda on_done: transfers.send(RESUME, source, lambda: digest, on_done)) == ""
    assert (pair.remote / RESUME).samefile(pair.remote / LAST)


def test_file_truncated_during_transfer_is_discarded(tmp_path: Path) -> None:
    source, target = tmp_path / "last.pt", tmp_path / "copies" / "last.pt"
    source.write_bytes(b"weights!" * (1 << 18))
    descriptors = (answer_reader, answer_writer, file_reader, file_writer) = (*os.pipe(), *os.pipe())
    with source.open("rb") as stream, ThreadPoolExecutor(1) as executor:
        sending = executor.submit(Channel(answer_reader, file_writer).send, stream, RunFile(path="last.pt"))
        receiver = Channel(file_reader, answer_writer)
        offer = receiver.read()
        os.truncate(source, 1 << 20)
        assert receiver.receive(offer, target) is None
        assert sending.result() == ""
    assert os.listdir(target.parent) == []
    for descriptor in descriptors:
        os.close(descriptor)


def test_refused_file_reports_reason(pair: Pair, tmp_path: Path) -> None:
    transfers = pair.connect()
    (pair.remote / "checkpoints").rmdir()
    (pair.remote / "checkpoints").write_text("a file instead of a folder")
    source = tmp_path / "source.pt"
    source.write_bytes(bytes(1 << 22))
    error = pair.run_transfer(lambda on_done: transfers.send("checkpoints/best.pt", source, lambda: "", on_done))
    assert "exist" in error or "directory" in error
    (pair.remote / "checkpoints").unlink()
    assert pair.run_transfer(lambda on_done: transfers.send("checkpoints/best.pt", source, lambda: "", on_done)) == ""


def test_file_without_confirmation_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "source.pt").touch()
    connection: Any = SimpleNamespace(send=lambda *_: "", read=lambda: RunFile(path=LAST, problem="No space left"))
    assert _send(connection, LAST, tmp_path / "source.pt", "") == "No space left"


def test_stop_waits_for_copied_files_until_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "STOP_S", 0.2)
    connected = ConnectedLink(tmp_path, python(SILENT))
    group = groups.Group(lambda _event: None, connected.selector, LIMITS)
    spec = WorkerSpec(
        run_folder=str(tmp_path), job=Job(), rank=0, world_size=1, devices=("cpu",), rendezvous="", threads=1
    )
    worker = RemoteWorker(spec, connected.link)
    group.adopt([worker])
    group.stop(Stop())
    worker.has_ended = True  # its last checkpoint is still being transferred
    deadline = time.monotonic() + 0.6
    while time.monotonic() < deadline:
        group.extend()
        group.watch()
        time.sleep(0.02)
    assert worker.exit_code is None
    group.escalate()
    assert worker.exit_code == 0
    connected.close()


# Heartbeats


ECHO = """
import sys
count = 0
for line in sys.stdin:
    count += 1
    if count == 3:
        print('{"type":"node_failed","cause":"three"}', flush=True)
"""
SILENT = 'import time; print(\'{"type":"keep_alive"}\', flush=True); time.sleep(60)'
TALKING = """
import time
while True:
    print('{"type":"keep_alive"}', flush=True)
    time.sleep(0.05)
"""


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


class ConnectedLink:
    """Connection to a local command, which takes the place of ssh."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.selector = selectors.DefaultSelector()
        self.messages: list[FromNode] = []
        self.ends: list[str] = []
        self.link = NodeLink(command, folder / "link.log", self.selector, self.messages.append, self.ends.append)

    def poll(self) -> bool:
        """Handle the messages that have arrived. Return True if the connection has ended."""
        for key, mask in self.selector.select(0.02):
            key.data(mask)
        return bool(self.ends)

    def close(self) -> None:
        self.link.kill()
        assert not self.selector.get_map()
        self.selector.close()


def test_heartbeats_are_sent_while_supervisor_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "KEEP_ALIVE_S", 0.05)
    connected = ConnectedLink(tmp_path, python(ECHO))
    wait_until(lambda: bool(connected.selector.select(0)), "a heartbeat", 20)
    assert not connected.messages  # this thread hasn't read anything in the meantime
    connected.poll()
    assert connected.messages == [NodeFailed(cause="three")]
    connected.close()


def test_only_silence_of_other_end_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "LOST_S", 0.5)
    talking, silent = (ConnectedLink(tmp_path, python(each)) for each in (TALKING, SILENT))
    for each in (talking, silent):
        wait_until(lambda each=each: each.poll() or each.link.has_answered, "the first answer", 20)  # type: ignore[misc]
    time.sleep(0.6)  # the supervisor is busy
    assert talking.link.silence_reason("node1") == ""
    assert "node1" in silent.link.silence_reason("node1")
    for each in (talking, silent):
        each.close()


@pytest.mark.parametrize(("started", "slow"), [("", "login shell"), ('echo \'{"type":"shell"}\';', "Python")])
def test_slow_start_names_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: str, slow: str) -> None:
    write_script(tmp_path / "ssh", f"{started} exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(links, "START_S", 0.3)
    connected = ConnectedLink(tmp_path, links.remote_command(Host(name="node1"), "node"))
    wait_until(
        lambda: connected.poll() or bool(connected.link.silence_reason("node1")), "the reason of the silence", 20
    )
    assert slow in connected.link.silence_reason("node1")
    connected.close()


def test_shell_starts_footplate_in_its_environment(tmp_path: Path) -> None:
    footplate = tmp_path / "bin" / "footplate"
    footplate.parent.mkdir()
    write_script(footplate, 'echo "{\\"type\\":\\"node_failed\\",\\"cause\\":\\"$1 $NCCL_DEBUG\\"}"')
    host = Host(name="node1", folder=str(tmp_path), environment=("NCCL_DEBUG=a b",))
    arguments = links.remote_command(host, "node")
    line = " ".join(arguments[arguments.index("node1") + 1 :])  # as ssh passes it to the login shell
    connected = ConnectedLink(tmp_path, ["sh", "-c", line])
    wait_until(connected.poll, "the end of the link", 20)
    assert connected.messages == [NodeFailed(cause="node a b")]
    connected.close()


def test_exit_status_has_only_the_errors_of_this_command(tmp_path: Path) -> None:
    (tmp_path / "link.log").write_text("earlier\n")
    connected = ConnectedLink(tmp_path, ["sh", "-c", "echo later >&2; exit 3"])
    wait_until(connected.poll, "the end of the link", 20)
    assert (connected.link.exit_status(), connected.ends) == ((3, "later\n"), [""])
    assert (tmp_path / "link.log").read_text() == "earlier\nlater\n"
    connected.close()


@pytest.mark.parametrize(
    ("script", "timeout_s", "is_done"),
    [("cat; head -c 1000000 /dev/zero; touch done", 20.0, True), ("exec sleep 60", 0.1, False)],
    ids=["writes", "deaf"],
)
def test_finish_waits_for_the_command(tmp_path: Path, script: str, timeout_s: float, is_done: bool) -> None:
    connected = ConnectedLink(tmp_path, ["sh", "-c", f"cd {tmp_path}; {script}"])
    connected.link.finish(timeout_s)
    assert (tmp_path / "done").exists() == is_done
    assert connected.link.exit_status()[0] == (0 if is_done else -signal.SIGKILL)
    connected.close()


@pytest.mark.parametrize("reads", [True, False], ids=["read", "unread"])
def test_node_ends_after_silence(reads: bool) -> None:
    script = (
        "from engine.machines import link; from engine.contract.nodes import NodeFailed\n"
        "link.SILENCE_S = 0.5; ours = link.SupervisorLink(); ours.start_heartbeats()\n"
        "import threading, os\n"
        "def talk():\n  while True: ours.send(NodeFailed(cause='x' * 9000))\n"
        "threading.Thread(target=talk, daemon=True).start()\n"
        "list(ours.messages()); os._exit(7)\n"
    )
    output = subprocess.DEVNULL if reads else subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=output, cwd=paths.PACKAGES
    ) as node:
        assert node.wait(30) == 7
