"""Time from pressing Train to the first loss, minus the time for importing torch and initializing CUDA."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time

from engine.contract.job import Job
from engine.runs.launch import start_supervisor
from engine.system import paths
from tests.benchmarks.start_latency import AIM_S, measure_first_loss_s
from tests.gpu.checks import CheckContext, run_checks
from tests.gpu.parts.ending import start_preloader

ALONE = """
import time
import torch, torchvision
imported = time.monotonic()
device = torch.device({device!r})
model = torchvision.models.resnet18(num_classes=10).to(device)
model(torch.zeros(32, 3, 64, 64, device=device)).sum().item()
print(time.monotonic() - imported, flush=True)
"""
"""Script with the minimum work before a first loss: imports, CUDA context, first convolutions."""
TIMES = 3


def _job(context: CheckContext) -> Job:
    return Job.from_fields(dataset=str(paths.sample_dataset()), model="resnet18", image_size=64, devices=(context.gpu,))


def _time_script(context: CheckContext) -> tuple[float, float]:
    """Run a script with the minimum work before a first loss (`ALONE`).

    Returns its total duration in seconds, and its duration without the imports.
    """
    started = time.monotonic()
    command = [sys.executable, "-c", ALONE.format(device=str(context.device))]
    after = float(subprocess.check_output(command, timeout=100))
    return time.monotonic() - started, after


def measure_latency(context: CheckContext) -> None:
    """Measure the time from the start of a run to its first loss, without and with preloaded imports."""
    times = 1 if context.rehearsing else TIMES
    _time_script(context)  # fills the disk cache
    with start_preloader() as preloader:
        turns = [
            (
                *_time_script(context),
                measure_first_loss_s(_job(context), start_supervisor),
                measure_first_loss_s(_job(context), preloader.start_run),
            )
            for _ in range(times)
        ]
    torch_alone, after, cold, warm = (list(column) for column in zip(*turns, strict=True))
    context.measure("minimum: imports, CUDA context, first convolutions", statistics.median(torch_alone), "s")
    context.measure("minimum without imports", statistics.median(after), "s")
    context.measure("Train to first loss, cold", statistics.median(cold), "s")
    beyond = statistics.median(one - other for one, other in zip(cold, torch_alone, strict=True))
    context.measure("Train to first loss, cold, minus the minimum", beyond, "s", at_most=AIM_S)
    context.measure("Train to first loss, preloaded", statistics.median(warm), "s")
    beyond = statistics.median(one - other for one, other in zip(warm, after, strict=True))
    context.measure("Train to first loss, preloaded, minus the minimum without imports", beyond, "s", at_most=AIM_S)


def measure_command(context: CheckContext) -> None:
    """Measure the time from the start of `footplate train` to the first loss."""
    device = "cpu" if context.rehearsing else "0"
    started = time.monotonic()
    arguments = [
        "train",
        str(paths.sample_dataset()),
        "--no-pretrained",
        "--model",
        "resnet18",
        "--image-size",
        "64",
        "--devices",
        device,
        "--json",
    ]
    with subprocess.Popen([sys.executable, "footplate.py", *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seconds, last = None, {}
        for line in process.stdout:
            last = json.loads(line)
            if last["type"] == "step" and seconds is None:
                seconds = time.monotonic() - started
                process.send_signal(signal.SIGINT)
        code = process.wait(30)
    context.claim("footplate train trains on the GPU and exits when interrupted", seconds is not None and code == 130,
                f"exit code {code}; {last.get('cause', '')}")  # fmt: skip
    if seconds is not None:
        context.measure("footplate train: time to the first loss", seconds, "s")


def main() -> None:
    run_checks({"first loss": (measure_latency, 150), "command": (measure_command, 90)})


if __name__ == "__main__":
    main()
