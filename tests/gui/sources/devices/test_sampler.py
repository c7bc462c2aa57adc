"""The window's end of the sampler, with real child processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from pytestqt.qtbot import QtBot

from engine.contract.devices import Snapshot, SnapshotRequest
from engine.system import paths
from gui.sources.devices.sampler import SamplerProcess


def test_sampler_reports_cpu(qtbot: QtBot) -> None:
    sampler = SamplerProcess(interval_s=0.2)
    try:
        for _ in range(2):
            with qtbot.waitSignal(sampler.snapshot) as answered:
                sampler.start()
            snapshot: Snapshot = answered.args[0]
            assert len(snapshot.cpu.core_load_percent) == psutil.cpu_count()
    finally:
        pid = sampler.pid
        sampler.stop()
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert not sampler.running


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_sampler_restarts_after_kill(qtbot: QtBot) -> None:
    sampler = SamplerProcess(interval_s=0.2)
    received: list[str] = []
    sampler.error_changed.connect(received.append)
    try:
        with qtbot.waitSignal(sampler.snapshot):
            sampler.start()
        first = sampler.pid
        assert first is not None
        with qtbot.waitSignal(sampler.error_changed):
            os.kill(first, signal.SIGKILL)
        with qtbot.waitSignal(sampler.snapshot):
            pass
        assert sampler.pid != first
    finally:
        sampler.stop()
    assert "Retrying" in received[0]
    assert received[-1] == ""


def test_sampler_restarts_at_growing_intervals(qtbot: QtBot) -> None:
    sampler = SamplerProcess(arguments=["-c", "raise SystemExit('a fault of mine')"])
    received: list[str] = []
    sampler.error_changed.connect(received.append)
    try:
        sampler.start()
        qtbot.waitUntil(lambda: len(received) >= 3)
    finally:
        sampler.stop()
    assert "a fault of mine" in (paths.home() / "logs" / "sampler.log").read_text()
    assert ["0.5 s" in received[0], "1 s" in received[1], "2 s" in received[2]] == [True, True, True]


def test_sampler_restarts_after_silence(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.sources.devices.sampler.SILENCE_S", 0.3)
    sampler = SamplerProcess(interval_s=0.05, arguments=["-c", "import time; time.sleep(600)"])
    try:
        sampler.start()
        first = sampler.pid
        with qtbot.waitSignal(sampler.error_changed) as received:
            pass
        assert "stopped responding" in received.args[0]
        qtbot.waitUntil(lambda: sampler.pid not in (None, first))
    finally:
        sampler.stop()


def test_sampler_reports_invalid_output(qtbot: QtBot, tmp_path: Path) -> None:
    sampler = SamplerProcess(arguments=["-c", "print('hello', flush=True); import time; time.sleep(600)"])
    try:
        with qtbot.waitSignal(sampler.error_changed) as received:
            sampler.start()
        assert "can't read" in received.args[0]
        assert sampler.running
    finally:
        sampler.stop()


ECHO = """
import json, sys, time
from engine.contract.devices import Cpu, Nvml, Snapshot
import msgspec
for line in sys.stdin:
    cpu = Cpu(name=line.strip(), core_load_percent=(), load_percent=0, memory_used_bytes=0, memory_total_bytes=1)
    seen = Snapshot(time=time.time(), host="here", nvml=Nvml("ok"), cpu=cpu)
    print(msgspec.json.encode(seen).decode(), flush=True)
"""
"""Return a sampler whose processor is named after the requests that it received."""


def test_sampler_sends_request_again_after_restart(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = SamplerProcess()
    monkeypatch.setattr(sampler, "_arguments", ["-c", ECHO])
    answered: list[str] = []
    sampler.snapshot.connect(lambda seen: answered.append(seen.cpu.name))
    try:
        sampler.show(SnapshotRequest(processes=False))
        sampler.start()
        qtbot.waitUntil(lambda: answered == ['{"processes":false}'])
        sampler.show(SnapshotRequest(processes=False))
        sampler.show(SnapshotRequest(activity=False))
        qtbot.waitUntil(lambda: len(answered) == 2)
        assert sampler.pid is not None
        os.kill(sampler.pid, signal.SIGTERM)
        qtbot.waitUntil(lambda: len(answered) == 3)
    finally:
        sampler.stop()
    assert answered[1:] == ['{"activity":false}', '{"activity":false}']


def test_sampler_reports_missing_program(qtbot: QtBot) -> None:
    sampler = SamplerProcess(program="no-such-program", arguments=[], who="The sampler on ws2")
    try:
        with qtbot.waitSignal(sampler.error_changed) as received:
            sampler.start()
    finally:
        sampler.stop()
    assert "“no-such-program” was not found" in received.args[0]


def test_sampler_explains_exit(qtbot: QtBot) -> None:
    script = "import sys; sys.stderr.write('first\\n' * 5000 + 'last words'); sys.exit(7)"
    sampler = SamplerProcess(
        arguments=["-c", script], explain=lambda code, said: f"It ended with {code} after {said.splitlines()[-1]}."
    )
    try:
        with qtbot.waitSignal(sampler.error_changed) as received:
            sampler.start()
    finally:
        sampler.stop()
    assert received.args[0].startswith("It ended with 7 after last words.")


def test_sampler_limits_line_length(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.sources.devices.sampler.LINE_LIMIT_BYTES", 1000)
    sampler = SamplerProcess(arguments=["-c", "print('x' * 5000, end='', flush=True); import time; time.sleep(600)"])
    try:
        with qtbot.waitSignal(sampler.error_changed) as received:
            sampler.start()
        assert "can't read" in received.args[0]
    finally:
        sampler.stop()


def test_sampler_stop_is_repeatable(qtbot: QtBot) -> None:
    sampler = SamplerProcess()
    sampler.stop()
    sampler.start()
    sampler.stop()
    sampler.stop()
    assert not sampler.running
