"""The answer in numbers and in words: why the first is first, and what would change it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from engine.advisor.advice import kept
from engine.advisor.advice.candidates import devices_in_words
from engine.advisor.advice.estimates import bubble
from engine.advisor.advice.known import Known
from engine.advisor.advice.machines import Step, predict
from engine.advisor.advice.ranking import CONFIDENCE, TIE, Tried, ranked
from engine.contract.advice import Advice, AdviceOrder, Candidate, JobTime, MachinesPrediction, Network
from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import is_gpu
from engine.system.format import size

RIVALS = 3
"""The most other ways that the sentence speaks of."""
WAITS = 0.1
"""The share of a step that waits for data from which it is said."""
FASTER_LINK = 4
DEFAULT_NETWORK = Network(10e9)


def renewed(order: AdviceOrder, found: kept.Kept) -> Advice:
    """A kept answer, for the order's own epochs and machines."""
    table = tuple(
        msgspec.structs.replace(row, time=_for_epochs(row.time, order.job.epochs)) if row.time is not None else row
        for row in found.answer.table
    )
    machines = _machines(order, table[0], found.step) if table else ()
    return msgspec.structs.replace(found.answer, table=table, machines=machines, kept=True)


def answer(known: Known) -> Advice:
    """What is known by now."""
    tried = ranked(known.tried)
    fits = bool(tried and tried[0].steps)
    table = tuple(map(known.row, tried))
    return Advice(
        table=table,
        fits=fits,
        sentence=_sentence(known, tried) if fits else _nothing(known),
        remedies=_remedies(known),
        what_would_change=tuple(_changes(known, tried)) if fits else (),
        considered=known.considered,
        left_out=known.left_out(),
        memory_by=known.memory_by,
        ended_by=known.ended_by,
        confidence=CONFIDENCE,
        took_s=known.took_s,
        measured_at=time.time(),
        hardware=kept.hardware(),
        versions=kept.versions(),
        machines=_machines(known.order, table[0], known.machine_step) if fits else (),
    )


def _for_epochs(told: JobTime, epochs: int) -> JobTime:
    total = told.start_s + epochs * (told.steps * told.step_s + told.validation_s)
    return msgspec.structs.replace(told, epochs=epochs, total_s=total)


def _nothing(known: Known) -> str:
    if not known.tried and known.ended_by == "stopped":
        return "It was stopped before anything was measured."
    if not known.tried and not known.waiting:
        return "Nothing could be tried."
    if any(each.state == "slower" for each in known.tried) or not known.tried:
        return "The time was up before any step was measured. Give it more."
    if all(each.state == "too_large" for each in known.tried):
        return "Nothing that was tried fits into memory."
    return f"Nothing that was tried could train: {known.tried[0].why}"


def _sentence(known: Known, tried: list[Tried]) -> str:
    """ "DistributedDataParallel, 2 GPUs, is fastest: 812 images/s, 1.92x one device. Pipeline, 2 GPUs, 1F1B reaches
    88 % of that: it idles 11 % of the time in its bubble.".
    """
    best, alone = tried[0], known.alone
    words = [f"{best.way.name} is fastest: {best.speed.median:,.{_digits(best)}f} images/s"]
    if alone is not None and alone is not best:
        words[0] += f", {best.speed.median / alone.speed.median:.2f}x one device"
    words[0] += "."
    words += [f"{text}" for text in (_fewer(known, best), _waiting(known, best)) if text]
    rivals: dict[str, Tried] = {}
    for each in tried[1:]:
        if each.steps and each.way.job.strategy != best.way.job.strategy:
            rivals.setdefault(each.way.job.strategy, each)
    words += [_against(known, best, each) for each in list(rivals.values())[:RIVALS]]
    return " ".join(words)


def _digits(tried: Tried) -> int:
    return 0 if tried.speed.median >= 10 else 1


def _fewer(known: Known, best: Tried) -> str:
    """Where fewer devices are as fast as all."""
    used, given = len(best.way.job.devices), len(known.order.job.devices)
    if used == given:
        return ""
    of = f"{used} of your {given} {'GPUs' if is_gpu(known.order.job.devices[0]) else 'CPU workers'}"
    verb = "is" if used == 1 else "are"
    more = [each for each in ranked(known.tried) if each.steps and len(each.way.job.devices) > used]
    if not more:
        return ""
    why = "what they would have to tell each other costs more than they compute"
    if more[0].way.job.accumulation > best.way.job.accumulation:
        why = "a batch has to be gone through in smaller parts to fit"
    elif more[0].wait_s > WAITS * more[0].step_s:
        why = "the step waits for data"
    return f"{of} {verb} enough: with more, {why}."


