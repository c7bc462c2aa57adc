"""Worker specs for each start of the workers, and decisions whether to restart after failures."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import msgspec

from engine.checks.strategy_checks import strategy_problems
from engine.contract.catalogue import ModelEntry, StrategyEntry, load_catalogue
from engine.contract.command import resume_line
from engine.contract.devices import host_of
from engine.contract.events import CheckpointSaved, Failed, FailureKind, Restarting
from engine.contract.job import AUTO_STRATEGY, FIELDS, Job
from engine.contract.problems import Problem, errors
from engine.contract.worker import WorkerSpec
from engine.parallel.layout import compute_layout
from engine.runs.folder import RunFolder
from engine.runs.resume import checkpoint_of, save_next_job
from engine.supervisor.endpoint import socket_name
from engine.supervisor.environment import usable_cores
from engine.system import paths

MAX_ROLL_BACKS = 10
"""Maximum number of consecutive rollbacks after losses that are NaN or infinite.

A new checkpoint resets the count. PaLM's training (Chowdhery et al. 2022, section 5.1) needed about 20 rollbacks in
total.
"""


class RestartPolicy:
    """Policy that decides whether a run's workers restart after a failure, for one execution of the run.

    `job` is the job for the next start of the workers. A restart with fewer devices or smaller microbatches replaces
    it.
    """

    def __init__(self, run: RunFolder, job: Job) -> None:
        self.job = job
        self.world_size = world_size(job)
        self._run = run
        self._rendezvous: Path | None = None  # file in which the ranks of the current attempt find each other
        self._failures_in_a_row: Counter[FailureKind] = Counter()
        self._skip_to = 0  # last step to skip without training, as its loss was not finite
        self._saved_step = -1  # step of the newest checkpoint of this execution

    def prepare_start(self) -> list[WorkerSpec]:
        """Remove the old rendezvous file, and return the specs for the next start of the workers.

        The workers resume from the newest checkpoint.

        Raises:
            PermissionError: The rendezvous file can't be created.
        """
        self._rendezvous = paths.runtime_folder() / f"{socket_name(self._run.path)}.store"
        self.remove_rendezvous()
        job = self.job.with_fields(resume_from=str(checkpoint_of(self._run) or ""))
        return [
            WorkerSpec(
                run_folder=str(self._run.path),
                job=job,
                rank=rank,
                world_size=self.world_size,
                devices=job.parallel.devices,
                rendezvous=str(self._rendezvous),
                threads=max(1, usable_cores() // self.world_size),
                skip_to=self._skip_to,
            )
            for rank in range(self.world_size)
        ]

    def remove_rendezvous(self) -> None:
        """Remove the rendezvous file of the last attempt, if it has one."""
        if self._rendezvous is not None:
            self._rendezvous.unlink(missing_ok=True)

    def set_loader_workers(self, count: int) -> None:
        """Set the number of loader workers for later starts of the workers."""
        self.job = self.job.with_fields(loader_workers=count)

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Reset the counts of failures if the checkpoint is from a later step than the previous one."""
        if event.kind == "last" and event.step > self._saved_step:
            self._saved_step = event.step
            self._failures_in_a_row.clear()

    def handle_failure(self, failed: Failed) -> Restarting | Failed:
        """Prepare a restart of the workers after `failed`, and return the event that announces it.

        If the run doesn't restart, return its final failure.
        """
        count = self._failures_in_a_row[failed.kind]
        next_job: Job | None = None
        match failed.kind:
            case "fault":
                limit = self.job.faults.restarts
            case "not_finite" if self.job.faults.on_not_finite == "roll_back" and failed.step is not None:
                limit = MAX_ROLL_BACKS
            case "out_of_memory" if self.world_size > 1:  # a single worker splits its batches itself
                fallbacks = _create_oom_fallbacks(self.job)
                # One more restart for each remaining fallback.
                limit, next_job = count + len(fallbacks), next(iter(fallbacks), None)
            case "lost_gpu":
                return self._handle_lost_gpus(failed)
            case "lost_machine" if isinstance(smaller_job := self.job_without_machine(self._host_of(failed.rank)), Job):
                limit, next_job = count + 1, smaller_job
            case _:
                return failed
        if count >= limit:
            return _add_attempts_to_cause(failed, count)
        if failed.kind == "not_finite":
            self._skip_to = (
                failed.step or 0
            )  # the next attempt does not train the steps from its checkpoint to this one
        return self._announce_restart(failed, count, limit, next_job)

    def _announce_restart(self, failed: Failed, count: int, limit: int, next_job: Job | None) -> Restarting:
        """Count a failure, and create the event that announces restart number `count` + 1 of at most `limit`.

        If `next_job` is given, the run uses it from now on.
        """
        self._failures_in_a_row[failed.kind] += 1
        devices = self.job.parallel.devices
        changes = self._switch_to(next_job) if next_job is not None else {}
        return Restarting(
            cause=failed.cause,
            rank=failed.rank,
            step=failed.step,
            traceback_file=failed.traceback_file,
            kind=failed.kind,
            attempt=count + 1,
            max_attempts=limit,
            changes=changes,
            devices=self.job.parallel.devices if self.job.parallel.devices != devices else (),
        )

    def _handle_lost_gpus(self, failed: Failed) -> Restarting | Failed:
        """Prepare a restart on the other devices after a loss of GPUs, and return the event that announces it.

        The job must request this and fit on them. Otherwise, return the failure. If the job only doesn't request it,
        the cause names a command that resumes the run on the other devices.
        """
        devices = tuple(device for device in self.job.parallel.devices if device not in failed.devices)
        smaller_job = _fit_job(self.job, devices)
        if isinstance(smaller_job, str):
            why_not = smaller_job
            cause = (
                f"{failed.cause} The run can't continue without it. {why_not} Restart the machine, then resume the run."
            )
            return msgspec.structs.replace(failed, cause=cause)
        if self.job.faults.on_lost_device == "fewer" and self.job.faults.restarts:
            count = self._failures_in_a_row[failed.kind]
            # Without a limit of its own: each of these restarts uses fewer devices than before.
            return self._announce_restart(failed, count, limit=count + 1, next_job=smaller_job)
        changes = {**_changed_fields(self.job, smaller_job), "devices": devices}
        command = resume_line(self._run.run_id, changes)
        cause = (
            f"{failed.cause} Restart the machine, then resume the run; or resume it on its other devices: `{command}`."
        )
        return msgspec.structs.replace(failed, cause=cause, changes=changes)

    def job_without_machine(self, machine: str) -> Job | str | None:
        """Return the job without the devices of a machine, or the reason why the run must wait for it, as a sentence.

        Returns None if the run waits because the user has chosen to wait.
        """
        if self.job.faults.on_lost_device == "wait":
            return None
        return _fit_job(self.job, tuple(device for device in self.job.parallel.devices if host_of(device) != machine))

    def _host_of(self, rank: int | None) -> str:
        """Return the name of the machine with the worker of a rank, which is "" for this machine."""
        return host_of(self.job.parallel.devices[rank or 0])

    def _switch_to(self, job: Job) -> dict[str, int | str]:
        """Use `job` for the next start of the workers and in later executions, and return the changed fields."""
        before, self.job = self.job, job
        self.world_size = world_size(job)
        try:
            save_next_job(self._run, job)
        except OSError as error:
            print(f"job.toml can't be written: {error}", flush=True)
        return _changed_fields(before, job)


