"""Process that sends the log of a run to a follower on another machine."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.contract.nodes import (
    FROM_NODE,
    FromNode,
    KeepAlive,
    LogChunk,
    LogRequest,
    NodeFailed,
    RunCommand,
    RunFound,
    RunLiveness,
    file_sha256,
)
from engine.contract.protocol import ENCODE, Stop
from engine.system import paths
from tests.gui.sources.written_runs import write_run

Connect = Callable[[str], tuple[subprocess.Popen[bytes], Iterator[FromNode]]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that starts a relay of a run, and returns its process and all messages except heartbeats."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> tuple[subprocess.Popen[bytes], Iterator[FromNode]]:
        command = [
            sys.executable,
            "-c",
            f"import sys; from engine.machines.relay import relay; sys.exit(relay({name!r}))",
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=paths.PACKAGES)
        processes.append(process)
        assert process.stdout is not None
        messages = map(FROM_NODE.decode, process.stdout)
        return process, (message for message in messages if not isinstance(message, KeepAlive))

    yield start
    for process in processes:
        with process:
            process.kill()


@pytest.mark.parametrize("is_same", [True, False])
def test_relay_sends_what_the_follower_lacks(connect: Connect, tmp_path: Path, is_same: bool) -> None:
    run = write_run(8)
    log = run.events_file.read_bytes()
    (tmp_path / "copy").write_bytes(log[:100] if is_same else b"x" * 100)
    process, messages = connect(run.run_id)
    assert process.stdin is not None
    written = run.job_file.stat().st_mtime
    assert process.stdout is not None
    first = [FROM_NODE.decode(line) for line in itertools.islice(process.stdout, 2)]
    assert KeepAlive() in first
    assert RunFound(run_id=run.run_id, job=run.job_file.read_bytes(), written=written) in first
    process.stdin.write(ENCODE.encode(LogRequest(offset=100, sha256=file_sha256(tmp_path / "copy"))) + b"\n")
    process.stdin.flush()
    start = 100 if is_same else 0
    assert next(messages) == LogChunk(offset=start, data=log[start:])
    assert next(messages) == RunLiveness(execution=0, alive=False)
    process.stdin.write(ENCODE.encode(RunCommand(command=Stop())) + b"\n")  # the run is not active any more
    process.stdin.flush()
    with run.events_file.open("ab") as stream:
        stream.write(b"more\n")
    assert next(messages) == LogChunk(offset=len(log), data=b"more\n")
    (tmp_path / "new").write_bytes(b"y" * 2 * len(log))
    (tmp_path / "new").replace(run.events_file)
    chunk = next(messages)
    assert isinstance(chunk, LogChunk)
    assert (chunk.offset, chunk.data[:1]) == (0, b"y")
    process.stdin.close()
    assert process.wait(20) == 0


def test_relay_of_an_unknown_run_fails(connect: Connect) -> None:
    process, messages = connect("nothing")
    assert list(messages) == [NodeFailed(cause="there is no run “nothing”")]
    assert process.wait(20) == 1
