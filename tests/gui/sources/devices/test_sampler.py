"""Device sampler that the window runs as a child process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest
from PySide6.QtCore import QObject, QProcess, QTimer
from pytestqt.qtbot import QtBot

from engine.contract.devices import SnapshotRequest
from engine.system import paths
from gui.sources.devices.sampler import SamplerProcess

FOREVER = "import time; time.sleep(600)"
ECHO = """
import json, sys, time
from engine.contract.devices import Cpu, Nvml, Snapshot
import msgspec
for line in sys.stdin:
    cpu = Cpu(name=line.strip(), core_load_percent=(), load_percent=0, memory_used_bytes=0, memory_total_bytes=1)
    sample = Snapshot(time=time.time(), host="here", nvml=Nvml("ok"), cpu=cpu)
    print(msgspec.json.encode(sample).decode(), flush=True)
"""
"""Source of a sampler whose snapshots contain the last request, as the name of the CPU."""

Make = Callable[..., SamplerProcess]


@pytest.fixture
def make(qtbot: QtBot) -> Iterator[Make]:
    """Return a function that creates samplers, which are stopped after the test.

    Its argument `code` is Python code that runs in place of the real sampler.
    """
    created: list[SamplerProcess] = []

    def make_sampler(code: str = "", **options: object) -> SamplerProcess:
        created.append(SamplerProcess(**(options | ({"arguments": ["-c", code]} if code else {}))))  # type: ignore[arg-type]
        return created[-1]

    yield make_sampler
    for sampler in created:
        sampler.stop()


def test_sampler_reports_cpu_until_stopped(make: Make, qtbot: QtBot) -> None:
    sampler = make(interval_s=0.2)
    sampler.stop()
    for _ in range(2):
        with qtbot.waitSignal(sampler.snapshot) as received:
            sampler.start()
        assert len(received.args[0].cpu.core_load_percent) == psutil.cpu_count()
    (silence,) = (timer for timer in sampler.findChildren(QTimer) if timer.interval() == 10_000)
    silence.stop()
    with qtbot.waitSignal(sampler.snapshot):
        pass
    assert silence.isActive(), "each snapshot starts it again"
    pid = sampler.pid
    for _ in range(2):
        sampler.stop()
    assert not psutil.pid_exists(pid)
    assert not sampler.running
    assert not any(timer.isActive() for timer in sampler.findChildren(QTimer))


def test_sampler_restarts_with_changed_options(make: Make, qtbot: QtBot) -> None:
    owner = QObject()
    sampler = make(interval_s=1.0, parent=owner)
    (silence,) = (timer for timer in sampler.findChildren(QTimer) if timer.interval() == 10_000)
    sampler.set_interval(2.0)
    assert sampler.pid is None
    sampler.start()
    for set_option, value in ((sampler.set_interval, 4.0), (sampler.set_history, True)):
        before = sampler.pid
        set_option(value)
        after = sampler.pid
        assert after not in (None, before)
        set_option(value)
        assert sampler.pid == after
        qtbot.waitUntil(lambda pid=before: not psutil.pid_exists(pid))  # type: ignore[misc]
    assert silence.interval() == 12_000
    qtbot.waitUntil(lambda: psutil.Process(after).cmdline()[-4:] == ["--interval", "4", "--listen", "--save-history"])
    sampler.set_history(False)
    sampler.stop()
    qtbot.waitUntil(lambda: not owner.findChildren(QProcess))
    sampler.setParent(None)  # the fixture stops it again


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_sampler_that_ignores_its_end_is_killed(make: Make, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.sources.devices.sampler._GOODBYE_S", 0.05)
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)" + ECHO.replace("sys.stdin", "('first',)")
    owner = QObject()
    sampler = make(f"{deaf}{FOREVER}", parent=owner)
    with qtbot.waitSignal(sampler.snapshot):
        sampler.start()
    pid = sampler.pid
    sampler.stop(wait=False)
    assert not sampler.running
    qtbot.waitUntil(lambda: not psutil.pid_exists(pid))
    qtbot.waitUntil(lambda: not owner.findChildren(QProcess))
    sampler.setParent(None)  # the fixture stops it again


def test_sampler_stopped_by_a_receiver_sends_nothing_more(make: Make, qtbot: QtBot) -> None:
    sampler = make(ECHO.replace("sys.stdin", "('first', 'second')").replace(", flush=True", ""))
    names: list[str] = []
    sampler.snapshot.connect(lambda snapshot: names.append(snapshot.cpu.name))
    sampler.snapshot.connect(lambda _snapshot: sampler.stop())
    with qtbot.waitSignal(sampler.snapshot):
        sampler.start()
    assert names == ["first"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_sampler_restarts_after_kill(make: Make, qtbot: QtBot) -> None:
    sampler = make(interval_s=0.2)
    errors: list[str] = []
    sampler.error_changed.connect(errors.append)
    with qtbot.waitSignal(sampler.snapshot):
        sampler.start()
    first = sampler.pid
    with qtbot.waitSignal(sampler.error_changed):
        os.kill(first, signal.SIGKILL)
    with qtbot.waitSignal(sampler.snapshot):
        pass
    assert sampler.pid != first
    assert errors[0] == "The device sampler has exited. Retrying in 0.5 s."
    assert errors[-1] == ""


def test_sampler_restarts_at_growing_intervals(make: Make, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.sources.devices.sampler._FIRST_PAUSE_MS", 50)
    monkeypatch.setattr("gui.sources.devices.sampler._LONGEST_PAUSE_MS", 150)
    log = paths.make_private_folder(paths.home() / "logs") / "sampler.log"
    log.write_bytes(bytes((1 << 20) + 1))  # too large to append to
    sampler = make("raise SystemExit('a fault of mine')")
    errors: list[str] = []
    sampler.error_changed.connect(errors.append)
    sampler.start()
    qtbot.waitUntil(lambda: len(errors) >= 4)
    assert set(log.read_text().splitlines()) == {"a fault of mine"}
    assert log.read_text().count("a fault of mine") > 1
    assert all(f"{pause_s} s" in error for pause_s, error in zip((0.05, 0.1, 0.15, 0.15), errors, strict=False))


@pytest.mark.parametrize("options", [{}, {"explain": lambda code, output: f"{code} {output}"}])
def test_sampler_restarts_after_silence(
    make: Make, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    monkeypatch.setattr("gui.sources.devices.sampler.SILENCE_S", 0.3)
    (paths.make_home() / "logs").write_text("not a folder")  # errors can't be logged
    sampler = make(FOREVER, interval_s=0.05, **options)
    errors: list[str] = []
    sampler.error_changed.connect(errors.append)
    sampler.start()
    qtbot.waitUntil(lambda: len(errors) == 2)
    (silence,) = (timer for timer in sampler.findChildren(QTimer) if timer.interval() == 300)
    silence.setInterval(60_000)
    qtbot.waitUntil(lambda: sampler.pid is not None)
    os.kill(sampler.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: len(errors) == 3)
    assert errors == [
        "The device sampler has stopped responding and is being restarted.",
        "The device sampler has stopped responding. Retrying in 0.5 s.",
        "The device sampler has exited. Retrying in 1 s.",
    ]


@pytest.mark.parametrize("output", ["'hello', flush=True", "'x' * 5000, end='', flush=True"], ids=["text", "long line"])
def test_sampler_reports_invalid_output(make: Make, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    monkeypatch.setattr("gui.sources.devices.sampler.LINE_LIMIT_BYTES", 1000)
    sampler = make(f"print({output}); {FOREVER}")
    with qtbot.waitSignal(sampler.error_changed) as received:
        sampler.start()
    assert "can't read" in received.args[0]
    assert sampler.running


def test_sampler_sends_request_again_after_restart(make: Make, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = make()  # only this machine's sampler takes requests
    monkeypatch.setattr(sampler, "_arguments", ["-c", ECHO])
    requests: list[str] = []
    sampler.snapshot.connect(lambda snapshot: requests.append(snapshot.cpu.name))
    sampler.set_request(SnapshotRequest(processes=False))
    sampler.start()
    qtbot.waitUntil(lambda: requests == ['{"processes":false}'])
    sampler.set_request(SnapshotRequest(processes=False))
    sampler.set_request(SnapshotRequest(activity=False))
    qtbot.waitUntil(lambda: len(requests) == 2)
    os.kill(sampler.pid, signal.SIGTERM)
    qtbot.waitUntil(lambda: len(requests) == 3)
    assert requests[1:] == ['{"activity":false}', '{"activity":false}']


EXPLAINED = {
    "arguments": [
        "-c",
        "import os, sys; sys.stderr.write('first\\n' * 5000 + 'in ' + os.environ['LC_ALL']); sys.exit(7)",
    ],
    "explain": lambda code, output: f"It ended with {code} after {output.splitlines()[-1]}.",
}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"program": "no-such-program", "arguments": []}, "“no-such-program” was not found"),
        (EXPLAINED, "It ended with 7 after in C."),
    ],
)
def test_sampler_explains_exit(
    make: Make, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], error: str
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    sampler = make(**options)
    with qtbot.waitSignal(sampler.error_changed) as received:
        sampler.start()
    assert error in received.args[0]
    timers = sampler.findChildren(QTimer)
    assert {timer.interval() for timer in timers} == {500, 10_000}
    sampler.stop()
    assert not any(timer.isActive() for timer in timers)
