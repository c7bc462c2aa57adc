"""GPU model, software versions, and peak performance as a reference for other results."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import psutil
import torch

from engine.gpus.cpu import cpu_name
from engine.supervisor.environment import usable_cores
from tests.gpu.checks import CheckContext, run_checks

PACKAGES = (
    "torch", "torchvision", "triton", "numpy", "timm", "segmentation-models-pytorch", "lightning", "nvidia-ml-py", "msgspec",
    "simplejpeg", "pillow", "scipy",
)  # fmt: skip
GIB = 2**30


def report_facts(context: CheckContext) -> None:
    """Report the GPU and the versions of the software."""
    context.report_fact("CPU", f"{cpu_name()}, {usable_cores()} cores, {psutil.virtual_memory().total / GIB:.0f} GiB")
    context.report_fact("Load", "{:.1f} {:.1f} {:.1f}".format(*os.getloadavg()))
    with suppress(OSError):
        context.report_fact("Shared memory", f"{shutil.disk_usage('/dev/shm').total / GIB:.1f} GiB")
    context.report_fact(
        "Temporary files", f"{shutil.disk_usage(context.folder).free / GIB:.0f} GiB free in {context.folder.parent}"
    )
    versions = []
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions.append(f"{package} {version(package)}")
    context.report_fact("Packages", ", ".join(versions))
    context.report_fact("C compiler", shutil.which("cc") or shutil.which("gcc") or "none (torch.compile needs one)")
    if context.rehearsing:
        context.report_fact("GPU", "none (rehearsal)")
        return
    properties = torch.cuda.get_device_properties(0)
    context.report_fact("GPU", properties.name)
    context.report_fact("UUID", context.gpu)
    context.report_fact("Memory", f"{properties.total_memory / GIB:.1f} GiB")
    context.report_fact(
        "Compute capability",
        f"{properties.major}.{properties.minor}, {properties.multi_processor_count} multiprocessors",
    )
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    context.report_fact("CUDA", f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, NCCL {nccl}")
    asked = "driver_version,power.limit,pcie.link.gen.max,pcie.link.width.max,persistence_mode,mig.mode.current,ecc.mode.current"
    with suppress(OSError, subprocess.CalledProcessError):
        command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader", f"--id={context.gpu}"]
        answers = subprocess.check_output(command, text=True, timeout=20).strip().split(", ")
        context.report_fact(
            "nvidia-smi", ", ".join(f"{name} {value}" for name, value in zip(asked.split(","), answers, strict=False))
        )


def check_doctor(context: CheckContext) -> None:
    """Check that `footplate doctor` finds the GPU."""
    done = subprocess.run(
        [sys.executable, "footplate.py", "doctor"], capture_output=True, text=True, timeout=60, check=False
    )
    print(done.stdout, done.stderr, file=sys.stderr)
    device_name = "PyTorch: computes on the CPU" if context.rehearsing else torch.cuda.get_device_properties(0).name
    context.claim("footplate doctor reports torch's device", device_name in done.stdout, f"exit code {done.returncode}")


def measure_peak_rates(context: CheckContext) -> None:
    """Measure peak rates (large matrix product, large copy, copy from pinned memory) and the latency of a kernel."""
    side, size = (512, 16 << 20) if context.rehearsing else (8192, 1 << 30)
    left, right = (torch.randn(side, side, device=context.device, dtype=torch.bfloat16) for _ in range(2))
    seconds = _median_seconds(context, lambda: left @ right)
    context.measure(f"bf16 product of matrices of size {side}", 2 * side**3 / seconds / 1e12, "TFLOP/s")
    source, target = (torch.zeros(size, dtype=torch.uint8, device=context.device) for _ in range(2))
    seconds = _median_seconds(context, lambda: target.copy_(source))
    context.measure("copy on the device (bytes read plus bytes written)", 2 * size / seconds / 1e9, "GB/s")
    here = torch.zeros(size // 4, dtype=torch.uint8, pin_memory=not context.rehearsing)
    seconds = _median_seconds(context, lambda: target[: size // 4].copy_(here, non_blocking=True))
    context.measure("copy from pinned memory", size / 4 / seconds / 1e9, "GB/s")
    one = torch.zeros(1, device=context.device)
    started = time.perf_counter()
    for _ in range(2000):
        one.add_(1)
    context.measure("kernel launch", (time.perf_counter() - started) / 2000 * 1e6, "µs")


def _median_seconds(context: CheckContext, work: Callable[[], object]) -> float:
    taken = []
    for _ in range(11):
        _wait(context)
        started = time.perf_counter()
        work()
        _wait(context)
        taken.append(time.perf_counter() - started)
    return sorted(taken[1:])[5]


def _wait(context: CheckContext) -> None:
    if not context.rehearsing:
        torch.cuda.synchronize()


def main() -> None:
    print(platform.platform(), file=sys.stderr)
    run_checks({"facts": (report_facts, 60), "doctor": (check_doctor, 60), "peak rates": (measure_peak_rates, 60)})


if __name__ == "__main__":
    main()
