"""What a rank does for the advisor: a few steps of its job, timed, and where it is asked for, a short training as in
a run.
"""

from __future__ import annotations

import itertools
import os
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from engine.advisor.advice.measured import Link, Measured, Rehearsal, TrialOrder, leave, read_order
from engine.advisor.memory import MainMemory, gpu_peaks
from engine.advisor.trial_batches import read_ahead, repeated_batches
from engine.contract.devices import CPU, is_gpu
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.loading.base_loader import Batch
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import clock
from engine.strategies.memory import ran_out
from engine.strategies.stopwatch import Times
from engine.training import worker
from engine.training.checkpointing.checkpointer import optimizer_state
from engine.training.report import Reporter

WARM_UP, WARM_UP_GPU = 2, 4
"""Untimed steps: the optimizer's state is made in the first, and cuDNN tries its algorithms."""
MOST_STEPS = 400
PATIENCE_S = 1.0
"""A slow step ends no trial before that: it may have been held up."""
KEPT_FREE = 0.1
"""The share of main memory that a trial must leave: a run's threads, and malloc over many epochs, take more than a
few steps."""
LOADS_S = 0.25
"""How long the loaders are timed by themselves at most."""
WARM_STEPS = 40
"""The rehearsal goes through its images until it has made so many steps, if there is the time."""
SHARE = 4
"""The smaller batches have this part of the images."""
LINK_BYTES = 16 << 20
TINY_BYTES = 4 << 10
_END = object()


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Makes the trial; see `engine.training.worker.run`."""
    return worker.reported(spec, channel, partial(_try, spec))


class _Trial:
    """One rank's part of a trial."""

    def __init__(self, spec: WorkerSpec, reporter: Reporter, order: TrialOrder) -> None:
        self.order = order
        self.reporter = reporter
        self.prepared = worker.prepare(spec, reporter)
        self.strategy = self.prepared.strategy
        self.optimizer_step: OptimizerStep = self.prepared.optimizer_step(1)

    def agreed(self, flag: bool) -> bool:
        return bool(self.strategy.collectives.all_reduce_max([int(flag)])[0])

    def timed(self, batches: Iterator[Batch | None], *, warm_up: int, least: int, seconds: float) -> list[float]:
        """Makes steps as the trainer does, all ranks together; the seconds of those after the `warm_up`. Fewer where
        one takes longer than the order bears: none where that is in the warm-up, the first step apart.
        """
        taken: list[float] = []
        started = begun = before = clock(self.strategy.device)
        for number in range(1, warm_up + MOST_STEPS + 1):
            batch = next(batches, None)
            if batch is None and self.strategy.loads_data:
                break
            self.reporter.set_activity("step")
            self.strategy.profiler.mark("data")
            self.strategy.step(batch, self.optimizer_step)
            self.reporter.set_step(number)
            self.strategy.profiler.watch.step_done()
            now = clock(self.strategy.device)
            slow = now - before > self.order.give_up_s and now - started > PATIENCE_S
            enough = number >= warm_up + least and now - begun > seconds
            if number > warm_up:
                taken.append(now - before)
            if self.agreed(slow or enough):
                break
            before = clock(self.strategy.device)
            if number == warm_up:
                begun = before
        slowest = self.strategy.collectives.all_reduce_max([round(1e9 * each) for each in taken]) if taken else []
        return [each / 1e9 for each in slowest]


