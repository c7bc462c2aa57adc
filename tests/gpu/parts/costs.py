"""Cost of step profiling, checkpoints and GPU monitoring during a training."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import torch
from torch.nn import functional

from engine.contract.devices import Snapshot
from engine.contract.events import CheckpointSaved, StepMetrics
from engine.contract.job import Job
from engine.strategies.profiler import RECORD_S
from tests.benchmarks.checkpoint_pause import AIM as PAUSE_AIM
from tests.gpu.checks import CheckContext, Skipped, run_checks
from tests.gpu.hooks import read_record
from tests.support.sides import Setting, create_autocast, create_model
from tests.support.timed_runs import make_images

RECORD_AIM = 0.02
MONITOR_AIMS = {1.0: 0.2, 0.1: 1.0}
"""Maximum slowdown of the training in percent, by the sampler's interval in seconds."""


def _job(context: CheckContext, **fields: Any) -> Job:
    small = {"model": "resnet18", "image_size": 32, "batch_size": 8}
    large = {"model": "resnet50", "image_size": 224, "batch_size": 64}
    setup = small if context.rehearsing else large
    count, side = (128, 32) if context.rehearsing else (1024, 224)
    data = make_images(context.folder / "data", count + 8, side, held_out=8, distinct=64)
    given: dict[str, Any] = {
        "dataset": str(data), "epochs": 1000, "compile": "off", "memory_format": "contiguous", "checkpoint_minutes": 0,
        "predictions": 0, "devices": (context.gpu,),
    }  # fmt: skip
    return Job.from_fields(**(given | setup | fields))


def measure_profiling(context: CheckContext) -> None:
    """Measure how many seconds profiling adds to a step of a DDP run.

    The report has this time as a fraction of the interval `RECORD_S` at which steps are profiled.
    """
    requested = 2 if context.rehearsing else 7
    group = context.start(_job(context, strategy="ddp"), threads=4, prepare="tests.gpu.hooks:record_timer_cost")
    started = time.monotonic()
    count = 0
    while count < requested and time.monotonic() < started + 60:
        group.read(lambda _, message: isinstance(message, StepMetrics))
        with contextlib.suppress(FileNotFoundError, ValueError):
            count = len(read_record(group.folder))
    group.close()
    costs = read_record(group.folder)
    for phase in ("start", "stop"):
        times = [cost[phase] for cost in costs if phase in cost]
        context.measure(f"first profiler {phase}", times[0], "s")
        context.measure(
            f"later profiler {phase} (median)", statistics.median(times[1:]), "s", text=f"{len(times)} times"
        )
    later = statistics.median(cost["start"] + cost["stop"] for cost in costs[1:] if "stop" in cost)
    context.measure("profiling's fraction of the time", later / RECORD_S, "", at_most=RECORD_AIM)


def measure_checkpoints(context: CheckContext, *, model: str) -> None:
    """Measure how long training pauses for the first checkpoint and for later ones.

    The first checkpoint allocates pinned memory for hundreds of tensors.
    """
    requested = 3 if context.rehearsing else 6
    fields = {} if context.rehearsing else {"model": model, "batch_size": 16}
    job = _job(context, checkpoint_steps=5 if context.rehearsing else 40, **fields)
    model = job.model.name
    group = context.start(job, threads=4, every_step=True)
    saved: list[CheckpointSaved] = []
    group.read(
        lambda _, message: isinstance(message, CheckpointSaved) and (saved.append(message) or len(saved) == requested)
    )
    group.close()
    first, *later = [event.pause_s for event in saved if event.kind == "last"]
    seconds = f"written in {saved[0].seconds:.2f} s while the training continues"
    context.measure(f"{model}: checkpoint size", saved[0].bytes / 1e6, "MB", text=seconds)
    context.measure(f"{model}: pause for the first checkpoint", first, "s", at_most=60 * PAUSE_AIM,
                  text=f"{PAUSE_AIM:.0%} of the minute between two checkpoints")  # fmt: skip
    context.measure(
        f"{model}: pause for later checkpoints (median)", statistics.median(later), "s", at_most=60 * PAUSE_AIM
    )


