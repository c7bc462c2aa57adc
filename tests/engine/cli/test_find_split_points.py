"""`footplate find-split-points`, run in a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.runs.folder import list_runs
from tests.engine.cli.terminal import footplate, run_in_this_process


@pytest.mark.long
def test_command_prints_the_stages() -> None:
    answer = footplate("find-split-points", "--model", "mnist_cnn", "--devices", "cpu,cpu", "--batch-size", "16")
    assert answer.code == 0, answer
    head, first, last, arguments = answer.out.splitlines()
    assert head.split()[:2] == ["stage", "device"]
    assert "memory" in head
    assert (first.split()[0], first.split()[3]) == ("0", "conv1")
    assert last.split()[0] == "1"
    assert "%" in first
    assert "iB" in first
    assert arguments.startswith("Split by measurement, for 8 microbatches of 2. To keep it: --split-points ")
    assert list_runs() == []


@pytest.mark.long
def test_command_prints_given_split_points_as_json() -> None:
    arguments = (
        "find-split-points",
        "--model",
        "mnist_cnn",
        "--devices",
        "cpu,cpu,cpu",
        "--batch-size",
        "24",
        "--split-points",
        "conv1,conv2",
    )
    answer = footplate(*arguments, "--json")
    assert answer.code == 0, answer
    content = json.loads(answer.out)
    assert content["model_split"]["split_points"] == ["conv1", "conv2"]
    assert content["model_split"]["chosen"] is False
    assert [stage["last_module"] for stage in content["stages"]] == ["conv1", "conv2", "fc2"]
    assert sum(stage["share"] for stage in content["stages"]) > 0.999


@pytest.mark.long
def test_command_refuses_unsplittable_jobs() -> None:
    answer = footplate("find-split-points", "--model", "mnist_cnn", "--devices", "cpu,cpu", "--split-points", "nowhere")
    assert answer.code == 2
    assert "--split-points" in answer.err
    assert "nowhere" in answer.err
    answer = footplate("find-split-points", "--devices", "cpu,cpu", "--strategy", "ddp")
    assert answer.code == 2
    assert "--strategy: " in answer.err
    assert "does not split the model into stages" in answer.err


def test_command_refuses_bad_requests() -> None:
    answer = run_in_this_process("find-split-points", "nowhere", "--modle", "resnet18", "--batch-size", "0")
    assert answer.code == 2
    assert "There is no flag --modle. Did you mean --model?" not in answer.out
    assert "Did you mean --model?" in answer.err
    assert "--batch-size" in answer.err
    assert "DATASET: There is no folder" in answer.err


def test_command_uses_the_jobs_strategy_or_a_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.toml").write_text('[parallel]\nstrategy = "fsdp"\ndevices = ["cpu"]\n')
    for arguments, strategy in ((("--job", str(tmp_path / "job.toml")), "Fully sharded (FSDP)"), ((), "Pipeline")):
        assert main(["find-split-points", "--devices", "cpu", *arguments]) == 2
        assert f"{strategy} needs at least 2 devices" in capsys.readouterr().err
