"""Division of step times into phases."""

from __future__ import annotations

import time

import msgspec
import pytest
import torch

from engine.contract.events import Part, RanksTimed, RankTimes
from engine.strategies import stopwatch as module
from engine.strategies.stopwatch import DeviceStopwatch, Stopwatch, create_stopwatch
from tests.gui.split_points.example import make_trace
from tests.support.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock_stub = Clock(100.0)
    monkeypatch.setattr(module, "time", clock_stub)
    return clock_stub


def make_step(watch: Stopwatch, clock: Clock, **spent: float) -> None:
    for phase, seconds in spent.items():
        clock.now += seconds
        watch.mark(phase)  # type: ignore[arg-type]
    watch.end_step()


def test_stopwatch_divides_step_among_marks(clock: Clock) -> None:
    watch = Stopwatch()
    watch.start()
    make_step(watch, clock, data=1.0, forward=2.0, backward=4.0, optimizer=1.0)
    make_step(watch, clock, data=3.0, forward=2.0, backward=4.0, optimizer=1.0)
    times = watch.take()
    assert times is not None
    assert times.steps == 2
    assert times.step_s == pytest.approx(9.0)
    assert {phase: seconds for phase, seconds in times.parts.items() if seconds} == pytest.approx(
        {"data": 2.0, "forward": 2.0, "backward": 4.0, "optimizer": 1.0}
    )
    assert watch.take() is None, "what was taken is not told again"


def test_stopwatch_excludes_pauses(clock: Clock) -> None:
    watch = Stopwatch()
    watch.mark("data")
    watch.end_step()
    assert watch.take() is None, "it does not run yet"
    watch.start()
    make_step(watch, clock, forward=2.0)
    watch.pause()
    clock.now += 50
    watch.mark("data")
    watch.resume()
    make_step(watch, clock, forward=2.0)
    times = watch.take()
    assert times is not None
    assert (times.steps, times.step_s) == (2, pytest.approx(2.0))


def make_ranks_timed(**rank_0: float) -> RanksTimed:
    other = RankTimes(compute_s=1.0, communication_s=0.0, waiting_s=0.0)
    return RanksTimed(step=1, ranks=(RankTimes(**rank_0), other))


BACKWARD, BOTH = ("backward",), ("forward", "backward")


@pytest.mark.parametrize(
    ("learned", "reducing", "spent", "parts"),
    [
        # A quarter of what was timed, without the data.
        ((6.0, 1.0, 1.0), BACKWARD, {"data": 10.0, "forward": 2.0, "backward": 5.0, "optimizer": 1.0},
         {"data": 10.0, "forward": 2.0, "backward": 3.0, "optimizer": 1.0, "communication": 2.0}),
        # Four fifths of the pass in which ranks join, since four fifths of all is more than that.
        ((2.0, 1.0, 7.0), BACKWARD, {"forward": 2.0, "backward": 5.0, "optimizer": 1.0},
         {"forward": 2.0, "backward": 1.0, "optimizer": 1.0, "communication": 4.0}),
        ((3.0, 1.0, 0.0), BOTH, {"forward": 2.0, "backward": 6.0}, {"forward": 1.5, "backward": 4.5, "communication": 2.0}),
        ((6.0, 1.0, 3.0), BACKWARD, {"transfer": 0.2, "passes": 1.5, "backward": 0.7, "optimizer": 0.3},
         {"transfer": 0.2, "other": 1.5, "backward": 0.3, "optimizer": 0.3, "communication": 0.4}),
    ],
)  # fmt: skip
def test_stopwatch_counts_waiting_as_communication(
    clock: Clock,
    learned: tuple[float, ...],
    reducing: tuple[Part, ...],
    spent: dict[str, float],
    parts: dict[str, float],
) -> None:
    watch = Stopwatch()
    watch.start()
    names = ("compute_s", "communication_s", "waiting_s")
    watch.learn_fractions(make_ranks_timed(**dict(zip(names, learned, strict=True))), reducing)
    make_step(watch, clock, **spent)
    times = watch.take()
    assert times is not None
    assert times.parts == pytest.approx(parts | {"logging": 0.0})
    assert times.step_s == pytest.approx(sum(parts.values()))


def test_stopwatch_divides_pipeline_passes(clock: Clock) -> None:
    watch = Stopwatch()
    watch.start()
    make_step(watch, clock, passes=9.0)
    before = watch.take()
    assert before is not None
    assert before.parts["other"] == pytest.approx(9.0), "nothing is known of them yet"
    # Of 90 ms, rank 0 goes forward for 20 and back for 40, also if its second backward pass is only for weights.
    trace = make_trace()
    for kind in ("B", "W"):
        passes = (*trace.ranks[0][:3], msgspec.structs.replace(trace.ranks[0][3], kind=kind))
        watch.learn_fractions(make_trace(ranks=(passes, *trace.ranks[1:])), ("backward",))
        make_step(watch, clock, passes=9.0)
        after = watch.take()
        assert after is not None
        assert after.parts == pytest.approx({"forward": 2.0, "backward": 4.0, "communication": 3.0, "logging": 0.0})


@pytest.mark.long
def test_stopwatch_costs_microseconds() -> None:
    watch = create_stopwatch(torch.device("cpu"))
    watch.start()
    started = time.process_time()
    for _ in range(2000):
        for phase in ("data", "transfer", "augment", "optimizer", "forward", "backward", "logging", "communication"):
            watch.mark(phase)
        watch.end_step()
    assert (time.process_time() - started) / 2000 < 25e-6


