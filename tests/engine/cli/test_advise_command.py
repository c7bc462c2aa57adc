"""`footplate advise`, run in a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.contract.job import load_job
from engine.runs.folder import list_runs
from engine.system import paths
from tests.engine.cli.terminal import footplate, run_in_this_process

SMALL = (str(paths.sample_dataset()), "--model", "mnist_cnn", "--image-size", "28", "--devices", "cpu,cpu")


def test_advise_reports_all_problems_but_the_strategy() -> None:
    answer = run_in_this_process(
        "advise", *SMALL, "--batch-size", "0", "--seconds", "1", "--machines", "0", "--network", "fast"
    )
    assert answer.code == 2
    for flag in ("--batch-size", "--seconds", "--machines", "--network: “fast” is not a network."):
        assert flag in answer.err
    assert "Single device uses one device" not in answer.err


@pytest.mark.long
def test_advise_prints_a_table_and_saves_the_job(tmp_path: Path) -> None:
    file = tmp_path / "advised.toml"
    answer = footplate("advise", *SMALL, "--seconds", "30", "--machines", "2", "--network", "1Gbit,100us")
    assert answer.code == 0, answer
    assert "is fastest" in answer.out
    assert "efficiency" in answer.out
    assert "Predicted, not measured: 2 machines" in answer.out
    assert not file.exists()
    saved = footplate("advise", *SMALL, "--seconds", "30", "--json", "--save", str(file))
    found = json.loads(saved.out)
    assert found["is_cached"]
    job, problems = load_job(file)
    assert not problems
    assert job is not None
    assert job.resolved_strategy == found["table"][0]["strategy"]
    assert list_runs() == []