def _try(spec: WorkerSpec, reporter: Reporter) -> WorkerDone:
    order = read_order(spec.run_folder)
    on_cpu = CPU in spec.devices
    memory = MainMemory(spec.devices.count(CPU), KEPT_FREE) if on_cpu else None
    trial = _Trial(spec, reporter, order)
    strategy, job = trial.strategy, trial.strategy.job
    prepared = time.perf_counter()
    batches, ready = repeated_batches(trial.prepared, reporter), read_ahead(trial.prepared)
    reporter.set_phase("training")
    trial.timed(batches, warm_up=1, least=0, seconds=0.0)
    saved = strategy.state_dict(), optimizer_state(strategy, trial.optimizer_step)  # as a checkpoint's copy
    joules = _joules(spec)
    warm_up = (WARM_UP if on_cpu else WARM_UP_GPU) - 1
    before = time.perf_counter()
    strategy.profiler.watch.start()
    steps = trial.timed(batches, warm_up=warm_up, least=order.least_steps, seconds=order.seconds)
    strategy.profiler.watch.pause()
    del ready, saved
    watts = (_joules(spec) - joules) / (time.perf_counter() - before) if joules else None
    used = memory.peak() if memory is not None else gpu_peaks(_gpus(spec, strategy.device))
    smaller_s, smaller = None, max(2 * len(spec.devices), job.batch_size // SHARE)
    if order.smaller and steps and smaller < job.batch_size:
        parts = _smaller(trial, smaller)
        smaller_s = (
            statistics.median(trial.timed(parts, warm_up=1, least=3, seconds=order.seconds / 2) or [0.0]) or None
        )
    load_rate = _load_rate(trial)
    rehearsal = _rehearse(trial) if order.rehearse_s and steps else None
    found = Measured(
        step_s=tuple(steps),
        memory=used,
        worked_s=time.perf_counter() - prepared,
        gave_up=not steps or statistics.median(steps) > order.give_up_s,
        load_rate=load_rate,
        smaller_step_s=smaller_s,
        smaller_batch=smaller,
        joules_per_image=watts * statistics.median(steps) / job.batch_size if watts and steps else None,
        backward_share=_backward_share(strategy.profiler.watch.take()),
        link=_link(trial) if order.link else None,
        rehearsal=rehearsal,
    )
    leave(spec.run_folder, spec.rank, found)
    strategy.teardown()
    return WorkerDone(stopped=False)


def _backward_share(times: Times | None) -> float | None:
    """None where the passes were not told apart."""
    if times is None or not times.parts.get("backward") or not times.parts.get("forward"):
        return None
    forward, backward = times.parts["forward"], times.parts["backward"]
    return backward / (forward + backward)


def _gpus(spec: WorkerSpec, own: torch.device) -> list[torch.device]:
    """The GPUs that this worker drives."""
    if len(spec.devices) == spec.world_size:
        return [own]
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def _smaller(trial: _Trial, size: int) -> Iterator[Batch | None]:
    """A smaller batch of the job's, again and again."""
    whole = next(repeated_batches(trial.prepared, trial.reporter))
    share = max(2, size // trial.strategy.data_world)
    if whole is None:
        return itertools.repeat(None)
    part = replace(whole, inputs=whole.inputs[:share], targets=whole.targets[:share], global_size=size)
    return itertools.repeat(part)


def _load_rate(trial: _Trial) -> float | None:
    """How many images a second the loaders of all ranks bring, of images that they have decoded before; None where a
    rank has no memory to keep them in, which in a run lie on disk.
    """
    strategy = trial.strategy
    train = trial.prepared.dataloaders.train()
    try:
        count, taken = 0, 0.0
        for again in (False, True):
            batches, begun, made = train.epoch(1), time.perf_counter(), 0
            while True:
                over = int(_is_over(batches))
                enough = int(made + 1 >= count if again else time.perf_counter() - begun > LOADS_S)
                over, enough = strategy.collectives.all_reduce_max([over, enough])
                made += not over
                if over or enough:
                    break
            count, taken = made, time.perf_counter() - begun
    finally:
        train.close()
    slowest = strategy.collectives.all_reduce_max([round(1e9 * taken)])[0] / 1e9
    return count * strategy.job.batch_size / slowest if count and strategy.loads_data else None


def _is_over(batches: Iterator[Batch | None]) -> bool:
    """Whether there is no further batch, or no memory for one."""
    try:
        return next(batches, _END) is _END
    except (MemoryError, RuntimeError) as error:
        if ran_out(error):
            return True
        raise


def _rehearse(trial: _Trial) -> Rehearsal:
    """Trains on the job's own images as they are read, twice over the same ones, and validates."""
    order, strategy, dataloaders = trial.order, trial.strategy, trial.prepared.dataloaders
    train, val = dataloaders.train(), dataloaders.val()
    try:
        _, *cold = _trained(trial, itertools.islice(train.epoch(1), train.steps), order.rehearse_s)
        firsts: list[float] = []
        warm: list[float] = []
        begun, late = time.perf_counter(), False
        while len(warm) < WARM_STEPS and not late:
            left_s = order.rehearse_s - (time.perf_counter() - begun)
            first, *rest = _trained(trial, itertools.islice(train.epoch(1), len(cold) + 1), left_s)
            firsts.append(first)
            warm += rest or [first]
            late = trial.agreed(time.perf_counter() - begun > order.rehearse_s)
        warm_step_s = statistics.median(warm)
        metric, predictions = strategy.objective.metric(), dataloaders.predictions()
        validation = []
        for number in range(2):
            metric.reset()
            batches, begun = 0, time.perf_counter()

            def stop(begun: float = begun) -> bool:
                nonlocal batches
                late = trial.agreed(time.perf_counter() - begun > order.rehearse_s)
                batches += not late
                return late

            whole = strategy.evaluate(val.epoch(1), metric, stop)
            parts = max(1, -(-len(trial.prepared.splits.val) // strategy.job.batch_size))
            values = metric.compute() if whole else {}
            if whole and predictions is not None:
                predictions.on_validation_end(0, number, metric, values)
            seconds = strategy.collectives.all_reduce_max([round(1e9 * (time.perf_counter() - begun))])[0] / 1e9
            share = 1.0 if whole else min(1.0, max(1, batches) / parts)
            validation.append((seconds / share, share))
            if not whole:
                break
    finally:
        train.close()
        val.close()
    begun = time.perf_counter()
    state = strategy.state_dict(), optimizer_state(strategy, trial.optimizer_step)
    if strategy.spec.rank == 0:
        file = Path(strategy.spec.run_folder, "state.pt")
        torch.save(state, file)
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
        file.unlink()
    return Rehearsal(
        cold_step_s=statistics.fmean(cold) if cold else warm_step_s,
        warm_step_s=warm_step_s,
        begin_s=max(0.0, statistics.median(firsts) - warm_step_s),
        validation_s=validation[-1][0],
        validated=validation[-1][1],
        save_s=time.perf_counter() - begun,
    )


def _trained(trial: _Trial, batches: Iterator[Batch | None], seconds: float) -> list[float]:
    """Seconds from one step's end to the next one's, with what its batch takes; the first waits for the loader to
    begin.
    """
    taken: list[float] = []
    begun = before = clock(trial.strategy.device)
    for number, batch in enumerate(batches, 1):
        trial.strategy.step(batch, trial.optimizer_step)
        late = trial.agreed(clock(trial.strategy.device) - begun > seconds)
        now = clock(trial.strategy.device)
        taken.append(now - before)
        trial.reporter.set_step(number)
        before = now
        if late:
            break
    return taken


def _link(trial: _Trial) -> Link | None:
    """What the ranks take to add numbers up, on their devices: of many bytes and of few."""
    if not dist.is_initialized():
        return None
    device, ranks = trial.strategy.device, dist.get_world_size()

    def seconds(size: int, times: int) -> float:
        load = torch.ones(size // 4, device=device)
        dist.all_reduce(load)
        begun = clock(device)
        for _ in range(times):
            dist.all_reduce(load)
        return (clock(device) - begun) / times

    tiny = seconds(TINY_BYTES, 20)
    rate = LINK_BYTES / max(1e-9, seconds(LINK_BYTES, 3) - tiny)
    return Link(rate, tiny, ranks)


def _joules(spec: WorkerSpec) -> float:
    """What the job's GPUs have used since their driver was loaded; 0 where they do not tell, and on other ranks than
    0.
    """
    gpus = [device for device in spec.devices if is_gpu(device)]
    if spec.rank or not gpus:
        return 0.0
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in gpus]
        return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles) / 1000
    except pynvml.NVMLError:
        return 0.0
