"""Interface of training strategies: how a model and each batch are placed on the devices.

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
from engine.contract.cut import Cut
from engine.contract.devices import CPU, has_remote_devices, is_gpu
from engine.contract.events import LogLine, Warned
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.optim.host_copies import copy_to_host
from engine.parallel.layout import Layout, ParallelDims, layout
from engine.strategies.collectives import Collectives
from engine.strategies.profiler import StepProfiler
from engine.system.numa import bound_cpus

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.metrics.base import Metric
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective

NATIVE_BF16 = (8, 0)
"""Compute capability of the first GPUs that support bf16 natively (Ampere)."""

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class StrategyError(ValueError):
    """Error: the job can't run under this strategy. The text gives reason and remedy."""


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """Job in which all automatic values are decided, except whether the model is compiled.

    Attributes:
        shares: Fractions of each batch, from the resumed run if it divides batches in the same way; None to measure
            them.
        cut: Cut of the model, from the resumed run if it cuts the model in the same way; None to find it.
        evaluation_parts: Number of parts of a batch with which a worker without peers starts an evaluation.
    """

    job: Job
    shares: tuple[float, ...] | None = None
    cut: Cut | None = None
    evaluation_parts: int = 1


class StepResult(NamedTuple):
    """One rank's result of a step, as 0-dim tensors on its device; the sum over all ranks is the result of the step.

    `loss` is this rank's part of the mean over the global batch, and `losses` [p] are its parts if the model computes
    several; `correct` and `images` are counts. All are None on a rank that does not receive the model's output.
    """

    loss: Tensor | None
    correct: Tensor | None
    images: Tensor | int | None
    losses: Tensor | None = None


