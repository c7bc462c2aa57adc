"""What the watchdog does about a reader that even SIGKILL does not end."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.gpus.child import LineChild
from engine.gpus.watch import NvmlWatch, Patience
from tests.engine.gpus.conftest import reads_nvml
from tests.support.nvml_stub import NvmlStub, gpu_profile


def poll_until(watch: NvmlWatch, news: threading.Event, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        news.wait(0.05)
        news.clear()
        watch.poll()


def readers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if reads_nvml(child)]


def test_that_beside_a_reader_that_does_not_die_no_other_is_started(
    nvml_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process inside a driver call can stay for ever; here its kill is withheld instead."""
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    trigger = tmp_path / "hang"
    nvml_stub.write([gpu_profile(0)], hang_file=trigger)
    news = threading.Event()
    watch = NvmlWatch(0.1, news, Patience(silent_s=2.0, back_off_s=0.01))
    poll_until(watch, news, lambda: bool(watch.gpus))
    (stuck,) = readers()
    trigger.touch()
    with monkeypatch.context() as withheld:
        withheld.setattr(LineChild, "kill", lambda self: None)
        poll_until(watch, news, lambda: watch.nvml.status == "not_answering")
        told = time.monotonic()
        poll_until(watch, news, lambda: time.monotonic() > told + 0.5)
        assert readers() == [stuck]
        assert watch.nvml.status == "not_answering"
        assert [gpu.uuid for gpu in watch.gpus] == [gpu_profile(0)["uuid"]]
    trigger.unlink()
    stuck.kill()
    poll_until(watch, news, lambda: watch.nvml.status == "ok")
    watch.close()


def test_that_a_silence_is_counted_on_from_one_reader_to_the_next(
    nvml_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    trigger = tmp_path / "hang"
    nvml_stub.write([gpu_profile(0)], hang_file=trigger)
    news = threading.Event()
    watch = NvmlWatch(0.1, news, Patience(silent_s=0.4, first_s=30.0, back_off_s=0.01))
    poll_until(watch, news, lambda: bool(watch.gpus))
    trigger.touch()
    told: list[str] = []

    def three_seconds() -> bool:
        if watch.nvml.status == "not_answering":
            told.append(watch.nvml.message)
        return "(for 3 s)" in watch.nvml.message

    poll_until(watch, news, three_seconds)
    assert told == sorted(told)
    trigger.unlink()
    poll_until(watch, news, lambda: watch.nvml.status == "ok")
    watch.close()


def test_that_readers_which_crash_at_once_are_started_less_and_less_often(
    nvml_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    trigger = tmp_path / "abort"
    trigger.touch()
    nvml_stub.write([gpu_profile(0)], abort_file=trigger)
    news = threading.Event()
    watch = NvmlWatch(0.1, news, Patience(back_off_s=0.1))
    started: list[float] = []
    seen: set[int] = set()

    def four_readers() -> bool:
        for reader in readers():
            if reader.pid not in seen:
                seen.add(reader.pid)
                started.append(time.monotonic())
        return len(seen) == 4

    poll_until(watch, news, four_readers)
    watch.close()
    pauses = [after - before for before, after in itertools.pairwise(started)]
    assert pauses[2] > 0.4  # 0.1 s, 0.2 s, 0.4 s, beside what a start takes
    assert "SIGABRT" in watch.nvml.message
