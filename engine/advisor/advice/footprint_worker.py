"""What a job's model and data take, known without a step: by a forward pass of fake tensors, which hold nothing."""

from __future__ import annotations

import socket
from functools import partial

import msgspec
import psutil
import torch
from torch import Tensor, nn
from torch.func import functional_call

from engine.advisor.advice.machines import last_bucket
from engine.advisor.advice.measured import Activations, Footprint, leave
from engine.advisor.memory import MainMemory, gpu_peaks
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.loading.base_loader import AHEAD
from engine.models.blocks import blocks
from engine.strategies.base import autocast, settled_precision
from engine.strategies.recompute import checkpoint_blocks
from engine.tasks.registry import TASKS
from engine.torch_compat import FakeTensorMode
from engine.training import worker
from engine.training.randomness import seed
from engine.training.report import Reporter

FEW, MORE = 2, 6
"""Images of the two passes from which follows what each image takes."""


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Looks at the job on its first device; see `engine.training.worker.run`."""
    return worker.reported(spec, channel, partial(_look, spec))


def _look(spec: WorkerSpec, reporter: Reporter) -> WorkerDone:
    reporter.set_phase("preparing")
    job, task = spec.job, TASKS[spec.job.task]
    torch.set_num_threads(1)
    splits = task.splits(job)
    on_cpu = CPU in spec.devices
    base = psutil.Process().memory_info().rss
    limits = MainMemory(1).peak() if on_cpu else gpu_peaks([torch.device("cuda", 0)])
    seed(job.seed)
    model = task.build_model(job, len(splits.classes), splits.channels)
    shape = task.example_shape(job, splits.channels)
    plain = _activations(model, job, shape)
    largest = max((_bytes(block.parameters()) for _, block in blocks(model)), default=_bytes(model.parameters()))
    sizes = _bytes(model.parameters()), _bytes(p for p in model.parameters() if p.requires_grad)
    checkpointed = _activations(model, job, shape) if checkpoint_blocks(model) else None
    found = Footprint(
        parameter_bytes=sizes[0],
        trained_bytes=sizes[1],
        last_bytes=last_bucket(_bytes([p]) for p in reversed([*model.parameters()]) if p.requires_grad),
        buffer_bytes=_bytes(model.buffers()),
        block_bytes=largest,
        base_bytes=base if on_cpu else 0,
        limits=tuple(limit for _, limit in limits.values()),
        image_bytes=4 * torch.Size(shape).numel(),
        ahead=AHEAD,
        plain=plain,
        checkpointed=checkpointed,
        train_images=len(splits.train),
        val_images=len(splits.val),
        settled_precision=settled_precision(job),
        halved=_halved(model, job, shape, plain),
    )
    leave(spec.run_folder, spec.rank, found)
    return WorkerDone(stopped=False)


def _bytes(tensors: object) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)  # type: ignore[attr-defined]


def _activations(model: nn.Module, job: Job, shape: tuple[int, ...]) -> Activations | None:
    """None where a model does what fake tensors cannot, as looking at its numbers."""
    model.train()
    try:
        few, more = (_kept(model, job, (count, *shape)) for count in (FEW, MORE))
    except Exception:  # a model may be anybody's; what it takes is measured then
        return None
    per_image = max(0.0, (more[0] - few[0]) / (MORE - FEW))
    return Activations(max(0.0, few[0] - FEW * per_image), per_image, more[1] / MORE)


def _halved(model: nn.Module, job: Job, shape: tuple[int, ...], plain: Activations | None) -> float:
    """The share of the `plain` activations that bf16 leaves."""
    less = _activations(model, msgspec.structs.replace(job, precision="bf16"), shape)
    return less.per_image / plain.per_image if less is not None and plain is not None and plain.per_image else 1.0


def _kept(model: nn.Module, job: Job, shape: tuple[int, ...]) -> tuple[int, int]:
    """The bytes that a forward pass keeps for the backward pass, besides the model and the images, and the largest of
    them.
    """
    kept: dict[int, torch.UntypedStorage] = {}
    mode = FakeTensorMode()
    precision = settled_precision(job)

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with mode:
        held: dict[str, Tensor] = {
            name: mode.from_tensor(each) for name, each in (*model.named_parameters(), *model.named_buffers())
        }
        images = torch.empty(shape)
        not_kept = {each.untyped_storage()._cdata for each in (*held.values(), images)}
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            autocast(torch.device("cpu"), precision),
        ):
            output = functional_call(model, held, (images,))
    del output
    sizes = [storage.nbytes() for key, storage in kept.items() if key not in not_kept]
    return sum(sizes), max(sizes, default=0)
