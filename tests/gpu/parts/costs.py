"""Cost of profiling, checkpoints and monitoring during training."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from engine.contract.events import CheckpointSaved, StepMetrics
from engine.contract.job import Job
from engine.strategies.profiler import RECORD_S
from tests.benchmarks.checkpoint_pause import AIM as PAUSE_AIM
from tests.gpu.hooks import recorded
from tests.gpu.proof import Proof, prove
from tests.support.sides import Setting, autocast, plain_model
from tests.support.timed_runs import make_images

RECORD_AIM = 0.02
MONITOR_AIM = 1.0


def _job(proof: Proof, **fields: Any) -> Job:
    small = {"model": "resnet18", "image_size": 32, "batch_size": 8}
    large = {"model": "resnet50", "image_size": 224, "batch_size": 64}
    setup = small if proof.rehearsing else large
    count, side = (128, 32) if proof.rehearsing else (1024, 224)
    data = make_images(proof.folder / "data", count + 8, side, held_out=8, distinct=64)
    given: dict[str, Any] = {
        "dataset": str(data), "epochs": 1000, "compile": "off", "memory_format": "contiguous", "checkpoint_minutes": 0,
        "predictions": 0, "devices": (proof.gpu,),
    }  # fmt: skip
    return Job.from_fields(**(given | setup | fields))


def recording(proof: Proof) -> None:
    """Measure the profiling of steps by torch.profiler, which DDP does every other second or less often."""
    requested = 2 if proof.rehearsing else 7
    group = proof.start(_job(proof, strategy="ddp"), threads=4, prepare="tests.gpu.hooks:time_recording")
    started = time.monotonic()
    count = 0
    while count < requested and time.monotonic() < started + 60:
        group.read(lambda _, message: isinstance(message, StepMetrics))
        with contextlib.suppress(FileNotFoundError, ValueError):
            count = len(recorded(group.folder))
    group.close()
    costs = recorded(group.folder)
    for phase in ("start", "stop"):
        times = [cost[phase] for cost in costs if phase in cost]
        proof.measure(f"profiler's {phase}, the first time", times[0], "s")
        proof.measure(
            f"profiler's {phase}, later (median)", statistics.median(times[1:]), "s", text=f"{len(times)} times"
        )
    later = statistics.median(cost["start"] + cost["stop"] for cost in costs[1:] if "stop" in cost)
    proof.measure("looking into a step, of the time", later / RECORD_S, "of it", at_most=RECORD_AIM)


def checkpoints(proof: Proof) -> None:
    """Measure the pause for a checkpoint; the first allocates pinned memory for hundreds of tensors."""
    requested = 3 if proof.rehearsing else 6
    group = proof.start(_job(proof, checkpoint_steps=5 if proof.rehearsing else 40), threads=4, every_step=True)
    saved: list[CheckpointSaved] = []
    group.read(
        lambda _, message: isinstance(message, CheckpointSaved) and (saved.append(message) or len(saved) == requested)
    )
    group.close()
    first, *later = [event.pause_s for event in saved if event.kind == "last"]
    proof.measure(
        "size of a checkpoint", saved[0].bytes / 1e6, "MB", text=f"written in {saved[0].seconds:.2f} s beside"
    )
    proof.measure("first checkpoint: the training stands still", first, "s", at_most=60 * PAUSE_AIM,
                  text=f"{PAUSE_AIM:.0%} of the minute between two")  # fmt: skip
    proof.measure("later checkpoints (median)", statistics.median(later), "s", at_most=60 * PAUSE_AIM)


@contextlib.contextmanager
def monitor(requested: bool) -> Iterator[None]:
    """Run the sampler with everything visible once per second, if `wanted`."""
    if not requested:
        yield
        return
    command = [sys.executable, "-m", "engine.gpus", "--interval", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(3):  # until it has met the GPUs
            process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def monitoring(proof: Proof) -> None:
    """Measure bare steps with and without the sampler, in turns."""
    rounds, seconds = (1, 0.5) if proof.rehearsing else (5, 3.0)
    size, batch = (32, 8) if proof.rehearsing else (224, 64)
    setting = Setting(
        data="", model="resnet18", size=size, batch=batch, classes=10, images=0, seconds=seconds,
        device=str(proof.device), precision="bf16",
    )  # fmt: skip
    rates: dict[bool, list[float]] = {False: [], True: []}
    step = _bare_step(setting)
    _rate(proof, step, batch, seconds)
    for _ in range(rounds):
        for requested, found in rates.items():
            with monitor(requested):
                found.append(_rate(proof, step, batch, seconds))
    lost = [100 * (1 - monitored / alone) for alone, monitored in zip(rates[False], rates[True], strict=True)]
    proof.measure("resnet18, bare steps", statistics.median(rates[False]), "images/s")
    proof.measure("the monitor beside them costs", statistics.median(lost), "%", at_most=MONITOR_AIM,
                  text=f"{min(lost):.2f} to {max(lost):.2f} in {rounds} rounds")  # fmt: skip


def _bare_step(setting: Setting) -> Any:
    model = plain_model(setting).to(setting.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    inputs = torch.randn(setting.batch, 3, setting.size, setting.size, device=setting.device)
    targets = torch.randint(0, 10, (setting.batch,), device=setting.device)

    def step() -> None:
        optimizer.zero_grad()
        with autocast(setting):
            loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    return step


def _rate(proof: Proof, step: Any, batch: int, seconds: float) -> float:
    """Images a second over so many seconds."""
    steps, started = 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        for _ in range(1 if proof.rehearsing else 10):
            step()
            steps += 1
        if not proof.rehearsing:
            torch.cuda.synchronize()
    return steps * batch / (time.perf_counter() - started)


def main() -> None:
    prove({"looking into steps": (recording, 100), "checkpoints": (checkpoints, 100), "the monitor": (monitoring, 100)})


if __name__ == "__main__":
    main()
