"""Worker's end of the channel to the supervisor, tested with real sockets."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import EventsLost, Failed, LogLine, Phase, PhaseChanged, StepMetrics, Warned
from engine.contract.job import Job
from engine.contract.protocol import Adjust, CheckpointNow, Frames, Pause, SaveElsewhere, Stop
from engine.contract.worker import FROM_WORKER, Heartbeat, WorkerDone
from engine.training import report, worker
from engine.training.report import QUEUE_LIMIT, Reporter
from tests.support.specs import make_worker_spec

METRICS = {"epoch": 1, "loss": 1.0, "learning_rate": 0.1, "images_per_second": 1.0, "data_wait_s": 0.0}


class ChannelEnds:
    """Both ends of a channel. The event `ended` is set when the reporter notices that the channel is closed."""

    def __init__(self) -> None:
        self.supervisor, theirs = socket.socketpair()
        self.supervisor.settimeout(120)
        self.ended = threading.Event()
        self.reporter = Reporter(theirs, 0, self.ended.set)
        self._frames = Frames(1 << 26)
        self._received: list[Any] = []

    def receive(self) -> Any:
        """Return the next message from the worker, or None at the end of the stream."""
        while not self._received:
            data = self.supervisor.recv(1 << 16)
            if not data:
                return None
            self._received += [FROM_WORKER.decode(line) for line in self._frames.feed(data)]
        return self._received.pop(0)

    def rest(self) -> list[Any]:
        return list(iter(self.receive, None))


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChannelEnds]:
    monkeypatch.setattr(report, "HEARTBEAT_S", 0.1)
    ends = ChannelEnds()
    yield ends
    ends.supervisor.close()
    ends.reporter.close()


def test_reporter_drops_only_metrics_without_blocking(ends: ChannelEnds) -> None:
    count = QUEUE_LIMIT * 20
    for step in range(count):
        ends.reporter.send(StepMetrics(step=step, compute_s=0.1, **METRICS))
    for number in range(50):
        ends.reporter.send(LogLine(text=f"line {number}"))
    closing = threading.Thread(target=ends.reporter.close)
    closing.start()
    received = [message for message in ends.rest() if not isinstance(message, Heartbeat)]
    closing.join()
    metrics = [message for message in received if isinstance(message, StepMetrics)]
    lost = sum(message.count for message in received if isinstance(message, EventsLost))
    assert lost > 0
    assert len(metrics) + lost == count
    assert [m.text for m in received if isinstance(m, LogLine)] == [f"line {number}" for number in range(50)]


@pytest.mark.parametrize(
    ("phase", "step", "numbers"),
    [
        ("preparing", 7, []),
        ("training", 8, ["8"]),
        ("validating", 7, ["7"]),
        ("saving", 7, ["7"]),
        ("pausing", 7, ["7"]),
        ("stopping", 7, ["7"]),
    ],
)
def test_phase_determines_step_and_whereabouts(ends: ChannelEnds, phase: Phase, step: int, numbers: list[str]) -> None:
    assert ends.reporter.current_step is None
    ends.reporter.set_step(7)
    ends.reporter.set_phase(phase, "a detail")
    assert (ends.reporter.current_step, re.findall(r"\d+", ends.reporter.current_work)) == (step, numbers)
    ends.reporter.close()
    received = [message for message in ends.rest() if not isinstance(message, Heartbeat)]
    assert received == [PhaseChanged(phase=phase, detail="a detail")]


def test_only_rank_0_reports_phases(ends: ChannelEnds) -> None:
    ends.reporter.rank = 1
    ends.reporter.set_phase("training")
    ends.reporter.send(LogLine(text="a line"))
    ends.reporter.close()
    assert [message for message in ends.rest() if not isinstance(message, Heartbeat)] == [LogLine(text="a line")]


def test_reporter_closes_although_nobody_reads(ends: ChannelEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "CLOSE_DEADLINE_S", 0.1)
    for _ in range(QUEUE_LIMIT):
        ends.reporter.send(LogLine(text="line " * 1000))
    closing = threading.Thread(target=ends.reporter.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_heartbeat_has_activity_and_duration(ends: ChannelEnds) -> None:
    def next_heartbeat(activity: str) -> Heartbeat:
        while True:
            heartbeat = ends.receive()
            if isinstance(heartbeat, Heartbeat) and heartbeat.activity == activity:
                return heartbeat

    started = time.monotonic()
    assert next_heartbeat("").step == 0
    training_at = time.monotonic()
    ends.reporter.set_phase("training")
    assert next_heartbeat("step").seconds < time.monotonic() - training_at + 0.001  # the time is rounded
    ends.reporter.set_activity("data")
    first = next_heartbeat("data")
    second = next_heartbeat("data")
    assert 0 <= first.seconds < second.seconds < time.monotonic() - started + 0.001
    assert (first.thread_state, first.location) == ("", ""), "it takes no time yet"
    stepped_at = time.monotonic()
    ends.reporter.set_step(1)
    while not next_heartbeat("data").step:
        continue
    heartbeat = next_heartbeat("data")
    assert heartbeat.longest_step_s == 0, "the first step carries much else"
    assert heartbeat.seconds < time.monotonic() - stepped_at + 0.001
    ends.reporter.set_step(2)
    while not (longest := next_heartbeat("data").longest_step_s):
        continue
    assert next_heartbeat("data").step == 2
    ends.reporter.set_phase("validating")
    ends.reporter.set_phase("training")
    ends.reporter.set_step(3)
    assert next_heartbeat("step").longest_step_s == longest, "what lies between two epochs is no step"


def test_heartbeat_times_single_steps_from_the_second_epoch(ends: ChannelEnds) -> None:
    def longest() -> float:
        heartbeat = ends.receive()
        while not isinstance(heartbeat, Heartbeat):
            heartbeat = ends.receive()
        return heartbeat.longest_step_s

    for epoch in (1, 2):
        ends.reporter.set_phase("training")
        assert longest() == 0
        longest()
        ends.reporter.set_step(epoch)
        ends.reporter.set_phase("validating")
    while not longest():
        continue


@pytest.mark.parametrize("rank", [0, 1])
def test_reporter_sends_the_end_of_preparation_at_once(
    ends: ChannelEnds, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    ends.reporter.rank = rank
    while not isinstance(ends.receive(), Heartbeat):
        continue
    monkeypatch.setattr(report, "HEARTBEAT_S", 3600.0)
    ends.reporter.set_phase("training")
    while not (isinstance(heartbeat := ends.receive(), Heartbeat) and heartbeat.activity == "step"):
        continue


def test_heartbeat_locates_a_stuck_main_thread(ends: ChannelEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "INSPECT_S", 0.2)
    ends.reporter.set_activity("step")
    while Path(__file__).name not in (heartbeat := ends.receive()).location:
        continue
    assert heartbeat.thread_state == "working"


@pytest.mark.parametrize("data", [b"{}\n", b"garbage\n", b'{"type":"stop","extra":1}\n', b"x" * (1 << 20)])
def test_reporter_exits_on_invalid_commands(ends: ChannelEnds, data: bytes) -> None:
    ends.supervisor.sendall(data)
    assert ends.ended.wait(120)


def test_reporter_exits_with_its_channel(ends: ChannelEnds) -> None:
    ends.supervisor.close()
    assert ends.ended.wait(120)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("is_failing", "code"), [(False, 0), (True, 1)])
def test_worker_reports_its_result_and_private_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int, is_failing: bool, code: int
) -> None:
    monkeypatch.setattr(worker.compile_cache, "use_private_folders", lambda: "The cache is another user's.")
    monkeypatch.setattr(worker, "keep_compiled_in", lambda _folder: None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    supervisor, theirs = socket.socketpair()
    folder = tmp_path / "none" if rank else tmp_path
    spec = make_worker_spec(Job.from_fields(devices=("cpu", "cpu")), rank=rank, run_folder=str(folder))

    def work(reporter: Reporter) -> WorkerDone:
        reporter.set_phase("training")
        reporter.set_step(6)
        if is_failing:
            raise KeyError("gone")
        return WorkerDone(stopped=False)

    with supervisor:
        assert worker.run_reporting(spec, theirs, work) == code
        theirs.close()
        lines = supervisor.makefile("rb").readlines()
    received = [each for line in lines if not isinstance(each := FROM_WORKER.decode(line), Heartbeat)]
    assert [each.message for each in received if isinstance(each, Warned)] == ["The cache is another user's."] * (
        not rank
    )
    if not is_failing:
        assert received[-1] == WorkerDone(stopped=False)
        return
    (failed,) = (each for each in received if isinstance(each, Failed))
    assert (failed.cause, failed.rank, failed.step, failed.kind) == ("KeyError at step 7: 'gone'", rank, 7, "error")
    assert bool(failed.traceback_file) != bool(rank), "rank 1 has no folder for it"
    if not rank:
        assert "KeyError: 'gone'" in (tmp_path / failed.traceback_file).read_text()


@pytest.mark.parametrize(("commands", "ending"), [((Stop(), Pause()), "pausing"), ((Pause(), Stop()), "stopping")])
def test_reporter_commands_set_flags(ends: ChannelEnds, commands: tuple[Stop | Pause, ...], ending: Phase) -> None:
    from engine.contract.protocol import ENCODE

    event_received = threading.Event()

    class Watched(Reporter):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "loader_workers_requested" and value:
                event_received.set()

    local_end, theirs = socket.socketpair()
    reporter = Watched(theirs, 0, ends.ended.set)
    with local_end:
        local_end.sendall(
            b"".join(
                ENCODE.encode(each) + b"\n"
                for each in (
                    *commands, SaveElsewhere(folder="/a"), SaveElsewhere(folder="/b"), CheckpointNow(),
                    Adjust(loader_workers=5),
                )
            )
        )  # fmt: skip
        assert event_received.wait(120)
        assert (reporter.stop_requested, reporter.ending) == (True, ending)
        assert list(reporter.folders_requested) == ["/a", "/b"]
        assert reporter.checkpoint_requested
        assert reporter.loader_workers_requested == 5
        reporter.close()
    assert not ends.ended.is_set()