@contextlib.contextmanager
def run_sampler(interval_s: float) -> Iterator[list[Snapshot]]:
    """Run the GPU sampler with all quantities visible, and collect its snapshots.

    `interval_s` is the time between snapshots, or 0 to run no sampler.
    """
    taken: list[Snapshot] = []
    if not interval_s:
        yield taken
        return
    command = [sys.executable, "-m", "engine.gpus", "--interval", str(interval_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(3):  # the first snapshots discover the GPUs
            process.stdout.readline()
        lines = iter(process.stdout)
        reader = threading.Thread(
            target=lambda: taken.extend(msgspec.json.decode(line, type=Snapshot) for line in lines)
        )
        reader.start()
        try:
            yield taken
        finally:
            process.terminate()
            reader.join()


def measure_sampler_cost(context: CheckContext) -> None:
    """Compare the speed of training steps without the GPU sampler, and with one and ten snapshots per second."""
    rounds, seconds = (1, 0.5) if context.rehearsing else (5, 2.5)
    step, batch = _make_training_step(context)
    rates: dict[float, list[float]] = {0.0: [], **{interval_s: [] for interval_s in MONITOR_AIMS}}
    _measure_rate(context, step, batch, seconds)
    for _ in range(rounds):
        for interval_s, found in rates.items():
            with run_sampler(interval_s):
                found.append(_measure_rate(context, step, batch, seconds))
    context.measure("resnet18, bare steps", statistics.median(rates[0.0]), "images/s")
    for interval_s, aim in MONITOR_AIMS.items():
        lost = [100 * (1 - monitored / alone) for alone, monitored in zip(rates[0.0], rates[interval_s], strict=True)]
        context.measure(f"slowdown with the monitor at an interval of {interval_s:g} s", statistics.median(lost), "%", at_most=aim,
                      text=f"{min(lost):.2f} to {max(lost):.2f} in {rounds} rounds")  # fmt: skip


def compare_energy(context: CheckContext) -> None:
    """Compare the power that the GPU sampler reports under load with the change of NVML's energy counter."""
    context.require_gpu("a CPU has no energy counter")
    step, batch = _make_training_step(context)
    _measure_rate(context, step, batch, 3.0)  # the reported power is an average over about a second
    with run_sampler(0.5) as snapshots:
        rate = _measure_rate(context, step, batch, 10.0)
    readings = [(snapshot.time, gpu) for snapshot in snapshots for gpu in snapshot.gpus if gpu.uuid == context.gpu]
    if len(readings) < 2 or readings[0][1].energy_j is None:
        raise Skipped("this GPU has no energy counter")
    (start, first), (end, last) = readings[0], readings[-1]
    assert first.energy_j is not None
    assert last.energy_j is not None
    counted = (last.energy_j - first.energy_j) / (end - start)
    reported = statistics.fmean(gpu.power_w for _, gpu in readings if gpu.power_w is not None)
    context.measure("relative difference of the reported power from the energy counter", abs(reported / counted - 1), "", at_most=0.05,
                  text=f"{reported:.1f} W and {counted:.1f} W")  # fmt: skip
    context.measure("energy per thousand images", 1000 * counted / rate, "J", text=f"resnet18, {rate:.0f} images/s")


def _make_training_step(context: CheckContext) -> tuple[Any, int]:
    """Return a function that performs one training step of resnet18 on a fixed batch, and the batch size."""
    size, batch = (32, 8) if context.rehearsing else (224, 64)
    setting = Setting(
        data="", model="resnet18", size=size, batch=batch, classes=10, images=0, seconds=0.0,
        device=str(context.device), precision="bf16",
    )  # fmt: skip
    model = create_model(setting).to(setting.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    inputs = torch.randn(setting.batch, 3, setting.size, setting.size, device=setting.device)
    targets = torch.randint(0, 10, (setting.batch,), device=setting.device)

    def step() -> None:
        optimizer.zero_grad()
        with create_autocast(setting):
            loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    return step, batch


def _measure_rate(context: CheckContext, step: Any, batch: int, seconds: float) -> float:
    """Repeat `step` for `seconds` and return the images per second."""
    steps, started = 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        for _ in range(1 if context.rehearsing else 10):
            step()
            steps += 1
        if not context.rehearsing:
            torch.cuda.synchronize()
    return steps * batch / (time.perf_counter() - started)


def main() -> None:
    run_checks({
        "profiled steps": (measure_profiling, 100),
        "checkpoints of ResNet-50": (partial(measure_checkpoints, model="resnet50"), 100),
        "checkpoints of ViT-L": (partial(measure_checkpoints, model="vit_l_16"), 100),
        "the monitor": (measure_sampler_cost, 120),
        "energy": (compare_energy, 40),
    })  # fmt: skip


if __name__ == "__main__":
    main()
