"""Texts of the advisor's answer."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from engine.contract.advice import Advice, AdviceProgress, Candidate, SkippedCandidates, State
from engine.system.format import NOT_KNOWN, duration, listed
from engine.system.plain_text import CsvWriter
from gui.format import counted, energy, format_time_or_date, localized, size_of
from gui.titles import CHOICES, describe_devices, describe_job_changes, strategy_title
from gui.translation import tr

STATES: dict[State, str] = {
    "waiting": tr("not tried"),
    "trying": tr("running…"),
    "measured": "",
    "slower": tr("slower"),
    "too_large": tr("doesn't fit"),
    "failed": tr("failed"),
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


def format_number(value: float) -> str:
    """Format a number, with one decimal if it is below 10, as in "1,234" or "8.4"."""
    return localized(value) if value >= 10 else localized(value, 1)


def format_speed(candidate: Candidate) -> str:
    """Format the speed with half the width of its confidence interval, as in "1,234 ± 20"."""
    if candidate.images_per_second is None:
        return NOT_KNOWN
    if candidate.low is None or candidate.high is None:
        return format_number(candidate.images_per_second)
    return f"{format_number(candidate.images_per_second)} ± {format_number((candidate.high - candidate.low) / 2)}"


def describe_interval(candidate: Candidate) -> str:
    """Describe the confidence interval of the speed, as in "Between 1,214 and 1,254 images/s, from 40 steps".

    Return "" if it is unknown.
    """
    if candidate.low is None or candidate.high is None:
        return ""
    return tr("Between {low} and {high} images/s, from {timed_steps}").format(
        low=format_number(candidate.low),
        high=format_number(candidate.high),
        timed_steps=counted(candidate.timed_steps, "step"),
    )


def format_memory(candidate: Candidate) -> str:
    """Format the memory use, as in "12.3 of 79.2 GiB". Estimates start with "≈"."""
    if candidate.memory_bytes is not None:
        return size_of(candidate.memory_bytes, candidate.limit_bytes)
    return (
        f"≈ {size_of(candidate.estimated_bytes, candidate.limit_bytes)}"
        if candidate.estimated_bytes is not None
        else NOT_KNOWN
    )


def describe_memory_origin(candidate: Candidate) -> str:
    """Describe whether the memory of a candidate was measured or estimated, or return "" if it is unknown."""
    if candidate.memory_bytes is None:
        return tr("Estimated, per device") if candidate.estimated_bytes is not None else ""
    if candidate.estimated_bytes is None:
        return tr("Measured on the device that used the most")
    return tr("Measured on the device that used the most; the estimate was {size}").format(
        size=size_of(candidate.estimated_bytes, None)
    )


def format_duration(candidate: Candidate) -> str:
    """Format the estimated duration of the job with a candidate."""
    return duration(candidate.time.total_s) if candidate.time is not None else NOT_KNOWN


def describe_duration(candidate: Candidate) -> str:
    """Describe the parts of the job's duration.

    For example "20 s to start, then 5 epochs of 1,200 steps of 12.3 ms and 3 s of validation. Measured: step.
    Estimated: start."
    """
    time = candidate.time
    if time is None:
        return ""
    parts = tr("{start} to start, then {epochs} of {steps} of {step_ms} ms and {validation} of validation.").format(
        start=duration(time.start_s),
        epochs=counted(time.epochs, "epoch"),
        steps=counted(time.steps, "step"),
        step_ms=localized(1000 * time.step_s, 1),
        validation=duration(time.validation_s),
    )
    origins = ((tr("Measured"), time.measured), (tr("Estimated"), time.estimated))
    return " ".join([parts, *(f"{origin}: {listed(names)}." for origin, names in origins if names)])


def format_efficiency(candidate: Candidate) -> str:
    """Format the speed per device as a percentage of the fastest candidate with one device, as in "93%"."""
    return f"{100 * candidate.efficiency:.0f}%" if candidate.efficiency is not None else NOT_KNOWN


def format_energy(candidate: Candidate) -> str:
    """Format the energy per thousand images, as in "644 J" or "12.4 kJ"."""
    value = candidate.joules_per_thousand_images
    if value is None:
        return NOT_KNOWN
    return f"{localized(value)} J" if value < 10_000 else energy(value)


def format_name(candidate: Candidate) -> str:
    """Return the name of a candidate, followed by "(your job)" for the requested job."""
    return tr("{name} (your job)").format(name=candidate.name) if candidate.is_requested else candidate.name


def format_note(candidate: Candidate) -> str:
    """Return the advisor's remark on a candidate or, if there is none, the title of the candidate's state."""
    return candidate.why or STATES[candidate.state]


def describe_changes(candidate: Candidate) -> str:
    """Describe the job settings that a candidate changes, as in "strategy DistributedDataParallel, devices 2 GPUs"."""
    return describe_job_changes({field: _get_display_value(field, value) for field, value in candidate.changes.items()})


def _get_display_value(field: str, value: object) -> object:
    """Return the text for the value of a job's field. Numbers and switches are returned unchanged."""
    if field == "devices" and isinstance(value, tuple):
        return describe_devices(value)
    if isinstance(value, tuple):
        return listed(value) if value else tr("none")
    if isinstance(value, str):
        return strategy_title(value) if field == "strategy" else CHOICES.get(value, value)
    return tr("automatic") if value is None else value