def _waiting(known: Known, best: Tried) -> str:
    share = best.wait_s / best.step_s
    if share < WAITS:
        return ""
    return f"{100 * share:.0f} % of each step waits for images to be read."


def _against(known: Known, best: Tried, other: Tried) -> str:
    """One sentence on a rival, and what it loses by."""
    reaches = other.speed.median / best.speed.median
    entry = _entry(known, other)
    head = f"{other.way.name}"
    if reaches > 1 - TIE:
        head += " is as fast"
    else:
        head += f" reaches {100 * reaches:.0f} % of that"
    lost = bubble(other.way.job, entry)
    if lost:
        return f"{head}; its bubble takes {100 * lost / (1 + lost):.0f} % of its devices' time."
    if entry.cuts_model and not entry.schedules:
        return f"{head}, since its devices compute one after another."
    if best.memory is not None and other.memory is not None and other.memory[0] < best.memory[0]:
        saved = size(best.memory[0] - other.memory[0])
        return f"{head}, and saves {saved} per device, which this job does not need."
    return f"{head}."


def _entry(known: Known, tried: Tried) -> StrategyEntry:
    entry = known.catalogue.strategy(tried.way.job.strategy)
    assert entry is not None
    return entry


def _remedies(known: Known) -> tuple[str, ...]:
    """Where the job does not fit one device as it is: what makes it fit, in the order of what it costs."""
    too_large = [each for each in known.tried if each.state == "too_large"]
    left = {name for kind, name, _ in known.left if kind == "memory"}
    alone = [each for each in too_large if len(each.way.job.devices) == 1 and not each.way.gives_up]
    if not alone and not any(name.startswith("Single device") for name in left):
        return ()
    fitting = [each for each in ranked(known.tried) if each.steps]
    if not fitting:
        return (
            "Choose a smaller image size, batch or model, or devices with more memory: nothing that keeps the training as it is "
            "makes it fit.",
        )
    best = fitting[0]
    return tuple(
        f"It fits with {each.way.name}: {each.speed.median:,.{_digits(each)}f} images/s"
        + (
            f", {100 * (1 - each.speed.median / best.speed.median):.0f} % slower than the first."
            if each is not best
            else "."
        )
        for each in fitting
    )


def _changes(known: Known, tried: list[Tried]) -> Iterator[str]:
    """What would make another the first, as predicted from the parts of the measured steps."""
    costs, best = known.costs, tried[0]
    several = next(
        (each for each in tried if each.steps and each.way.job.strategy == "ddp" and not each.way.varies), None
    )
    alone = next(
        (each for each in tried if each.steps and each.way.job.strategy == "single" and not each.way.varies), None
    )
    if costs is None or several is None or alone is None:
        return
    count, batch = len(several.way.job.devices), several.way.job.batch_size
    per_image = max(0.0, alone.step_s - costs.fixed_s) / batch
    joining = several.step_s - costs.fixed_s - per_image * batch / count
    saved = per_image * (1 - 1 / count)
    if joining <= 0 or not saved:
        return
    even = joining / saved
    devices = devices_in_words(several.way.job)
    if best.way.job.strategy == "single" and batch < even < 64 * batch:
        yield f"From a batch of about {_round(even)} on, {devices} would be faster than one (predicted)."
    elif best.way.job.strategy != "single" and 2 < even < batch:
        yield f"Below a batch of about {_round(even)}, one device would be as fast as {devices} (predicted)."
    if joining > WAITS * several.step_s:
        faster = batch / (several.step_s - joining * (1 - 1 / FASTER_LINK))
        yield (
            f"With links between the devices {FASTER_LINK} times as fast, as NVLink is beside PCIe, DDP would make about "
            f"{faster:,.0f} images/s (predicted)."
        )
    if best.wait_s > WAITS * best.step_s:
        yield "With more loader workers, or smaller files, the step would wait less for images."


def _round(batch: float) -> str:
    """A batch size to two digits."""
    return f"{float(f'{batch:.2g}'):,.0f}"


def _machines(order: AdviceOrder, first: Candidate, step: Step | None) -> tuple[MachinesPrediction, ...]:
    """Of the order's number of machines, and of the powers of two below it."""
    if order.machines < 2 or step is None or first.time is None:
        return ()
    counts = {order.machines, *(2**power for power in range(1, order.machines.bit_length()))}
    network, time = order.network or DEFAULT_NETWORK, first.time
    return tuple(
        predict(step, order.job.batch_size, count, network, total_s=time.total_s, steps=time.epochs * time.steps)
        for count in sorted(counts)
        if count <= order.machines
    )