def world_size(job: Job) -> int:
    """Return the number of worker processes for a job, which is one per device, or one for all devices."""
    strategy = load_catalogue().strategy(job.resolved_strategy)
    return len(job.parallel.devices) if strategy is None or strategy.process_per_device else 1


def _changed_fields(before: Job, job: Job) -> dict[str, int | str]:
    """Return the fields of `job`, other than the devices, that differ from those of `before`."""
    changed = (name for name in FIELDS if name != "devices" and job.value(name) != before.value(name))
    changes = {name: job.value(name) for name in changed}
    if job.resolved_strategy != before.resolved_strategy:  # an automatic choice may depend on the devices
        changes["strategy"] = job.resolved_strategy
    return changes


def _add_attempts_to_cause(failed: Failed, restarts: int) -> Failed:
    """Return the failure with the number of unsuccessful restarts added to its cause."""
    if not restarts:
        return failed
    times = "once" if restarts == 1 else f"{restarts} times"
    cause = f"{failed.cause} It had already been restarted {times} without reaching a new checkpoint."
    return msgspec.structs.replace(failed, cause=cause)


def _create_oom_fallbacks(job: Job) -> list[Job]:
    """Return variants of the job with smaller and smaller microbatches. The global batch stays the same."""
    catalogue = load_catalogue()
    strategy, model = catalogue.strategy(job.resolved_strategy), catalogue.model(job.model.name)
    fallbacks: list[Job] = []
    while strategy is not None and (smaller := _shrink_microbatches(job, strategy, model)) is not None:
        fallbacks.append(smaller)
        job = smaller
    return fallbacks