def describe_candidate(candidate: Candidate) -> Iterator[str]:
    """Yield sentences about a candidate: changed settings, remark, wait for images, duration and memory."""
    yield (
        tr("Sets {of}.").format(of=describe_changes(candidate))
        if candidate.changes
        else tr("This is your current job.")
    )
    if candidate.why:
        yield candidate.why
    wait_percent = round(100 * (candidate.data_wait_share or 0.0))
    if wait_percent:
        yield tr("{waits}% of a step waits for images.").format(waits=wait_percent)
    if candidate.time is not None:
        yield tr("The whole job takes {time}: {details}").format(
            time=format_duration(candidate), details=describe_duration(candidate)
        )
    if candidate.memory_bytes is not None or candidate.estimated_bytes is not None:
        yield tr("Memory: {memory}. {origin}.").format(
            memory=format_memory(candidate), origin=describe_memory_origin(candidate)
        )


def describe_progress(message: AdviceProgress) -> str:
    """Describe the progress, as in "34 s left · 5 more to try in this round · 41 considered"."""
    texts = [tr("{time} left").format(time=duration(message.seconds_left))]
    texts += [tr("{count} more to try in this round").format(count=localized(message.left))] if message.left else []
    texts += [tr("{count} considered").format(count=localized(message.considered))] if message.considered else []
    return " · ".join(texts)


def describe_measurement(advice: Advice) -> Iterator[str]:
    """Yield sentences about the measurements: how they ended, when and on which hardware they were made."""
    equal_count = len(advice.equally_fast)
    if advice.fits and advice.ended_by == "settled" and equal_count > 1:
        yield tr("The first {equal} are about equally fast.").format(equal=equal_count)
    elif advice.fits:
        yield ENDED[advice.ended_by].format(confidence=100 * advice.confidence)
    versions = ", ".join(f"{name} {version}" for name, version in advice.versions.items())
    yield tr("Measured {when} in {time}{hardware}{software}.").format(
        when=format_time_or_date(advice.measured_at),
        time=duration(advice.took_s),
        hardware=tr(" on {hardware}").format(hardware=listed(advice.hardware)) if advice.hardware else "",
        software=tr(", with {versions}").format(versions=versions) if versions else "",
    )
    if MEMORY_BY[advice.memory_by]:
        yield MEMORY_BY[advice.memory_by]


def describe_left_out(skipped: SkippedCandidates) -> str:
    """Describe a group of candidates that weren't tried for the same reason: number, reason and names."""
    names = list(skipped.names[:_NAMES])
    if len(skipped.names) > _NAMES:
        names.append(tr("and {count} more").format(count=localized(len(skipped.names) - _NAMES)))
    return f"{counted(len(skipped.names), 'way')}: {skipped.why}\n{'; '.join(names)}"


def format_answer(answer: Advice, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the advisor's answer as plain text, with the `titles` and `rows` of its table, separated by tabs."""
    table = io.StringIO()
    writer = CsvWriter(table, delimiter="\t", line_end="\n")
    for row in (titles, *rows):
        writer.write_row(row)
    notes = [
        *answer.remedies,
        *answer.what_would_change,
        *(each.sentence for each in answer.machines),
        *describe_measurement(answer),
    ]
    notes += map(describe_left_out, answer.left_out)
    return "\n".join([answer.sentence, "", table.getvalue(), *notes])
