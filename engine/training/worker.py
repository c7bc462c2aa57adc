"""Main function of a training worker, which prepares and runs the training and reports its outcome."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from engine.contract.devices import CPU
from engine.contract.events import Failed, Planned, Warned
from engine.contract.job import Job
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.datasets.open_splits import Splits
from engine.data.loading.agreement import check_same_dataset
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import Purpose, RandomStreams
from engine.models.meta_device import build_skeleton
from engine.models.model_surgery import freeze_norms
from engine.optim.optimizer_step import Groups, OptimizerStep
from engine.optim.parameter_groups import create_parameter_groups
from engine.strategies import STRATEGIES
from engine.strategies.base import ResolvedJob, Strategy
from engine.system import compile_cache, linux, paths
from engine.tasks.base import DatasetInfo, Task, add_plugin_metrics
from engine.tasks.registry import TASKS
from engine.torch_compat import keep_compiled_in
from engine.training.autotune import Autotuner
from engine.training.callbacks.unfreezing import disable_gradients, enable_frozen_gradients
from engine.training.checkpointing.checkpoint_writer import TrainProgress
from engine.training.checkpointing.checkpointer import Checkpointer
from engine.training.checkpointing.resume import Checkpoint
from engine.training.dataloaders import DataLoaders, get_preprocessing
from engine.training.faults import classify, explain, find_field
from engine.training.finite import find_nonfinite_buffers
from engine.training.metric_buffer import NotFinite
from engine.training.randomness import seed
from engine.training.report import Reporter
from engine.training.split_loader import SplitLoader, chain_prefetching
from engine.training.trainer import Trainer

TRACEBACK_FILE = "worker-{rank}-traceback.txt"


def run(spec: WorkerSpec, channel: socket.socket, *, every_step: bool = False) -> int:
    """Train as specified by `spec`, report to the supervisor through `channel`, and return the exit code.

    The exit code is 0 if the run was completed or stopped, and 1 if it failed, after a `Failed` event with the cause.
    If `every_step` is True, the metrics of every step are reported, for benchmarks.
    """
    return run_reporting(spec, channel, partial(_train, spec, every_step=every_step))


def run_reporting(spec: WorkerSpec, channel: socket.socket, work: Callable[[Reporter], WorkerDone]) -> int:
    """Call `work` with a reporter for `channel`, send its result to the supervisor, and return the exit code 0.

    If `work` raises an exception, send a `Failed` event with the cause instead, and return 1.
    """
    reporter = Reporter(channel, spec.rank)
    try:
        warning = compile_cache.use_private_folders()
        keep_compiled_in(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        if warning and spec.rank == 0:
            reporter.send(Warned(code="compile_cache", message=warning))
        reporter.send(work(reporter))
        return 0
    except Exception as error:
        reporter.send(
            Failed(
                cause=explain(error, spec, reporter.current_work),
                field=find_field(error),
                kind=classify(error, spec),
                rank=spec.rank,
                step=error.step if isinstance(error, NotFinite) else reporter.current_step,
                traceback_file=_write_traceback(spec),
            )
        )
        return 1
    finally:
        reporter.close()


class WorkerContext(NamedTuple):
    """Objects that training needs, such as the spec with all automatic choices, the wrapped model, and its loaders.

    Attributes:
        trained_parameters: Parameters that this rank updates, by name.
        frozen: Names of the parameters in an initially frozen backbone.
        expected_nonfinite: Names of buffers that contain NaN or infinite numbers in the newly built model.
        parameter_counts: Number of all parameters, and of the trained parameters.
    """

    spec: WorkerSpec
    strategy: Strategy
    task: Task
    splits: Splits
    checkpoint: Checkpoint | None
    streams: RandomStreams
    trained_parameters: list[tuple[str, nn.Parameter]]
    frozen: frozenset[str]
    groups: Groups
    expected_nonfinite: list[str]
    parameter_counts: tuple[int, int]
    dataloaders: DataLoaders

    def create_optimizer_step(self, steps: int) -> OptimizerStep:
        """Create the optimizer's step, with `steps` steps per epoch.

        It does not update the parameters in `self.frozen` until they are unfrozen.
        """
        strategy = self.strategy
        return OptimizerStep(
            self.trained_parameters,
            strategy.job,
            steps,
            strategy.device,
            strategy.sum_over_shards,
            all_reduce_max=strategy.collectives.all_reduce_max,
            broadcast_updates=strategy.broadcast_updates,
            frozen=self.frozen,
            duplicates=strategy.duplicate_parameters,
            groups=self.groups,
            buffers=strategy.buffers(),
        )


def prepare(spec: WorkerSpec, reporter: Reporter) -> WorkerContext:
    """Build, wrap and compile the model as specified by `spec`, and open the dataset, together with the other ranks.

    The steps until `_wrap` need the plain model, whose parameters have their names and are complete.
    """
    job = spec.job.with_fields(strategy=spec.job.resolved_strategy)
    spec = msgspec.structs.replace(spec, job=job)
    reporter.set_phase("preparing")
    _set_thread_count(spec)
    task = TASKS[job.task]
    strategy = STRATEGIES[job.resolved_strategy](spec)
    strategy.setup()
    splits = _open_dataset(spec, strategy, task)
    model = _build_model(spec, strategy, task, splits)
    expected_nonfinite = find_nonfinite_buffers(model) if spec.rank == 0 else []
    checkpoint = None
    if job.checkpoints.resume_from:
        checkpoint = Checkpoint(job, splits.classes, model.state_dict(), strategy.collectives)
    streams = RandomStreams(job.training.seed)
    counts = _count_parameters(model)  # before the gradients of frozen parameters are enabled
    frozen = enable_frozen_gradients(model) if job.unfreezes_backbone else frozenset()
    groups = create_parameter_groups(model, job)
    autotuner = _wrap(strategy, task, splits, model, checkpoint, reporter=reporter)
    spec = msgspec.structs.replace(spec, job=strategy.job)
    del model  # a rank of a pipeline keeps only its stage
    trained = strategy.parameters()
    if spec.world_size == 1:  # other ranks would wait for these gradients
        disable_gradients(strategy.model, frozen)  # before the model is compiled
    autotuner.compile()
    return WorkerContext(
        spec,
        strategy,
        task,
        splits,
        checkpoint,
        streams,
        trained,
        frozen,
        groups,
        expected_nonfinite,
        counts,
        DataLoaders(spec, strategy, task, splits, reporter, streams=streams),
    )


def _train(spec: WorkerSpec, reporter: Reporter, *, every_step: bool) -> WorkerDone:
    """Train the model of a run, and return the outcome. Rank 0 reports the plan first.

    If `every_step` is True, the metrics of each step are reported.
    """
    context = prepare(spec, reporter)
    strategy, dataloaders = context.strategy, context.dataloaders
    dataloaders.start_processes()  # before the loaders, which use these processes
    train, val = dataloaders.create_train_loader(), dataloaders.create_val_loader()
    chain_prefetching(train, val, strategy.job.training.epochs)
    try:
        optimizer_step = context.create_optimizer_step(train.steps)
        checkpointer = Checkpointer(
            context.spec,
            strategy,
            optimizer_step,
            reporter,
            context.splits.classes,
            expected_nonfinite=context.expected_nonfinite,
        )
        start = _find_start(context.checkpoint, train.steps)
        if spec.rank == 0:
            _report_plan(context, reporter, train, val, from_step=start.step)
        # Dropout draws differently on every rank.
        seed(context.streams.derive_seed(Purpose.MODEL, rank=strategy.stream_rank))
        if context.checkpoint is not None:
            context.checkpoint.restore(strategy, optimizer_step, checkpointer, start)
            context = context._replace(checkpoint=None)  # free the restored state
        trainer = Trainer(
            context.spec,
            strategy,
            optimizer_step,
            reporter,
            checkpointer,
            train=train,
            val=val,
            start=start,
            predictions=dataloaders.create_predictions(),
            every_step=every_step,
        )
        with checkpointer:
            done = trainer.run()
    finally:
        train.close()
        val.close()
        dataloaders.close()
    strategy.teardown()
    return done


def _set_thread_count(spec: WorkerSpec) -> None:
    """Limit torch to this worker's share of the available cores. On CPUs, the job may set a number of threads.

    PyTorch recommends one thread per core and a division of the cores among processes (Performance Tuning Guide, CPU
    specific optimizations).
    """
    torch.set_num_threads(spec.threads)
    if CPU in spec.local_devices:
        torch.set_num_threads(spec.job.precision.cpu_threads or spec.threads)
        linux.keep_freed_memory()


def _wrap(
    strategy: Strategy,
    task: Task,
    splits: Splits,
    model: nn.Module,
    checkpoint: Checkpoint | None,
    *,
    reporter: Reporter,
) -> Autotuner:
    """Make the automatic choices for the plain `model`, and wrap it with the strategy.

    A run that resumes from `checkpoint` on the same devices reuses its choices. Other runs measure candidates. Also
    sets the strategy's `is_stopped` to a function that returns True once a stop is requested. All ranks call it
    together. Returns the autotuner, which has yet to compile the model.
    """
    job = strategy.spec.job
    example_shape = task.get_example_shape(job, splits.channels)
    objective = add_plugin_metrics(task.create_objective(job, _create_dataset_info(splits)))
    steps = _count_steps_left(job, splits, checkpoint)
    strategy.is_stopped = lambda: reporter.stop_requested
    autotuner = Autotuner(
        strategy,
        objective,
        example_shape,
        steps=steps,
        emit=reporter.send,
        is_stopped=strategy.is_stopped,
    )
    if checkpoint is None:
        resolved = ResolvedJob(autotuner.decide(job, model, {}))
    else:
        job, evaluation_parts = checkpoint.restore_accumulation(is_alone=strategy.spec.world_size == 1)
        job = autotuner.decide(job, model, checkpoint.job)
        resolved = ResolvedJob(job, checkpoint.shares, checkpoint.model_split(job), evaluation_parts)
    strategy.wrap(model, objective, example_shape, resolved)
    return autotuner


def _open_dataset(spec: WorkerSpec, strategy: Strategy, task: Task) -> Splits:
    """Open the job's dataset and check that all ranks have the same data. All ranks call it together."""
    splits = task.open_splits(spec.job)
    if spec.world_size > 1:
        check_same_dataset(splits, spec.job.data.dataset, strategy.collectives.all_gather_objects)
    return splits


