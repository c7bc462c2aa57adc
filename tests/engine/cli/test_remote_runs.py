"""Following a run on another machine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from engine.cli import remote
from engine.cli.terminal import CommandError
from engine.contract.hosts import Host

STUCK = """
import signal
print('{"type":"follow_result","problem":"no such run"}', flush=True)
signal.pause()
"""


def test_follow_kills_follower_that_does_not_exit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(_command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen([sys.executable, "-c", STUCK], **options))
        return started[0]

    popen = subprocess.Popen
    monkeypatch.setattr(remote, "_EXIT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(CommandError):
        remote.follow(Host(name="atlas"), "a-run")
    assert started[0].returncode is not None
    assert "no such run" in capsys.readouterr().err
