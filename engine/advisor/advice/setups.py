"""Setups for a job, which differ in strategy, number of devices, and settings for speed and memory.

All have the job's batch size. Only a few settings of each kind are listed, not all combinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.checks.job_checks import problems
from engine.contract.advice import Candidate, Value
from engine.contract.catalogue import Catalogue, StrategyEntry
from engine.contract.devices import is_gpu
from engine.contract.job import FIELDS, Job
from engine.contract.problems import errors
from engine.parallel.layout import SCHEDULE_TITLES
from engine.system.format import counted

MICROBATCHES = (2, 8)
"""Numbers of microbatches per device that are tried, in addition to the strategy's default of about four."""
BUCKETS_MIB = (5.0, 100.0)
"""Sizes of gradient buckets in MiB that are tried, in addition to DDP's default."""
MAX_ACCUMULATION = 64
"""Maximum number of parts of a batch in setups that need less memory."""


@dataclass(frozen=True)
class Setup:
    """Variant of the job that can be tried. It differs in strategy, devices, and options for speed and memory."""

    job: Job
    name: str
    """Name for users, such as "DDP, 2 GPUs, accumulation 2"."""
    base_name: str = ""
    """Name of the base setup if this is a variant of it with one changed setting, or "" if this is a base setup."""
    refusal: str = ""
    """Reason why the setup can't run, or "" if it can."""
    saves_memory: bool = False
    """True if the setup is slower than its base setup but needs less memory."""
    is_requested: bool = field(default=False, compare=False)
    """True if `job` is the job as the user requested it."""

    @property
    def is_variant(self) -> bool:
        """True if this is a variant of a base setup."""
        return bool(self.base_name)

    def create_candidate(self, requested: Job, **measurements: Any) -> Candidate:
        """Return a row of the advisor's table: this setup's differences from the `requested` job, and its measurements."""
        changes: dict[str, Value] = {
            name: self.job.value(name) for name in FIELDS if self.job.value(name) != requested.value(name)
        }
        return Candidate(
            name=self.name,
            strategy=self.job.resolved_strategy,
            devices=self.job.parallel.devices,
            changes=changes,
            is_requested=self.is_requested,
            **measurements,
        )


def list_setups(requested: Job, catalogue: Catalogue) -> list[Setup]:
    """List the setups for a job, including those that can't run.

    The requested job comes first. Setups that can't run have a `refusal`.
    """
    setups: dict[Job, Setup] = {}
    first = _create_setup(requested, requested, catalogue, is_requested=True)
    for setup in (first, *_list_base_setups(requested, catalogue)):
        setups.setdefault(setup.job, setup)
    for setup in list(setups.values()):
        if not setup.refusal:
            for variant in _make_variants(setup, requested, catalogue):
                setups.setdefault(variant.job, variant)
    return list(setups.values())


def device_counts(devices: int) -> list[int]:
    """Return the numbers of devices to try: all devices, and each smaller power of two."""
    return sorted({devices, *(2**power for power in range(devices.bit_length()))})


def _list_base_setups(requested: Job, catalogue: Catalogue) -> Iterator[Setup]:
    """Yield the setups for each strategy and number of devices, also with each number of replicas and schedule."""
    for count in device_counts(len(requested.parallel.devices)):
        for strategy in catalogue.strategies:
            is_too_many = strategy.max_devices is not None and count > strategy.max_devices
            if count < strategy.min_devices or is_too_many:
                continue
            base = _switch_strategy(requested, strategy, requested.parallel.devices[:count])
            for settings in _list_strategy_settings(strategy, count):
                yield _create_setup(base.with_fields(**settings), requested, catalogue)


def _switch_strategy(requested: Job, strategy: StrategyEntry, devices: tuple[str, ...]) -> Job:
    """Return a copy of the job with another strategy and other devices.

    Fields that the new strategy doesn't use get their defaults.
    """
    unused = {name for name, about in FIELDS.items() if about.group == "parallel" and name not in strategy.fields}
    unused.discard("activation_checkpointing")  # all strategies have it, so they do not list it
    # The requested split points suit only the requested stages.
    if devices != requested.parallel.devices or strategy.id != requested.resolved_strategy:
        unused.add("split_points")
    defaults = {name: FIELDS[name].default for name in unused}
    return requested.with_fields(strategy=strategy.id, devices=devices, **defaults)


