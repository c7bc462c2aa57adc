"""Worker that measures the sizes of a job's model and data without a training step.

It runs forward passes with fake tensors.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from functools import partial

import psutil
import torch
from torch import Tensor, nn
from torch.func import functional_call

from engine.advisor.advice.machines import last_bucket_bytes
from engine.advisor.advice.trial_files import Activations, Footprint
from engine.advisor.memory import MainMemoryLimit, read_gpu_peaks
from engine.advisor.trial_results import write_result
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.loading.base_loader import PREFETCH
from engine.models.blocks import list_blocks
from engine.strategies.base import autocast, resolve_precision
from engine.strategies.recompute import checkpoint_blocks
from engine.tasks.registry import TASKS
from engine.torch_compat import FakeTensorMode
from engine.training import worker
from engine.training.randomness import seed
from engine.training.report import Reporter

FEW_IMAGES, MORE_IMAGES = 2, 6
"""Batch sizes of two forward passes, whose difference gives the memory per image."""


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Measure the sizes of a job's model and data on its first device. For the arguments, see `training.worker.run`."""
    return worker.run_reporting(spec, channel, partial(_measure, spec))


def _measure(spec: WorkerSpec, reporter: Reporter) -> WorkerDone:
    """Measure the sizes of the job's model and data, and write them as a `Footprint` to the run folder."""
    reporter.set_phase("preparing")
    torch.set_num_threads(1)
    on_cpu = CPU in spec.devices
    base_bytes = psutil.Process().memory_info().rss if on_cpu else 0
    peaks_and_limits = MainMemoryLimit(1).read_peak() if on_cpu else read_gpu_peaks([torch.device("cuda", 0)])
    footprint = measure_footprint(spec.job, base_bytes, tuple(limit for _peak, limit in peaks_and_limits.values()))
    write_result(spec.run_folder, spec.rank, footprint)
    return WorkerDone(stopped=False)


def measure_footprint(job: Job, base_bytes: int, limits: tuple[int, ...]) -> Footprint:
    """Measure the sizes of a job's model and data. Raises DatasetError and TaskError.

    `base_bytes` is the memory of a CPU worker before the model is built, or 0 for GPUs. `limits` is the memory
    available for the job on each device.
    """
    task = TASKS[job.task]
    splits = task.open_splits(job)
    seed(job.training.seed)
    model = task.build_model(job, len(splits.classes), splits.channels)
    shape = task.get_example_shape(job, splits.channels)
    plain = _measure_activations(model, job, shape)
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    # Read before checkpoint_blocks wraps the blocks.
    block_bytes = max(
        (_sum_bytes(block.parameters()) for _, block in list_blocks(model)), default=_sum_bytes(parameters)
    )
    return Footprint(
        parameter_bytes=_sum_bytes(parameters),
        trained_bytes=_sum_bytes(trained),
        last_bytes=last_bucket_bytes(_sum_bytes([parameter]) for parameter in reversed(trained)),
        buffer_bytes=_sum_bytes(model.buffers()),
        block_bytes=block_bytes,
        base_bytes=base_bytes,
        limits=limits,
        image_bytes=4 * torch.Size(shape).numel(),
        prefetched_batches=PREFETCH,
        activations=plain,
        checkpointed_activations=_measure_activations(model, job, shape) if checkpoint_blocks(model) else None,
        train_images=len(splits.train),
        val_images=len(splits.val),
        resolved_precision=resolve_precision(job),
        bf16_fraction=_measure_bf16_fraction(model, job, shape, plain),
    )


def _sum_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total size of tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _measure_activations(model: nn.Module, job: Job, shape: tuple[int, ...]) -> Activations | None:
    """Return the size of the activations in a forward pass with samples of `shape`. The model is set to training mode.

    Returns None if the model can't run with fake tensors, for example because it branches on values.
    """
    model.train()
    try:
        few_bytes, _ = _measure_saved_bytes(model, job, (FEW_IMAGES, *shape))
        more_bytes, largest_bytes = _measure_saved_bytes(model, job, (MORE_IMAGES, *shape))
    except Exception:  # user-defined models may fail in any way; their memory is measured in a trial instead
        return None
    per_image = max(0.0, (more_bytes - few_bytes) / (MORE_IMAGES - FEW_IMAGES))
    fixed = max(0.0, few_bytes - FEW_IMAGES * per_image)
    return Activations(fixed=fixed, per_image=per_image, largest=largest_bytes / MORE_IMAGES)


def _measure_bf16_fraction(model: nn.Module, job: Job, shape: tuple[int, ...], plain: Activations | None) -> float:
    """Return the size of an image's activations with bf16, divided by their size in `plain`, with the job's precision.

    `shape` is the shape of a sample. Returns 1 if one of the sizes is unknown.
    """
    with_bf16 = _measure_activations(model, job.with_fields(precision="bf16"), shape)
    if with_bf16 is None or plain is None or not plain.per_image:
        return 1.0
    return with_bf16.per_image / plain.per_image


def _measure_saved_bytes(model: nn.Module, job: Job, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the bytes that a forward pass saves for the backward pass, and the bytes of the largest saved tensor.

    `shape` is the shape of the batch. Parameters, buffers and images are not counted.
    """
    storages: dict[int, torch.UntypedStorage] = {}  # saved storages by address, since tensors may share one
    mode = FakeTensorMode()
    precision = resolve_precision(job)

    def save(tensor: Tensor) -> Tensor:
        """Record the storage of a tensor that is saved for the backward pass."""
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with mode:
        state: dict[str, Tensor] = {
            name: mode.from_tensor(each) for name, each in (*model.named_parameters(), *model.named_buffers())
        }
        images = torch.empty(shape)
        excluded = {each.untyped_storage()._cdata for each in (*state.values(), images)}
        with (
            torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
            autocast(torch.device("cpu"), precision),
        ):
            output = functional_call(model, state, (images,))
    del output
    sizes = [storage.nbytes() for key, storage in storages.items() if key not in excluded]
    return sum(sizes), max(sizes, default=0)
