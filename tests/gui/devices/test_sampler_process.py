"""The window's end of the sampler, with real child processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from pytestqt.qtbot import QtBot

from engine.contract import paths
from engine.contract.devices import Snapshot
from gui.devices.sampler import SamplerProcess


def test_that_the_real_sampler_says_what_the_cpu_does(qtbot: QtBot) -> None:
    sampler = SamplerProcess(interval_s=0.2)
    try:
        for _ in range(2):
            with qtbot.waitSignal(sampler.snapshot, timeout=20_000) as heard:
                sampler.start()
            snapshot: Snapshot = heard.args[0]
            assert len(snapshot.cpu.core_load_percent) == psutil.cpu_count()
    finally:
        pid = sampler.pid
        sampler.stop()
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert not sampler.running


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_that_a_killed_sampler_is_started_again_and_the_trouble_is_told(qtbot: QtBot) -> None:
    sampler = SamplerProcess(interval_s=0.2)
    told: list[str] = []
    sampler.trouble.connect(told.append)
    try:
        with qtbot.waitSignal(sampler.snapshot, timeout=20_000):
            sampler.start()
        first = sampler.pid
        assert first is not None
        with qtbot.waitSignal(sampler.trouble, timeout=10_000):
            os.kill(first, signal.SIGKILL)
        with qtbot.waitSignal(sampler.snapshot, timeout=20_000):
            pass
        assert sampler.pid != first
    finally:
        sampler.stop()
    assert "started again" in told[0]
    assert told[-1] == ""


def test_that_a_sampler_that_always_ends_is_started_ever_more_slowly(qtbot: QtBot) -> None:
    sampler = SamplerProcess(arguments=["-c", "raise SystemExit('a fault of mine')"])
    told: list[str] = []
    sampler.trouble.connect(told.append)
    try:
        sampler.start()
        qtbot.waitUntil(lambda: len(told) >= 3, timeout=20_000)
    finally:
        sampler.stop()
    assert "a fault of mine" in (paths.home() / "logs" / "sampler.log").read_text()
    assert ["0.5 s" in told[0], "1 s" in told[1], "2 s" in told[2]] == [True, True, True]


def test_that_a_silent_sampler_is_ended_and_started_again(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.devices.sampler.SILENCE_S", 0.3)
    sampler = SamplerProcess(interval_s=0.05, arguments=["-c", "import time; time.sleep(600)"])
    try:
        sampler.start()
        first = sampler.pid
        with qtbot.waitSignal(sampler.trouble, timeout=10_000) as told:
            pass
        assert "not answered" in told.args[0]
        qtbot.waitUntil(lambda: sampler.pid not in (None, first), timeout=10_000)
    finally:
        sampler.stop()


def test_that_what_is_not_a_snapshot_is_told_and_does_no_harm(qtbot: QtBot, tmp_path: Path) -> None:
    sampler = SamplerProcess(arguments=["-c", "print('hello', flush=True); import time; time.sleep(600)"])
    try:
        with qtbot.waitSignal(sampler.trouble, timeout=10_000) as told:
            sampler.start()
        assert "does not understand" in told.args[0]
        assert sampler.running
    finally:
        sampler.stop()


def test_that_stopping_twice_or_before_the_start_is_no_fault(qtbot: QtBot) -> None:
    sampler = SamplerProcess()
    sampler.stop()
    sampler.start()
    sampler.stop()
    sampler.stop()
    assert not sampler.running
