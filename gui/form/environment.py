"""Facts outside of the form that affect validation, shared by all forms of the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.checks.torch_support import TorchBuild, find_installed_torch
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.devices import CPU, Snapshot, device_key, gpu_title, group_by_host, is_gpu
from engine.contract.problems import Problem
from engine.runs.folder import RunSummary
from gui.sources.active_runs import QueuedRun
from gui.titles import device_title
from gui.translation import tr

QueuedRuns = Mapping[str, tuple[QueuedRun, ...]]
"""Runs that use or wait for each device, in queue order."""


@dataclass
class JobEnvironment:
    """Facts outside of a form that affect validation: devices, machines, runs, known models and settings."""

    catalogue: Catalogue = field(default_factory=load_catalogue)
    devices: tuple[str, ...] = (CPU,)
    """Devices that the user has selected in the devices panel."""
    host_device_names: Mapping[str, str] = field(default_factory=dict)
    """Titles of devices on watched hosts, by the keys that jobs use."""
    host_problems: Mapping[str, str] = field(default_factory=dict)
    """Reasons why hosts can't be reached, by host."""
    device_warnings: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    """Active alerts about devices, as problems by device id."""
    machine: Snapshot | None = None
    torch: TorchBuild | None = None
    queued: QueuedRuns = field(default_factory=dict)
    runs: tuple[RunSummary, ...] = ()
    """All runs, newest first, which are the basis of estimates."""
    default_recipe: str = ""
    """Default recipe for new jobs according to the settings, or "" to use the recipe that matches the job."""
    is_starting: bool = False
    """True while a run is being created."""

    def set_machine(self, snapshot: Snapshot) -> bool:
        """Set the snapshot of this machine. Return True if facts have changed that affect validation."""
        previous = self.collect_hardware()
        self.machine, self.torch = snapshot, find_installed_torch()
        return previous != self.collect_hardware()

    def set_hosts(self, names: Mapping[str, str], problems: Mapping[str, str]) -> bool:
        """Set the titles of the devices on watched hosts, by device key, and why hosts can't be reached, by host.

        Returns True if they have changed.
        """
        previous = self.host_device_names, self.host_problems
        self.host_device_names, self.host_problems = dict(names), dict(problems)
        return previous != (self.host_device_names, self.host_problems)

    def device_names(self) -> dict[str, str]:
        """Return the titles of all known GPUs, by the keys that jobs use."""
        gpus = self.machine.gpus if self.machine is not None else ()
        return {**self.host_device_names, **{gpu.uuid: gpu_title(gpu) for gpu in gpus}}

    def device_kinds(self, devices: Sequence[str]) -> tuple[str, ...] | None:
        """Return the hardware name of each device, or None if one is unknown, as on other machines."""
        if self.machine is None:
            return None
        names = {gpu.uuid: gpu.name for gpu in self.machine.gpus} | {CPU: self.machine.cpu.name}
        return tuple(names[device] for device in devices) if set(devices) <= names.keys() else None

    def device_memory_bytes(self, devices: Sequence[str]) -> int | None:
        """Return the memory in bytes of the device with the least memory, or None if any is unknown."""
        if self.machine is None:
            return None
        memory_bytes = {gpu.uuid: gpu.memory_total_bytes for gpu in self.machine.gpus}
        memory_bytes[CPU] = self.machine.cpu.memory_total_bytes
        sizes = [memory_bytes.get(device) for device in devices]
        known_sizes = [size for size in sizes if size is not None]
        return min(known_sizes, default=None) if len(known_sizes) == len(sizes) else None

    def collect_hardware(self) -> tuple[Any, ...]:
        """Return the state of this machine's driver, GPUs and torch, to detect changes that affect validation.

        Processes are only included for GPUs in exclusive mode, where another process prevents a run.
        """
        if self.machine is None:
            return ()
        gpus = []
        for gpu in self.machine.gpus:
            processes = gpu.processes if gpu.compute_mode.startswith("exclusive") else None
            gpus.append((gpu.uuid, gpu.cuda_index, gpu.lost, gpu.mig_enabled, gpu.compute_mode, processes))
        return self.machine.nvml, gpus, self.torch


def format_device_list(devices: tuple[str, ...], names: dict[str, str]) -> str:
    """Describe devices as a list, as in "GPU 0, GPU 1" or "CPU, 2 workers, ws1 CPU"."""
    return ", ".join(list_device_texts(devices, names)) or tr("None selected; check one under Devices.")


def list_device_texts(devices: tuple[str, ...], names: Mapping[str, str]) -> list[str]:
    """Return the title of each GPU, and a text for the CPU workers of each machine.

    `names` contains titles of GPUs by the keys that jobs use.
    """
    texts = []
    for host, host_devices in group_by_host(devices).items():
        gpus = [device_key(host, device) for device in host_devices if is_gpu(device)]
        texts += [names.get(gpu, device_title(gpu)) for gpu in gpus]
        cpu_workers = len(host_devices) - len(gpus)
        if cpu_workers:
            cpu = f"{host} CPU".strip()
            texts.append(tr("{cpu}, {count} workers").format(cpu=cpu, count=cpu_workers) if cpu_workers > 1 else cpu)
    return texts
