"""What tests run in an interpreter of its own on a machine of the CUDA stand-in, by `CudaMachine.call`.

Each function takes and returns what JSON can hold. Values that kernels would have computed mean nothing there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from engine.data.slots import DeviceSlot
from engine.training.optimizers import Updater


def told_apart() -> dict[str, Any]:
    """What torch sees of the machine, what an allocation beyond its memory raises, and what comes back from a copy."""
    free, total = torch.cuda.mem_get_info(0)
    try:
        torch.empty(total, dtype=torch.uint8, device="cuda")
        refused = False
    except torch.OutOfMemoryError:
        refused = True
    return {
        "gpus": torch.cuda.device_count(),
        "uuids": [str(torch.cuda.get_device_properties(each).uuid) for each in range(torch.cuda.device_count())],
        "free": free,
        "total": total,
        "refused": refused,
        "copied": torch.arange(5).cuda().cpu().tolist(),
    }


def early_and_late_copy() -> list[list[int]]:
    """What is read from a copy without and with waiting for it."""
    here = torch.zeros(4, dtype=torch.int64, pin_memory=True)
    here.copy_(torch.arange(4).cuda(), non_blocking=True)
    early = here.tolist()
    torch.cuda.synchronize()
    return [early, here.tolist()]


def forked() -> str:
    """What a process meets that was forked from one that had used CUDA."""
    import os

    torch.ones(1, device="cuda")
    ours, theirs = os.pipe()
    if os.fork() == 0:
        try:
            torch.ones(1, device="cuda")
            os.write(theirs, b"nothing")
        except RuntimeError as error:
            os.write(theirs, str(error).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        answer = pipe.read()
    os.wait()
    return answer


def slots_of_a_second_gpu() -> list[list[int]]:
    """Batches that a thread sends through two slots to GPU 1, as the step there finds them after kernels of some ms."""
    device = torch.device("cuda", 1)
    torch.cuda.set_device(device)
    slots = [DeviceSlot(2, (1, 1, 4), torch.cuda.Stream(device)) for _ in range(2)]
    turns = [threading.Semaphore(2), threading.Semaphore(0)]

    def read() -> None:
        for number in range(6):
            turns[0].acquire()
            slot = slots[number % 2]
            slot.begin()
            slot.pixels[:] = number
            slot.numbers[:] = np.arange(4) + number
            slot.send(2, 2)
            turns[1].release()

    reader = threading.Thread(target=read)
    reader.start()
    kept = []
    for number in range(6):
        turns[1].acquire()
        slot = slots[number % 2]
        pixels, numbers = slot.receive(2, 2)
        torch.ones(1, device=device).add_(1)  # a kernel that takes a while, before what reads the slot
        kept.append((pixels.clone(), numbers.clone()))
        slot.leave()
        turns[0].release()
    reader.join()
    torch.cuda.synchronize()
    return [[int(pixels.cpu()[0, 0, 0, 0]), int(numbers.cpu()[0, 0])] for pixels, numbers in kept]


def dtypes_in_replicas(folder: str, precision: str) -> list[str]:
    """The dtypes in which DataParallel's replicas compute under `precision`."""
    from engine.strategies.data_parallel import DataParallel
    from tests.cuda.jobs import objective, spec

    strategy = DataParallel(spec(Path(folder), 2, strategy="dp", precision=precision))
    strategy.setup()
    seen: list[str] = []

    class Noting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            made = self.layer(inputs)
            seen.append(f"{made.device} {made.dtype}")
            return made

    strategy.wrap(Noting(), objective(), (4,))
    with strategy.autocast():
        strategy.forward(torch.zeros(4, 4, device="cuda:0"))
    return sorted(seen)


def overflow_beside_offloaded_shards(fused: str) -> dict[str, Any]:
    """An fp16 step whose parameters lie on the CPU, as FSDP's shards that are offloaded, while the GPU's gradients overflow:
    the weights after it and the scale. Copies to the CPU come late."""
    from engine.contract.job import Job

    job = Job(dataset="", model="resnet18", devices=("gpu",), precision="fp16", optimizer=fused, learning_rate=0.1)
    weights = nn.Parameter(torch.ones(4))
    device = torch.device("cuda", 0)

    def over_parts(value: torch.Tensor) -> torch.Tensor:
        return value.to(device, copy=True).to(value.device)  # as FSDP's all-reduce on its GPU

    updater = Updater([("weights", weights)], job, 10, device, over_parts)
    updater.zero_grad()
    weights.grad = torch.full((4,), float("inf"))
    updater.step()
    return {"weights": weights.tolist(), "where": str(updater._scaler._get_scale_async().device)}


def copied_state(names: Sequence[str]) -> bool:
    """Whether a state that was copied from a GPU is whole once the device was waited for, and not before."""
    from engine.strategies.base import on_cpu

    state = {name: torch.arange(100_000).cuda() + 0 if not names else torch.arange(100_000).cuda() for name in names}
    copied = on_cpu(state)
    early = all(bool(tensor.any()) for tensor in copied.values())
    torch.cuda.synchronize()
    return not early and all(torch.equal(tensor, torch.arange(100_000)) for tensor in copied.values())
