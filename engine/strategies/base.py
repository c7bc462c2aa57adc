"""What a strategy is: the way in which a model and each batch are laid on the devices.

A strategy owns the whole step. For all of them alike the loss that is differentiated and reported is the
mean over the global batch, so that changing the strategy does not change the training.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from engine.contract.catalogue import StrategyEntry
from engine.contract.cut import Cut
from engine.contract.devices import CPU, elsewhere, is_gpu
from engine.contract.events import LogLine, Warned
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.parallel.layout import Layout, ParallelDims, layout
from engine.strategies.collectives import Collectives
from engine.strategies.profiler import StepProfiler

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.metrics.base import Metric
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective

NATIVE_BF16 = (8, 0)
"""The compute capability from which GPUs support bf16: Ampere's."""

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class StrategyError(ValueError):
    """The job cannot run under this strategy; the text says why and what to do, in plain words."""


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """A `job` in which nothing is left open but what can only be tried on the wrapped model: whether that is compiled.

    `shares` and `cut` are those of the run that this one goes on from, where it divides batches and the model alike;
    None where the strategy finds them. In an evaluation, a worker that is alone begins with `evaluation_parts` parts
    of a batch.
    """

    job: Job
    shares: tuple[float, ...] | None = None
    cut: Cut | None = None
    evaluation_parts: int = 1


class StepResult(NamedTuple):
    """What one rank's part of a step gave, as 0-dim tensors on its device; summed over the ranks it is the step's.

    `loss` is this rank's share of the mean over the global batch; `correct` and `images` count. All are
    None on a rank that does not see the model's output.
    """

    loss: Tensor | None
    correct: Tensor | None
    images: Tensor | int | None


class Strategy(ABC):
    """The interface. The order of calls: `setup`, `wrap`, then the optimizer is built over `parameters`,
    then `step` and `evaluate`, at last `teardown`.

    `spec` has the job as it was asked for, `resolved` as it is trained, known from `wrap` on.

    `data_rank` of `data_world` is the share of every batch that this worker loads; a worker whose
    `loads_data` is false loads nothing and passes None for its batches.
    """

    entry: ClassVar[StrategyEntry]
    device: torch.device
    model: nn.Module
    parts: Sequence[nn.Module]
    """The part of the plain model that this rank holds, by its names: all of it, or some stages."""
    objective: Objective
    resolved: ResolvedJob
    cut: Cut | None = None
    """Where the model was cut and why, known after `wrap` on every rank."""
    shares: tuple[float, ...] = ()
    """Each data rank's share of every batch if they are unequal, known after `wrap`; they add up to 1."""
    accumulation: int
    """Parts that a worker goes through its share of a batch in, one after another; of one that is alone, what makes
    the steps raises it where memory runs out."""
    evaluation_parts: int
    """The same in an evaluation, which raises it itself; several workers go by `accumulation`."""
    profiles: ClassVar[type[StepProfiler]] = StepProfiler
    """The profiler of its steps."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.device = worker_device(spec)
        self.collectives = Collectives()
        """The collectives over all ranks of the run, known after `setup`."""
        self.layout: Layout = layout(spec.job, self.entry)
        self.dims = ParallelDims.of(self.entry, self.layout)
        self.coordinate = self.dims.coordinate(spec.rank)
        self.data_rank = self.coordinate.replicate * self.dims.shard + self.coordinate.shard
        self.data_world = self.dims.replicate * self.dims.shard
        self.loads_data = not self.layout.stages or self.coordinate.pipeline == self.layout.stage_ranks[0]
        self.stream_rank = spec.rank // self.dims.tensor
        """Which of the ranks that draw random numbers of their own this rank draws as."""
        self.counts = self.coordinate.tensor == 0
        """Whether this rank's results are the run's, and not those that another rank has, too."""
        self.profiler = self.profiles(self.device)
        """`step` marks its parts here."""
        self.remarks: list[Warned | LogLine] = []
        """Messages to the user about how the model was laid out, on rank 0 after `wrap`."""

    def setup(self) -> None:
        """Meets the other ranks. Raises StrategyError where the job cannot run."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            use_fast_kernels()
        if self.spec.job.precision.deterministic:
            use_deterministic_kernels()

    def no_sync(self) -> AbstractContextManager[None]:
        """The context of a pass after `wrap` in which the ranks do not join their gradients."""
        return nullcontext()

    @property
    def job(self) -> Job:
        """The job as it is trained."""
        return self.resolved.job

    @abstractmethod
    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Lays the plain `model` on the devices. `shape` is one sample's: an image's [channels, height, width]."""
        self.objective, self.resolved, self.example_shape = objective, resolved, shape
        self.accumulation, self.evaluation_parts = resolved.job.training.accumulation, resolved.evaluation_parts

    @abstractmethod
    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        """One optimizer step on this worker's share of the global batch."""

    @abstractmethod
    def evaluate(self, batches: Iterable[Batch | None], measures: Metric, stop: Callable[[], bool]) -> bool:
        """Measures the model over `batches`, after which `measures` holds the whole set's on every rank.

        `stop` is asked before every batch, on every rank alike; returns False where it broke off.
        """

    def parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The trainable parameters that this rank updates, by their names in the plain model."""
        named = (each for part in self.parts for each in part.named_parameters())
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]

    def buffers(self) -> list[tuple[str, Tensor]]:
        """The floating-point buffers, as BatchNorm's statistics, that this rank averages with its parameters, by their
        names in the plain model.
        """
        named = (each for part in self.parts for each in part.named_buffers())
        return [(name, buffer) for name, buffer in named if buffer.is_floating_point()]

    def state_dict(self) -> dict[str, Tensor] | None:
        """The model's state on the CPU under the plain model's names, on rank 0; None elsewhere.

        All ranks call it together. A GPU may still be copying it until it is synchronized with.
        """
        return on_cpu(self.model.state_dict()) if self.spec.rank == 0 else None

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes over a plain model's state. All ranks call it with the same."""
        self.model.load_state_dict(state)

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """The sum of `value` over the ranks that together hold the parameters once, on the device of `value`.

        So that the norm of all gradients, and whether any of them is not finite, is the same on all ranks.
        All ranks call it together; where every rank holds all parameters it is `value` itself.
        """
        return value

    @property
    def repeated(self) -> frozenset[str]:
        """The names of `parameters` that another rank holds, too, of those whose values `sum_over_shards` adds up."""
        return frozenset()

    @property
    def state_ranks(self) -> int:
        """How many ranks, from 0 on, update each a part of the parameters, and all of them together."""
        return self.dims.pipeline

    def share_updates(self) -> None:  # noqa: B027 - most ranks update all that they hold
        """Gives what this rank has changed of `parameters` to the ranks that hold them, too, and takes over theirs.

        All ranks call it together.
        """

    def autocast(self) -> AbstractContextManager[None]:
        """The context in which the forward pass runs, by the job's precision."""
        return autocast(self.device, forward_precision(self.job, self.entry))

    def teardown(self) -> None:  # noqa: B027 - most have nobody to part from
        """Parts from the other ranks, after all has gone well."""


