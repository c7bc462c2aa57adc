"""`footplate find-lr` and `footplate find-batch`, run in a process."""

from __future__ import annotations

import json

import pytest

from engine.cli.finders import draw_curve
from engine.contract.advice import RatePoint
from engine.runs.folder import list_runs
from engine.system import paths
from tests.engine.cli.terminal import footplate, run_in_this_process

SMALL = (str(paths.sample_dataset()), "--model", "mnist_cnn", "--image-size", "28", "--batch-size", "8")


@pytest.mark.long
def test_find_lr_prints_curve_and_json() -> None:
    answer = footplate("find-lr", *SMALL)
    assert answer.code == 0, answer
    assert "Suggested learning rate: 0.0" in answer.out
    assert "--learning-rate 0.0" in answer.out
    assert "•" in answer.out
    answer = footplate("find-lr", *SMALL, "--json")
    content = json.loads(answer.out)
    assert len(content["points"]) > 50
    assert content["points"][0].keys() == {"rate", "loss", "smoothed"}
    assert 1e-4 < content["suggestion"] < 1
    assert list_runs() == []


@pytest.mark.parametrize("command", ["find-lr", "find-batch"])
def test_finders_refuse_bad_requests(command: str) -> None:
    answer = run_in_this_process(command, "nowhere", "--modle", "resnet18", "--batch-size", "0")
    assert answer.code == 2
    assert "Did you mean --model?" in answer.err
    assert "--batch-size" in answer.err
    assert "DATASET: There is no folder" in answer.err


def test_curve_marks_suggestion_and_axis_limits() -> None:
    points = tuple(RatePoint(10.0**power, 1.0, 2.0 - abs(power + 3) / -4) for power in range(-7, 2))
    lines = draw_curve(points, 1e-3)
    assert lines[-1].split() == ["1e-07", "10"]
    middle = len("3 ") + 32  # of 64 columns
    assert all(line[middle] in "│•" for line in lines[:-1])
    assert lines[0].split()[0] == "3"
    assert lines[-2].split()[0] == "2"
