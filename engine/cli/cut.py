"""``footplate cut``: measure where a job would cut its model, and show the stages."""

from __future__ import annotations

import argparse
import sys

import msgspec

from engine.checks.node_checks import here_only
from engine.cli import children, train
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.table import table
from engine.cli.terminal import Line, say
from engine.contract.catalogue import load_catalogue
from engine.contract.cut import Cut
from engine.contract.job import Job
from engine.contract.planning import PlanningDone, PlanningFailed, PlanningProgress
from engine.contract.problems import Problem, errors
from engine.parallel.cut import Stage, stages
from engine.system.format import size

_HEAD = ("stage", "device", "from", "to", "layers", "parameters", "time", "memory", "sent per microbatch")


class _Answer(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    cut: Cut
    stages: tuple[Stage, ...]


def cut(options: argparse.Namespace) -> int:
    """Shows the cut; without a strategy that is a pipeline's, and without a dataset that for the catalogue's "
    "classes.
    """
    if options.strategy is None and options.job is None:
        options.strategy = load_catalogue().recommended_strategy("pipeline").id
    job, found = train.judge(options)
    if job is not None and not job.data.dataset:
        found = [problem for problem in found if problem.field != "dataset"]
    found += here_only(job.parallel.devices) if job is not None else []
    if job is None or errors(found):
        train.tell(found)
        return BAD_REQUEST
    try:
        answer = _plan(job, quiet=options.json)
    except children.ChildFailed as error:
        found.append(Problem("model", f"It could not be measured: {error}.", "Try a smaller batch size."))
        train.tell(found)
        return BAD_REQUEST
    if isinstance(answer, PlanningFailed):
        found.append(answer.problem)
    train.tell(found)
    if isinstance(answer, PlanningFailed):
        return BAD_REQUEST
    say(*([_json(answer.cut)] if options.json else _shown(answer.cut)))
    return COMPLETED


def _plan(job: Job, *, quiet: bool) -> PlanningDone | PlanningFailed:
    line = Line(sys.stderr)

    def progress(message: PlanningProgress) -> None:
        if not quiet:
            line.show(f"{message.what}: {100 * message.fraction:.0f} %")

    try:
        return children.plan(job, progress)
    finally:
        line.clear()


def _json(cut: Cut) -> str:
    return msgspec.json.encode(_Answer(cut, stages(cut))).decode()


def _shown(cut: Cut) -> list[str]:
    rows = [_row(number, stage) for number, stage in enumerate(stages(cut))]
    names = ",".join(cut.cuts)
    found = "Cut by measurement" if cut.chosen else "Cut as given"
    batch = f"{cut.microbatches} microbatches of {cut.microbatch_size}"
    return [*table(_HEAD, rows), f"{found}, for {batch}. To keep it: --cuts {names}"]


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
