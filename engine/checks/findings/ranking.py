"""Explanations of why a strategy trains a job fastest, and of how a job can fit into memory."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.advice import Candidate, SkippedCandidates, apply_candidate
from engine.contract.catalogue import Catalogue
from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.parallel.layout import bubble_ratio
from engine.system.format import percent, size, speed

MAX_RIVALS = 3
"""Maximum number of strategies that are compared with the fastest one."""
LONG_WAIT = 0.1
"""Minimum fraction of a step spent waiting for data that the explanation mentions."""
TIE = 0.04
"""Maximum relative difference in speed for which two candidate settings count as equally fast."""
NOTHING_FITS = (
    "Choose a smaller image size, batch or model, or devices with more memory: nothing that keeps the training as it is "
    "makes it fit."
)


def explain_ranking(job: Job, catalogue: Catalogue, table: Sequence[Candidate]) -> str:
    """Compare the fastest candidate, the first row of `table`, with a single device and with other strategies.

    An example is "DistributedDataParallel, 2 GPUs is fastest: 812 images/s, 1.92x one device. Pipeline, 2 GPUs, 1F1B
    reaches 88% of that. Its bubble takes 11% of its devices' time."
    """
    measured = [row for row in table if row.images_per_second]
    best = measured[0]
    alone = next((row for row in measured if len(row.devices) == 1), None)
    sentence = f"{best.name} is fastest: {speed(_get_speed(best))}"
    if alone is not None and alone is not best:
        sentence += f", {_get_speed(best) / _get_speed(alone):.2f}x one device"
    sentences = [f"{sentence}."]
    if len(best.devices) < len(job.parallel.devices):
        sentences += _explain_fewer_devices(job, measured)
    if _get_wait_fraction(best) >= LONG_WAIT:
        sentences.append(f"{percent(_get_wait_fraction(best))} of each step waits for images to be read.")
    rivals: dict[str, Candidate] = {}  # fastest candidate of each other strategy
    for row in measured[1:]:
        if row.strategy != best.strategy:
            rivals.setdefault(row.strategy, row)
    sentences += [_compare(job, catalogue, best, row) for row in list(rivals.values())[:MAX_RIVALS]]
    return " ".join(sentences)


def explain_failure(table: Sequence[Candidate], left_out: Sequence[SkippedCandidates], *, is_stopped: bool) -> str:
    """Explain why no candidate in `table` could be measured.

    `left_out` are candidates that were not tried. `is_stopped` is True if the user has stopped the trials.
    """
    if not table and is_stopped:
        return "It was stopped before anything was measured."
    if not table and not any(each.kind == "time" for each in left_out):
        return "Nothing could be tried."
    if not table or any(row.state == "slower" for row in table):  # without a speed, "slower" means too slow to measure
        return "The time was up before any step was measured. Give it more."
    if all(row.state == "too_large" for row in table):
        return "Nothing that was tried fits into memory."
    return f"Nothing that was tried could train: {table[0].why}"


def list_remedies(table: Sequence[Candidate]) -> tuple[str, ...]:
    """Return a sentence for each candidate that fits into memory, fastest first, or general advice if none fits.

    It is called for jobs that don't fit on one device.
    """
    measured = [row for row in table if row.images_per_second]
    if not measured:
        return (NOTHING_FITS,)
    first, *others = measured
    sentences = [f"It fits with {first.name}: {speed(_get_speed(first))}."]
    for row in others:
        loss = percent(1 - _get_speed(row) / _get_speed(first))
        sentences.append(f"It fits with {row.name}: {speed(_get_speed(row))}, {loss} slower than the first.")
    return tuple(sentences)


def _get_speed(row: Candidate) -> float:
    """Return the measured images per second of a candidate whose speed is known."""
    assert row.images_per_second is not None
    return row.images_per_second


def _get_wait_fraction(row: Candidate) -> float:
    """Return the fraction of a step that is spent waiting for data, or 0 if it is unknown."""
    return row.data_wait_share or 0.0


def _explain_fewer_devices(job: Job, measured: Sequence[Candidate]) -> list[str]:
    """Explain why more devices than those of the fastest candidate would not be faster.

    Returns no sentence if no candidate with more devices was measured.
    """
    best = measured[0]
    used = len(best.devices)
    larger = next((row for row in measured if len(row.devices) > used), None)
    if larger is None:
        return []
    reason = "they would spend more time on communication than they save"
    if apply_candidate(job, larger).training.accumulation > apply_candidate(job, best).training.accumulation:
        reason = "a batch only fits in smaller parts"
    elif _get_wait_fraction(larger) > LONG_WAIT:
        reason = "the step waits for data"
    kind = "GPUs" if is_gpu(job.parallel.devices[0]) else "CPU workers"
    return [
        f"{used} of your {len(job.parallel.devices)} {kind} {'is' if used == 1 else 'are'} enough: with more, {reason}."
    ]


def _compare(job: Job, catalogue: Catalogue, best: Candidate, other: Candidate) -> str:
    """Return a sentence with the speed of `other` relative to `best`, and the reason for it or an advantage."""
    strategy = catalogue.strategy(other.strategy)
    assert strategy is not None
    ratio = _get_speed(other) / _get_speed(best)
    is_as_fast = ratio > 1 - TIE
    fact = f"{other.name} is as fast" if is_as_fast else f"{other.name} reaches {percent(ratio)} of that"
    if idle_per_computing := bubble_ratio(apply_candidate(job, other), strategy):
        idle_fraction = idle_per_computing / (1 + idle_per_computing)
        return f"{fact}; its bubble takes {percent(idle_fraction)} of its devices' time."
    if strategy.splits_model and not strategy.has_schedule and not is_as_fast:
        return f"{fact}, since its devices compute one after another."
    if best.memory_bytes is not None and other.memory_bytes is not None and other.memory_bytes < best.memory_bytes:
        saved = size(best.memory_bytes - other.memory_bytes)
        return f"{fact}, and saves {saved} per device, which this job does not need."
    return f"{fact}."
