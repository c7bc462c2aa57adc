"""The starts of an execution's workers: with what orders they go, and whether there is another one after a failure."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import msgspec

from engine.checks.strategy_checks import strategy_problems
from engine.contract.catalogue import ModelEntry, StrategyEntry, load_catalogue
from engine.contract.devices import host_of
from engine.contract.events import CheckpointSaved, Failed, FailureKind, Restarting
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem, errors
from engine.contract.worker import WorkerSpec
from engine.parallel.layout import layout
from engine.runs.folder import RunFolder
from engine.runs.resume import checkpoint_of, save_next_job
from engine.supervisor.endpoint import socket_name
from engine.supervisor.environment import usable_cores
from engine.system import paths

ROLL_BACKS = 10
"""How often in a row, without a new checkpoint between, a run rolls back from a loss that is no number. PaLM's training
(Chowdhery et al. 2022, section 5.1) did so about 20 times over all."""


class RestartPolicy:
    """Decides for one execution. `job` is what the next start goes by; it changes where a failure asks for it."""

    def __init__(self, run: RunFolder, job: Job) -> None:
        self.job = job
        self.world_size = world_size(job)
        self._run = run
        self._rendezvous: Path | None = None
        self._in_a_row: Counter[FailureKind] = Counter()
        self._skip_to = 0
        self._saved = -1

    def orders(self) -> list[WorkerSpec]:
        """The orders of the next start's workers, by rank: they go on from the run's newest checkpoint.

        Raises PermissionError where they have no place to meet.
        """
        self._rendezvous = paths.runtime_folder() / f"{socket_name(self._run.path)}.store"
        self.clear()
        job = msgspec.structs.replace(self.job, resume_from=str(checkpoint_of(self._run) or ""))
        return [
            WorkerSpec(
                run_folder=str(self._run.path),
                job=job,
                rank=rank,
                world_size=self.world_size,
                devices=job.devices,
                rendezvous=str(self._rendezvous),
                threads=max(1, usable_cores() // self.world_size),
                skip_to=self._skip_to,
            )
            for rank in range(self.world_size)
        ]

    def clear(self) -> None:
        """Removes the file through which the workers have met."""
        if self._rendezvous is not None:
            self._rendezvous.unlink(missing_ok=True)

    def adjust(self, loader_workers: int) -> None:
        """Notes what was changed of the workers as they go."""
        self.job = msgspec.structs.replace(self.job, loader_workers=loader_workers)

    def saved(self, event: CheckpointSaved) -> None:
        """Notes a checkpoint. After one of a later step, what fails does not fail where it did before."""
        if event.kind == "last" and event.step > self._saved:
            self._saved = event.step
            self._in_a_row.clear()

    def after(self, failed: Failed) -> Restarting | Failed:
        """What is to be told of a failure: that the workers start again, or that the run ends with it."""
        before = self._in_a_row[failed.kind]
        smaller: Job | None = None
        match failed.kind:
            case "fault":
                most = self.job.restarts
            case "not_finite" if self.job.on_not_finite == "roll_back" and failed.step is not None:
                most = ROLL_BACKS
            case "out_of_memory" if self.world_size > 1:
                ladder = _ladder(self.job)
                most, smaller = before + len(ladder), next(iter(ladder), None)
            case "lost_machine" if isinstance(fewer := self.without(self._host_of(failed.rank)), Job):
                most, smaller = before + 1, fewer
            case _:
                return failed
        if before >= most:
            return _tried(failed, before)
        self._in_a_row[failed.kind] += 1
        if failed.kind == "not_finite":
            self._skip_to = failed.step or 0
        devices = self.job.devices
        changes = self._change_to(smaller) if smaller is not None else {}
        return Restarting(
            cause=failed.cause,
            rank=failed.rank,
            step=failed.step,
            traceback_file=failed.traceback_file,
            kind=failed.kind,
            attempt=before + 1,
            most=most,
            changes=changes,
            devices=self.job.devices if self.job.devices != devices else (),
        )

    def without(self, machine: str) -> Job | str:
        """The job without a machine's devices, where the user wants it to go on so; else why it is waited for, ""
        where the user wants that.
        """
        if self.job.on_lost_machine == "wait":
            return ""
        return _on_fewer(self.job, tuple(device for device in self.job.devices if host_of(device) != machine))

    def _host_of(self, rank: int | None) -> str:
        return host_of(self.job.devices[rank or 0])

    def _change_to(self, job: Job) -> dict[str, int | str]:
        """Goes by `job` from now on, in later executions, too; what is different in it."""
        before, self.job = self.job, job
        self.world_size = world_size(job)
        try:
            save_next_job(self._run, job)
        except OSError as error:
            print(f"job.toml can't be written: {error}", flush=True)
        changed = (name for name in FIELDS if name != "devices" and getattr(job, name) != getattr(before, name))
        return {name: getattr(job, name) for name in changed}


def world_size(job: Job) -> int:
    """How many worker processes the job's strategy has: one per device, or one that drives them all."""
    strategy = load_catalogue().strategy(job.strategy)
    return len(job.devices) if strategy is None or strategy.process_per_device else 1


