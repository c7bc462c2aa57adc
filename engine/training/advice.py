"""What holds a run back and what to change, from where the time of its steps goes. Pure functions over figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.contract.events import Advice, Part, RanksTimed, ScheduleTraced
from engine.contract.job import Job
from engine.parallel.layout import fits
from engine.system.format import counted

WORTH_SAYING = 0.05
"""The share of the time that must be lost to something before it is reported."""
HEADROOM = 1.15
"""The advised number of loader workers relative to the number that would just keep up, since images differ in size."""
BF16_SAVES = 0.5
"""The share of both passes that bf16 spares on GPUs with tensor cores, about: NVIDIA's DeepLearningExamples train
ResNet-50 on an A100 with 938 images/s in TF32 and 2,470 with AMP."""
STARVED = 0.5
"""The share of steps that end with an empty GPU queue from which a GPU counts as starved by its host."""
RIVALS = 0.1
"""The share of the time spent waiting for a core from which other programs count as the bottleneck of a run on the
CPU."""
OWN_WORK = 0.2
"""The share of a core from which decoding may be what takes cores away from the computation."""
WAITS: tuple[Part, ...] = ("data", "transfer", "communication")
"""The parts in which the device computes nothing."""

_DATA_PARALLEL = ("ddp", "zero1", "fsdp", "hsdp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """How a run goes, as its rank 0 sees it.

    `parts` are seconds per step, together `step_s`. `readers` is how many threads of this worker read images, None
    where it reads none; they took `decoding_s` thread-seconds per step to decode, in `epochs_before` whole epochs of
    this execution already once for each image. `spare_cores` are those of this worker's that none of its threads
    computes on, which are `computing_threads`; they had no core to compute on for `held_up`, a share of the time.
    `starved` is that of `Times`. `ranks` and `trace` are of the last step that was looked into.
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
    held_up: float = 0.0
    epochs_before: int = 0
    starved: float | None = None
    microbatches: int | None = None
    ranks: RanksTimed | None = None
    trace: ScheduleTraced | None = None

    def share(self, part: Part) -> float:
        return self.parts.get(part, 0.0) / self.step_s if self.step_s else 0.0

    @property
    def several(self) -> bool:
        return len(self.job.devices) > 1

    @property
    def devices(self) -> str:
        """The devices as the subject of a sentence."""
        if self.on_gpu:
            return "The GPUs" if self.several else "The GPU"
        return "The CPU workers" if self.several else "The CPU"

    def verb(self, stem: str) -> str:
        return stem if self.several else f"{stem}s"

    @property
    def them(self) -> str:
        return "them" if self.several else "it"


def advise(situation: Situation) -> Advice:
    """What to say: of what costs the most time, or that nothing holds the run back."""
    found = [each for each in _candidates(situation) if each[0] >= WORTH_SAYING]
    if found:
        return max(found, key=lambda each: each[0])[1]
    busy = max(0.0, 1.0 - sum(map(situation.share, WAITS)))
    are = "are" if situation.several else "is"
    sentence = f"{situation.devices} {are} busy {_percent(busy)} of the time; there is no bottleneck."
    return Advice(sentence=sentence)


def _candidates(situation: Situation) -> Iterator[tuple[float, Advice]]:
    """What could be said, each with the share of the time that it is about."""
    yield situation.share("data"), _about_images(situation)
    if not situation.on_gpu and situation.decoding_s < OWN_WORK * situation.step_s and situation.held_up >= RIVALS:
        # Ranks wait for whichever of them has just lost its core.
        yield situation.held_up, _about_other_work(situation)
    elif situation.ranks is not None and situation.ranks.straggler is not None:
        yield _about_straggler(situation, situation.ranks, situation.ranks.straggler)
    elif situation.trace is not None:
        yield situation.trace.bubble, _about_bubble(situation, situation.trace)
    elif situation.job.strategy in _DATA_PARALLEL:
        yield situation.share("communication"), _about_communication(situation)
    if situation.on_gpu and situation.native_bf16 and situation.job.precision == "fp32":
        sentence = f"{situation.devices} {situation.verb('compute')} in fp32: bf16 would take about half the time."
        computing = situation.share("forward") + situation.share("backward")
        yield BF16_SAVES * computing, Advice(sentence=sentence, field="precision", value="bf16")
    # A GPU that waits for images is out of work for that reason.
    if situation.starved is not None and situation.starved >= STARVED and situation.share("data") < WORTH_SAYING:
        yield 1.0 - sum(map(situation.share, WAITS)), _about_host(situation)
    yield situation.share("transfer"), _about_transfer(situation)


def _about_images(situation: Situation) -> Advice:
    waits = f"{situation.devices} {situation.verb('wait')} {_percent(situation.share('data'))} of the time for images"
    if situation.readers is None:
        return Advice(sentence=f"{waits}, which another worker loads.")
    if situation.decoding_s > 0:
        return _about_decoding(situation, situation.readers, waits)
    if situation.job.picture_cache == "disk":
        sentence = f"{waits}, which come from the cache on disk: a cache in memory is faster if they fit."
        return Advice(sentence=sentence, field="picture_cache", value="memory")
    return Advice(sentence=f"{waits}, although all are decoded: the disk or memory they come from is slow.")


