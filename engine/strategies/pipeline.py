"""The model is cut into stages, one per device; each batch flows through in microbatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn

from engine.contract.catalogue import StrategyEntry
from engine.contract.layout import choose_microbatches
from engine.strategies.base import StepResult, StrategyError, on_cpu
from engine.strategies.cut import CannotCut, CutPlace, choose_cuts, measure, split, trace
from engine.strategies.distributed import Distributed

if TYPE_CHECKING:
    from engine.data.loader import Batch
    from engine.tasks.base import Measures, Task
    from engine.training.optimizers import Updater

PADDING = -1
"""The target of a picture that only fills a microbatch up and counts for nothing."""


class Pipeline(Distributed):
    """Rank r holds stage r. Rank 0 reads the pictures and sends their targets to the last rank, which alone
    sees the model's output.

    Shapes are static, so every batch is filled up to whole microbatches; what fills it is left out of loss
    and measures. BatchNorm sees microbatches, so that its results equal those of a single device fed with the
    same microbatches. Dropout draws from a stream of its own on every stage.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="pipeline",
        title="Pipeline",
        summary="The model is cut into stages, one per device, and each batch flows through in microbatches.",
        device_kinds=("cuda", "cpu"),
        min_devices=2,
        max_devices=None,
        process_per_device=True,
        splits_batch=False,
        cuts_model=True,
        schedules=True,
        fields=("pipeline_schedule", "microbatches", "stages_per_device", "cuts"),
    )

    _correct: Tensor | None = None
    """How many pictures of the step in hand were right, on the last rank."""
    _counted: Tensor
    """How many pictures of the step in hand count, on the last rank."""

    @property
    def loads_data(self) -> bool:
        return self.is_first

    @property
    def is_first(self) -> bool:
        return self.spec.rank == 0

    @property
    def is_last(self) -> bool:
        return self.spec.rank == self.spec.world_size - 1

    def setup(self) -> None:
        job, stages = self.spec.job, self.spec.world_size
        if job.precision == "fp16":
            raise StrategyError(
                "fp16 cannot be used in a pipeline: its stages would scale the loss each for itself. "
                "Choose bf16 or fp32."
            )
        microbatches = job.microbatches or choose_microbatches(job.batch_size, stages, job.pipeline_schedule)
        if microbatches is None or job.batch_size % microbatches:
            raise StrategyError(
                f"A batch of {job.batch_size} cannot be divided into equal microbatches. Set another batch size."
            )
        self.microbatches = microbatches
        super().setup()

    def wrap(self, model: nn.Module, task: Task, example_shape: tuple[int, int, int]) -> None:
        self.task = task
        model.train()
        self.example_shape = example_shape
        try:
            traces = trace(model)
            cuts = self._cuts(model, traces)
        except CannotCut as error:
            raise StrategyError(
                f"The model cannot be cut into stages: {error}. Choose another model or strategy."
            ) from error
        parts = split(model, traces.train, cuts)
        self._learn_names(model, parts)
        self.model = parts[self.spec.rank].to(self.device)
        evaluated = split(model, traces.eval, cuts)[self.spec.rank].to(self.device)
        _share_buffers(self.model, evaluated)
        self._modes = {module: module.training for module in self.model.modules()}
        self._build_schedules(_Stage(self.model, self), _Stage(evaluated, self))

    def _learn_names(self, model: nn.Module, parts: list[fx.GraphModule]) -> None:
        """Where each name of the plain model's state is to be found when it is put together again."""
        state = model.state_dict(keep_vars=True)
        self._names = list(state)
        in_stages = {name for part in parts for name in part.state_dict()}
        stage_names = {id(tensor): name for name, tensor in state.items() if name in in_stages}
        # What has two names appears in a stage under one of them.
        self._aliases = {
            name: stage_names[id(tensor)]
            for name, tensor in state.items()
            if name not in in_stages and id(tensor) in stage_names
        }
        self._unused = on_cpu(
            {name: tensor for name, tensor in state.items() if name not in in_stages and name not in self._aliases}
        )

    def _cuts(self, model: nn.Module, traces: Any) -> tuple[CutPlace, ...]:
        """The cuts that rank 0 finds by measuring, which all ranks then use."""
        found: list[Any] = [None]
        if self.is_first:
            try:
                model.to(self.device)
                size = self.spec.job.batch_size // self.microbatches
                example = torch.zeros(size, *self.example_shape, device=self.device)
                with self.autocast():
                    seconds = measure(model, traces, example, self.clock)
                found = [choose_cuts(traces, seconds, self.spec.world_size)]
            except CannotCut as error:
                found = [error]
        dist.broadcast_object_list(found, 0, group=self.control)
        if isinstance(found[0], CannotCut):
            raise found[0]
        cuts: tuple[CutPlace, ...] = found[0]
        return cuts

    def _build_schedules(self, trained: nn.Module, evaluated: nn.Module) -> None:
        # Imported here, since it costs much and the other strategies do without.
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        rank, world = self.spec.rank, self.spec.world_size
        schedule = Schedule1F1B if self.spec.job.pipeline_schedule == "1f1b" else ScheduleGPipe
        self._training = schedule(
            PipelineStage(trained, rank, world, self.device), self.microbatches, loss_fn=self._loss, scale_grads=False
        )
        self._evaluation = ScheduleGPipe(PipelineStage(evaluated, rank, world, self.device), self.microbatches)

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """A microbatch's share of the mean over the global batch."""
        outputs = outputs.float()
        losses = self.task.loss(outputs, targets.clamp(min=0)) * (targets != PADDING)
        with torch.no_grad():
            hits = self.task.correct(outputs, targets)
            self._correct = hits if self._correct is None else self._correct + hits
        return losses.sum() / self._counted

    def step(self, batch: Batch | None, updater: Updater) -> StepResult:
        inputs, targets = self._feed(batch)
        updater.zero_grad()
        self._correct = None
        if not self.is_last:
            self._training.step(*inputs, return_outputs=False)
            updater.step()
            return StepResult(None, None, None)
        self._counted = (targets != PADDING).sum()
        losses: list[Tensor] = []
        self._training.step(*inputs, target=targets, losses=losses, return_outputs=False)
        updater.step()
        return StepResult(torch.stack(losses).detach().sum(), self._correct, self._counted)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch | None], measures: Measures, stop: Callable[[], bool]) -> bool:
        self.model.eval()
        try:
            for batch in batches:
                if stop():
                    return False
                inputs, targets = self._feed(batch)
                outputs = self._evaluation.step(*inputs)
                if self.is_last:
                    counted = targets != PADDING
                    if counted.any():
                        measures.update(outputs.float()[counted], targets[counted])
        finally:
            # Not train(): frozen layers stay as the task set them.
            for module, training in self._modes.items():
                module.training = training
        measures.counters = self.total(measures.counters)
        return True

    def _feed(self, batch: Batch | None) -> tuple[tuple[Tensor, ...], Tensor]:
        """The first stage's arguments, and on the last rank the targets; the batch is filled up."""
        size = self.spec.job.batch_size
        inputs: tuple[Tensor, ...] = ()
        targets = torch.full((size,), PADDING, dtype=torch.int64, device=self.device)
        if batch is not None:
            count = len(batch.targets)
            targets[:count] = batch.targets
            inputs = (_filled(batch.inputs, size),)
        last = self.spec.world_size - 1
        if self.is_first:
            dist.send(targets, last)
        elif self.is_last:
            dist.recv(targets, 0)
        return inputs, targets

    def state_dict(self) -> dict[str, Tensor] | None:
        parts = self._gathered(on_cpu(self.model.state_dict()))
        if parts is None:
            return None
        held = {name: tensor for part in parts for name, tensor in part.items()}
        held |= {alias: held[name] for alias, name in self._aliases.items()}
        held |= self._unused
        return {name: held[name] for name in self._names}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        own = self.model.state_dict()
        self.model.load_state_dict({name: state.get(name, tensor) for name, tensor in own.items()})
        self._unused = on_cpu({name: state[name] for name in self._unused})

    def optimizer_state(self, updater: Updater) -> dict[str, Any] | None:
        parts = self._gathered(updater.state_dict())
        if parts is None:
            return None
        return parts[0] | {"state": {name: state for part in parts for name, state in part["state"].items()}}

    def _gathered(self, part: Any) -> list[Any] | None:
        parts: list[Any] | None = [None] * self.spec.world_size if self.is_first else None
        dist.gather_object(part, parts, 0, group=self.control)
        return parts


class _Stage(nn.Module):
    """A stage as the schedule calls it: under the job's precision, with contiguous gradients going back."""

    def __init__(self, part: fx.GraphModule, strategy: Pipeline) -> None:
        super().__init__()
        self.part = part
        self.autocast = strategy.autocast

    def forward(self, received: Tensor) -> Tensor:
        if received.requires_grad:
            received.register_hook(lambda gradient: gradient.contiguous())
        with self.autocast():
            outputs: Tensor = self.part(received)
        return outputs


def _share_buffers(trained: nn.Module, evaluated: nn.Module) -> None:
    """Makes both graphs of a stage use the same buffers, which moving to a device may have copied."""
    names = {name for name, _ in evaluated.named_buffers()}
    for name, buffer in trained.named_buffers():
        if name in names:
            module, _, own = name.rpartition(".")
            evaluated.get_submodule(module)._buffers[own] = buffer


def _filled(inputs: Tensor, size: int) -> Tensor:
    """`inputs` repeated from its beginning until there are `size` pictures; blank ones where there are none."""
    count = len(inputs)
    if count == size:
        return inputs
    if count == 0:
        return inputs.new_zeros(size, *inputs.shape[1:])
    return inputs[torch.arange(size, device=inputs.device) % count]
