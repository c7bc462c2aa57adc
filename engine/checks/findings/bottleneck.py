"""Rules that find what limits the speed of a run, based on how much time each part of a step takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from engine.contract.catalogue import StrategyEntry, load_catalogue
from engine.contract.events import Advice, Part, RanksTimed, ScheduleTraced
from engine.contract.job import Job
from engine.parallel.layout import supports_microbatches
from engine.system.format import counted, percent

MIN_LOSS = 0.05
"""Minimum fraction of the training time that a bottleneck must cost to be reported."""
HEADROOM = 1.15
"""Ratio of the recommended number of loader workers to the bare minimum. It allows for images of different sizes."""
BF16_SAVES = 0.5
"""Fraction of the time for forward and backward passes that bf16 saves on GPUs with tensor cores.

On an A100, NVIDIA's DeepLearningExamples train ResNet-50 with 938 images/s in TF32 and 2,470 with AMP.
"""
STARVED = 0.5
"""Minimum fraction of steps that end with an empty GPU queue for the host to count as too slow."""
BUSY_CPU = 0.1
"""Minimum fraction of time that computing threads wait for busy cores for other programs to be the bottleneck."""
DECODING_LOAD = 0.2
"""Maximum load of decoding, in cores, for which other programs are blamed for busy cores."""
WAITING: tuple[Part, ...] = ("data", "transfer", "communication")
"""Parts of a step during which the device is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProfile:
    """Measurements of a run in the worker of rank 0.

    Attributes:
        step_s: Duration of a step in seconds.
        parts: Seconds per step that each part takes. They add up to `step_s`.
        on_gpu: True if the run trains on GPUs.
        native_bf16: True if the GPU computes faster in bf16.
        readers: Number of threads with which this worker reads images, or None if it reads none.
        decoding_s: Time for decoding per step in seconds, summed over all threads.
        spare_cores: Number of this worker's cores that are not used for computing.
        computing_threads: Number of this worker's threads for computing.
        cpu_wait_fraction: Fraction of the time that computing threads wait for a core.
        epochs_before: Number of completed epochs in this execution. All images have been decoded in each.
        starved_fraction: Fraction of steps that ended with an empty GPU queue, or None if unknown; see `Times`.
        microbatches: Number of microbatches, or None without a pipeline.
        ranks: Times of all ranks in the last recorded step, or None.
        trace: Pipeline schedule of the last recorded step, or None.
    """

    job: Job
    step_s: float
    parts: Mapping[Part, float]
    on_gpu: bool = False
    native_bf16: bool = False
    readers: int | None = None
    decoding_s: float = 0.0
    spare_cores: int = 0
    computing_threads: int = 1
    cpu_wait_fraction: float = 0.0
    epochs_before: int = 0
    starved_fraction: float | None = None
    microbatches: int | None = None
    ranks: RanksTimed | None = None
    trace: ScheduleTraced | None = None

    def fraction(self, *parts: Part) -> float:
        """Return the fraction of a step that the given parts take together."""
        return sum(self.parts.get(part, 0.0) for part in parts) / self.step_s if self.step_s else 0.0

    @property
    def strategy(self) -> StrategyEntry:
        """Catalogue entry of the job's strategy."""
        entry = load_catalogue().strategy(self.job.resolved_strategy)
        assert entry is not None
        return entry

    @property
    def has_several_devices(self) -> bool:
        return len(self.job.parallel.devices) > 1

    def devices_with_verb(self, verb: str) -> str:
        """Return a subject with its verb, "The GPUs wait" or "The CPU waits". `verb` is a plural, as in "wait"."""
        kind = "GPU" if self.on_gpu else "CPU"
        if self.has_several_devices:
            return f"The {kind}s {verb}" if self.on_gpu else f"The {kind} workers {verb}"
        return f"The {kind} {'is' if verb == 'are' else f'{verb}s'}"

    @property
    def pronoun(self) -> str:
        """Pronoun for the run's devices as the object of a sentence: "it" or "them"."""
        return "them" if self.has_several_devices else "it"


class _Bottleneck(NamedTuple):
    """Possible bottleneck: the fraction of the training time that it costs, and advice on it."""

    cost: float
    advice: Advice


def find_bottleneck(profile: RunProfile) -> Advice:
    """Return advice on what slows the run down most, or advice that states that nothing does."""
    worst = max(_find_bottlenecks(profile), key=attrgetter("cost"))
    if worst.cost >= MIN_LOSS:
        return worst.advice
    busy = percent(max(0.0, 1.0 - profile.fraction(*WAITING)))
    return Advice(sentence=f"{profile.devices_with_verb('are')} busy {busy} of the time; there is no bottleneck.")


