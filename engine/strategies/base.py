"""Interface of training strategies, which place the model and each batch on the devices.

A strategy controls the entire step. Under every strategy, the loss is the mean over the global batch, so that changing
the strategy does not change the training.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import CPU, has_remote_devices, is_gpu
from engine.contract.events import LogLine, Warned
from engine.contract.job import Job
from engine.contract.model_split import ModelSplit
from engine.contract.worker import WorkerSpec
from engine.models.tensor_detector import TensorDetector
from engine.optim.host_copies import copy_to_host
from engine.parallel.layout import Layout, ParallelDims, compute_layout
from engine.strategies.collectives import Collectives
from engine.strategies.profiler import StepProfiler
from engine.system.numa import choose_cpus

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.metrics.base import Metric
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective

NATIVE_BF16 = (8, 0)
"""Compute capability of the first GPUs that support bf16 natively (Ampere)."""

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class StrategyError(ValueError):
    """Raised when a job can't run under the chosen strategy. The message gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """Job with final values for automatic settings, and facts about its training.

    Two settings may still be automatic: `compile`, which is chosen after the model is wrapped, and the memory format,
    if the run was stopped while formats were tried out.

    Attributes:
        job: Job with the final values.
        shares: Fraction of each batch for each data-parallel rank. It is taken from the resumed run if that used the
            same devices and strategy, and is None otherwise.
        model_split: Split of the model into pipeline stages. It is taken from the resumed run if this run splits the
            model in the same way, and is None otherwise.
        evaluation_parts: Number of parts into which a single worker divides each evaluation batch at first. It grows if
            memory runs out.
    """

    job: Job
    shares: tuple[float, ...] | None = None
    model_split: ModelSplit | None = None
    evaluation_parts: int = 1


class StepResult(NamedTuple):
    """Result of a training step on one rank, as 0-dim tensors on its device.

    The sums over all ranks are the results of the step. `loss` is this rank's contribution to the mean loss over the
    global batch. `losses` [p] has the components of this contribution, if the model computes several losses. `correct`
    and `images` count the correctly classified and all images. All fields are None on a rank that does not receive the
    model's output.
    """

    loss: Tensor | None
    correct: Tensor | None
    images: Tensor | int | None
    losses: Tensor | None = None


class Strategy(ABC):
    """Base class of training strategies, which place the model and each batch on the devices.

    The methods are called in this order: `setup`, `wrap`, then (after the optimizer for `parameters` has been created)
    `step` and `evaluate`, and finally `teardown`.

    `spec` has the job as requested. From `wrap` on, `resolved_job` has the job as trained.

    This worker loads partition `data_rank` of `data_world` partitions of every batch. A worker with `loads_data` False
    loads nothing and passes None instead of batches.
    """

    entry: ClassVar[StrategyEntry]
    device: torch.device
    model: nn.Module
    local_modules: Sequence[nn.Module]
    """Modules on this rank, with the parameter names of the plain model: the full model, or this rank's stages."""
    objective: Objective
    resolved_job: ResolvedJob
    model_split: ModelSplit | None = None
    """Split of the model into pipeline stages, with the measurements behind it. Set on every rank by `wrap`."""
    shares: tuple[float, ...] = ()
    """Fraction of every batch for each data-parallel rank, set by `wrap`. It is empty if all fractions are equal."""
    accumulation: int
    """Number of parts that a worker divides its batch into. A single worker raises it if memory runs out."""
    evaluation_parts: int
    """Number of parts of a batch in an evaluation with a single worker. Several workers use `accumulation`."""
    profiler_class: ClassVar[type[StepProfiler]] = StepProfiler
    """Class of `profiler`."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.device = worker_device(spec)
        self.collectives = Collectives()
        """Collectives over all ranks of the run, available after `setup`."""
        self.layout: Layout = compute_layout(spec.job, self.entry)
        self.dims = ParallelDims.of(self.entry, self.layout)
        self.coordinate = self.dims.coordinate(spec.rank)
        # Replicas and shards load different parts of a batch. A pipeline or tensor-parallel group loads one together.
        self.data_rank = self.coordinate.replicate * self.dims.shard + self.coordinate.shard
        self.data_world = self.dims.replicate * self.dims.shard
        self.loads_data = not self.layout.stages or self.coordinate.pipeline == self.layout.stage_ranks[0]
        self.stream_rank = spec.rank // self.dims.tensor
        """Index of this rank's random stream. The ranks of a tensor-parallel group use the same stream."""
        self.is_counted = self.coordinate.tensor == 0
        """True if this rank's results count in sums over ranks. False if another rank computes the same results."""
        self.profiler = self.profiler_class(self.device)
        """Profiler that `step` notifies at the end of each part of a step."""
        self.is_stopped: Callable[[], bool] = lambda: False
        """Function that returns True once the run should stop or pause. Measurements in `wrap` then end early."""
        self.remarks: list[Warned | LogLine] = []
        """Messages to the user about the model's placement, which `wrap` adds on rank 0."""

    @property
    def gpus(self) -> list[torch.device]:
        """GPUs that this process uses."""
        if self.device.type != "cuda":
            return []
        if self.entry.process_per_device:
            return [self.device]
        return [torch.device("cuda", index) for index in range(len(self.spec.local_devices))]

    def setup(self) -> None:
        """Prepare this rank's device and torch's kernels as the job requests.

        Subclasses with several ranks also connect to the other ranks. They raise StrategyError if the job can't run.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            use_fast_kernels()
            if self.spec.job.precision.numa_binding and self.entry.process_per_device:
                self._bind_to_node()
        if self.spec.job.precision.deterministic:
            use_deterministic_kernels()

    def _bind_to_node(self) -> None:
        """Bind this thread, and the threads that it starts, to the CPUs near this worker's GPU.

        Does nothing if the operating system can't bind threads, or if the GPU's CPUs are unknown.
        """
        if not hasattr(os, "sched_setaffinity"):
            return
        bus_ids = [pci_bus_id(index) for index in range(len(self.spec.local_devices))]
        cpus = choose_cpus(self.spec.device_index, bus_ids, os.sched_getaffinity(0))
        if cpus:
            os.sched_setaffinity(0, cpus)

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context manager that turns off the reduction of gradients. Available after `wrap`."""
        return nullcontext()

    @property
    def job(self) -> Job:
        """Job with its automatic choices made, as it is trained."""
        return self.resolved_job.job

    @abstractmethod
    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Place the plain `model` on the devices.

        Args:
            model: Plain model in training mode.
            objective: Loss and metrics of the task.
            shape: Shape of a sample: [channels, height, width] for images.
            resolved: Job with final values for automatic settings, which becomes `resolved_job`.
        """
        self.objective, self.resolved_job, self.example_shape = objective, resolved, shape
        self.accumulation, self.evaluation_parts = resolved.job.training.accumulation, resolved.evaluation_parts

    @abstractmethod
    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        """Run one optimizer step on this worker's part of the global batch, and return its results."""

    @abstractmethod
    def evaluate(self, batches: Iterable[Batch | None], measures: Metric, stop: Callable[[], bool]) -> bool:
        """Evaluate the model on `batches` and collect the results of all ranks in `measures` on every rank.

        `stop` is called before every batch, on all ranks. Returns False if `stop` ended the evaluation early.
        """

    def parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return the trainable parameters that this rank updates, with their names in the plain model."""
        named = (pair for module in self.local_modules for pair in module.named_parameters())
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]

    def buffers(self) -> list[tuple[str, Tensor]]:
        """Return the floating-point buffers, such as BatchNorm's statistics, with their names in the plain model.

        Weight averaging includes them.
        """
        named = (pair for module in self.local_modules for pair in module.named_buffers())
        return [(name, buffer) for name, buffer in named if buffer.is_floating_point()]

    def state_dict(self) -> dict[str, Tensor] | None:
        """Return the plain model's state on the CPU on rank 0, and None on other ranks.

        All ranks call it together. A GPU may still be copying the state: synchronize with it before reading.
        """
        return copy_to_host(self.model.state_dict()) if self.spec.rank == 0 else None

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the state of a plain model. All ranks call it together, with the same state."""
        self.model.load_state_dict(state)

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """Sum `value` over the shards of the parameters, and return the sum on the device of `value`.

        For example, this adds up the squared gradient norms of the shards to that of all parameters. It sums over ranks
        that together hold every parameter once, and all ranks get the result. If every rank holds all parameters,
        `value` itself is returned. All ranks call it together.
        """
        return value

    @property
    def receives_weights(self) -> bool:
        """True if `wrap` sends rank 0's initial weights to all ranks.

        Other ranks may then pass a model on the meta device.
        """
        return False

    @property
    def duplicate_parameters(self) -> frozenset[str]:
        """Names of `parameters` that this rank must leave out of values for `sum_over_shards`.

        Another rank holds the same parameters and includes them.
        """
        return frozenset()

    @property
    def state_ranks(self) -> int:
        """Number of ranks whose optimizers together update every parameter. They are the ranks from 0 on."""
        return self.dims.pipeline

    def broadcast_updates(self) -> None:  # noqa: B027 - most ranks update all their parameters
        """Send updated parameters to the other ranks that hold them. All ranks call it together."""

    def sum_over_batch(self, value: Tensor) -> Tensor:
        """Sum `value` over the parts of the global batch. All ranks with a part call it together."""
        return value

    def loss_divisor(self, batch: Batch) -> Tensor | int:
        """Return the divisor that turns sums of losses over the global batch into means. It is at least 1.

        The result is one divisor for all losses, or a tensor [p] if the model counts different units for its p losses.
        The ranks call it together, even if their part of the batch is empty.
        """
        local = self.model.loss_units(batch.targets) if isinstance(self.model, TensorDetector) else None
        return batch.global_size if local is None else self.sum_over_batch(local).clamp(min=1)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context manager for autocast with the job's precision in forward passes."""
        return autocast(self.device, forward_precision(self.job, self.entry))

    def teardown(self) -> None:  # noqa: B027 - most have no connection
        """Disconnect from the other ranks at the end of a successful run."""


