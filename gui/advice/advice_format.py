"""Texts of the advisor's answer."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from engine.contract.advice import Advice, AdviceProgress, Candidate, LeftOut, State
from engine.system.format import NOT_KNOWN, duration, listed
from engine.system.plain_text import CsvWriter
from gui.format import counted, energy, lately, localised, size_of
from gui.titles import CHOICES, changes_words, devices_words, strategy_title
from gui.translation import tr

STATES: dict[State, str] = {
    "waiting": "not tried",
    "trying": "running…",
    "measured": "",
    "slower": "slower",
    "too_large": "doesn't fit",
    "failed": "failed",
}
ENDED = {
    "settled": tr("The ranking of the fastest is certain at {confidence:.0f}%."),
    "time": tr("Time ran out before the ranking was certain; longer trials may change it."),
    "stopped": tr("Stopped before the ranking was certain; these are the results so far."),
}
MEMORY_BY = {
    "one_device": tr("Memory that wasn't measured is estimated from the use of one device."),
    "fake_tensors": tr("Memory that wasn't measured is estimated from tensor shapes."),
    "none": "",
}
_NAMES = 8
"""Maximum number of candidates named for each reason."""


def number(value: float) -> str:
    """Format a number, as in "1,234" or "8.4"."""
    return localised(value) if value >= 10 else localised(value, 1)


def speed(of: Candidate) -> str:
    """Format the speed with half the width of its confidence interval, as in "1,234 ± 20"."""
    if of.images_per_second is None:
        return NOT_KNOWN
    if of.low is None or of.high is None:
        return number(of.images_per_second)
    return f"{number(of.images_per_second)} ± {number((of.high - of.low) / 2)}"


def speed_help(of: Candidate) -> str:
    """Describe the confidence interval of the speed, as in "Between 1,214 and 1,254 images/s, from 40 steps"."""
    if of.low is None or of.high is None:
        return ""
    return tr("Between {low} and {high} images/s, from {timed_steps}").format(
        low=number(of.low), high=number(of.high), timed_steps=counted(of.timed_steps, "step")
    )


def memory(of: Candidate) -> str:
    """Format the memory use, as in "12.3 of 79.2 GiB". Estimates start with "≈"."""
    if of.memory_bytes is not None:
        return size_of(of.memory_bytes, of.limit_bytes)
    return f"≈ {size_of(of.estimated_bytes, of.limit_bytes)}" if of.estimated_bytes is not None else NOT_KNOWN


def memory_help(of: Candidate) -> str:
    if of.memory_bytes is None:
        return tr("Estimated, per device") if of.estimated_bytes is not None else ""
    before = f"; the estimate was {size_of(of.estimated_bytes, None)}" if of.estimated_bytes is not None else ""
    return tr("Measured on the device that used the most{before}").format(before=before)


def total_duration(of: Candidate) -> str:
    return duration(of.time.total_s) if of.time is not None else NOT_KNOWN


def total_duration_help(of: Candidate) -> str:
    """Describe what the duration of the job consists of.

    For example "20 s to start, then 5 epochs of 1,200 steps of 12.3 ms and 3 s of validation. Measured: step.
    Estimated: start."
    """
    time = of.time
    if time is None:
        return ""
    parts = (
        f"{duration(time.start_s)} to start, then {counted(time.epochs, 'epoch')} of {counted(time.steps, 'step')} of "
        f"{localised(1000 * time.step_s, 1)} ms and {duration(time.validation_s)} of validation."
    )
    known = (
        (origin, names)
        for origin, names in ((tr("Measured"), time.measured), (tr("Estimated"), time.estimated))
        if names
    )
    return " ".join([parts, *(f"{origin}: {listed(names)}." for origin, names in known)])


def efficiency(of: Candidate) -> str:
    return f"{100 * of.efficiency:.0f}%" if of.efficiency is not None else NOT_KNOWN


def joules(of: Candidate) -> str:
    """Format the energy per thousand images, as in "644 J" or "12.4 kJ"."""
    value = of.joules_per_thousand_images
    if value is None:
        return NOT_KNOWN
    return f"{localised(value)} J" if value < 10_000 else energy(value)


def name(of: Candidate) -> str:
    return f"{of.name} (your job)" if of.is_requested else of.name


def note(of: Candidate) -> str:
    """Return the advisor's remark on a candidate or, if there is none, the title of the candidate's state."""
    return of.why or STATES[of.state]


def changes(of: Candidate) -> str:
    """Describe the job settings that a candidate changes, as in "strategy DistributedDataParallel, devices 2 GPUs"."""
    values: dict[str, object] = {}
    for field, value in of.changes.items():
        if isinstance(value, tuple):
            values[field] = devices_words(value) if field == "devices" else listed(value) if value else "none"
        elif isinstance(value, str):
            values[field] = strategy_title(value) if field == "strategy" else CHOICES.get(value, value)
        else:
            values[field] = "automatic" if value is None else value
    return changes_words(values)


def details(of: Candidate) -> Iterator[str]:
    """Yield sentences about a candidate: changed settings, remark, wait for images, duration and memory."""
    yield tr("Sets {of}.").format(of=changes(of)) if of.changes else tr("This is your current job.")
    if of.why:
        yield of.why
    waits = round(100 * (of.data_wait_share or 0.0))
    if waits:
        yield tr("{waits}% of a step waits for images.").format(waits=waits)
    if of.time is not None:
        yield f"The whole job takes {total_duration(of)}: {total_duration_help(of)}"
    if of.memory_bytes is not None or of.estimated_bytes is not None:
        yield f"Memory: {memory(of)}. {memory_help(of)}."


def progress(message: AdviceProgress) -> str:
    """Describe the progress, as in "34 s left · 5 more to try in this round · 41 considered"."""
    texts = [f"{duration(message.seconds_left)} left"]
    texts += [f"{localised(message.left)} more to try in this round"] if message.left else []
    texts += [f"{localised(message.considered)} considered"] if message.considered else []
    return " · ".join(texts)


def how(of: Advice) -> Iterator[str]:
    """Yield sentences about the measurements: how they ended, when and on which hardware they were made."""
    equal = len(of.equally_fast)
    if of.fits and of.ended_by == "settled" and equal > 1:
        yield tr("The first {equal} are about equally fast.").format(equal=equal)
    elif of.fits:
        yield ENDED[of.ended_by].format(confidence=100 * of.confidence)
    versions = ", ".join(f"{name} {version}" for name, version in of.versions.items())
    on = f" on {listed(of.hardware)}" if of.hardware else ""
    yield f"Measured {lately(of.measured_at)} in {duration(of.took_s)}{on}{f', with {versions}' if versions else ''}."
    if MEMORY_BY[of.memory_by]:
        yield MEMORY_BY[of.memory_by]


def left_out(reason: LeftOut) -> str:
    """Describe a group of candidates that weren't tried: reason, number and names."""
    more = len(reason.names) - _NAMES
    names = "; ".join([*reason.names[:_NAMES], *([f"and {localised(more)} more"] if more > 0 else [])])
    return f"{counted(len(reason.names), 'way')}: {reason.why}\n{names}"


def as_text(answer: Advice, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the answer as plain text. Its table of candidates (`titles` and `rows`) becomes tab-separated values."""
    table = io.StringIO()
    writer = CsvWriter(table, delimiter="\t", line_end="\n")
    for row in (titles, *rows):
        writer.row(row)
    more = [*answer.remedies, *answer.what_would_change, *(each.sentence for each in answer.machines), *how(answer)]
    more += map(left_out, answer.left_out)
    return "\n".join([answer.sentence, "", table.getvalue(), *more])