def _list_strategy_settings(strategy: StrategyEntry, count: int) -> Iterator[dict[str, Any]]:
    """Yield the combinations of replicas and pipeline schedule to try with `strategy`, as job fields.

    `count` is the number of devices.
    """
    choices: list[dict[str, Any]] = [{}]
    divisors = [number for number in range(2, count // 2 + 1) if count % number == 0]
    if strategy.has_replicas and divisors:
        choices = [{"replicas": divisor} for divisor in divisors]
    for replicas in choices:
        if not strategy.has_schedule:
            yield replicas
            continue
        for schedule in SCHEDULE_TITLES:
            yield replicas | {"pipeline_schedule": schedule, "microbatches": None, "stages_per_device": None}


def _make_variants(setup: Setup, requested: Job, catalogue: Catalogue) -> Iterator[Setup]:
    """Yield variants of `setup`, each with one changed setting that may make it faster."""
    job, strategy = setup.job, catalogue.strategy(setup.job.resolved_strategy)
    assert strategy is not None
    changes: list[dict[str, Any]] = []
    if job.training.accumulation > 1:
        changes.append({"accumulation": 1})
    if job.precision.name == "auto" and not any(map(is_gpu, job.parallel.devices)):  # on the CPU, auto means fp32
        changes.append({"precision": "bf16"})
    if job.parallel.activation_checkpointing:
        changes.append({"activation_checkpointing": False})
    if "cpu_offload" in strategy.fields and job.parallel.cpu_offload:
        changes.append({"cpu_offload": False})
    if "bucket_mib" in strategy.fields and strategy.is_recommended:
        changes += [{"bucket_mib": size} for size in BUCKETS_MIB if size != job.parallel.bucket_mib]
    if strategy.has_schedule:
        group = len(job.parallel.devices) // (job.parallel.replicas if strategy.has_replicas else 1)
        changes += [{"microbatches": each * group} for each in MICROBATCHES]
    for change in changes:
        variant = _create_setup(job.with_fields(**change), requested, catalogue, base_name=setup.name)
        if not variant.refusal:
            yield variant


def list_smaller_setups(setup: Setup, requested: Job, catalogue: Catalogue) -> Iterator[Setup]:
    """Yield variants of `setup` that need less memory, starting with those that cost the least time.

    They use gradient accumulation, activation checkpointing or both. On GPUs, they also use bf16 instead of fp32, and
    main memory for parameters. Variants that can't run are left out.
    """
    job, strategy = setup.job, catalogue.strategy(setup.job.resolved_strategy)
    assert strategy is not None
    on_gpu = any(map(is_gpu, job.parallel.devices))
    counts = [job.training.accumulation * 2**power for power in range(1, MAX_ACCUMULATION.bit_length())]
    accumulations = [{"accumulation": count} for count in counts if count <= MAX_ACCUMULATION]
    recompute: dict[str, Any] = {"activation_checkpointing": True}
    changes: list[dict[str, Any]] = [*accumulations]
    if not job.parallel.activation_checkpointing:
        changes += [recompute, *(each | recompute for each in accumulations)]
    if job.precision.name == "fp32" and on_gpu:
        half = {"precision": "bf16"}
        changes += [half, half | recompute, *(each | half | recompute for each in accumulations)]
    if "cpu_offload" in strategy.fields and on_gpu and not job.parallel.cpu_offload:
        offload: dict[str, Any] = {"cpu_offload": True}
        changes += [offload, offload | recompute, *(each | offload | recompute for each in accumulations)]
    for change in changes:
        smaller = _create_setup(job.with_fields(**change), requested, catalogue, saves_memory=True)
        if not smaller.refusal:
            yield smaller


def _create_setup(job: Job, requested: Job, catalogue: Catalogue, **fields: Any) -> Setup:
    """Create the setup for `job`, with its name.

    If `job` has problems that the `requested` job does not have, they become the setup's refusal. `fields` are other
    fields of the setup.
    """
    strategy = catalogue.strategy(job.resolved_strategy)
    name_parts = [strategy.title if strategy is not None else job.resolved_strategy, describe_devices(job)]
    if strategy is not None and strategy.has_replicas:
        name_parts.append(f"{job.parallel.replicas} replicas")
    if strategy is not None and strategy.has_schedule:
        name_parts.append(SCHEDULE_TITLES[job.parallel.pipeline_schedule])
        if job.parallel.microbatches:
            name_parts.append(f"{job.parallel.microbatches} microbatches")
    if job.training.accumulation > 1 or requested.training.accumulation > 1:
        name_parts.append(f"accumulation {job.training.accumulation}")
    if job.precision.name != requested.precision.name:
        name_parts.append(job.precision.name)
    if job.parallel.bucket_mib != FIELDS["bucket_mib"].default:
        name_parts.append(f"buckets of {job.parallel.bucket_mib:g} MiB")
    if job.parallel.activation_checkpointing:
        name_parts.append("activation checkpointing")
    if job.parallel.cpu_offload:
        name_parts.append("offloaded")
    # Other strategies and devices have problems of their own, even if the requested ones have some, too.
    ignored_fields = {problem.field for problem in errors(problems(requested, catalogue))} - {"strategy", "devices"}
    new_problems = [problem for problem in errors(problems(job, catalogue)) if problem.field not in ignored_fields]
    return Setup(job, ", ".join(name_parts), refusal=new_problems[0].message if new_problems else "", **fields)


def describe_devices(job: Job) -> str:
    """Describe the number and kind of a job's devices: "2 GPUs", "1 CPU worker"."""
    return counted(len(job.parallel.devices), "GPU" if any(map(is_gpu, job.parallel.devices)) else "CPU worker")