def _about_decoding(situation: Situation, readers: int, waits: str) -> Advice:
    computing_s = max(situation.step_s - situation.parts.get("data", 0.0), 1e-9)
    wanted = max(readers + 1, math.ceil(HEADROOM * situation.decoding_s / computing_s))
    more = min(wanted, situation.spare_cores) - readers
    if more > 0:
        workers = f"{more}{' more' if readers else ''} loader worker{'' if more == 1 else 's'}"
        would = f"would feed {situation.them}" if readers + more == wanted else "would help"
        sentence = f"{waits}: {workers} {would}."
        return Advice(sentence=sentence, field="loader_workers", value=readers + more, live=readers > 0)
    if situation.job.picture_cache == "off":
        sentence = f"{waits}, which are decoded again in every epoch: caching the decoded images avoids that."
        return Advice(sentence=sentence, field="picture_cache", value="auto")
    if situation.epochs_before == 0:
        return Advice(
            sentence=f"{waits}; each image is decoded only in the first epoch, if there is room to cache them."
        )
    return Advice(sentence=f"{waits}: there are no spare cores for decoding, and no room to cache all decoded images.")


def _about_straggler(situation: Situation, ranks: RanksTimed, slow: int) -> tuple[float, Advice]:
    others = [times for rank, times in enumerate(ranks.ranks) if rank != slow]
    shares = [t.waiting_s / total for t in others if (total := t.compute_s + t.communication_s + t.waiting_s) > 0]
    share = sum(shares) / len(shares) if shares else 0.0
    who = "the other waits" if len(others) == 1 else "the others wait"
    sentence = f"Rank {slow} is the slowest: {who} {_percent(share)} of each step for it"
    if situation.job.balance == "equal":
        sentence += ". Splitting each batch by measured speed evens that out."
        return share, Advice(sentence=sentence, field="balance", value="speed")
    return share, Advice(sentence=f"{sentence}, although batches are split by measured speed.")


def _about_communication(situation: Situation) -> Advice:
    job = situation.job
    sends = f"Averaging gradients takes {_percent(situation.share('communication'))} of the time"
    if job.strategy != "ddp":
        sentence = f"{sends}: DistributedDataParallel communicates less, if the model fits on each device."
        return Advice(sentence=sentence, field="strategy", value="ddp")
    if situation.on_gpu and job.gradient_compression == "none":
        sentence = f"{sends}: sending them in bf16 takes half as long."
        return Advice(sentence=sentence, field="gradient_compression", value="bf16")
    sentence = f"{sends}: a batch size of {2 * job.batch_size:,} halves that; adapt the learning rate to it."
    return Advice(sentence=sentence, field="batch_size", value=2 * job.batch_size)


def _about_bubble(situation: Situation, trace: ScheduleTraced) -> Advice:
    job, devices = situation.job, len(trace.ranks)
    idle = f"The devices are idle {_percent(trace.bubble)} of each step"
    if job.strategy == "model_parallel":
        sentence = f"{idle}, since they compute one after another: a pipeline lets them compute in parallel."
        return Advice(sentence=sentence, field="strategy", value="pipeline")
    if trace.bubble > 2 * trace.theory:
        return Advice(
            sentence=f"{idle}, of which the schedule explains {_percent(trace.theory)}: the stages are unbalanced."
        )
    now = situation.microbatches or 0
    replicas = job.replicas if job.strategy == "ddp_pipeline" else 1
    part, double = job.batch_size // (replicas * job.accumulation), 2 * now
    if now and part % double == 0 and fits(job.pipeline_schedule, double, devices):
        sentence = f"{idle} while the pipeline fills and drains: {double} microbatches instead of {now} reduce that."
        return Advice(sentence=sentence, field="microbatches", value=double)
    return Advice(sentence=f"{idle} while the pipeline fills and drains: a larger batch allows more microbatches.")


def _about_host(situation: Situation) -> Advice:
    done = f"{situation.devices} {situation.verb('run')} out of work between steps, starved by CPU launch overhead"
    larger = 2 * situation.job.batch_size
    sentence = f"{done}: a batch size of {larger:,} gives {situation.them} more work per launch."
    return Advice(sentence=sentence, field="batch_size", value=larger)


def _about_other_work(situation: Situation) -> Advice:
    threads = situation.computing_threads
    held = f"Other programs are using the CPU: {_percent(situation.held_up)} of each step is spent waiting for a core"
    if threads == 1:
        return Advice(sentence=f"{held}.")
    fewer = threads // 2
    sentence = f"{held}. With {counted(fewer, 'thread')} instead of {threads}, threads would wait less for each other."
    return Advice(sentence=sentence, field="cpu_threads", value=fewer)


def _about_transfer(situation: Situation) -> Advice:
    share = _percent(situation.share("transfer"))
    return Advice(sentence=f"{situation.devices} {situation.verb('wait')} {share} of the time for images to be copied.")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
