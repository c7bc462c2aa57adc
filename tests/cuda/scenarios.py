"""Functions that tests call in a new process on a machine with simulated GPUs (fixture `call`).

Arguments and results are JSON values. The results of kernels are meaningless.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Any

import numpy as np
import torch
import torchvision
from torch import nn

from engine.contract.events import Warned
from engine.contract.job import Job
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.loading.sample_loader import SampleLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.loading.staging import DeviceSlot
from engine.data.randomness import RandomStreams
from engine.optim.host_copies import copy_to_host
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies import STRATEGIES, base, speed
from engine.strategies.base import ResolvedJob, Strategy
from engine.strategies.collectives import Collectives
from engine.training.randomness import get_random_state, set_random_state
from tests.support.dataset_infos import make_classification_objective
from tests.support.specs import make_worker_spec


def describe_machine() -> dict[str, Any]:
    """Describe the GPUs that torch sees.

    Returns their "uuids", the bytes of "total" and "free" memory of the first GPU, the name of the error that an
    allocation of "total" bytes raises ("beyond"), and the free bytes after an allocation of 64 MiB ("free_then").
    """
    count = torch.cuda.device_count()
    free, total = torch.cuda.mem_get_info(0)
    try:
        torch.empty(total, dtype=torch.uint8, device="cuda")
        beyond = "nothing"
    except torch.OutOfMemoryError:
        beyond = "OutOfMemoryError"
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda:0")
    return {
        "uuids": [f"GPU-{torch.cuda.get_device_properties(each).uuid}" for each in range(count)],
        "free": free,
        "total": total,
        "beyond": beyond,
        "free_then": torch.cuda.mem_get_info(0)[0],
    }


def copy_from_gpu() -> list[list[int]]:
    """Copy the values 0 to 3 from the GPU in two ways.

    Returns three lists of values: an asynchronous copy in pinned memory before and after synchronization, and a copy
    by `copy_to_host` after synchronization.
    """
    here = torch.zeros(4, dtype=torch.int64, pin_memory=True)
    here.copy_(torch.arange(4).cuda(), non_blocking=True)
    read = [here.tolist()]
    torch.cuda.synchronize()
    read.append(here.tolist())
    state = copy_to_host({"weight": torch.arange(4).cuda()})["weight"]
    torch.cuda.synchronize()
    return [*read, state.tolist()]


def use_cuda_in_fork() -> str:
    """Use CUDA in a child that is forked from a process with a CUDA context.

    Returns the message of the error that this raises in the child, or "nothing" if it raises none.
    """
    torch.ones(1, device="cuda")
    parent_end, theirs = os.pipe()
    if os.fork() == 0:
        answer = "nothing"
        try:
            torch.ones(1).cuda()
        except RuntimeError as error:
            answer = str(error)
        os.write(theirs, answer.encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(parent_end) as pipe:
        answer = pipe.read()
    os.wait()
    return answer


def send_batches() -> list[list[list[float]]]:
    """Send six batches to GPU 1 from another thread, which alternates between two `DeviceSlot`s.

    Returns [number of rows, last value] for each tensor of each batch, as it arrived.
    """
    device = torch.device("cuda", 1)
    torch.cuda.set_device(device)
    slots = [DeviceSlot(2, (1, 1, 4), torch.cuda.Stream(device), columns=1) for _ in range(2)]
    arrays = [array for slot in slots for array in (slot.pixels, slot.numbers, slot.random)]
    assert all(torch.from_numpy(array).is_pinned() for array in arrays)  # otherwise, copies would block
    free, sent = threading.Semaphore(2), threading.Semaphore(0)

    def read() -> None:
        for number in range(1, 7):
            free.acquire()
            slot = slots[number % 2]
            slot.wait_until_reusable()
            slot.pixels[:] = number
            slot.numbers[:] = np.arange(4) + 10 * number
            slot.random[:] = number + 0.5
            slot.send(torch.full((2,), number), pixel_rows=1, number_rows=2)
            sent.release()

    reader = threading.Thread(target=read)
    reader.start()
    references = []
    for number in range(1, 7):
        sent.acquire()
        slot = slots[number % 2]
        tensors = slot.receive(pixel_rows=1, number_rows=2)
        if number > 1:  # without a slow kernel, only `receive` waits for the first batch
            torch.ones(1, device=device).add_(1)  # kernels are slow on the simulated GPU, so the slot is read late
        references.append([tensor.clone() for tensor in reversed(tensors)])  # first the one that is copied last
        slot.record_consumed()
        free.release()
    reader.join()
    return [
        [[len(tensor), tensor.cpu().flatten()[-1].item()] for tensor in reversed(tensors)] for tensors in references
    ]


class _Numbers(SampleSet):
    """Split of 16 samples. The input and the target of a sample are its index."""

    def __len__(self) -> int:
        return 16

    def path(self, index: int) -> str:
        return str(index)

    def load(self, index: int, epoch: int) -> Sample:
        return torch.tensor([float(index)]), torch.tensor(index)


def load_samples() -> list[list[list[float]]]:
    """Load eight batches of two samples onto a GPU whose kernels read them late. Return the targets and inputs read."""
    device = torch.device("cuda", 0)
    sampler = GlobalBatchSampler(16, 2, 0, 1, RandomStreams(0), shuffle=False)
    loader = SampleLoader(_Numbers(), sampler, threads=1, device=device, on_unreadable=print)
    batches = []
    for batch in loader.epoch(0):
        if batches:
            torch.ones(1, device=device).add_(1)  # kernels are slow on the simulated GPU, so the batch is read late
        batches.append([batch.targets.clone(), batch.inputs.clone()])
    loader.close()
    return [[inputs.flatten().tolist(), targets.tolist()] for targets, inputs in batches]


def step_offloaded_shards(optimizer: str) -> list[float]:
    """Take an fp16 step on weights in main memory whose gradients overflow. Return the weights, which were 1 before.

    The ranks exchange the flag that reports the overflow through the GPU, and copies from the GPU arrive late.
    """
    job = Job.from_fields(
        dataset="", model="resnet18", devices=("gpu",), precision="fp16", optimizer=optimizer, learning_rate=0.1
    )
    weights, device = nn.Parameter(torch.ones(4)), torch.device("cuda", 0)

    def sum_over_shards(value: torch.Tensor) -> torch.Tensor:
        return value.to(device, copy=True).to(value.device)

    optimizer_step = OptimizerStep([("weights", weights)], job, 10, device, sum_over_shards)
    optimizer_step.zero_grad()
    weights.grad = torch.full((4,), float("inf"))
    optimizer_step.step()
    return weights.tolist()


class _SlowPeer(Collectives):
    """Collectives of rank 0 that simulate a rank 1 with half its speed."""

    def all_reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        return torch.tensor([values[0], values[0] / 2])

    def gather_objects(self, value: Any) -> list[Any]:
        return [value, "GPU 1 of the run (Tesla T4)"]


def _create_strategy(rank: int, devices: list[str]) -> Strategy:
    job = Job.from_fields(dataset="", model="resnet18", devices=devices, strategy="ddp", precision="fp32", batch_size=4)
    job = job.with_fields(memory_format="contiguous")
    spec = make_worker_spec(job, rank=rank, world_size=2, devices=tuple(devices))
    return STRATEGIES["ddp"](spec)


def measure_straggler(devices: list[str]) -> list[str]:
    """Measure the ranks' speeds when rank 1 has a slow GPU on another machine. Return the warnings of rank 0."""
    strategy = _create_strategy(0, devices)
    strategy.resolved_job, strategy.collectives = ResolvedJob(strategy.spec.job), _SlowPeer()
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).to(strategy.device)
    speed.balance(strategy, model, make_classification_objective(), (3, 2, 2))
    return [remark.message for remark in strategy.remarks if isinstance(remark, Warned)]