def _find_bottlenecks(profile: RunProfile) -> Iterator[_Bottleneck]:
    """Yield possible bottlenecks, at least those of loading and of copying images."""
    yield _Bottleneck(profile.fraction("data"), _advise_on_data(profile))
    is_decoding = profile.decoding_s >= DECODING_LOAD * profile.step_s
    if not profile.on_gpu and not is_decoding and profile.cpu_wait_fraction >= BUSY_CPU:
        # Other ranks wait for any rank that loses its core, so straggler and communication are not the cause.
        yield _Bottleneck(profile.cpu_wait_fraction, _advise_on_other_programs(profile))
    elif profile.ranks is not None and profile.ranks.straggler is not None:
        yield _find_straggler_bottleneck(profile, profile.ranks, profile.ranks.straggler)
    elif profile.trace is not None:
        yield _Bottleneck(profile.trace.bubble, _advise_on_bubble(profile, profile.trace))
    elif profile.strategy.splits_batch and set(profile.strategy.mesh) <= {"replicate", "shard"}:
        yield _Bottleneck(profile.fraction("communication"), _advise_on_communication(profile))
    if profile.on_gpu and profile.native_bf16 and profile.job.precision.name == "fp32":
        sentence = f"{profile.devices_with_verb('compute')} in fp32: bf16 would take about half the time."
        advice = Advice(sentence=sentence, field="precision", value="bf16")
        yield _Bottleneck(BF16_SAVES * profile.fraction("forward", "backward"), advice)
    # If the GPU waits for images, this explains its empty queue.
    waits_for_data = profile.fraction("data") >= MIN_LOSS
    if profile.starved_fraction is not None and profile.starved_fraction >= STARVED and not waits_for_data:
        larger = 2 * profile.job.training.batch_size
        sentence = (
            f"{profile.devices_with_verb('run')} out of work between steps, starved by CPU launch overhead: "
            f"a batch size of {larger:,} gives {profile.pronoun} more work per launch."
        )
        advice = Advice(sentence=sentence, field="batch_size", value=larger)
        yield _Bottleneck(1.0 - profile.fraction(*WAITING), advice)
    copying = profile.fraction("transfer")
    sentence = f"{profile.devices_with_verb('wait')} {percent(copying)} of the time for images to be copied."
    yield _Bottleneck(copying, Advice(sentence=sentence))


def _advise_on_data(profile: RunProfile) -> Advice:
    """Explain why the devices wait for images, and advise a faster way to load them if there is one."""
    waits = f"{profile.devices_with_verb('wait')} {percent(profile.fraction('data'))} of the time for images"
    if profile.readers is None:  # another rank of the same replica loads the images
        return Advice(sentence=f"{waits}, which another worker loads.")
    if profile.decoding_s > 0:
        return _advise_on_decoding(profile, profile.readers, waits)
    if profile.job.data.picture_cache == "disk":
        sentence = f"{waits}, which come from the cache on disk: a cache in memory is faster if they fit."
        return Advice(sentence=sentence, field="picture_cache", value="memory")
    return Advice(sentence=f"{waits}, although all are decoded: the disk or memory they come from is slow.")


def _advise_on_decoding(profile: RunProfile, readers: int, waits: str) -> Advice:
    """Advise more loader workers if there are spare cores, otherwise a cache of decoded images.

    `waits` is the beginning of the sentence, which states how long the devices wait.
    """
    computing_s = max(profile.step_s - profile.parts.get("data", 0.0), 1e-9)  # a batch must be decoded within this time
    needed = max(readers + 1, math.ceil(HEADROOM * profile.decoding_s / computing_s))
    more = min(needed, profile.spare_cores) - readers
    if more > 0:
        workers = counted(more, f"{'more ' if readers else ''}loader worker")
        effect = f"would feed {profile.pronoun}" if readers + more == needed else "would help"
        sentence = f"{waits}: {workers} {effect}."
        return Advice(sentence=sentence, field="loader_workers", value=readers + more, live=readers > 0)
    if profile.job.data.picture_cache == "off":
        sentence = f"{waits}, which are decoded again in every epoch: caching the decoded images avoids that."
        return Advice(sentence=sentence, field="picture_cache", value="auto")
    if profile.epochs_before == 0:
        sentence = f"{waits}; each image is decoded only in the first epoch, if there is room to cache them."
        return Advice(sentence=sentence)
    return Advice(sentence=f"{waits}: there are no spare cores for decoding, and no room to cache all decoded images.")