def _shrink_microbatches(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> Job | None:
    """Return the job with more microbatches, or None if no tried number is valid.

    With n microbatches so far, the numbers 2n, 2n + 1, …, 4n are tried first, and then 2n - 1, 2n - 2, …, n + 1. For
    strategies without a pipeline, microbatches are those of gradient accumulation.
    """
    field, count = "accumulation", job.training.accumulation
    if strategy.has_schedule:
        field, count = "microbatches", compute_layout(job, strategy).microbatches or 1
    limit = min(4 * count, int(FIELDS[field].maximum or 0))
    for number in (*range(2 * count, limit + 1), *range(2 * count - 1, count, -1)):
        smaller = job.with_fields(**{field: number})
        if not errors(strategy_problems(smaller, strategy, model)):
            return smaller
    return None


def _fit_job(job: Job, devices: tuple[str, ...]) -> Job | str:
    """Return the job on the remaining `devices`, or a sentence with the reason why that is impossible.

    Accumulation is increased so that each device has at most as many images in memory as before. If the smallest such
    number is not valid for the strategy, larger ones up to four times as large are tried. If a single device remains, a
    strategy that only divides batches is replaced by an automatic choice.
    """
    catalogue = load_catalogue()
    before, model = catalogue.strategy(job.resolved_strategy), catalogue.model(job.model.name)
    smaller_job = job.with_fields(devices=devices)
    # Hybrid strategies are not replaced. Their minimum is four devices.
    if len(devices) == 1 and before is not None and before.splits_batch and before.min_devices == 2:
        smaller_job = smaller_job.with_fields(strategy=AUTO_STRATEGY)
    strategy = catalogue.strategy(smaller_job.resolved_strategy)
    if not devices or before is None or strategy is None:
        return "The run has no other devices."
    minimum = math.ceil(
        job.training.accumulation * _count_batch_shards(job, before) / _count_batch_shards(smaller_job, strategy)
    )
    first_problems: list[Problem] = []
    for number in range(minimum, min(4 * minimum, int(FIELDS["accumulation"].maximum or 0)) + 1):
        smaller_job = smaller_job.with_fields(accumulation=number)
        problems = errors(strategy_problems(smaller_job, strategy, model))
        if not problems:
            return smaller_job
        first_problems = first_problems or problems
    if first_problems:
        return f"It is needed: {first_problems[0].message}"
    return "Its share of the batch can't be divided any further."


def _count_batch_shards(job: Job, strategy: StrategyEntry) -> int:
    """Return the number of parts that the strategy divides each batch into."""
    if strategy.has_replicas and (strategy.splits_model or strategy.splits_layers):
        return job.parallel.replicas  # all devices of a replica process the same images
    return len(job.parallel.devices) if strategy.splits_batch else 1
