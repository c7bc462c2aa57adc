"""Reference training loop in plain torch, whose results every strategy must reproduce.

It composes batches and builds models with Footplate's code. It implements the steps independently, in the simplest way:
forward and backward per chunk of the batch, summed gradients, one optimizer step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR

from engine.contract.job import Job
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import Purpose, RandomStreams
from engine.tasks.registry import TASKS

ModelPart = Callable[[Tensor], Tensor]


@dataclass
class PlainResult:
    """Losses of each step, validation results of each epoch, and the final weights and optimizer state, by name."""

    losses: list[float]
    validations: list[tuple[float, float]]
    weights: dict[str, Tensor]
    optimizer: dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class ChunkPlan:
    """Division of each batch into chunks, and the chunks' effects on BatchNorm and random numbers.

    Attributes:
        chunks: Number of samples in each chunk.
        statistics_of: Indices of the chunks that update BatchNorm statistics, or None for all.
        parts: Function that divides the model into consecutive modules with separate random streams.
    """

    chunks: tuple[int, ...]
    statistics_of: tuple[int, ...] | None = None
    parts: Callable[[nn.Module], list[ModelPart]] = lambda model: [model]
    stream: Callable[[int, int], int] = lambda chunk, module: 0
    """Function that returns the number of the random stream for a chunk and a module, given their indices."""


def train_plainly(job: Job, plan: ChunkPlan) -> PlainResult:
    """Train `job` on the CPU in this process with one thread.

    `plan` divides each batch into chunks. Supports SGD with momentum, AdamW, the cosine schedule and fp32.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            return _train(job, plan)
    finally:
        torch.set_num_threads(threads)


def _train(job: Job, plan: ChunkPlan) -> PlainResult:
    splits = open_splits(job.data.dataset, val_fraction=job.data.val_fraction, seed=job.training.seed)
    torch.manual_seed(job.training.seed)
    model = TASKS[job.task].build_model(job, len(splits.classes), splits.channels)
    model.train()
    parts = plan.parts(model)
    streams = _SwitchedStreams(job.training.seed)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = _create_optimizer(job, model)
    train, val = _loader(job, splits, training=True), _loader(job, splits, training=False)
    schedule = CosineAnnealingLR(optimizer, job.training.epochs * len(train))
    result = PlainResult([], [], {}, {})
    for epoch in range(1, job.training.epochs + 1):
        for batch in train.epoch(epoch):
            optimizer.zero_grad()
            assert sum(plan.chunks) == len(batch.targets)
            step_loss = 0.0
            pieces = zip(batch.inputs.split(plan.chunks), batch.targets.split(plan.chunks), strict=True)
            for number, (inputs, targets) in enumerate(pieces):
                keeps_statistics = plan.statistics_of is None or number in plan.statistics_of
                with _restore_buffers(model, changed=keeps_statistics):
                    crossing = inputs
                    for place, module in enumerate(parts):
                        with streams.of(plan.stream(number, place)):
                            crossing = module(crossing)
                loss = functional.cross_entropy(crossing, targets, reduction="sum") / sum(plan.chunks)
                loss.backward()
                step_loss += loss.item()
            optimizer.step()
            schedule.step()
            result.losses.append(step_loss)
        result.validations.append(_validate(model, val))
    result.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for parameter, state in optimizer.state.items():
        result.optimizer[names[id(parameter)]] = dict(state)
    return result


def evaluate_plainly(job: Job, weights: dict[str, Tensor]) -> tuple[float, float]:
    """Return the mean validation loss and accuracy of the job's model with `weights`."""
    splits = open_splits(job.data.dataset, val_fraction=job.data.val_fraction, seed=job.training.seed)
    model = TASKS[job.task].build_model(job, len(splits.classes), splits.channels)
    model.load_state_dict(weights)
    return _validate(model, _loader(job, splits, training=False))


def _create_optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    """Create the job's optimizer. It is fused, because torch's other implementations round differently."""
    rate, decay = job.optimizer.learning_rate, job.optimizer.weight_decay
    if job.optimizer.name == "adamw":
        return torch.optim.AdamW(model.parameters(), rate, weight_decay=decay, fused=True)
    return torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=decay, fused=True)


def _validate(model: nn.Module, val: BatchLoader) -> tuple[float, float]:
    model.eval()
    loss = right = count = 0.0
    with torch.no_grad():
        for batch in val.epoch(1):
            outputs = model(batch.inputs)
            loss += functional.cross_entropy(outputs, batch.targets, reduction="sum").item()
            right += float((outputs.argmax(1) == batch.targets).sum())
            count += len(batch.targets)
    model.train()
    return loss / count, right / count


def _loader(job: Job, splits: Splits, *, training: bool) -> BatchLoader:
    task = TASKS[job.task]
    images = splits.train if training else splits.val
    mean, std = task.get_normalization(job, splits.channels)

    def unreadable(path: str, reason: str) -> None:
        raise AssertionError(f"{path}: {reason}")

    return BatchLoader(
        images,
        GlobalBatchSampler(
            len(images), job.training.batch_size, 0, 1, RandomStreams(job.training.seed), shuffle=training
        ),
        size=task.get_image_size(job),
        channels=splits.channels,
        augmentation="none",
        mean=mean,
        std=std,
        threads=0,
        device=torch.device("cpu"),
        on_unreadable=unreadable,
    )


class _SwitchedStreams:
    """Set of random streams, of which one is active at a time. Stream n starts with the seed of rank n."""

    def __init__(self, seed: int) -> None:
        self._streams = RandomStreams(seed)
        self._states: dict[int, Tensor] = {}

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        if number not in self._states:
            torch.manual_seed(self._streams.derive_seed(Purpose.MODEL, rank=number))
        else:
            torch.set_rng_state(self._states[number])
        yield
        self._states[number] = torch.get_rng_state()


@contextmanager
def _restore_buffers(model: nn.Module, *, changed: bool) -> Iterator[None]:
    """Restore the model's buffers after the block, or keep their new values if `changed` is True."""
    buffers: list[tuple[nn.Module, str, Tensor]] = []
    if not changed:
        for module in model.modules():
            buffers += [(module, name, tensor) for name, tensor in module._buffers.items() if tensor is not None]
    for module, name, tensor in buffers:
        module._buffers[name] = tensor.clone()
    yield
    for module, name, tensor in buffers:
        module._buffers[name] = tensor
