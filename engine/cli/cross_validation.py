"""The runs of a cross-validation: ordinary ones, each of which holds out another part of the training images."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from engine.cli import inference, train, watching
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.terminal import say
from engine.contract.catalogue import load_catalogue
from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.evaluations import evaluations_of
from engine.runs.folder import RunFolder, create_run, list_runs
from engine.runs.launch import start_supervisor

MOST_FOLDS = 100


def cross_validated(run: RunFolder, folds: int, values: dict[str, Any]) -> tuple[str, ...] | int:
    """The folders of evaluations that together have every training image once, each by a run that was not trained
    with it; or the exit code once it has been said why there are none.

    Runs of an earlier call that was broken off are used again. `values` are those of an `Order`.
    """
    job = run.job()
    assert job is not None  # whoever asks has read it
    task = load_catalogue().task(job.task)
    wrong = []
    if task is None or "fold" not in task.fields:
        message = "Only runs of image classification and multi-label classification can be cross-validated."
        wrong.append(Problem("run", message, "Review the validation samples alone."))
    if not 2 <= folds <= MOST_FOLDS:
        wrong.append(Problem("cross_validate", f"There can be 2 to {MOST_FOLDS} folds.", "5 is usual."))
    if wrong:
        train.tell(wrong)
        return BAD_REQUEST
    evaluated = []
    for number in range(1, folds + 1):
        fold = job.with_fields(
            fold=f"{number}/{folds}", name=f"{run.run_id} fold {number}/{folds}", resume_from="", predictions=0
        )
        say(f"Fold {number} of {folds}", to=sys.stderr)
        with redirect_stdout(sys.stderr):
            folder = _evaluated(fold, values)
        if isinstance(folder, int):
            return folder
        evaluated.append(folder)
    return tuple(evaluated)


def _evaluated(fold: Job, values: dict[str, Any]) -> str | int:
    """The folder of the evaluation of the part that a fold's run holds out. That is of its last weights: its best
    ones are chosen by the very images that are to be judged.
    """
    run = next((each for each in list_runs() if each.job() == fold and each.state() == "completed"), None)
    if run is None:
        try:
            run = create_run(fold)
            start_supervisor(run)
        except OSError as error:
            return train.unwritable(error)
        code = watching.follow(run, json=False, stop_on_interrupt=True)
        if code != COMPLETED:
            return code
    known = [each for each in evaluations_of(run.path) if each.evaluation.split == "val"]
    if known:
        return str(known[0].folder)
    path = inference.done(
        EvaluateOrder(**values | {"run": str(run.path.absolute()), "checkpoint": "last"}, split="val")
    )
    return path if isinstance(path, int) else str(Path(path).parent)
