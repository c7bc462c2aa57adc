"""Whether a job can be trained on the GPUs that it names: what NVML shows is not always what torch can use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.checks.gpu_access import access_obstacles, mig_problems
from engine.checks.obstacle import Obstacle, whole
from engine.checks.torch_build import TorchBuild
from engine.checks.torch_support import torch_obstacles
from engine.contract.devices import Snapshot
from engine.contract.job import Job
from engine.contract.problems import Problem


def gpu_problems(
    job: Job, machine: Snapshot | None, torch: TorchBuild | None, environment: Mapping[str, str]
) -> list[Problem]:
    """Why `job` cannot be trained on its GPUs.

    `torch` is what is installed, and `environment` what the run is started in. What depends on the machine is judged
    only where `machine` is given, and what NVML does not tell speaks against no GPU.
    """
    found = mig_problems(job)
    if machine is not None:
        found += [Problem("devices", o.message, o.remedy) for o in obstacles(job, machine, torch, environment)]
    return found


def obstacles(
    job: Job, machine: Snapshot, torch: TorchBuild | None, environment: Mapping[str, str]
) -> Iterator[Obstacle]:
    """What keeps `job` off those GPUs of `machine` that it names; nothing is said of lost ones."""
    gpus = tuple(gpu for gpu in machine.gpus if gpu.uuid in job.parallel.devices and not gpu.lost)
    if not gpus:
        return
    if torch is not None:
        yield from torch_obstacles([(gpu, whole(gpu, machine).compute_capability) for gpu in gpus], machine.nvml, torch)
    yield from access_obstacles(gpus, machine, environment, job)
