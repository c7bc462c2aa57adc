"""Checks that torch can use the GPUs of a job, since NVML also lists GPUs that torch can't use."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine.checks.torch_support import Obstacle, TorchBuild, torch_obstacles
from engine.contract.devices import Gpu, GpuProcess, Nvml, Snapshot, gpu_title, host_of, is_gpu
from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from engine.system.format import listed


def gpu_problems(
    job: Job, machine: Snapshot | None, torch: TorchBuild | None, environment: Mapping[str, str]
) -> list[Problem]:
    """Return the problems with training `job` on its GPUs. Facts that NVML does not report cause no problem.

    Without `machine`, only the job is checked. `torch` is None if its build is unknown. `environment` contains the
    environment variables of the run.
    """
    found = mig_problems(job)
    if machine is not None:
        obstacles = find_obstacles(job, machine, torch, environment)
        found += [Problem("devices", obstacle.message, obstacle.remedy) for obstacle in obstacles]
    return found


def find_obstacles(
    job: Job, machine: Snapshot, torch: TorchBuild | None, environment: Mapping[str, str]
) -> Iterator[Obstacle]:
    """Yield the reasons why `job` can't be trained on its GPUs in `machine`. Lost GPUs are not included.

    See `gpu_problems` for the arguments.
    """
    gpus = tuple(gpu for gpu in machine.gpus if gpu.uuid in job.parallel.devices and not gpu.lost)
    if not gpus:
        return
    if torch is not None:
        yield from torch_obstacles(
            [(gpu, physical_gpu(gpu, machine).compute_capability) for gpu in gpus], machine.nvml, torch
        )
    yield from find_access_obstacles(gpus, machine, environment, job)


FALLEN_OFF_THE_BUS = 79
"""Number of the Xid for a GPU that the driver can no longer reach (NVIDIA's XID Errors)."""


def describe_lost_gpus(devices: Iterable[str], machine: Snapshot | None) -> dict[str, str]:
    """Return a sentence about each of `devices` that `machine` has lost, keyed by UUID.

    The result is empty unless NVML works.
    """
    if machine is None or machine.nvml.status != "ok":
        return {}
    known = {gpu.uuid: gpu for gpu in machine.gpus}
    sentences: dict[str, str] = {}
    for uuid in dict.fromkeys(device for device in devices if is_gpu(device) and not host_of(device)):
        gpu = known.get(uuid)
        if gpu is None:
            sentences[uuid] = f"GPU {uuid} is lost: the driver does not list it any more."
        elif gpu.lost or any(xid.number == FALLEN_OFF_THE_BUS for xid in gpu.xids):
            numbers = ", ".join(dict.fromkeys(str(xid.number) for xid in gpu.xids))
            xids = f" (Xid {numbers})" if numbers else ""
            sentences[uuid] = (
                f"{gpu_title(gpu)} ({gpu.name}, {uuid}) is lost: the driver can't reach it any more{xids}."
            )
    return sentences


WORKER_PREFIX = "footplate-w"
"""Prefix of the process names of Footplate's workers."""


def find_access_obstacles(
    gpus: tuple[Gpu, ...], machine: Snapshot, environment: Mapping[str, str], job: Job
) -> Iterator[Obstacle]:
    """Yield the reasons why CUDA can't use `gpus` in a run of `job` with these environment variables."""
    yield from _denied_files_obstacle(gpus, machine.nvml)
    yield from _hidden_obstacle(gpus, machine, environment)
    yield from _mig_obstacle(gpus)
    yield from _prohibited_obstacle(gpus, machine)
    yield from _exclusive_obstacles(gpus, machine, job)


def offer_other_gpu(devices: Sequence[str], gpu: Gpu, machine: Snapshot) -> tuple[Choice, ...]:
    """Return a choice for the user that replaces `gpu` in `devices` by an unused GPU.

    The result is empty if there is no unused GPU.
    """
    unused = [
        other
        for other in machine.gpus
        if other.uuid not in devices and not other.lost and not other.mig_enabled and not other.processes
    ]
    if gpu.cuda_index is not None:  # CUDA must also list the replacement
        unused = [other for other in unused if other.cuda_index is not None]
    if not unused:
        return ()
    replacement = unused[0]
    changed = [replacement.uuid if device == gpu.uuid else device for device in devices]
    return (Choice(f"Use {gpu_title(replacement)} instead", {"devices": ",".join(changed)}),)


def mig_problems(job: Job) -> list[Problem]:
    """Return a problem if the job combines a MIG instance with another GPU or instance.

    Sources: NVIDIA MIG User Guide, "CUDA Device Enumeration": "CUDA can only enumerate a single compute instance", and
    "will not enumerate non-MIG GPU if any compute instance is enumerated on any other GPU". NCCL supports MIG from 2.32
    on, experimentally (NVIDIA/nccl#1716); torch 2.15 includes 2.30.
    """
    gpus = set(filter(is_gpu, job.parallel.devices))
    if len(gpus) < 2 or not any(gpu.startswith("MIG-") for gpu in gpus):
        return []
    message = (
        "A run can use one MIG instance and no other GPU with it: CUDA exposes only one to a process, and NCCL "
        "does not connect MIG instances."
    )
    return [Problem("devices", message, "Choose one MIG instance, or turn MIG off: sudo nvidia-smi -mig 0")]


def _denied_files_obstacle(gpus: tuple[Gpu, ...], nvml: Nvml) -> Iterator[Obstacle]:
    """Yield an obstacle if the user can't open device files that CUDA needs for any GPU.

    A GPU whose own device file, such as /dev/nvidia0, is denied is not listed by NVML, so it is not considered here.
    """
    shared_files = [file for file in nvml.denied_files if not file[-1].isdigit()]
    if shared_files:
        message = f"CUDA needs {listed(dict.fromkeys(shared_files))}, which this user has no permission to open."
        remedy = (
            "Get permission to read and write there, for example by joining the group that “ls -l /dev/nvidia*” shows."
        )
        yield Obstacle(gpus, message, remedy)


def _hidden_obstacle(gpus: tuple[Gpu, ...], machine: Snapshot, environment: Mapping[str, str]) -> Iterator[Obstacle]:
    """Yield an obstacle if CUDA_VISIBLE_DEVICES hides some of the `gpus`."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return
    visible = _visible_uuids(machine.gpus, value, by_bus=environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID")
    hidden = tuple(gpu for gpu in gpus if gpu.uuid not in visible)
    if hidden:
        message = (
            f"Footplate was started with CUDA_VISIBLE_DEVICES set to “{value}”, which hides {join_titles(hidden)}."
        )
        usable = [gpu for gpu in machine.gpus if gpu.uuid in visible and not gpu.mig_enabled]
        choose = f"Choose {join_titles(usable, 'or')}, or start" if usable else "Start"
        unset = "set CUDA_VISIBLE_DEVICES=" if sys.platform == "win32" else "unset CUDA_VISIBLE_DEVICES"
        yield Obstacle(hidden, message, f"{choose} Footplate again without it: {unset}")


def _visible_uuids(gpus: Sequence[Gpu], value: str, *, by_bus: bool) -> set[str]:
    """Return the UUIDs of the GPUs and MIG instances that are visible with CUDA_VISIBLE_DEVICES=`value`.

    Entries after the first invalid one are ignored. If `by_bus` is True, CUDA numbers GPUs by bus, as NVML does. If
    CUDA's order is unknown and an entry is the number of a GPU, the UUIDs of all `gpus` are returned. Source: CUDA C++
    Programming Guide, "CUDA Environment Variables".
    """
    physical = [gpu for gpu in gpus if gpu.mig is None]
    by_bus = by_bus or len(physical) == 1
    by_number: dict[int | None, Gpu] = dict(enumerate(physical))
    if not by_bus:
        by_number = {gpu.cuda_index: gpu for gpu in physical}
    is_order_known = None not in by_number
    visible: set[str] = set()
    for entry in map(str.strip, value.split(",")):
        if not entry.isdecimal():
            named = [gpu for gpu in gpus if _is_named_by(gpu, entry)]
        elif is_order_known or int(entry) >= len(physical):
            named = [gpu for number, gpu in by_number.items() if number == int(entry)]
        else:
            return {gpu.uuid for gpu in gpus}
        if len(named) != 1:  # unknown or ambiguous
            break
        visible.add(named[0].uuid)
    return visible | {gpu.uuid for gpu in gpus if gpu.mig is not None and gpu.mig.parent_uuid in visible}


def _is_named_by(gpu: Gpu, entry: str) -> bool:
    """Return True if `entry` of CUDA_VISIBLE_DEVICES names the GPU.

    The entry may be a prefix of the UUID, or a MIG name as in drivers before R470.
    """
    if gpu.mig is not None and entry == f"MIG-{gpu.mig.parent_uuid}/{gpu.mig.gpu_instance}/{gpu.mig.compute_instance}":
        return True
    return entry != "" and gpu.uuid.lower().startswith(entry.lower())


def _mig_obstacle(gpus: tuple[Gpu, ...]) -> Iterator[Obstacle]:
    """Yield an obstacle if some of the `gpus` are divided into MIG instances."""
    divided = tuple(gpu for gpu in gpus if gpu.mig_enabled)
    if divided:
        message = f"MIG is on for {join_titles(divided)}, so CUDA can use only MIG instances there."
        remedy = f"Choose a MIG instance, or turn MIG off: sudo nvidia-smi -i {_format_indices(divided)} -mig 0"
        yield Obstacle(divided, message, remedy)


def _prohibited_obstacle(gpus: tuple[Gpu, ...], machine: Snapshot) -> Iterator[Obstacle]:
    """Yield an obstacle if the compute mode of some of the `gpus` allows no processes."""
    closed = tuple(gpu for gpu in gpus if physical_gpu(gpu, machine).compute_mode == "prohibited")
    if closed:
        message = f"The compute mode “prohibited” keeps every process off {join_titles(closed)}."
        yield Obstacle(closed, message, f"Choose other devices, or change the mode: {_default_mode_command(closed)}")


def _exclusive_obstacles(gpus: tuple[Gpu, ...], machine: Snapshot, job: Job) -> Iterator[Obstacle]:
    """Yield an obstacle for each GPU in exclusive mode that other processes use.

    GPUs are left out if the run waits in the queue until these processes have ended. A queued run always waits for the
    workers of other runs, and for other processes if the job's `wait_for_others` is on.
    """
    for gpu in gpus:
        users = [process for process in gpu.processes or () if process.kind != "graphics"]
        only_workers = all((process.name or "").startswith(WORKER_PREFIX) for process in users)
        will_wait = job.faults.start == "when_free" and (only_workers or job.faults.wait_for_others)
        is_exclusive = physical_gpu(gpu, machine).compute_mode in ("exclusive_process", "exclusive_thread")
        if users and is_exclusive and not will_wait:
            who = listed(dict.fromkeys(map(_describe_process, users)))
            message = (
                f"{join_titles([gpu])} is in use by {who}, and its compute mode “exclusive” allows no other process."
            )
            remedy = f"Wait until that ends, choose other devices, or change the mode: {_default_mode_command([gpu])}"
            yield Obstacle((gpu,), message, remedy)


def _describe_process(process: GpuProcess) -> str:
    """Describe a process, e.g. "python (pid 4242, ada)"."""
    facts = ", ".join(filter(None, (f"pid {process.pid}", process.user)))
    return f"{process.name or 'a process'} ({facts})"


def _default_mode_command(gpus: Sequence[Gpu]) -> str:
    """Return the shell command that allows any number of processes on the GPUs."""
    return f"sudo nvidia-smi -i {_format_indices(gpus)} -c DEFAULT"


def _format_indices(gpus: Sequence[Gpu]) -> str:
    """Return the indices of the GPUs in the form that nvidia-smi accepts."""
    return ",".join(dict.fromkeys(str(gpu.nvml_index) for gpu in gpus))


def join_titles(gpus: Iterable[Gpu], conjunction: str = "and") -> str:
    """Join the names of GPUs, e.g. "GPU 0, GPU 1 and GPU 2", with `conjunction` before the last one."""
    return listed(dict.fromkeys(map(gpu_title, gpus)), conjunction)


def physical_gpu(gpu: Gpu, machine: Snapshot) -> Gpu:
    """Return the GPU that contains a MIG instance. A GPU itself is returned unchanged."""
    parent = gpu.mig.parent_uuid if gpu.mig is not None else gpu.uuid
    return next((other for other in machine.gpus if other.uuid == parent), gpu)