def _build_model(spec: WorkerSpec, strategy: Strategy, task: Task, splits: Splits) -> nn.Module:
    """Build the plain model. All ranks use the same seed, so that their weights are equal.

    Ranks that receive their weights from rank 0 build it on the meta device if the model allows that. A machine then
    holds only a single complete model in memory.
    """
    job = spec.job
    without_weights = job.with_fields(pretrained=False, weights_file="")

    def build(job: Job) -> nn.Module:
        """Seed the random generators and build the model of `job`."""
        seed(job.training.seed)
        model = task.build_model(job, len(splits.classes), splits.channels)
        if job.model.freeze_batchnorm:
            freeze_norms(model)
        return model

    if spec.rank and strategy.receives_weights:
        model = build_skeleton(partial(build, without_weights))
        if model is not None:
            return model
    return build(without_weights if job.checkpoints.resume_from else job)  # the checkpoint replaces all weights


def _count_parameters(model: nn.Module) -> tuple[int, int]:
    """Return the number of all parameters, and the number of parameters that require gradients."""
    parameters = list(model.parameters())
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    return sum(map(Tensor.numel, parameters)), sum(map(Tensor.numel, trainable))


def _report_plan(
    context: WorkerContext, reporter: Reporter, train: SplitLoader, val: SplitLoader, *, from_step: int
) -> None:
    """Report the numbers of steps, images and parameters, and messages about the model's placement and checkpoint."""
    strategy, splits, job = context.strategy, context.splits, context.strategy.job
    parameters, trainable = context.parameter_counts
    reporter.send(
        Planned(
            epochs=job.training.epochs,
            from_step=from_step,
            steps_per_epoch=train.steps,
            train_images=train.images,
            val_images=val.images,
            classes=splits.classes,
            image_size=context.task.get_image_size(job),
            channels=splits.channels,
            parameters=parameters,
            trainable_parameters=trainable,
            model_split=strategy.model_split,
            shares=strategy.shares,
            preprocessing=get_preprocessing(job, context.task, splits),
            metrics=strategy.objective.entry.metrics,
        )
    )
    for remark in strategy.remarks:
        reporter.send(remark)
    for remark in context.checkpoint.remarks(train.steps) if context.checkpoint is not None else ():
        reporter.send(remark)


