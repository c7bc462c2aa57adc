"""A cut in words: figures, what each stage holds, and how even the stages are."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.cut import Cut
from engine.parallel.cut import Stage
from engine.system.format import NOT_KNOWN
from gui.format import localised, size


def count_words(count: int) -> str:
    """ "11.7 M", "3.2 k" or "640"."""
    if count >= 1_000_000:
        return f"{localised(count / 1e6, 1)} M"
    return f"{localised(count / 1e3, 1)} k" if count >= 1000 else str(count)


def milliseconds(seconds: float) -> str:
    value = 1000 * seconds
    return (
        f"{localised(value)} ms"
        if value >= 100
        else f"{localised(value, 1)} ms"
        if value >= 1
        else f"{localised(value, 2)} ms"
    )


def memory_words(stage: Stage, cut: Cut) -> str:
    """ "1.2 GiB", "1.2 of 8.0 GiB free", or that it is over."""
    limit = cut.memory_bytes[stage.group_rank]
    needed = size(stage.memory_bytes)
    if limit is None:
        return needed
    return f"{needed}, over {size(limit)}" if stage.over_memory else f"{needed} of {size(limit)}"


def share_words(stage: Stage) -> str:
    return f"{100 * stage.share:.0f} %"


def travels(held: Sequence[Stage], number: int) -> int:
    """The bytes of each microbatch that stage `number` sends to another device: none to a stage of its own."""
    stays = number + 1 >= len(held) or held[number].group_rank == held[number + 1].group_rank
    return 0 if stays else held[number].sent_bytes


def sent_words(held: Sequence[Stage], number: int) -> str:
    """ "3.1 MiB", or that it stays on the device; a dash for the last stage."""
    if number + 1 >= len(held):
        return NOT_KNOWN
    return size(travels(held, number)) if travels(held, number) else "stays"


def span_words(stage: Stage) -> str:
    """ "conv1 to layer2.0", or the one module."""
    if stage.first_module == stage.last_module:
        return stage.first_module
    return f"{stage.first_module or 'the input'} to {stage.last_module or 'the output'}"


def describe_stage(number: int, held: Sequence[Stage], cut: Cut, title: str) -> str:
    """A sentence on stage `number` of `held` for tool tips and screen readers."""
    stage = held[number]
    on = travels(held, number)
    sent = f", sends {size(on)} of each microbatch on" if on else ""
    over = " This exceeds its device's memory." if stage.over_memory else ""
    return (
        f"Stage {number} on {title}: {span_words(stage)}, {stage.layers} layers, "
        f"{count_words(stage.parameters)} parameters, {milliseconds(stage.seconds)} ({share_words(stage)}), "
        f"memory {memory_words(stage, cut)}{sent}.{over}"
    )


def describe_cut(cut: Cut, held: Sequence[Stage], titles: Sequence[str]) -> str:
    """All of the image in words."""
    sentences = [describe_stage(number, held, cut, titles[stage.group_rank]) for number, stage in enumerate(held)]
    return " ".join([balance_words(cut, held), *sentences])


def balance_words(cut: Cut, held: Sequence[Stage]) -> str:
    """How far the slowest rank is from an even division.

    A rank's time is that of all its stages; in the long run it is what a step takes per microbatch.
    """
    seconds = [0.0] * len(cut.devices)
    for stage in held:
        seconds[stage.group_rank] += stage.seconds
    slowest, mean = max(seconds), sum(seconds) / len(seconds)
    even = f"{100 / len(seconds):.0f} %"
    share = f"{100 * slowest / sum(seconds):.0f} %" if sum(seconds) else even
    if slowest < 1.01 * mean or not mean:
        return f"All devices take the same time ({even} each)."
    return f"The slowest device takes {share} of the time; {even} would be even."


def whose_words(cut: Cut) -> str:
    """Who chose the cuts."""
    return "Automatic, from measurements" if cut.chosen else "Moved by hand"