def split_batch(batch: Batch, count: int) -> list[Batch]:
    """Divide `batch` into `count` parts, with sizes as in np.array_split. A small batch has empty parts at the end."""
    if count == 1:
        return [batch]
    pairs = zip(batch.inputs.tensor_split(count), batch.targets.tensor_split(count), strict=True)
    return [replace(batch, inputs=inputs, targets=targets) for inputs, targets in pairs]


def resolve_precision(job: Job) -> str:
    """Return the precision of `job`, after resolving "auto".

    "auto" means bf16 if all devices of the job are GPUs with native bf16, otherwise fp32. Only the GPUs of this machine
    are checked here. `Autotuner` later makes the ranks of a run agree. CUDA device i must be the i-th of the job's
    GPUs, as in a worker.
    """
    if job.precision.name != "auto":
        return job.precision.name
    gpus = [device for device in job.parallel.devices if is_gpu(device)]
    if len(gpus) < len(job.parallel.devices):
        return "fp32"
    local_count = min(len(gpus), torch.cuda.device_count()) if has_remote_devices(gpus) else len(gpus)
    is_native = all(torch.cuda.get_device_capability(index) >= NATIVE_BF16 for index in range(local_count))
    return "bf16" if is_native else "fp32"


def find_device_without_bf16(strategy: Strategy) -> str:
    """Return the name of the first device of this process without native bf16, or "" if there is none."""
    if strategy.device.type != "cuda":
        return "the CPU"
    slow = (gpu for gpu in strategy.gpus if torch.cuda.get_device_capability(gpu) < NATIVE_BF16)
    return next(map(torch.cuda.get_device_name, slow), "")