class Device:
    """Simulated GPU whose stream works until the time `free_at`. An event completes when the stream reaches it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.free_at = clock.now
        self.waited_for = 0

    def give(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self.clock.now) + seconds

    def event(self, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at = 0.0

    def record(self, _stream: object) -> None:
        self.at = max(self.device.free_at, self.device.clock.now)

    def query(self) -> bool:
        return self.device.clock.now >= self.at

    def elapsed_time(self, end: Event) -> float:
        assert end.query(), "reading it would wait for the device"
        return 1e3 * (end.at - self.at)


@pytest.fixture
def device(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device(clock)
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: None)
    return device


def simulate_step(watch: Stopwatch, device: Device, *, host_s: float, read_s: float = 0.0, **given: float) -> None:
    """Simulate a step: the host waits `read_s` for images, and then takes `host_s` to submit work to the device.

    `given` maps each phase of the step to the seconds of its work on the device.
    """
    watch.mark("logging")
    device.clock.now += read_s
    watch.mark("data")
    for phase, seconds in given.items():
        device.clock.now += host_s / len(given)
        device.give(seconds)
        watch.mark(phase)  # type: ignore[arg-type]
    watch.end_step()


@pytest.fixture
def gpu_watch(device: Device) -> DeviceStopwatch:
    watch = DeviceStopwatch(torch.device("cuda", 0))
    watch.start()
    return watch


def test_gpu_stopwatch_does_not_wait(gpu_watch: DeviceStopwatch, device: Device) -> None:
    for _ in range(40):
        simulate_step(gpu_watch, device, host_s=0.01, forward=0.02, backward=0.04, optimizer=0.01)
        device.clock.now = max(device.clock.now, device.free_at - 0.1)  # the host is never further ahead
    times = gpu_watch.take()
    assert times is not None
    assert times.step_s == pytest.approx(0.07, rel=0.05)
    assert times.parts["forward"] / times.parts["backward"] == pytest.approx(0.5, rel=0.02)
    assert sum(times.parts.values()) == pytest.approx(times.step_s)
    assert times.parts["data"] == pytest.approx(0, abs=1e-3)
    assert times.starved_fraction == 0


def test_gpu_stopwatch_counts_missing_images_as_data(gpu_watch: DeviceStopwatch, device: Device) -> None:
    for _ in range(40):
        simulate_step(gpu_watch, device, host_s=0.001, read_s=0.1, forward=0.02, backward=0.04)
    device.clock.now += 1
    times = gpu_watch.take()
    assert times is not None
    # It has done all that it had by 41 ms after it was given the last of a step.
    assert times.parts["data"] / sum(times.parts.values()) == pytest.approx(0.4, abs=0.03)


def test_gpu_stopwatch_counts_slow_host_as_starved(gpu_watch: DeviceStopwatch, device: Device) -> None:
    for _ in range(40):
        simulate_step(gpu_watch, device, host_s=0.05, forward=0.001, backward=0.001, optimizer=0.001)
        device.clock.now += 0.01
    times = gpu_watch.take()
    assert times is not None
    assert times.starved_fraction is not None
    assert times.starved_fraction > 0.9
    for _ in range(40):
        simulate_step(gpu_watch, device, host_s=0.001, forward=0.1, optimizer=0.1)
    device.clock.now = device.free_at
    times = gpu_watch.take()
    assert times is not None
    assert times.starved_fraction is not None
    assert times.starved_fraction < 0.5


def test_gpu_stopwatch_samples_steps(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    device = Device(clock)

    def event(enable_timing: bool) -> Event:
        events.append(Event(device))
        return events[-1]

    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: None)
    watch = DeviceStopwatch(torch.device("cuda", 0))
    watch.start()
    sampled = 0
    for _ in range(10):
        before = len(watch._sampled)
        for _ in range(1000):
            simulate_step(watch, device, host_s=0.001, forward=0.0005, backward=0.0005)
        sampled += len(watch._sampled) - before
        clock.now += 0.1
        times = watch.take()
        assert times is not None
        assert (times.steps, times.step_s) == (1000, pytest.approx(0.0011))
    assert 100 < sampled < 300, "twenty a second of ten"
    assert len(events) < 5 * 70, "no more than one second has under way"


def test_gpu_stopwatch_skips_profiled_steps(gpu_watch: DeviceStopwatch, device: Device) -> None:
    for _ in range(10):
        simulate_step(gpu_watch, device, host_s=0.01, forward=0.01, optimizer=0.01)
        device.clock.now = max(device.clock.now, device.free_at)
        gpu_watch.skip()
        simulate_step(gpu_watch, device, host_s=5.0, forward=0.01)
    times = gpu_watch.take()
    assert times is not None
    assert (times.steps, times.step_s) == (10, pytest.approx(0.0295)), "nine of them wait for the skipped steps"
    assert times.starved_fraction is None
    gpu_watch.skip()
    gpu_watch.pause()
    gpu_watch.end_step()
    assert not gpu_watch.running


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_stopwatch_on_real_gpu() -> None:
    device = torch.device("cuda", 0)
    watch = create_stopwatch(device)
    matrix = torch.randn(4096, 4096, device=device)
    matrix @ matrix  # the first one loads cuBLAS
    torch.cuda.synchronize()
    watch.start()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(30):
            watch.mark("data")
            matrix @ matrix
            watch.mark("forward")
            for _ in range(2):
                matrix @ matrix
            watch.mark("backward")
            watch.end_step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    times = watch.take()
    assert times is not None
    assert times.parts["backward"] / times.parts["forward"] == pytest.approx(2, rel=0.5)
