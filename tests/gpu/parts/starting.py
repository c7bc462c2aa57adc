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
from tests.gpu.parts.ending import start_preloader
from tests.gpu.proof import CheckContext, run_checks

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


def _job(proof: CheckContext) -> Job:
    return Job.from_fields(dataset=str(paths.sample_dataset()), model="resnet18", image_size=64, devices=(proof.gpu,))


def _time_script(proof: CheckContext) -> tuple[float, float]:
    """Run a script with the minimum work before a first loss (`ALONE`).

    Returns its total duration in seconds, and its duration without the imports.
    """
    started = time.monotonic()
    command = [sys.executable, "-c", ALONE.format(device=str(proof.device))]
    after = float(subprocess.check_output(command, timeout=100))
    return time.monotonic() - started, after


def measure_latency(proof: CheckContext) -> None:
    """Measure the time from the start of a run to its first loss, without and with preloaded imports."""
    times = 1 if proof.rehearsing else TIMES
    _time_script(proof)  # fills the disk cache
    with start_preloader() as preloader:
        turns = [
            (
                *_time_script(proof),
                measure_first_loss_s(_job(proof), start_supervisor),
                measure_first_loss_s(_job(proof), preloader.start_run),
            )
            for _ in range(times)
        ]
    torch_alone, after, cold, warm = (list(column) for column in zip(*turns, strict=True))
    proof.measure("minimum: imports, CUDA context, first convolutions", statistics.median(torch_alone), "s")
    proof.measure("minimum without imports", statistics.median(after), "s")
    proof.measure("Train to first loss, cold", statistics.median(cold), "s")
    beyond = statistics.median(one - other for one, other in zip(cold, torch_alone, strict=True))
    proof.measure("Train to first loss, cold, minus the minimum", beyond, "s", at_most=AIM_S)
    proof.measure("Train to first loss, preloaded", statistics.median(warm), "s")
    beyond = statistics.median(one - other for one, other in zip(warm, after, strict=True))
    proof.measure("Train to first loss, preloaded, minus the minimum without imports", beyond, "s", at_most=AIM_S)


def measure_command(proof: CheckContext) -> None:
    """Measure the time from the start of `footplate train` to the first loss."""
    device = "cpu" if proof.rehearsing else "0"
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
    proof.claim("footplate train trains on the GPU and exits when interrupted", seconds is not None and code == 130,
                f"exit code {code}; {last.get('cause', '')}")  # fmt: skip
    if seconds is not None:
        proof.measure("footplate train: time to the first loss", seconds, "s")


def main() -> None:
    run_checks({"first loss": (measure_latency, 150), "command": (measure_command, 90)})


if __name__ == "__main__":
    main()
