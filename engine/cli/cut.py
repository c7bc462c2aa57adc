"""``footplate cut``: measure where a job would cut its model, and show the stages."""

from __future__ import annotations

import argparse

import msgspec

from engine.checks.node_checks import here_only
from engine.cli import children, train
from engine.cli.terminal import COMPLETED, report, say, table
from engine.contract.catalogue import load_catalogue
from engine.contract.cut import Cut
from engine.contract.problems import errors
from engine.parallel.cut import Stage, stages
from engine.processes.orders import OrderError
from engine.system.format import size

_HEAD = ("stage", "device", "from", "to", "layers", "parameters", "time", "memory", "sent per microbatch")


class _Answer(msgspec.Struct, frozen=True):
    """Output of `--json`."""

    cut: Cut
    stages: tuple[Stage, ...]


def cut(options: argparse.Namespace) -> int:
    """Show the cut of a pipeline (or the given strategy), for the catalogue's classes if there is no dataset."""
    if options.strategy is None and options.job is None:
        options.strategy = load_catalogue().recommended_strategy("pipeline").id
    job, found = train.validate(options)
    if job is not None and not job.data.dataset:
        found = [problem for problem in found if problem.field != "dataset"]
    found += here_only(job.parallel.devices) if job is not None else []
    if job is None or errors(found):
        return report(found)
    try:
        answer = children.carry_out(job, is_quiet=options.json)
    except OrderError as error:
        return report([*found, *error.problems])
    report(found)
    say(*([_json(answer)] if options.json else _lines(answer)))
    return COMPLETED


def _json(cut: Cut) -> str:
    return msgspec.json.encode(_Answer(cut, stages(cut))).decode()


def _lines(cut: Cut) -> list[str]:
    rows = [_row(number, stage) for number, stage in enumerate(stages(cut))]
    names = ",".join(cut.cuts)
    origin = "Cut by measurement" if cut.chosen else "Cut as given"
    batch = f"{cut.microbatches} microbatches of {cut.microbatch_size}"
    return [*table(_HEAD, rows), f"{origin}, for {batch}. To keep it: --cuts {names}"]


def _row(number: int, stage: Stage) -> tuple[str, ...]:
    return (
        str(number),
        f"{stage.device} ({stage.group_rank})",
        stage.first_module,
        stage.last_module,
        str(stage.layers),
        f"{stage.parameters:,}",
        f"{100 * stage.share:.1f} %",
        size(stage.memory_bytes) + (" (too much)" if stage.over_memory else ""),
        size(stage.sent_bytes) if stage.sent_bytes else "–",
    )
