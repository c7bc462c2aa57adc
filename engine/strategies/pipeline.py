"""Strategy that splits the model into stages on several devices, and sends microbatches through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.utils import swap_tensors

from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import CPU
from engine.contract.model_split import ModelSplit
from engine.models.registry import is_external
from engine.optim.host_copies import copy_to_host
from engine.parallel.layout import ZERO_BUBBLE, supports_microbatches
from engine.parallel.split_points import CannotSplit
from engine.strategies.base import ResolvedJob, StepResult, StrategyError, clock, synchronize
from engine.strategies.collectives import sync_metrics
from engine.strategies.distributed import Distributed, broadcast_weights, tensors_of
from engine.strategies.gradients import match_strides, sum_gradients
from engine.strategies.pipelining.microbatch_feeder import PADDING, MicrobatchFeeder, RankInput
from engine.strategies.pipelining.model_split import Traces, preserve_modes, split_graph, trace
from engine.strategies.pipelining.relay import Relay
from engine.strategies.pipelining.stage_costs import (
    RankCosts,
    assemble_split,
    measure_rank,
    measure_seconds_per_byte,
    select_split_points,
)
from engine.strategies.pipelining.stage_state import PlainState, share_buffers
from engine.strategies.pipelining.timeline import ScheduleProfiler, compute_idle_fraction, simulate
from engine.strategies.recompute import BufferSnapshot
from engine.torch_compat import prepare_pipelines

if TYPE_CHECKING:
    from engine.data.loading.base_loader import Batch
    from engine.metrics.base import Metric
    from engine.optim.optimizer_step import OptimizerStep
    from engine.tasks.base import Objective


class Pipeline(Distributed):
    """Strategy with one or several stages of the model on each rank.

    The rank of the first stage loads the batches and sends their targets to the rank of the last stage, the only rank
    with the model's output. With the ZBV schedule, both are the same rank.

    All batches have the same shape: smaller ones are padded to complete microbatches, and the loss and metrics ignore
    the padding. BatchNorm normalizes each microbatch separately, as on a single device with the same microbatches.
    Dropout takes its random numbers from one stream per rank, in the order of the schedule's forward passes. With one
    stage per rank, this is the order of the microbatches.

    On a mesh with replicas, each pipeline processes a part of every batch and divides its losses by the size of the
    global batch. All pipelines have the same stages. After the schedule, gradients are summed over the replicas. This
    works for all schedules, whereas DistributedDataParallel computes wrong gradients if a schedule divides the backward
    pass (pytorch#144530). BatchNorm's running statistics of the first replica are broadcast before an evaluation, and
    saved in checkpoints.
    """

    entry: ClassVar[StrategyEntry] = StrategyEntry(
        id="pipeline",
        title="Pipeline",
        summary="The model is split into stages, one per device, and each batch flows through them in microbatches.",
        mesh=("pipeline",),
        is_recommended=True,
        fields=("pipeline_schedule", "microbatches", "stages_per_device", "split_points"),
    )

    profiler_class = ScheduleProfiler
    profiler: ScheduleProfiler
    group: dist.ProcessGroup | None = None
    """Group of the ranks of this pipeline, which exchange activations, or None for all ranks."""
    peers: dist.ProcessGroup | None = None
    """Group of the ranks with the same stages in all pipelines, or None with a single pipeline."""
    _rank_input: RankInput
    """Input of this rank for the current step, which `_compute_loss` reads."""
    _optimizer_step: OptimizerStep

    def setup(self) -> None:
        """Choose the schedule and the size of the microbatches, and connect to the other ranks.

        Raises StrategyError if the batch or the schedule does not fit the number of devices.
        """
        job, microbatches = self.spec.job, self.layout.microbatches
        self.schedule = job.parallel.pipeline_schedule if self.entry.has_schedule else "gpipe"
        divisor = self.dims.replicate * job.training.accumulation * (microbatches or 1)
        if microbatches is None or job.training.batch_size % divisor:
            remedy = "Set another batch size." if microbatches is None else f"Set a multiple of {divisor}."
            raise StrategyError(
                f"A batch of {job.training.batch_size} can't be divided into equal microbatches. {remedy}"
            )
        if not supports_microbatches(self.schedule, microbatches, self.dims.pipeline):
            raise StrategyError(
                f"The schedule {self.schedule} can't run with {microbatches} microbatches on "
                f"{self.dims.pipeline} devices. Set another number of microbatches, or leave it empty."
            )
        if job.parallel.activation_checkpointing and self.schedule in ZERO_BUBBLE:
            raise StrategyError(
                "A zero-bubble schedule splits the backward pass, and activation checkpointing would "
                "recompute every layer's activations for each part. Choose 1F1B, or turn activation "
                "checkpointing off."
            )
        self.microbatches = microbatches
        self.batch_size = job.training.batch_size // self.dims.replicate
        self.microbatch_size = self.batch_size // (job.training.accumulation * microbatches)
        super().setup()
        if self.dims.replicate > 1:
            mesh = self.create_mesh()
            self.group, self.peers = mesh.get_group("pipeline"), mesh.get_group("replicate")

    def wrap(self, model: nn.Module, objective: Objective, shape: tuple[int, ...], resolved: ResolvedJob) -> None:
        """Split the model into stages, and place this rank's stages on its device.

        Each stage has two graphs that share weights and buffers: one for training and one for evaluation. Raises
        StrategyError if the model can't be split.
        """
        super().wrap(model, objective, shape, resolved)
        self._blank_target = objective.create_blank_targets(torch.empty(1, *shape))[0]  # for its shape and type
        model.train()
        try:
            traces = trace(model)
            self.model_split = resolved.model_split or self._find_split(model, traces)
        except CannotSplit as error:
            raise StrategyError(f"The model can't be split into stages: {error}. {error.remedy}") from error
        points = select_split_points(traces, self.model_split)
        train_graphs = split_graph(model, traces.train, points)
        eval_graphs = split_graph(model, traces.eval, points)
        self._state = PlainState(model, train_graphs)
        local_stages = self.layout.stages_at(self.coordinate.pipeline)
        if self.receives_weights:  # other ranks may have built the model without weights
            local_graphs = [graphs[stage] for stage in local_stages for graphs in (train_graphs, eval_graphs)]
            self._distribute(model, local_graphs)
        self._stage_modules = {stage: train_graphs[stage].to(self.device) for stage in local_stages}
        self.local_modules = list(self._stage_modules.values())
        self.model = nn.ModuleList(self.local_modules)
        for stage in local_stages:
            share_buffers(self._stage_modules[stage], eval_graphs[stage].to(self.device))
        self._build_schedule()
        self._connect_ranks({stage: eval_graphs[stage] for stage in local_stages})

    @property
    def receives_weights(self) -> bool:
        return not is_external(self.spec.job)  # a user's model may depend on the values of its weights

    @torch.no_grad()
    def _distribute(self, model: nn.Module, local_graphs: Sequence[nn.Module]) -> None:
        """Copy rank 0's parameters and buffers to the ranks whose stages use them.

        `local_graphs` has the graphs of this rank's stages. All ranks call this together. The tensors of `model` remain
        the same objects, because both graphs of a stage (for training and evaluation) share them.
        """
        used_here = {id(tensor) for graph in local_graphs for tensor in tensors_of(graph)}
        complete = tensors_of(model)
        for weights, tensor in zip(broadcast_weights(complete, self.device), complete, strict=True):
            if self.spec.rank and id(tensor) in used_here:
                received = torch.empty_like(tensor, device=self.device).copy_(weights)
                is_parameter = isinstance(tensor, nn.Parameter)
                swap_tensors(tensor, nn.Parameter(received, tensor.requires_grad) if is_parameter else received)

    def _find_split(self, model: nn.Module, traces: Traces) -> ModelSplit:
        """Measure the segments of the model on the ranks of the first replica, and return the best split for them.

        Rank 0 computes the split from the measurements of all ranks and sends it to them. All ranks call this together,
        and all raise CannotSplit if a measurement or the choice of the split points fails on any of them.
        """
        costs: RankCosts | CannotSplit | None = None
        link_seconds_per_byte = 0.0
        if self.coordinate.replicate == 0:
            try:
                costs = measure_rank(
                    model,
                    traces,
                    torch.zeros(self.microbatch_size, *self.example_shape, device=self.device),
                    job=self.job,
                    device=self.spec.devices[self.spec.rank],
                    workers=self.spec.local_devices.count(CPU),
                    clock=partial(clock, self.device),
                    autocast=self.autocast,
                )
            except CannotSplit as error:
                costs = error
            link_seconds_per_byte = measure_seconds_per_byte(self.group, self.device)
        gathered = self.collectives.gather_objects(costs)
        outcome: ModelSplit | CannotSplit | None = None  # on rank 0
        if gathered is not None:
            gathered = gathered[: self.dims.pipeline]  # the other replicas measured nothing
            try:
                for rank_costs in gathered:
                    if isinstance(rank_costs, CannotSplit):
                        raise rank_costs
                outcome = assemble_split(
                    model,
                    traces,
                    job=self.job,
                    layout=self.layout,
                    gathered=gathered,
                    link_seconds_per_byte=link_seconds_per_byte,
                )
            except CannotSplit as error:
                outcome = error
        outcome = self.collectives.broadcast_object(outcome)
        if isinstance(outcome, CannotSplit):
            raise outcome
        assert outcome is not None
        return outcome

    def _compute_stage_boundaries(self, modules: Mapping[int, nn.Module]) -> list[Tensor]:
        """Return meta tensors with the shapes of the tensors between stages, for one microbatch.

        These are the input of each stage and the output of the last one. Each rank runs its stages on blank input and
        broadcasts the shapes of their outputs. All ranks call this together and pass their own stages in `modules`, by
        stage number.
        """
        boundaries = [torch.empty(self.microbatch_size, *self.example_shape, device="meta")]
        cuda = [self.device] if self.device.type == "cuda" else []
        for stage, holder in enumerate(self.layout.stage_ranks):
            output_meta: list[Any] = [None]  # filled by the rank of the stage, then by the broadcast
            if stage in modules:
                received = boundaries[-1]
                blank = torch.zeros_like(received, device=self.device).requires_grad_(received.requires_grad)
                with torch.random.fork_rng(devices=cuda), BufferSnapshot(modules[stage]):
                    output = modules[stage](blank)
                output_meta = [torch.empty_like(output, device="meta", requires_grad=output.requires_grad)]
            dist.broadcast_object_list(output_meta, holder, group=self.control)
            boundaries += output_meta
        return boundaries

    def _build_schedule(self) -> None:
        """Create the training schedule of this rank's stages, and give the profiler its theoretical idle fraction."""
        # Imported here, because the import is slow and other strategies do not need it.
        from engine.strategies.pipelining import schedules
        from engine.strategies.pipelining.stage import RecordedStage, StageModule

        prepare_pipelines()
        options = {
            "recompute": self.job.parallel.activation_checkpointing,
            "divided_backward": self.schedule in ZERO_BUBBLE,
        }
        modules = {
            stage: StageModule(module, self.autocast, **options) for stage, module in self._stage_modules.items()
        }
        boundaries = self._compute_stage_boundaries(modules)
        stages = [
            RecordedStage(
                module,
                stage,
                self.layout.stages,
                received=boundaries[stage],
                output=boundaries[stage + 1],
                device=self.device,
                group=self.group,
                profiler=self.profiler,
            )
            for stage, module in modules.items()
        ]
        self._schedule = schedules.create_schedule(self.schedule, stages, self.microbatches, self._compute_loss)
        order = schedules.pass_order(self.schedule, self._schedule, self.dims.pipeline, self.microbatches)
        self.profiler.schedule, self.profiler.devices = self.schedule, self.dims.pipeline
        self.profiler.theory = compute_idle_fraction(simulate(order))

    def _connect_ranks(self, eval_graphs: Mapping[int, fx.GraphModule]) -> None:
        """Create the relay for evaluations and the feeder, which exchange tensors with the other ranks.

        `eval_graphs` has the graphs of this rank's stages in evaluation mode, by stage number.
        """
        from engine.strategies.pipelining.stage import StageModule

        ranks = [self.coordinate.replicate * self.dims.pipeline + holder for holder in self.layout.stage_ranks]
        stages = {stage: StageModule(graph, self.autocast) for stage, graph in eval_graphs.items()}
        self._relay = Relay(stages, ranks, self.device, self.group, self.control)
        self._feeder = MicrobatchFeeder(
            first=ranks[0],
            last=ranks[-1],
            size=self.batch_size,
            device=self.device,
            group=self.group,
            control=self.control,
            blank_target=self._blank_target,
        )

    def _compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return a microbatch's contribution to the mean loss over the global batch, scaled for the backward pass.

        The schedule calls this at the end of a forward pass. The recorded time of that pass is extended by the time for
        the loss.
        """
        is_real = (targets.reshape(len(targets), -1) != PADDING).all(1)
        losses = self.objective.loss(outputs.float(), targets.clamp(min=0)) * is_real
        loss = self._optimizer_step.scale(losses.sum() / self._rank_input.global_size)
        self.profiler.extend_last_pass()
        return loss

    def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
        """Run one optimizer step with the schedule. Ranks other than that of the last stage return no loss."""
        self._optimizer_step = optimizer_step
        self._rank_input = rank_input = self._feeder.feed(batch)
        self.profiler.mark("communication")
        optimizer_step.zero_grad()
        self.profiler.mark("optimizer")
        losses, correct = self._run_rounds(rank_input)
        if self.schedule in ZERO_BUBBLE:  # its gradients may have other strides than the parameters
            match_strides(self.model.parameters())
        if self.peers is not None:  # ranks with the same stages in all replicas
            sum_gradients(
                [parameter.grad for _, parameter in self.parameters() if parameter.grad is not None], self.peers
            )
        self.profiler.mark("communication")
        result = StepResult(loss=None, correct=None, images=None)
        if rank_input.targets is not None:
            loss = self._unscale(torch.stack(losses).sum())
            result = StepResult(loss, torch.stack(correct).sum() if correct else None, rank_input.images)
        optimizer_step.step(result.loss)
        self.profiler.mark("optimizer")
        rank_input.wait_until_sent()
        self.profiler.mark("communication")
        return result

    def _run_rounds(self, rank_input: RankInput) -> tuple[list[Tensor], list[Tensor]]:
        """Run the schedule once for each part of a batch, and accumulate the gradients.

        Returns the losses and the numbers of correct classifications, which are empty except on the rank of the last
        stage.
        """
        rounds = self.accumulation
        inputs = rank_input.inputs.chunk(rounds) if rank_input.inputs is not None else None
        targets = rank_input.targets.chunk(rounds) if rank_input.targets is not None else None
        losses: list[Tensor] = []
        correct: list[Tensor] = []
        for number in range(rounds):
            self.profiler.drop_passes()  # only the last round is reported
            stage_inputs = (inputs[number],) if inputs is not None else ()
            if targets is None:
                self._schedule.step(*stage_inputs)
                self.profiler.mark("passes")
                continue
            round_losses: list[Tensor] = []
            outputs = self._schedule.step(*stage_inputs, target=targets[number], losses=round_losses)
            self.profiler.mark("passes")
            losses += [loss.detach() for loss in round_losses]
            with torch.no_grad():
                correct_count = self.objective.count_correct(outputs.detach().float(), targets[number])
            if correct_count is not None:
                correct.append(correct_count)
            self.profiler.mark("logging")
        return losses, correct

    def _unscale(self, loss: Tensor) -> Tensor:
        """Return `loss` without the loss scaling of fp16 training."""
        if self.job.precision.name != "fp16":
            return loss
        return loss / self._optimizer_step.scale(torch.ones_like(loss))

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch | None], measures: Metric, stop: Callable[[], bool]) -> bool:
        """Evaluate the stages in evaluation mode. All ranks call it together.

        All replicas first receive the buffers of the first one. The rank of the last stage collects the outputs, and
        every rank gets the metrics. Returns False if `stop` ended the evaluation early.
        """
        if self.peers is not None:  # ranks with the same stages in all replicas
            for buffer in self.model.buffers():
                dist.broadcast(buffer, self.coordinate.pipeline, group=self.peers)
        microbatches = self.microbatches * self.accumulation
        with preserve_modes(self.model):
            self.model.eval()
            for batch in batches:
                if stop():
                    return False
                rank_input = self._feeder.feed(batch)
                inputs = rank_input.inputs.chunk(microbatches) if rank_input.inputs is not None else None
                outputs = self._relay.run(microbatches, inputs)
                images = rank_input.images  # the rest is padding
                if rank_input.targets is not None and images:
                    measures.update(torch.cat(outputs)[:images].float(), rank_input.targets[:images])
                rank_input.wait_until_sent()
        sync_metrics(measures, self.collectives)
        return True

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """Sum `value` over the ranks of this pipeline, which together hold every parameter once."""
        summed = value.clone()
        dist.all_reduce(summed, group=self.group)
        return summed

    def state_dict(self) -> dict[str, Tensor] | None:
        """Gather the stages of the first pipeline into the plain model's state on rank 0. Other ranks return None.

        All ranks call it together.
        """
        state: dict[str, Tensor] = {}
        if self.coordinate.replicate == 0:
            for module in self.local_modules:
                state |= copy_to_host(module.state_dict()) if self.spec.rank == 0 else module.state_dict()
        synchronize(self.device)  # wait for pending copies
        gathered = self.collectives.gather_states(state)
        return None if gathered is None else self._state.join(gathered)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load this rank's stages from the `state` of the plain model."""
        self._state.load(self.local_modules, state)