def save_random_state(devices: list[str], file: str) -> int:
    """Save the random state of rank 1 to `file`, and return the number of GPUs whose state it contains."""
    state = get_random_state(_create_strategy(1, devices).gpus)
    torch.save(state, file)
    return len(state["cuda"])


def restore_random_state(devices: list[str], file: str) -> bool:
    """Restore the random state in `file`. Return True if it becomes the state of rank 1's GPU."""
    gpus, state = _create_strategy(1, devices).gpus, torch.load(file)
    set_random_state(state, gpus)
    return torch.equal(torch.cuda.get_rng_state(gpus[0]), state["cuda"][0])


def copy_state_to_pinned_memory() -> dict[str, Any]:
    """Copy ResNet-50's state to pinned memory twice, and save one copy.

    Returns the number of bytes of the "state", of the "pinned" memory for both copies, and of the "saved" copy; the
    copied "step"; and the booleans "equal" (the copy has the same values) and "strides" (it has the same strides).
    """
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    state = {"model": model.state_dict(), "step": 3}
    copies = [copy_to_host(state) for _ in range(2)]
    torch.cuda.synchronize()
    reserved = torch.cuda.memory.host_memory_stats()["allocated_bytes.current"]
    del copies[0]
    file = io.BytesIO()
    torch.save(copies[0], file)
    pairs = [(copies[0]["model"][name], tensor) for name, tensor in model.state_dict().items()]
    return {
        "state": sum(tensor.nbytes for tensor in model.state_dict().values()),
        "pinned": reserved,
        "saved": len(file.getvalue()),
        "equal": all(torch.equal(copy, tensor.cpu()) for copy, tensor in pairs),
        "strides": all(copy.stride() == tensor.stride() for copy, tensor in pairs),
        "step": copies[0]["step"],
    }


def bind_cpus(binds: bool) -> list[Any]:
    """Set up rank 1, with NUMA binding if `binds`.

    Returns its CPUs before setup, after setup, and in a new thread, followed by the rank and the GPUs' bus ids that
    were passed to `choose_cpus` (None and an empty list without binding).
    """
    asked: list[Any] = [None, []]

    def first_cpu(rank: int, bus_ids: list[str], allowed: set[int]) -> set[int]:
        asked[:] = rank, bus_ids
        return {min(allowed)}

    base.choose_cpus = first_cpu  # type: ignore[assignment]
    devices = tuple(f"GPU-{number}" for number in range(2))
    job = Job.from_fields(strategy="ddp", devices=devices, numa_binding=binds)
    strategy = STRATEGIES["ddp"](make_worker_spec(job, rank=1))
    before = sorted(os.sched_getaffinity(0))
    Strategy.setup(strategy)
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(sorted(os.sched_getaffinity(0))))
    thread.start()
    thread.join()
    return [before, sorted(os.sched_getaffinity(0)), *found, *asked]
