"""Setups of a job: strategies, numbers of devices and settings that affect speed and memory, with the same batch size.

A few of each kind are listed, not all combinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.checks.job_checks import problems
from engine.contract.advice import Candidate, Value
from engine.contract.catalogue import Catalogue, StrategyEntry
from engine.contract.devices import is_gpu
from engine.contract.job import FIELDS, Job
from engine.contract.problems import errors
from engine.system.format import counted

SCHEDULE_TITLES = {
    "1f1b": "1F1B", "gpipe": "GPipe", "interleaved_1f1b": "interleaved 1F1B", "zb1p": "ZB1P", "zbv": "ZBV"
}  # fmt: skip
"""Pipeline schedules to try, with their titles."""
MICROBATCHES = (2, 8)
"""Microbatches per device to try in addition to the strategy's default of about four."""
BUCKETS_MIB = (5.0, 100.0)
"""Sizes of gradient buckets to try in addition to DDP's default."""
MAX_ACCUMULATION = 64


@dataclass(frozen=True)
class Setup:
    """One way to train the job."""

    job: Job
    name: str
    """Name for people, such as "DDP, 2 GPUs, accumulation 2"."""
    base_name: str = ""
    """Name of the setup it differs from in one setting; empty for a base setup."""
    refusal: str = ""
    """Reason why it cannot run; empty if it can."""
    saves_memory: bool = False
    """True if it gives up speed to take less memory."""
    is_requested: bool = field(default=False, compare=False)
    """True for the job as the user requested it."""

    def candidate(self, requested: Job, **measurements: Any) -> Candidate:
        """Return the row that reports this setup and its `measurements`."""
        changes: dict[str, Value] = {
            name: getattr(self.job, name) for name in FIELDS if getattr(self.job, name) != getattr(requested, name)
        }
        return Candidate(
            name=self.name,
            strategy=self.job.strategy,
            devices=self.job.devices,
            changes=changes,
            own=self.is_requested,
            **measurements,
        )


def list_setups(requested: Job, catalogue: Catalogue) -> list[Setup]:
    """List the setups for the job `requested`, which comes first; those that cannot run state why."""
    setups: dict[Job, Setup] = {}
    own = _setup(requested, requested, catalogue, is_requested=True)
    for setup in (own, *_base_setups(requested, catalogue)):
        setups.setdefault(setup.job, setup)
    for setup in list(setups.values()):
        for varied in () if setup.refusal or setup.base_name else _vary(setup, requested, catalogue):
            setups.setdefault(varied.job, varied)
    return list(setups.values())


def device_counts(devices: int) -> list[int]:
    """Return the numbers of devices to try: all, and each power of two."""
    return sorted({devices, *(2**power for power in range(devices.bit_length()) if 2**power <= devices)})


def _base_setups(requested: Job, catalogue: Catalogue) -> Iterator[Setup]:
    for count in device_counts(len(requested.devices)):
        for strategy in catalogue.strategies:
            if count < strategy.min_devices or (strategy.max_devices is not None and count > strategy.max_devices):
                continue
            base = _with_strategy(requested, strategy, requested.devices[:count])
            for settings in _strategy_settings(base, strategy, count):
                yield _setup(msgspec.structs.replace(base, **settings), requested, catalogue)


def _with_strategy(requested: Job, strategy: StrategyEntry, devices: tuple[str, ...]) -> Job:
    """Return the job under another strategy, with the fields that only other strategies use at their defaults."""
    unused = {name for name, about in FIELDS.items() if about.group == "strategy" and name not in strategy.fields}
    unused.discard("activation_checkpointing")
    if devices != requested.devices or strategy.id != requested.strategy:
        unused.add("cuts")
    defaults = {name: FIELDS[name].default for name in unused}
    return msgspec.structs.replace(requested, strategy=strategy.id, devices=devices, **defaults)


