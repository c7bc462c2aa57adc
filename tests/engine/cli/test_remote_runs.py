"""Following a run on another machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli import remote, watching
from engine.cli.terminal import BAD_REQUEST, COMPLETED, FAILED, CommandError, StatusLine
from engine.contract.hosts import Host, put_host
from engine.machines.fetch import NotFetched
from engine.runs.folder import RunFolder
from tests.engine.cli.terminal import run_in_this_process
from tests.gui.sources.written_runs import write_run

STUCK = """
import signal
print('{"type":"follow_result","problem":"no such run"}', flush=True)
signal.pause()
"""


def test_local_run_takes_precedence_over_a_remote_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("atlas", "fe80::1"):
        put_host(Host(name=name))
    local, remote_copy = write_run(8, name="atlas:mine"), write_run(8)
    followed: list[tuple[str, str]] = []

    def follow(machine: Host, name: str) -> RunFolder:
        followed.append((machine.name, name))
        return remote_copy

    monkeypatch.setattr(remote, "follow", follow)
    assert watching.require_any_run("atlas:mine").path == local.path
    assert followed == []
    for name in ("atlas:last", "fe80::1:last"):
        assert watching.require_any_run(name).path == remote_copy.path
    assert followed == [("atlas", "last"), ("fe80::1", "last")]


@pytest.mark.parametrize(
    ("arguments", "error", "code"),
    [
        (("atlas:last",), None, COMPLETED),
        (("atlas:last", "worker-0.log"), None, COMPLETED),
        (("atlas:last",), NotFetched("It is gone."), FAILED),
        (("other:last",), None, BAD_REQUEST),
    ],
)
def test_fetch_prints_the_local_copy(
    arguments: tuple[str, ...], error: Exception | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(machine: Host, name: str, file: str, on_progress: Callable[[int, int], None]) -> Path:
        if error is not None:
            raise error
        on_progress(1, 2)
        return Path("/mirror", machine.name, name, file)

    put_host(Host(name="atlas"))
    progress: list[str] = []
    monkeypatch.setattr(StatusLine, "show", lambda _line, text: progress.append(text))
    monkeypatch.setattr(remote, "fetch", fetch)
    answer = run_in_this_process("fetch", *arguments)
    file = (*arguments, "checkpoints/best.pt")[1]
    assert (answer.code, answer.out) == (code, "" if code else f"/mirror/atlas/last/{file}\n")
    assert ("footplate: It is gone." in answer.err) == (error is not None)
    assert progress == ([] if code else ["1 B of 2 B"])


def test_follow_kills_follower_that_does_not_exit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(_command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen([sys.executable, "-c", STUCK], **options))
        assert os.getsid(started[0].pid) != os.getsid(0), "Ctrl+C in the terminal must not end it"
        return started[0]

    popen = subprocess.Popen
    monkeypatch.setattr(remote, "_EXIT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(CommandError):
        remote.follow(Host(name="atlas"), "a-run")
    assert started[0].returncode is not None
    assert "no such run" in capsys.readouterr().err
