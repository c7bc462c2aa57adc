"""Texts about the split of a model into pipeline stages: figures, stages and balance."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.model_split import ModelSplit
from engine.parallel.split_points import Stage
from engine.system.format import NOT_KNOWN
from gui.format import counted, localized, milliseconds, size
from gui.translation import tr


def format_count(count: int) -> str:
    """Format a number of parameters, as in "11.7 M", "3.2 k" or "640"."""
    if count >= 1_000_000:
        return f"{localized(count / 1e6, 1)} M"
    return f"{localized(count / 1e3, 1)} k" if count >= 1000 else str(count)


def format_memory(stage: Stage, split: ModelSplit) -> str:
    """Format the memory need of a stage and, if known, the memory of its device, as in "1.2 GiB of 8.0 GiB"."""
    limit = split.memory_bytes[stage.group_rank]
    needed = size(stage.memory_bytes)
    if limit is None:
        return needed
    return (
        tr("{needed}, over {limit}").format(needed=needed, limit=size(limit))
        if stage.over_memory
        else tr("{needed} of {limit}").format(needed=needed, limit=size(limit))
    )


def format_fraction(stage: Stage) -> str:
    """Format the stage's fraction of the time of all stages, as in "23%"."""
    return f"{100 * stage.share:.0f}%"


def compute_sent_bytes(stages: Sequence[Stage], number: int) -> int:
    """Return the bytes per microbatch that stage `number` sends to another device."""
    is_local = number + 1 >= len(stages) or stages[number].group_rank == stages[number + 1].group_rank
    return 0 if is_local else stages[number].sent_bytes


def format_transfer(stages: Sequence[Stage], number: int) -> str:
    """Format the amount of data that a stage sends, as in "3.1 MiB".

    Returns "stays" if the next stage is on the same device, and a dash for the last stage.
    """
    if number + 1 >= len(stages):
        return NOT_KNOWN
    sent_bytes = compute_sent_bytes(stages, number)
    return size(sent_bytes) if sent_bytes else tr("stays")


def format_modules(stage: Stage) -> str:
    """Return the range of modules in a stage, as in "conv1 to layer2.0"."""
    if stage.first_module == stage.last_module:
        return stage.first_module
    return tr("{first} to {last}").format(
        first=stage.first_module or tr("the input"), last=stage.last_module or tr("the output")
    )


def describe_stage(number: int, stages: Sequence[Stage], split: ModelSplit, title: str) -> str:
    """Describe stage `number` for tool tips and screen readers. `title` is the title of its device."""
    stage = stages[number]
    sent = compute_sent_bytes(stages, number)
    text = (
        tr(
            "Stage {number} on {device}: {modules}, {layers}, {parameters} parameters, {time} ({percent}), "
            "memory {memory}, sends {sent} per microbatch."
        )
        if sent
        else tr(
            "Stage {number} on {device}: {modules}, {layers}, {parameters} parameters, {time} ({percent}), "
            "memory {memory}."
        )
    ).format(
        number=number,
        device=title,
        modules=format_modules(stage),
        layers=counted(stage.layers, "layer"),
        parameters=format_count(stage.parameters),
        time=milliseconds(stage.seconds),
        percent=format_fraction(stage),
        memory=format_memory(stage, split),
        sent=size(sent),
    )
    return text + " " + tr("This exceeds its device's memory.") if stage.over_memory else text


def describe_split(split: ModelSplit, stages: Sequence[Stage], titles: Sequence[str]) -> str:
    """Describe all pipeline stages of `split` for screen readers. `titles` are those of its ranks' devices."""
    sentences = [describe_stage(number, stages, split, titles[stage.group_rank]) for number, stage in enumerate(stages)]
    return " ".join([describe_balance(split, stages), *sentences])


def describe_balance(split: ModelSplit, stages: Sequence[Stage]) -> str:
    """Describe the slowest rank's fraction of the time, compared with an even division.

    The time of a rank is the sum over its stages. The slowest rank determines the time per microbatch.
    """
    rank_seconds = [0.0] * len(split.devices)
    for stage in stages:
        rank_seconds[stage.group_rank] += stage.seconds
    slowest_s, total_s = max(rank_seconds), sum(rank_seconds)
    even = f"{100 / len(rank_seconds):.0f}%"
    if not total_s or slowest_s < 1.01 * total_s / len(rank_seconds):
        return tr("All devices take the same time ({even} each).").format(even=even)
    return tr("The slowest device takes {share} of the time; {even} would be even.").format(
        share=f"{100 * slowest_s / total_s:.0f}%", even=even
    )


def describe_origin(split: ModelSplit) -> str:
    """Describe whether the user or Footplate has set the stages."""
    return tr("Automatic, from measurements") if split.chosen else tr("Moved by hand")
