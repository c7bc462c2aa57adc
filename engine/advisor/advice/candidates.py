"""The ways to train a job that come into question: strategies, numbers of devices and the settings that matter for
speed and memory, within the job's batch. A few of each kind, not all their combinations.
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

SCHEDULES = ("1f1b", "gpipe", "interleaved_1f1b", "zb1p", "zbv")
TITLES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved_1f1b": "interleaved 1F1B", "zb1p": "ZB1P", "zbv": "ZBV"}
MICROBATCHES = (2, 8)
"""Microbatches per device besides those that the strategy chooses by itself, which are about four."""
BUCKETS_MIB = (5.0, 100.0)
"""Sizes of gradient buckets that are tried besides DDP's own."""
MOST_PARTS = 64
"""The most parts that a batch is gone through in to fit into memory."""


@dataclass(frozen=True)
class Way:
    """A way to train: the `job` as it would be, and a `name` for people. `varies` is the name of the way that it
    differs from in one setting, "" for one that stands by itself. `refusal` says why it cannot run, "" where it can.
    `gives_up` says what it gives up speed for: memory.
    """

    job: Job
    name: str
    varies: str = ""
    refusal: str = ""
    gives_up: bool = False
    own: bool = field(default=False, compare=False)

    def candidate(self, asked: Job, **known: Any) -> Candidate:
        """As the contract tells of it."""
        changes: dict[str, Value] = {
            name: getattr(self.job, name) for name in FIELDS if getattr(self.job, name) != getattr(asked, name)
        }
        return Candidate(
            name=self.name,
            strategy=self.job.strategy,
            devices=self.job.devices,
            changes=changes,
            own=self.own,
            **known,
        )


def ways(asked: Job, catalogue: Catalogue) -> list[Way]:
    """All that come into question for `asked`, its own first, those that cannot run with why not."""
    found: dict[Job, Way] = {}
    own = _named(asked, asked, catalogue, own=True)
    for way in (own, *_by_strategy(asked, catalogue)):
        found.setdefault(way.job, way)
    for way in list(found.values()):
        for varied in () if way.refusal or way.varies else _variations(way, asked, catalogue):
            found.setdefault(varied.job, varied)
    return list(found.values())


def numbers(devices: int) -> list[int]:
    """How many of so many devices are tried: all, and each power of two."""
    return sorted({devices, *(2**power for power in range(devices.bit_length()) if 2**power <= devices)})


def _by_strategy(asked: Job, catalogue: Catalogue) -> Iterator[Way]:
    for count in numbers(len(asked.devices)):
        for strategy in catalogue.strategies:
            if count < strategy.min_devices or (strategy.max_devices is not None and count > strategy.max_devices):
                continue
            base = _under(asked, strategy, asked.devices[:count])
            for settings in _settings(base, strategy, count):
                yield _named(msgspec.structs.replace(base, **settings), asked, catalogue)


def _under(asked: Job, strategy: StrategyEntry, devices: tuple[str, ...]) -> Job:
    """`asked` under a strategy, with what its own strategy alone goes by as it is by default."""
    alien = {name for name, of in FIELDS.items() if of.group == "strategy" and name not in strategy.fields}
    alien.discard("activation_checkpointing")
    if devices != asked.devices or strategy.id != asked.strategy:
        alien.add("cuts")
    defaults = {name: FIELDS[name].default for name in alien}
    return msgspec.structs.replace(asked, strategy=strategy.id, devices=devices, **defaults)


def _settings(base: Job, strategy: StrategyEntry, count: int) -> Iterator[dict[str, Any]]:
    """The settings that make a strategy another one: how many replicas, which schedule."""
    replicas = [n for n in range(2, count // 2 + 1) if count % n == 0] if strategy.replicates else []
    for copies in replicas or [base.replicas]:
        own: dict[str, Any] = {"replicas": copies} if replicas else {}
        if not strategy.schedules:
            yield own
            continue
        for schedule in SCHEDULES:
            yield own | {"pipeline_schedule": schedule, "microbatches": None, "stages_per_device": None}


def _variations(way: Way, asked: Job, catalogue: Catalogue) -> Iterator[Way]:
    """`way` with one setting changed that may make it faster."""
    job, strategy = way.job, catalogue.strategy(way.job.strategy)
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
        groups = len(job.devices) // (job.replicas if strategy.replicates else 1)
        changes += [{"microbatches": each * groups} for each in MICROBATCHES]
    for change in changes:
        varied = _named(msgspec.structs.replace(job, **change), asked, catalogue, varies=way.name)
        if not varied.refusal:
            yield varied


def thriftier(way: Way, asked: Job, catalogue: Catalogue) -> Iterator[Way]:
    """`way` with less and less memory, what costs least first: more parts of a batch, activations computed again,
    both; on GPUs, bf16 where the job asks for fp32, and what is kept in main memory instead.
    """
    job = way.job
    strategy = catalogue.strategy(job.strategy)
    assert strategy is not None
    parts = [job.accumulation * 2**power for power in range(1, MOST_PARTS.bit_length())]
    again = {"activation_checkpointing": True}
    changes: list[dict[str, Any]] = [{"accumulation": count} for count in parts if count <= MOST_PARTS]
    if not job.activation_checkpointing:
        changes += [again, *({"accumulation": count} | again for count in parts if count <= MOST_PARTS)]
    if job.precision == "fp32" and any(map(is_gpu, job.devices)):
        half = {"precision": "bf16"}
        changes += [
            half,
            half | again,
            *({"accumulation": count} | half | again for count in parts if count <= MOST_PARTS),
        ]
    if "cpu_offload" in strategy.fields and any(map(is_gpu, job.devices)):
        changes += [{"cpu_offload": True}, {"cpu_offload": True, "accumulation": parts[-1]} | again]
    for change in changes:
        less = _named(msgspec.structs.replace(job, **change), asked, catalogue, gives_up=True)
        if not less.refusal:
            yield less


def _named(job: Job, asked: Job, catalogue: Catalogue, **more: Any) -> Way:
    strategy = catalogue.strategy(job.strategy)
    words = [strategy.title if strategy is not None else job.strategy, devices_in_words(job)]
    if strategy is not None and strategy.replicates:
        words.append(f"{job.replicas} replicas")
    if strategy is not None and strategy.schedules:
        words.append(TITLES[job.pipeline_schedule])
        words += [f"{job.microbatches} microbatches"] if job.microbatches else []
    words += [f"accumulation {job.accumulation}"] if job.accumulation > 1 or asked.accumulation > 1 else []
    words += [job.precision] if job.precision != asked.precision else []
    words += [f"buckets of {job.bucket_mib:g} MiB"] if job.bucket_mib != FIELDS["bucket_mib"].default else []
    words += ["activation checkpointing"] if job.activation_checkpointing else []
    words += ["offloaded"] if job.cpu_offload else []
    before = {problem.field for problem in errors(problems(asked, catalogue))} - {"strategy", "devices"}
    wrong = [problem for problem in errors(problems(job, catalogue)) if problem.field not in before]
    return Way(job, ", ".join(words), refusal=wrong[0].message if wrong else "", **more)


def devices_in_words(job: Job) -> str:
    """ "2 GPUs", "1 CPU worker"."""
    return counted(len(job.devices), "GPU" if any(map(is_gpu, job.devices)) else "CPU worker")
