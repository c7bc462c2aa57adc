"""Runs for which GPU memory is too small. Batches must be split, and training must continue."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from collections.abc import Iterator

from engine.contract.events import StepMetrics, Validation, Warned
from engine.contract.job import Job
from tests.gpu.checks import CheckContext, run_checks
from tests.gpu.jobs import write_class_folders, write_model_file
from tests.support.timed_runs import make_images
from tests.support.worker_group import WorkerGroup

GIB = 2**30
LEFT = 4 * GIB
HOG = """
import torch
held = [torch.empty(1, device="cuda")]
free, _ = torch.cuda.mem_get_info()
held.append(torch.empty(max(0, free - {left}), dtype=torch.uint8, device="cuda"))
print(torch.cuda.mem_get_info()[0], flush=True)
input()
"""
LIMITED = """
import torch
from torch import nn

class Limited(nn.Module):
    '''Asks for more memory than there is where a batch has more than three images.'''
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(784, classes))

    def forward(self, x):
        made = self.layers(x)
        if len(x) > 3:
            torch.empty(1 << 50, device=x.device)
        return made

def build_model(num_classes):
    return Limited(num_classes)
"""


def list_memory_warnings(group: WorkerGroup) -> list[str]:
    return [warning.message for warning in group.of(Warned) if warning.code == "out_of_memory"]


def check_split_batches(context: CheckContext) -> None:
    """Make training and validation request more memory than exists, and check that both split their batches."""
    data = write_class_folders(context.folder / "data", {"train": 72, "val": 21})
    fields = {
        "dataset": str(data), "image_size": 16, "batch_size": 12, "epochs": 2, "precision": "fp32", "compile": "off",
        "memory_format": "contiguous", "devices": (context.gpu,), **write_model_file(LIMITED, context.folder),
    }  # fmt: skip
    group = context.run(Job.from_fields(**fields))
    messages = list_memory_warnings(group)
    halving = any("4 parts of 3" in message for message in messages)
    context.claim("the step is repeated in four parts", halving, " / ".join(messages))
    context.claim("validation continues in smaller parts", any("validation" in message for message in messages))
    in_parts = context.run(Job.from_fields(**fields, accumulation=4))
    off = max(abs(one - other) for one, other in zip(group.losses, in_parts.losses, strict=True))
    context.measure(
        "maximum difference of losses from a run in four parts throughout", off, "", at_most=1e-3, anywhere=True
    )
    context.claim("every validation image counts once", [event.images for event in group.of(Validation)] == [21, 21])


@contextlib.contextmanager
def fill_gpu_memory() -> Iterator[float]:
    """Start a process that allocates all GPU memory except `LEFT` bytes. Yield the remaining free memory in GiB."""
    command = [sys.executable, "-c", HOG.format(left=LEFT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hog:
        assert hog.stdout is not None
        try:
            yield int(hog.stdout.readline()) / GIB
        finally:
            hog.kill()


def train_with_little_memory(context: CheckContext) -> None:
    """Check that ResNet-50 (224 px, batch of 256) trains in smaller parts while another process leaves 4 GiB free."""
    context.require_gpu("its memory can't be filled")
    data = make_images(context.folder / "data", 1024 + 256, 224, held_out=256, distinct=64)
    fields = {
        "dataset": str(data), "model": "resnet50", "image_size": 224, "batch_size": 256, "epochs": 1, "precision": "bf16",
        "compile": "off", "memory_format": "channels_last", "devices": (context.gpu,),
    }  # fmt: skip
    with fill_gpu_memory() as free:
        group = context.run(Job.from_fields(**fields), threads=4, seconds=150)
    messages = list_memory_warnings(group)
    context.claim("with little free memory, training continues in smaller parts", bool(messages) and all(map(math.isfinite, group.losses)),
                f"{free:.1f} GiB free; {' / '.join(messages)}")  # fmt: skip
    context.measure("steps", len(group.of(StepMetrics)), "", at_least=4)


def run_trials_without_memory(context: CheckContext) -> None:
    """Check that a run survives if its automatic trials of settings run out of memory."""
    context.require_gpu("its memory can't be filled")
    data = make_images(context.folder / "data", 512 + 8, 224, held_out=8, distinct=64)
    job = Job.from_fields(
        dataset=str(data), model="resnet50", image_size=224, batch_size=256, epochs=200, precision="bf16",
        devices=(context.gpu,),
    )  # fmt: skip
    with fill_gpu_memory():
        group = context.start(job, threads=4, every_step=True)
        group.read(lambda _, message: isinstance(message, StepMetrics) and message.step >= 2, 100)
    context.claim(
        "the run survives trials that run out of memory", bool(group.losses), " / ".join(list_memory_warnings(group))
    )


def main() -> None:
    run_checks({
        "smaller parts": (check_split_batches, 90),
        "little free memory": (train_with_little_memory, 160),
        "trials without memory": (run_trials_without_memory, 110),
    })  # fmt: skip


if __name__ == "__main__":
    main()
