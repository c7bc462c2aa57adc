"""Watchdog of the process that reads NVML: silent, crashing and unkillable readers, and their restarts."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.contract.devices import Nvml
from engine.gpus import sentences
from engine.gpus.child import LineChild
from engine.gpus.watch import NvmlWatch, Timeouts
from tests.engine.gpus.conftest import reads_nvml
from tests.support.nvml_stub import DRIVER_NOT_LOADED, NvmlStub, make_gpu_profile


@pytest.fixture(autouse=True)
def stub_here(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the readers of this process use the stub."""
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)


def poll_until(watch: NvmlWatch, changed: threading.Event, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        changed.wait(0.05)
        changed.clear()
        watch.poll()


def readers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if reads_nvml(child)]


def test_unkillable_reader_blocks_a_new_one(
    nvml_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suppress SIGKILL, as if the process were in a driver call that can't be interrupted."""
    trigger = tmp_path / "hang"
    nvml_stub.write([make_gpu_profile(0)], hang_file=trigger)
    changed = threading.Event()
    watch = NvmlWatch(0.1, changed, Timeouts(silent_s=2.0, back_off_s=0.01))
    poll_until(watch, changed, lambda: bool(watch.gpus))
    (stuck,) = readers()
    trigger.touch()
    with monkeypatch.context() as withheld:
        withheld.setattr(LineChild, "kill", lambda self: None)
        poll_until(watch, changed, lambda: watch.nvml.status == "not_answering")
        silent_at = time.monotonic()
        poll_until(watch, changed, lambda: time.monotonic() > silent_at + 0.5)
        assert readers() == [stuck]
        assert watch.nvml.status == "not_answering"
        assert [gpu.uuid for gpu in watch.gpus] == [make_gpu_profile(0)["uuid"]]
    trigger.unlink()
    stuck.kill()
    poll_until(watch, changed, lambda: watch.nvml.status == "ok")
    watch.close()


def test_silence_accumulates_over_readers(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    trigger = tmp_path / "hang"
    nvml_stub.write([make_gpu_profile(0)], hang_file=trigger)
    changed = threading.Event()
    watch = NvmlWatch(0.1, changed, Timeouts(silent_s=0.4, first_s=30.0, back_off_s=0.01))
    poll_until(watch, changed, lambda: bool(watch.gpus))
    trigger.touch()
    messages: list[str] = []

    def three_seconds() -> bool:
        if watch.nvml.status == "not_answering":
            messages.append(watch.nvml.message)
        return "(for 3 s)" in watch.nvml.message

    poll_until(watch, changed, three_seconds)
    assert messages == sorted(messages)
    trigger.unlink()
    poll_until(watch, changed, lambda: watch.nvml.status == "ok")
    watch.close()


def test_silent_reader_keeps_the_reason_for_missing_gpus(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    (tmp_path / "hang").touch()
    nvml_stub.write([make_gpu_profile(0)], hang_file=tmp_path / "hang")
    changed = threading.Event()
    watch = NvmlWatch(0.1, changed, Timeouts(silent_s=0.0, first_s=0.2, back_off_s=0.01))
    watch.nvml, watch.has_status = Nvml("no_library", "NVML was not found."), True
    started = time.monotonic()
    poll_until(watch, changed, lambda: time.monotonic() > started + 0.6)
    assert watch.nvml.status == "no_library"
    watch.close()


def test_slow_first_answer_is_reported_and_awaited(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    trigger = tmp_path / "hang"
    trigger.touch()
    nvml_stub.write([make_gpu_profile(0)], hang_file=trigger)
    changed = threading.Event()
    watch = NvmlWatch(0.1, changed, Timeouts(silent_s=0.2, first_s=300.0))
    poll_until(watch, changed, lambda: watch.nvml.message != sentences.ASKING)
    assert (watch.nvml.status, watch.gpus) == ("not_answering", ())
    before = readers()
    trigger.unlink()
    poll_until(watch, changed, lambda: bool(watch.gpus))
    assert (watch.nvml.status, readers()) == ("ok", before)
    watch.close()


def test_reader_may_be_silent_between_its_readings(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    changed = threading.Event()
    watch = NvmlWatch(600.0, changed, Timeouts(silent_s=0.1))
    poll_until(watch, changed, lambda: bool(watch.gpus))
    read_at = time.monotonic()
    poll_until(watch, changed, lambda: time.monotonic() > read_at + 0.2)
    assert (watch.nvml.status, len(readers())) == ("ok", 1)
    watch.close()


def test_unusable_nvml_is_retried_after_a_pause(nvml_stub: NvmlStub) -> None:
    nvml_stub.write(init=DRIVER_NOT_LOADED)
    changed = threading.Event()
    watch = NvmlWatch(0.1, changed, Timeouts(retry_s=300.0, back_off_s=0.01))
    poll_until(watch, changed, lambda: watch.nvml.status == "no_driver" and not readers())
    ended_at = time.monotonic()
    poll_until(watch, changed, lambda: time.monotonic() > ended_at + 0.3)
    assert readers() == []
    watch.close()


def test_crashing_readers_restart_with_backoff(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    trigger = tmp_path / "abort"
    trigger.touch()
    nvml_stub.write([make_gpu_profile(0)], abort_file=trigger)
    changed = threading.Event()
    watch = NvmlWatch(0.1, changed, Timeouts(back_off_s=0.1))
    started: list[float] = []
    facts: set[int] = set()

    def four_readers() -> bool:
        for reader in readers():
            if reader.pid not in facts:
                facts.add(reader.pid)
                started.append(time.monotonic())
        return len(facts) == 4

    poll_until(watch, changed, four_readers)
    watch.close()
    pauses = [after - before for before, after in itertools.pairwise(started)]
    assert pauses[2] > 0.4  # 0.1 s, 0.2 s, 0.4 s, plus the time of a start
    assert "SIGABRT" in watch.nvml.message