class Strategy(ABC):
    """Interface of all strategies.

    Methods are called in this order: `setup`, `wrap`, creation of the optimizer for `parameters`, `step` and
    `evaluate`, `teardown`.

    `spec` has the job as requested, `resolved` the job as trained, which is known from `wrap` on.

    This worker loads part `data_rank` of `data_world` parts of every batch. A worker whose `loads_data` is False loads
    nothing and passes None for its batches.
    """

    entry: ClassVar[StrategyEntry]
    device: torch.device
    model: nn.Module
    parts: Sequence[nn.Module]
    """Parts of the plain model on this rank, with its names: the full model, or some stages."""
    objective: Objective
    resolved: ResolvedJob
    cut: Cut | None = None
    """Cut of the model with its reasons, known after `wrap` on every rank."""
    shares: tuple[float, ...] = ()
    """Fraction of every batch for each data rank if they differ, known after `wrap`."""
    accumulation: int
    """Number of parts into which a worker divides its part of a batch; a worker without peers raises it if memory runs
    out.
    """
    evaluation_parts: int
    """Number of parts of a batch in evaluations of a worker without peers; several workers use `accumulation`."""
    profiles: ClassVar[type[StepProfiler]] = StepProfiler
    """Class of the profiler for its steps."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.device = worker_device(spec)
        self.collectives = Collectives()
        """Collectives over all ranks of the run, known after `setup`."""
        self.layout: Layout = layout(spec.job, self.entry)
        self.dims = ParallelDims.of(self.entry, self.layout)
        self.coordinate = self.dims.coordinate(spec.rank)
        self.data_rank = self.coordinate.replicate * self.dims.shard + self.coordinate.shard
        self.data_world = self.dims.replicate * self.dims.shard
        self.loads_data = not self.layout.stages or self.coordinate.pipeline == self.layout.stage_ranks[0]
        self.stream_rank = spec.rank // self.dims.tensor
        """Number of this rank's random stream; ranks of a tensor-parallel group share one."""
        self.counts = self.coordinate.tensor == 0
        """True if this rank's results count; False if another rank has the same ones."""
        self.profiler = self.profiles(self.device)
        """Profiler, for which `step` marks its parts."""
        self.remarks: list[Warned | LogLine] = []
        """Messages to the user about the model's placement, on rank 0 after `wrap`."""

    @property
    def gpus(self) -> list[torch.device]:
        """GPUs on which this process computes."""
        if self.device.type != "cuda":
            return []
        if self.entry.process_per_device:
            return [self.device]
        return [torch.device("cuda", index) for index in range(len(self.spec.local_devices))]

    def setup(self) -> None:
        """Connect to the other ranks. Raises StrategyError if the job can't run."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            use_fast_kernels()
            if self.spec.job.precision.numa_binding and self.entry.process_per_device:
                self._bind_to_node()
        if self.spec.job.precision.deterministic:
            use_deterministic_kernels()

    def _bind_to_node(self) -> None:
        """Keep this thread, and those that it starts from now on, on the CPUs near its GPU."""
        if not hasattr(os, "sched_setaffinity"):
            return
        bus_ids = [pci_bus_id(index) for index in range(len(self.spec.local_devices))]
        cpus = bound_cpus(self.spec.device_index, bus_ids, os.sched_getaffinity(0))
        if cpus:
            os.sched_setaffinity(0, cpus)

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context for passes after `wrap` without a reduction of gradients."""
        return nullcontext()

    @property
    def job(self) -> Job:
        """Job as it is trained."""
        return self.resolved.job

    @abstractmethod
    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Place the plain `model` on the devices.

        `shape` is the shape of a sample: [channels, height, width] for images.
        """
        self.objective, self.resolved, self.example_shape = objective, resolved, shape
        self.accumulation, self.evaluation_parts = resolved.job.training.accumulation, resolved.evaluation_parts

    @abstractmethod
    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        """Run one optimizer step on this worker's part of the global batch."""

    @abstractmethod
    def evaluate(self, batches: Iterable[Batch | None], measures: Metric, stop: Callable[[], bool]) -> bool:
        """Evaluate the model over `batches`, so that `measures` covers the full set on every rank.

        `stop` is called before every batch, on all ranks. Returns False if it ended the evaluation.
        """

    def parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return the trainable parameters that this rank updates, with their names in the plain model."""
        named = (each for part in self.parts for each in part.named_parameters())
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]

    def buffers(self) -> list[tuple[str, Tensor]]:
        """Return the floating-point buffers that are averaged with the parameters (BatchNorm's statistics), by name."""
        named = (each for part in self.parts for each in part.named_buffers())
        return [(name, buffer) for name, buffer in named if buffer.is_floating_point()]

    def state_dict(self) -> dict[str, Tensor] | None:
        """Return the model's state on the CPU, with the names of the plain model, on rank 0; None on other ranks.

        All ranks call it together. A GPU may still be copying the state until the caller synchronizes with it.
        """
        return copy_to_host(self.model.state_dict()) if self.spec.rank == 0 else None

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the state of a plain model, which is the same on all ranks. All ranks call it together."""
        self.model.load_state_dict(state)

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over the ranks that together hold every parameter once, on the device of `value`.

        In this way all ranks know the same norm of all gradients, and whether the gradients are finite. All ranks call
        it together. If every rank holds all parameters, the result is `value`.
        """
        return value

    @property
    def receives_weights(self) -> bool:
        """True if `wrap` gives all ranks the initial weights of rank 0, so that others may pass a model on the meta device."""
        return False

    @property
    def repeated(self) -> frozenset[str]:
        """Names of `parameters` that another rank in the sum of `sum_over_shards` holds, too."""
        return frozenset()

    @property
    def state_ranks(self) -> int:
        """Number of ranks, counted from rank 0, that together update all parameters, each a part of them."""
        return self.dims.pipeline

    def share_updates(self) -> None:  # noqa: B027 - most ranks update all that they hold
        """Exchange updated parameters with the other ranks that hold them. All ranks call it together."""

    def sum_over_batch(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over the parts of the global batch, whose ranks call it together."""
        return value

    def loss_divisor(self, batch: Batch) -> Tensor | int:
        """Return the number that the sum of losses over the global batch is divided by, at least 1.

        Ranks call it together, also for an empty part of the batch.
        """
        units = self.objective.loss_units(batch.targets)
        return batch.global_size if units is None else self.sum_over_batch(units).clamp(min=1)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context for forward passes with the job's precision."""
        return autocast(self.device, forward_precision(self.job, self.entry))

    def teardown(self) -> None:  # noqa: B027 - most have no connection
        """Disconnect from the other ranks after a successful training."""


def microbatches(batch: Batch, count: int) -> list[Batch]:
    """Divide `batch` into `count` parts with the sizes of np.array_split; the last ones may be empty."""
    if count == 1:
        return [batch]
    pairs = zip(batch.inputs.tensor_split(count), batch.targets.tensor_split(count), strict=True)
    return [replace(batch, inputs=inputs, targets=targets) for inputs, targets in pairs]


def resolve_precision(job: Job) -> str:
    """Return the precision of `job`; "auto" is bf16 if all its devices are GPUs with native bf16, else fp32.

    This function only knows the GPUs of this machine; the ranks of a run agree later (`Autotuner`). As in a worker,
    CUDA's index is the number among the job's GPUs.
    """
    if job.precision.name != "auto":
        return job.precision.name
    gpus = [device for device in job.parallel.devices if is_gpu(device)]
    visible = min(len(gpus), torch.cuda.device_count()) if has_remote_devices(gpus) else len(gpus)
    native = len(gpus) == len(job.parallel.devices) and all(
        torch.cuda.get_device_capability(index) >= NATIVE_BF16 for index in range(visible)
    )
    return "bf16" if native else "fp32"


def device_without_bf16(strategy: Strategy) -> str:
    """Return the name of the first device of this process that does not support bf16 natively; "" if all do."""
    if strategy.device.type != "cuda":
        return "the CPU"
    slow = (gpu for gpu in strategy.gpus if torch.cuda.get_device_capability(gpu) < NATIVE_BF16)
    return next(map(torch.cuda.get_device_name, slow), "")


def memory_format(job: Job) -> torch.memory_format:
    """Return the memory format for images and for the weights of convolutions."""
    return torch.channels_last if job.precision.memory_format == "channels_last" else torch.contiguous_format


def forward_precision(job: Job, strategy: StrategyEntry) -> str:
    """Return the autocast precision of forward passes.

    If shards are in bf16, buffers remain in fp32 and make activations fp32 (Swin V2's tables). Autocast then converts
    the activations before they are combined with weights.
    """
    return "bf16" if strategy.shards and job.parallel.shard_precision == "bf16" else job.precision.name


def synchronize(device: torch.device) -> None:
    """Wait until `device` has completed all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clock(device: torch.device) -> float:
    """Return the time in seconds after synchronizing with `device`."""
    synchronize(device)
    return time.perf_counter()


def use_fast_kernels() -> None:
    """Let GPUs multiply fp32 matrices with TF32, with 10 bits of mantissa, as torch does for convolutions by default.

    It does not set `fp32_precision`, since a model file that reads `allow_tf32` or the matmul precision would then
    fail.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def use_deterministic_kernels() -> None:
    """Restrict torch to kernels that give the same bits every time; operations without one raise an error.

    cuBLAS needs a separate workspace for each stream; an environment variable requests it before the first use
    (NVIDIA's cuBLAS documentation, Results Reproducibility).
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    # It would also fill memory that is about to be written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Return the context for a forward pass on `device` with a job's `precision`."""
    return torch.autocast(device.type, _AUTOCAST.get(precision), enabled=precision in _AUTOCAST)


def pci_bus_id(index: int) -> str:
    """Return the PCI bus id of a visible GPU as in sysfs: "0000:3b:00.0"."""
    gpu: Any = torch.cuda.get_device_properties(index)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"


def worker_device(spec: WorkerSpec) -> torch.device:
    """Return the device of a worker; CUDA's index is the number among the run's devices on its machine."""
    index = spec.device_index
    return torch.device("cpu") if spec.local_devices[index] == CPU else torch.device("cuda", index)
