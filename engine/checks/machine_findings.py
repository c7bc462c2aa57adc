"""Findings about how well a machine can train, for the welcome page and `footplate doctor`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from engine.checks.gpu_checks import find_obstacles, join_titles
from engine.checks.torch_support import TorchBuild
from engine.contract.devices import Cpu, Nvml, NvmlStatus, Snapshot, is_gpu
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system import paths
from engine.system.format import counted, size

DRIVER_ERRORS: tuple[NvmlStatus, ...] = ("version_mismatch", "no_permission")
"""States of NVML that are errors on a machine with GPUs."""
LITTLE_DISK_BYTES = 2 << 30
LITTLE_MEMORY_BYTES = 2 << 30
LITTLE_SHARED_BYTES = 256 << 20
Grade = Literal["fine", "limited", "cpu_only", "broken"]


class Finding(msgspec.Struct, frozen=True):
    """Finding about one aspect of a machine.

    Attributes:
        grade: "broken" if training is impossible, "cpu_only" if it is possible only on the CPU, "limited" for any other
            limitation, or "fine".
        topic: Aspect of the machine.
        text: Description of its state.
        remedy: Remedy, or "" if there is none or `text` contains it.
    """

    grade: Grade
    topic: str
    text: str
    remedy: str = ""

    @property
    def command(self) -> str:
        """Shell command at the end of `remedy`, after its colon, or "" if there is none."""
        last = self.remedy.rpartition(": ")[2]
        return last if last.startswith(("uv ", "sudo ")) else ""

    def __str__(self) -> str:
        return f"{self.topic}: {self.text} {self.remedy}".rstrip()


def driver_findings(nvml: Nvml) -> Iterator[Finding]:
    """Yield findings about the state of the GPU driver, and about device files that this user can't open."""
    if nvml.status == "ok":
        cuda = f", for CUDA up to {nvml.cuda_version}" if nvml.cuda_version else ""
        yield Finding("fine", "Driver", f"NVIDIA {nvml.driver_version or 'of unknown version'}{cuda}")
    else:
        yield Finding("cpu_only" if nvml.status in DRIVER_ERRORS else "limited", "Driver", nvml.message)
    # The other files, which all GPUs need, are obstacles to training (see `gpu_checks`).
    files_of_gpus = [file for file in nvml.denied_files if file[-1].isdigit()]  # such as /dev/nvidia0
    for file in files_of_gpus:
        yield Finding("limited", "Driver", f"this user has no permission to open {file}, so its GPU is not listed")


def gpu_findings(machine: Snapshot) -> Iterator[Finding]:
    """Yield a finding about the GPUs, and a finding about lost GPUs if there are any."""
    gpus = [gpu for gpu in machine.gpus if gpu.mig is None]
    counts = Counter((gpu.name, gpu.memory_total_bytes) for gpu in gpus if not gpu.lost)
    texts = []
    for (name, memory), count in counts.items():
        text = name if count == 1 else f"{count} × {name}"
        if memory:
            text += f", {size(memory)}" + (" each" if count > 1 else "")
        texts.append(text)
    if texts:
        yield Finding("fine", "GPUs" if sum(counts.values()) > 1 else "GPU", "; ".join(texts))
    elif machine.nvml.status == "ok" and not gpus:
        yield Finding("limited", "GPU", machine.nvml.message or "no NVIDIA GPU is installed in this machine")
    lost = [gpu for gpu in gpus if gpu.lost]
    if lost:
        are = "is" if len(lost) == 1 else "are"
        message = f"{join_titles(lost)} {are} lost: the driver can't reach {'it' if len(lost) == 1 else 'them'}."
        yield Finding("limited", "GPU", message, "Restart the computer.")