def _strategy_settings(base: Job, strategy: StrategyEntry, count: int) -> Iterator[dict[str, Any]]:
    """Yield the numbers of replicas and the pipeline schedules that a strategy allows."""
    replicas = [n for n in range(2, count // 2 + 1) if count % n == 0] if strategy.replicates else []
    for copies in replicas or [base.replicas]:
        settings: dict[str, Any] = {"replicas": copies} if replicas else {}
        if not strategy.schedules:
            yield settings
            continue
        for schedule in SCHEDULE_TITLES:
            yield settings | {"pipeline_schedule": schedule, "microbatches": None, "stages_per_device": None}


def _vary(setup: Setup, requested: Job, catalogue: Catalogue) -> Iterator[Setup]:
    """Yield `setup` with one setting changed that may make it faster."""
    job, strategy = setup.job, catalogue.strategy(setup.job.strategy)
    assert strategy is not None
    changes: list[dict[str, Any]] = []
    if job.accumulation > 1:
        changes.append({"accumulation": 1})
    if job.precision == "auto" and not any(map(is_gpu, job.devices)):
        changes.append({"precision": "bf16"})
    if job.activation_checkpointing:
        changes.append({"activation_checkpointing": False})
    if "cpu_offload" in strategy.fields and job.cpu_offload:
        changes.append({"cpu_offload": False})
    if "bucket_mib" in strategy.fields and strategy.is_recommended:
        changes += [{"bucket_mib": size} for size in BUCKETS_MIB if size != job.bucket_mib]
    if strategy.schedules:
        group = len(job.devices) // (job.replicas if strategy.replicates else 1)
        changes += [{"microbatches": each * group} for each in MICROBATCHES]
    for change in changes:
        varied = _setup(msgspec.structs.replace(job, **change), requested, catalogue, base_name=setup.name)
        if not varied.refusal:
            yield varied


def list_smaller_setups(setup: Setup, requested: Job, catalogue: Catalogue) -> Iterator[Setup]:
    """Yield variants of `setup` that take less and less memory, those that cost the least time first.

    They use gradient accumulation, activation checkpointing or both; on GPUs also bf16 instead of fp32, and main memory
    for parameters.
    """
    job, strategy = setup.job, catalogue.strategy(setup.job.strategy)
    assert strategy is not None
    on_gpu = any(map(is_gpu, job.devices))
    counts = [job.accumulation * 2**power for power in range(1, MAX_ACCUMULATION.bit_length())]
    accumulations = [{"accumulation": count} for count in counts if count <= MAX_ACCUMULATION]
    recompute: dict[str, Any] = {"activation_checkpointing": True}
    changes: list[dict[str, Any]] = [*accumulations]
    if not job.activation_checkpointing:
        changes += [recompute, *(each | recompute for each in accumulations)]
    if job.precision == "fp32" and on_gpu:
        half = {"precision": "bf16"}
        changes += [half, half | recompute, *(each | half | recompute for each in accumulations)]
    if "cpu_offload" in strategy.fields and on_gpu:
        changes += [{"cpu_offload": True}, {"cpu_offload": True, "accumulation": counts[-1]} | recompute]
    for change in changes:
        smaller = _setup(msgspec.structs.replace(job, **change), requested, catalogue, saves_memory=True)
        if not smaller.refusal:
            yield smaller


def _setup(job: Job, requested: Job, catalogue: Catalogue, **fields: Any) -> Setup:
    """Return the setup for `job` with its name, and a refusal if it has problems that `requested` does not have."""
    strategy = catalogue.strategy(job.strategy)
    name_parts = [strategy.title if strategy is not None else job.strategy, device_text(job)]
    if strategy is not None and strategy.replicates:
        name_parts.append(f"{job.replicas} replicas")
    if strategy is not None and strategy.schedules:
        name_parts.append(SCHEDULE_TITLES[job.pipeline_schedule])
        name_parts += [f"{job.microbatches} microbatches"] if job.microbatches else []
    name_parts += [f"accumulation {job.accumulation}"] if job.accumulation > 1 or requested.accumulation > 1 else []
    name_parts += [job.precision] if job.precision != requested.precision else []
    name_parts += [f"buckets of {job.bucket_mib:g} MiB"] if job.bucket_mib != FIELDS["bucket_mib"].default else []
    name_parts += ["activation checkpointing"] if job.activation_checkpointing else []
    name_parts += ["offloaded"] if job.cpu_offload else []
    before = {problem.field for problem in errors(problems(requested, catalogue))} - {"strategy", "devices"}
    new = [problem for problem in errors(problems(job, catalogue)) if problem.field not in before]
    return Setup(job, ", ".join(name_parts), refusal=new[0].message if new else "", **fields)


def device_text(job: Job) -> str:
    """Return the number and kind of devices, such as "2 GPUs" or "1 CPU worker"."""
    return counted(len(job.devices), "GPU" if any(map(is_gpu, job.devices)) else "CPU worker")
