"""``footplate evaluate``: evaluation of a run, and comparison of two evaluations."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine.cli import evaluate
from engine.contract.inference.evaluation import Comparison
from engine.runs.evaluations import compare, compute_mcnemar_test, read_evaluations
from engine.runs.folder import RunFolder
from tests.engine.cli.terminal import run_in_this_process
from tests.support.trained_runs import TrainedRun, make_colors


@pytest.mark.usefixtures("inference_in_this_process")
def test_evaluate_prints_and_saves_the_result(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(trained("classification").run.path, tmp_path / "run"))
    folder = make_colors(tmp_path / "other", {"test": 3})
    broken = folder / "test" / "red" / "=broken.png"
    broken.write_bytes(b"not an image")
    table = tmp_path / "measures.csv"
    answer = run_in_this_process("evaluate", str(run.path), str(folder), "--checkpoint", "last", "--csv", str(table))
    assert answer.code == 0, answer.err
    (saved,) = read_evaluations(run.path)
    evaluation = saved.evaluation
    assert (evaluation.split, evaluation.samples) == ("test", 9)
    assert [skipped.path for skipped in evaluation.skipped] == ["test/red/=broken.png"]
    assert "Skipping test/red/=broken.png" in answer.err
    assert "\nSkipped 1 file that can't be read.\n" in answer.out
    assert re.search(rf"^Top-1 accuracy +{100 * evaluation.measures['top1'].value:.1f}% ", answer.out, re.MULTILINE)
    assert answer.out.rstrip().endswith(f"Saved in {saved.folder}.")
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert float(next(row["value"] for row in rows if row["measure"] == "auc")) == evaluation.measures["auc"].value
    assert {row["class"] for row in rows} == {"", "blue", "green", "red"}

    other = shutil.copytree(saved.folder, tmp_path / "kept")
    lines = list(evaluate.format_comparison(compare(saved, saved._replace(folder=other))))
    assert lines[-1].endswith("p = 1 (McNemar's exact test).")
    assert any(line.startswith("Top-1 accuracy") and "+0.0%" in line for line in lines)
    assert not any("same samples" in line for line in lines)
    fewer = msgspec.structs.replace(evaluation, samples=8)
    for first, second in ((evaluation, fewer), (fewer, evaluation)):
        lines = list(evaluate.format_comparison(Comparison(first, second, samples=8)))
        assert any("have not seen the same samples" in line for line in lines)


@pytest.mark.parametrize(("one", "other", "p"), [(0, 0, 1.0), (5, 5, 1.0), (1, 9, 0.021484375), (0, 10, 0.001953125)])
def test_mcnemar_is_the_exact_binomial_test(one: int, other: int, p: float) -> None:
    assert compute_mcnemar_test(one, other).p == pytest.approx(p, rel=1e-9)
    assert compute_mcnemar_test(other, one).p == pytest.approx(p, rel=1e-9)
