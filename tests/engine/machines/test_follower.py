"""Follower, which mirrors a run of another machine. The other machine's messages are scripted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from engine.contract.events import ENCODE, EVENT, LogLine
from engine.contract.hosts import Host
from engine.contract.nodes import (
    FollowResult,
    LogChunk,
    LogRequest,
    NodeFailed,
    RunCommand,
    RunFound,
    RunLiveness,
    file_sha256,
)
from engine.contract.protocol import Stop
from engine.machines import follower as module
from engine.machines.follower import Follower
from engine.machines.link import START_S
from engine.runs.index import mirror_folder
from tests.engine.machines.scripted_link import ScriptedLink
from tests.support.clock import Clock

RUN = "20260101-120000-abcd"
FOUND = RunFound(run_id=RUN, job=b'[data]\ndataset = "/data"\n', written=5e8)


def line(n: int) -> bytes:
    event = LogLine(text=f"line {n}")
    event.n, event.time = n, 1e9
    return ENCODE.encode(event) + b"\n"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1000.0)
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Follower]:
    monkeypatch.setattr(module, "NodeLink", ScriptedLink)
    follower = Follower(Host(name="node1"), "abcd")
    follower._poll_link()
    yield follower
    follower._close()


def link_of(follower: Follower) -> ScriptedLink:
    assert isinstance(follower._link, ScriptedLink)
    return follower._link


def reports(capsys: pytest.CaptureFixture[str]) -> list[FollowResult]:
    return [msgspec.json.decode(line, type=FollowResult) for line in capsys.readouterr().out.splitlines()]


def served(follower: Follower) -> bool:
    assert follower._run is not None
    return follower._run.supervisor_file.exists()


def test_follower_copies_and_serves_the_run(follower: Follower, capsys: pytest.CaptureFixture[str]) -> None:
    link, run = link_of(follower), mirror_folder("node1", RUN)
    assert [each for each in link.command if "--relay abcd" in each]
    link.receive(FOUND)
    assert run.job_file.read_bytes() == FOUND.job
    assert run.job_file.stat().st_mtime == FOUND.written
    (request,) = link.sent
    assert isinstance(request, LogRequest)
    assert request.offset == 0
    log = line(1) + line(2) + line(3)
    for first, last in ((0, 30), (30, len(log) - 5)):
        link.receive(LogChunk(offset=first, data=log[first:last]))
    assert [event.n for event in run.events()] == [1, 2]
    assert reports(capsys) == []
    link.receive(LogChunk(offset=len(log) - 5, data=log[-5:]), RunLiveness(execution=2, alive=True))
    assert run.events_file.read_bytes() == log
    assert reports(capsys) == [FollowResult(folder=str(run.path))]
    supervisor = run.supervisor()
    assert supervisor is not None
    assert (supervisor.pid, supervisor.execution) == (os.getpid(), 2)
    link.receive(RunLiveness(execution=3, alive=True))
    later = run.supervisor()
    assert later is not None
    assert (later.endpoint, later.execution) == (supervisor.endpoint, 3)
    assert reports(capsys) == []
    follower._forward(Stop())
    assert link.sent[-1] == RunCommand(command=Stop())
    link.receive(RunLiveness(execution=2, alive=False))
    assert not served(follower)
    link.receive(LogChunk(offset=len(log), data=line(4)[:9]), LogChunk(offset=0, data=line(7)))  # another log
    assert [event.n for event in run.events()] == [7]
    assert reports(capsys) == []


def test_follower_requests_what_its_copy_lacks(follower: Follower) -> None:
    run = mirror_folder("node1", RUN)
    run.checkpoints.mkdir(parents=True)
    run.events_file.write_bytes(line(1))
    link_of(follower).receive(FOUND)
    assert link_of(follower).sent == [LogRequest(offset=len(line(1)), sha256=file_sha256(run.events_file))]
    link_of(follower).receive(LogChunk(offset=len(line(1)), data=line(2)))
    assert [EVENT.decode(each).n for each in run.events_file.read_bytes().splitlines()] == [1, 2]


def test_follower_retries_later_each_time(follower: Follower, clock: Clock) -> None:
    link_of(follower).receive(FOUND, RunLiveness(execution=1, alive=True))
    waits = []
    for _ in range(7):
        link_of(follower).end()
        assert follower._link is None
        began = clock.now
        while follower._link is None:
            clock.now += 0.25
            follower._poll_link()
        waits.append(clock.now - began)
    assert waits == [0.75, 1.25, 2.25, 4.25, 8.25, 10.25, 10.25]  # more than 0.5, 1, 2, 4, 8, 10 and 10
    assert f"--relay {RUN}" in " ".join(link_of(follower).command)
    link_of(follower).receive(FOUND, RunLiveness(execution=1, alive=True))
    link_of(follower).silence = "has not responded"
    link = link_of(follower)
    follower._poll_link()
    assert link.calls == ["kill"]
    clock.now += 0.75
    follower._poll_link()
    assert follower._link is not None
    assert not follower._is_done


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("failed", "node1: no such run."),
        ("ended", "node1: it sent nonsense."),
        ("exited", "Footplate was not found on node1."),
        ("invalid", "node1 sent an invalid message: the run itself is missing."),
        ("slow", "node1 has not sent the state of the run."),
        ("silent", "node1 has not responded"),
    ],
)
def test_follower_exits_if_it_never_reaches_the_run(
    follower: Follower,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    case: str,
    reason: str,
) -> None:
    link = link_of(follower)
    if case == "failed":
        link.receive(NodeFailed(cause="no such run"))
    elif case == "ended":
        link.status = (255, "an unrelated warning")
        link.end("it sent nonsense")
    elif case == "exited":
        link.status = (127, "sh: footplate: not found")
        link.end()
    elif case == "invalid":
        link.receive(LogChunk(offset=0, data=b""))
    elif case == "slow":
        clock.now += START_S + 1
    else:
        link.silence = "has not responded"
    reader, writer = os.pipe()
    os.close(writer)
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert follower.run() == 1
    (report,) = reports(capsys)
    assert report.problem.startswith(reason)
    assert link.calls == ["kill"]


def test_second_follower_of_a_run_leaves_the_copy_alone(
    follower: Follower, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    link_of(follower).receive(FOUND)
    other = Follower(Host(name="node1"), "abcd")
    other._poll_link()
    link = link_of(other)
    link.receive(FOUND)
    assert (link.sent, link.calls, other._link) == ([], ["kill"], None)
    assert reports(capsys) == [FollowResult(folder=str(mirror_folder("node1", RUN).path))]
    other._close()
