"""Every task is evaluated: its point measures are those of its run's last validation, and what is kept can be read again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.messages import Progress
from engine.inference.evaluation.evaluate import evaluate
from engine.runs.evaluations import evaluations_of
from tests.support.consent import agreed
from tests.support.trained_runs import COUNTING, DATASETS, Trained


@pytest.mark.parametrize("task", list(DATASETS))
def test_that_an_evaluation_measures_what_the_run_measured(
    task: str, trained: Callable[[str], Trained], tmp_path: Path
) -> None:
    of = trained(task)
    agreed(COUNTING)
    run = shutil.copytree(of.run.path, tmp_path / "run")
    said: list[Progress] = []
    path = evaluate(EvaluateOrder(run=str(run), checkpoint="last"), said.append)
    (kept,) = evaluations_of(run)
    assert kept.folder == path.parent
    evaluation = kept.evaluation
    measures = {name: each.value for name, each in evaluation.measures.items()}
    assert {name: measures[name] for name in of.measures} == pytest.approx(of.measures, abs=1e-5)
    samples = kept.samples()
    assert evaluation.samples == len(samples.paths)