def microbatches(batch: Batch, count: int) -> list[Batch]:
    """`batch` in `count` parts of the sizes of np.array_split, in order; the last are empty where it has fewer
    samples.
    """
    if count == 1:
        return [batch]
    pairs = zip(batch.inputs.tensor_split(count), batch.targets.tensor_split(count), strict=True)
    return [replace(batch, inputs=inputs, targets=targets) for inputs, targets in pairs]


def settled_precision(job: Job) -> str:
    """What `job` computes in where it leaves its precision open: bf16 if all its devices are GPUs that have it, else
    fp32.
    CUDA's index is the number among the job's GPUs, as in a worker.
    """
    if job.precision.name != "auto":
        return job.precision.name
    gpus = [device for device in job.parallel.devices if is_gpu(device)]
    own = min(len(gpus), torch.cuda.device_count()) if elsewhere(gpus) else len(gpus)  # each machine looks at its own
    native = len(gpus) == len(job.parallel.devices) and all(
        torch.cuda.get_device_capability(index) >= NATIVE_BF16 for index in range(own)
    )
    return "bf16" if native else "fp32"


def memory_format(job: Job) -> torch.memory_format:
    """How images and the weights of convolutions lie in memory."""
    return torch.channels_last if job.precision.memory_format == "channels_last" else torch.contiguous_format


def forward_precision(job: Job, strategy: StrategyEntry) -> str:
    """What a forward pass is autocast to. Of shards computed in bf16, buffers stay in fp32 and make activations so
    (Swin V2's tables): these are cast where they meet weights.
    """
    return "bf16" if strategy.shards and job.parallel.shard_precision == "bf16" else job.precision.name


def synchronize(device: torch.device) -> None:
    """Waits until `device` has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clock(device: torch.device) -> float:
    """Seconds, after having waited for `device`."""
    synchronize(device)
    return time.perf_counter()


def use_fast_kernels() -> None:
    """Lets GPUs multiply matrices of fp32 numbers as TF32, which keeps 10 bits of the mantissa and is torch's default
    for convolutions alone.

    Not by `fp32_precision`, after which a model file that reads `allow_tf32` or the matmul precision fails.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def use_deterministic_kernels() -> None:
    """Lets torch compute by kernels alone that give the same bits every time, and refuse an operation that has none.

    cuBLAS does so with a workspace of its own for each stream, by a variable that it reads when it is first used
    (NVIDIA's cuBLAS documentation, Results Reproducibility).
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    # It would also fill memory that is about to be written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """The context in which a forward pass runs on `device` under a job's `precision`."""
    return torch.autocast(device.type, _AUTOCAST.get(precision), enabled=precision in _AUTOCAST)


def worker_device(spec: WorkerSpec) -> torch.device:
    """The device of a worker that has one: CUDA's index is the number among the run's devices on its machine."""
    index = spec.device_index
    return torch.device("cpu") if spec.own_devices[index] == CPU else torch.device("cuda", index)


def on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A copy of `state` on the CPU that does not change with the model.

    From a GPU it comes in pinned memory and in the order of what is asked of the device, which may have yet to do it.
    """
    return {name: tensor.detach().to("cpu", copy=True, non_blocking=True) for name, tensor in state.items()}