def _tried(failed: Failed, restarts: int) -> Failed:
    """The failure of a run that was started again in vain."""
    if not restarts:
        return failed
    times = "once" if restarts == 1 else f"{restarts} times"
    cause = f"{failed.cause} It had already been restarted {times} without reaching a new checkpoint."
    return msgspec.structs.replace(failed, cause=cause)


def _ladder(job: Job) -> list[Job]:
    """The job with smaller and smaller parts of its batch in memory at a time, as far as they can be divided."""
    catalogue = load_catalogue()
    strategy, model = catalogue.strategy(job.strategy), catalogue.model(job.model)
    rungs: list[Job] = []
    while strategy is not None and (smaller := _smaller(job, strategy, model)) is not None:
        rungs.append(smaller)
        job = smaller
    return rungs


def _smaller(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> Job | None:
    """The job with twice as many parts, or the next number that the checks allow."""
    field, parts = "accumulation", job.accumulation
    if strategy.schedules:
        field, parts = "microbatches", layout(job, strategy).microbatches or 1
    most = min(4 * parts, int(FIELDS[field].maximum or 0))
    for number in (*range(2 * parts, most + 1), *range(2 * parts - 1, parts, -1)):
        smaller = msgspec.structs.replace(job, **{field: number})
        if not errors(strategy_problems(smaller, strategy, model)):
            return smaller
    return None


def _on_fewer(job: Job, devices: tuple[str, ...]) -> Job | str:
    """The job on `devices`, some of its own, by the smallest accumulation with which no more images are in a device's
    memory at a time than before; or why there is none, in a sentence. A single one has no use for a strategy that
    divides the batch alone.
    """
    catalogue = load_catalogue()
    before, model = catalogue.strategy(job.strategy), catalogue.model(job.model)
    fewer = msgspec.structs.replace(job, devices=devices)
    if len(devices) == 1 and before is not None and before.splits_batch and before.min_devices == 2:
        fewer = msgspec.structs.replace(fewer, strategy=catalogue.recommended_strategy().id)
    strategy = catalogue.strategy(fewer.strategy)
    if not devices or before is None or strategy is None:
        return "The run has no other devices."
    least = math.ceil(job.accumulation * _shares(job, before) / _shares(fewer, strategy))
    why: list[Problem] = []
    for number in range(least, min(4 * least, int(FIELDS["accumulation"].maximum or 0)) + 1):
        fewer = msgspec.structs.replace(fewer, accumulation=number)
        found = errors(strategy_problems(fewer, strategy, model))
        if not found:
            return fewer
        why = why or found
    return f"It is needed: {why[0].message}" if why else "Its share of the batch can't be divided any further."


def _shares(job: Job, strategy: StrategyEntry) -> int:
    """Among how many groups of devices a batch is divided."""
    if strategy.replicates and (strategy.cuts_model or strategy.splits_layers):
        return job.replicas
    return len(job.devices) if strategy.splits_batch else 1