def _find_straggler_bottleneck(profile: RunProfile, ranks: RanksTimed, straggler: int) -> _Bottleneck:
    """Return the mean fraction of a step for which other ranks wait for the rank `straggler`, and advice."""
    others = [times for rank, times in enumerate(ranks.ranks) if rank != straggler]
    totals_s = [times.compute_s + times.communication_s + times.waiting_s for times in others]
    fractions = [times.waiting_s / total_s for times, total_s in zip(others, totals_s, strict=True) if total_s > 0]
    mean_fraction = sum(fractions) / len(fractions) if fractions else 0.0
    who = "the other waits" if len(others) == 1 else "the others wait"
    sentence = f"Rank {straggler} is the slowest: {who} {percent(mean_fraction)} of each step for it"
    if profile.job.parallel.balance == "equal":
        sentence += ". Splitting each batch by measured speed evens that out."
        return _Bottleneck(mean_fraction, Advice(sentence=sentence, field="balance", value="speed"))
    return _Bottleneck(mean_fraction, Advice(sentence=f"{sentence}, although batches are split by measured speed."))


def _advise_on_communication(profile: RunProfile) -> Advice:
    """Advise replicated instead of sharded training, or else bf16 gradients, or else a larger batch."""
    job = profile.job
    fact = f"Averaging gradients takes {percent(profile.fraction('communication'))} of the time"
    if profile.strategy.shards_parameters or profile.strategy.shards_optimizer:
        simplest = load_catalogue().recommended_strategy("replicate")
        sentence = f"{fact}: {simplest.title} communicates less, if the model fits on each device."
        return Advice(sentence=sentence, field="strategy", value=simplest.id)
    can_compress = profile.on_gpu and "gradient_compression" in profile.strategy.fields
    if can_compress and job.parallel.gradient_compression == "none":
        sentence = f"{fact}: sending them in bf16 takes half as long."
        return Advice(sentence=sentence, field="gradient_compression", value="bf16")
    sentence = f"{fact}: a batch size of {2 * job.training.batch_size:,} halves that; adapt the learning rate to it."
    return Advice(sentence=sentence, field="batch_size", value=2 * job.training.batch_size)


def _advise_on_bubble(profile: RunProfile, trace: ScheduleTraced) -> Advice:
    """Advise a pipeline strategy or more microbatches, or report that the stages are unbalanced."""
    job, devices = profile.job, len(trace.ranks)
    idle = f"The devices are idle {percent(trace.bubble)} of each step"
    if not profile.strategy.has_schedule:
        pipeline = load_catalogue().recommended_strategy("pipeline")
        sentence = f"{idle}, since they compute one after another: a pipeline lets them compute in parallel."
        return Advice(sentence=sentence, field="strategy", value=pipeline.id)
    if trace.bubble > 2 * trace.theory:
        sentence = f"{idle}. The schedule explains only {percent(trace.theory)}: the stages are unbalanced."
        return Advice(sentence=sentence)
    current = profile.microbatches
    replicas = job.parallel.replicas if profile.strategy.has_replicas else 1
    images = job.training.batch_size // (replicas * job.training.accumulation)  # divided into microbatches
    doubled = 2 * current if current is not None else 0
    schedule = job.parallel.pipeline_schedule
    if doubled and images % doubled == 0 and supports_microbatches(schedule, doubled, devices):
        sentence = (
            f"{idle} while the pipeline fills and drains: {doubled} microbatches instead of {current} reduce that."
        )
        return Advice(sentence=sentence, field="microbatches", value=doubled)
    return Advice(sentence=f"{idle} while the pipeline fills and drains: a larger batch allows more microbatches.")


def _advise_on_other_programs(profile: RunProfile) -> Advice:
    """Report that other programs use the cores of this worker, and advise fewer threads if it has several."""
    threads = profile.computing_threads
    fact = f"Other programs are using the CPU: {percent(profile.cpu_wait_fraction)} of each step is spent waiting for a core"
    if threads == 1:
        return Advice(sentence=f"{fact}.")
    fewer = threads // 2
    sentence = f"{fact}. With {counted(fewer, 'thread')} instead of {threads}, threads would wait less for each other."
    return Advice(sentence=sentence, field="cpu_threads", value=fewer)