def memory_format(job: Job) -> torch.memory_format:
    """Return the memory format of images and convolution weights that the job's precision settings choose."""
    return torch.channels_last if job.precision.memory_format == "channels_last" else torch.contiguous_format


def forward_precision(job: Job, strategy: StrategyEntry) -> str:
    """Return the precision of autocast for forward passes of `job` under `strategy`.

    If parameters are sharded in bf16, autocast uses bf16, too. Some buffers remain in fp32, such as the tables in Swin
    V2, and turn activations into fp32. Autocast converts these activations to bf16 before they are combined with
    weights.
    """
    return "bf16" if strategy.shards_parameters and job.parallel.shard_precision == "bf16" else job.precision.name


def synchronize(device: torch.device) -> None:
    """Wait until `device` has completed all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clock(device: torch.device) -> float:
    """Synchronize with `device` and return the time in seconds."""
    synchronize(device)
    return time.perf_counter()


def use_fast_kernels() -> None:
    """Allow TF32 in matrix products and convolutions. It has 10 bits of mantissa.

    torch's `fp32_precision` setting is not used, because model files that read `allow_tf32` or the matmul precision
    would then fail.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def use_deterministic_kernels() -> None:
    """Restrict torch to deterministic kernels. Operations that have none raise an error.

    cuBLAS also needs a separate workspace per stream, which an environment variable requests before its first use
    (NVIDIA's cuBLAS documentation, Results Reproducibility).
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    # Deterministic mode would also fill uninitialized memory, although all of it is written before it is read.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Return the context manager for autocast with `precision`, a value of the job field of that name."""
    return torch.autocast(device.type, _AUTOCAST.get(precision), enabled=precision in _AUTOCAST)


def pci_bus_id(index: int) -> str:
    """Return the PCI bus id of the visible GPU `index` in the format of sysfs: "0000:3b:00.0"."""
    gpu: Any = torch.cuda.get_device_properties(index)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"


def worker_device(spec: WorkerSpec) -> torch.device:
    """Return the device of a worker. A GPU's CUDA index is its position among the run's GPUs on this machine."""
    device = spec.local_devices[spec.device_index]
    if device == CPU:
        return torch.device("cpu")
    return torch.device("cuda", list(filter(is_gpu, spec.local_devices)).index(device))