def training_findings(machine: Snapshot, torch: TorchBuild | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding about the GPUs that can be used for training, and one for each reason why others can't be used.

    See `gpu_checks.gpu_problems` for the arguments.
    """
    parents = {gpu.mig.parent_uuid for gpu in machine.gpus if gpu.mig is not None}
    gpus = [gpu for gpu in machine.gpus if not gpu.lost and gpu.uuid not in parents]
    job = Job.from_fields(devices=tuple(gpu.uuid for gpu in gpus))
    obstacles = list(find_obstacles(job, machine, torch, environment))
    blocked = {gpu.uuid for obstacle in obstacles for gpu in obstacle.gpus}
    usable = [gpu for gpu in gpus if gpu.uuid not in blocked]
    for obstacle in obstacles:
        yield Finding("limited" if usable else "cpu_only", "Training", obstacle.message, obstacle.remedy)
    if usable:
        yield Finding("fine", "Training", f"PyTorch can use {join_titles(usable)}")


def cpu_warnings(
    job: Job, machine: Snapshot, torch: TorchBuild | None, environment: Mapping[str, str], *, chosen: bool
) -> list[Problem]:
    """Return warnings for a job that trains on the CPU although the machine has GPUs.

    They explain why the GPUs can't be used. If the GPUs can be used, there is a warning only if the user has not
    `chosen` the CPU.
    """
    if any(map(is_gpu, job.parallel.devices)):
        return []
    warnings = []
    for finding in (*driver_findings(machine.nvml), *training_findings(machine, torch, environment)):
        if finding.grade == "cpu_only":
            message, remedy = f"The run is on the CPU. {finding.text}", finding.remedy
            warnings.append(Problem("devices", message, remedy, "warning"))
        can_use_gpus = finding.grade == "fine" and finding.topic == "Training"
        if can_use_gpus and not chosen:
            remedy = "Train on GPUs with --devices, as in --devices 0; --devices cpu keeps to the CPU."
            warnings.append(Problem("devices", f"The run is on the CPU. {finding.text}.", remedy, "warning"))
    return warnings


def memory_findings(cpu: Cpu) -> Iterator[Finding]:
    """Yield findings about the processor and the available memory."""
    free = cpu.memory_total_bytes - cpu.memory_used_bytes
    text = f"{size(free)} of {size(cpu.memory_total_bytes)} free"
    if free < LITTLE_MEMORY_BYTES:
        yield Finding("limited", "Memory", f"{text}.", "Close other programs before training.")
    else:
        yield Finding("fine", "Memory", text)
    yield Finding("fine", "CPU", f"{cpu.name}, {counted(len(cpu.core_load_percent), 'core')}")


def disk_findings() -> Iterator[Finding]:
    """Yield a finding about the disk space for runs and the permission to write there.

    This creates Footplate's home, and writes a temporary file in it.
    """
    home = paths.home()
    try:
        paths.make_home()
        with tempfile.TemporaryFile(dir=home):
            free = shutil.disk_usage(home).free
    except OSError as error:
        yield Finding("broken", "Disk", f"{home} can't be written ({error}).", "Set FOOTPLATE_HOME to another folder.")
        return
    if free < LITTLE_DISK_BYTES:
        remedy = "Make room, or set FOOTPLATE_HOME to a folder on another disk."
        yield Finding("limited", "Disk", f"{size(free)} free for runs in {home}.", remedy)
    else:
        yield Finding("fine", "Disk", f"{size(free)} free for runs in {home}")


def shared_memory_findings() -> Iterator[Finding]:
    """Yield a finding about the available shared memory, on Linux."""
    if sys.platform == "linux":
        folder = Path("/dev/shm")
        free = shutil.disk_usage(folder).free if folder.is_dir() else 0
        if free < LITTLE_SHARED_BYTES:
            remedy = "Give it more, in a container by --shm-size or --ipc=host."
            yield Finding("limited", "Shared memory", f"{size(free)} free; NCCL between GPUs may need more.", remedy)
        else:
            yield Finding("fine", "Shared memory", f"{size(free)} free in {folder}")
