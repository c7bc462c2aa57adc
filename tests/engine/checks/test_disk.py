"""Reachability of servers, as `engine.checks.disk` reports it to several checks.

Answers are cached. A check waits up to two seconds for an answer, which may also arrive later.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checks import disk
from engine.checks.disk import ANSWER_S, BackgroundDisk, RealDisk
from tests.support.waiting import wait_until
from tests.support.weights_server import WeightsServer


@pytest.fixture
def server() -> Iterator[WeightsServer]:
    served = WeightsServer({})
    with served.serving():
        yield served


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Make name lookups block until the test sets the yielded event, and then fail."""
    released = threading.Event()

    def stall(*_arguments: object, **_given: object) -> None:
        released.wait()
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", stall)
    monkeypatch.delenv("http_proxy", raising=False)
    yield released
    released.set()


def test_files_are_found_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model.py").touch()
    names = ("~", "~/model.py", "~/none", "a\0b", os.devnull)
    assert [RealDisk().kind(name) for name in names] == ["folder", "file", "", "", "other"]
    assert RealDisk().model_file("~/model.py").sha256 == hashlib.sha256().hexdigest()


def test_reaches_gives_up_on_stalled_name_servers(stalled: threading.Event) -> None:
    start_s = time.monotonic()
    assert RealDisk().can_reach("http://stalled.example") is False
    assert ANSWER_S - 0.1 < time.monotonic() - start_s < ANSWER_S + 1
    start_s = time.monotonic()
    assert RealDisk().can_reach("http://stalled.example") is False
    assert time.monotonic() - start_s < ANSWER_S / 2


def test_reaches_keeps_to_its_answer_when_a_late_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(disk, "ANSWER_S", 0.05)
    monkeypatch.setattr(disk, "_server_answers", lambda _host: released.wait())
    assert RealDisk().can_reach("http://late.example") is False
    released.set()
    wait_until(lambda: not any(thread.name == "probe" for thread in threading.enumerate()), "the late answer")
    assert RealDisk().can_reach("http://late.example") is False


def test_reaches_retries_after_a_while(server: WeightsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RealDisk().can_reach(server.address) is True
    assert RealDisk().can_reach(server.address) is True
    assert len(server.requests) == 1
    monkeypatch.setattr(disk, "REMEMBERED_S", 0.0)
    assert RealDisk().can_reach(server.address) is True
    assert len(server.requests) == 2


def test_impatient_disk_asks_in_the_background(stalled: threading.Event, server: WeightsServer) -> None:
    assert BackgroundDisk().can_reach("http://unknown.example") is None
    stalled.set()
    wait_until(lambda: BackgroundDisk().can_reach("http://unknown.example") is False, "the answer")


def test_impatient_disk_knows_what_has_been_answered(server: WeightsServer) -> None:
    BackgroundDisk().can_reach(server.address)
    wait_until(lambda: BackgroundDisk().can_reach(server.address) is True, "the answer")
    assert RealDisk().can_reach(server.address) is True
    assert len(server.requests) == 1