def _create_dataset_info(splits: Splits) -> DatasetInfo:
    """Return the facts about a dataset that a task's objective needs. Classes are counted only on demand."""
    return DatasetInfo(
        splits.classes, splits.channels, lambda: splits.train.class_counts(len(splits.classes)), len(splits.train)
    )


def _count_steps_left(job: Job, splits: Splits, checkpoint: Checkpoint | None) -> int:
    """Return the number of steps from the start, or from the checkpoint, to the end of the run."""
    streams = RandomStreams(job.training.seed)
    sampler = GlobalBatchSampler(len(splits.train), job.training.batch_size, rank=0, world_size=1, streams=streams)
    return len(sampler) * job.training.epochs - _find_start(checkpoint, len(sampler)).step


def _find_start(checkpoint: Checkpoint | None, steps: int) -> TrainProgress:
    """Return the position at which the run starts or resumes, with `steps` steps per epoch."""
    return checkpoint.progress(steps) if checkpoint is not None else TrainProgress(epoch=1, done=0, steps=steps, step=0)


def _write_traceback(spec: WorkerSpec) -> str:
    """Write the current exception's traceback next to the logs. Return the file name, or "" if writing fails."""
    name = TRACEBACK_FILE.format(rank=spec.rank)
    try:
        with open(Path(spec.run_folder) / name, "w", encoding="utf-8", opener=paths.open_private) as stream:
            stream.write(traceback.format_exc())
    except OSError:
        return ""
    return name
