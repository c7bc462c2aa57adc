"""`footplate find-lr` and `footplate find-batch`, run in a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from engine.cli import children, train
from engine.cli.children import ChildFailed
from engine.cli.finders import draw_curve
from engine.cli.terminal import BAD_REQUEST, COMPLETED, FAILED, CommandError
from engine.contract.advice import BatchFound, BatchTrial, FinderRequest, RateFound, RatePoint
from engine.contract.job import Job
from engine.contract.messages import Done, Progress, Refused
from engine.contract.problems import Problem
from engine.runs.folder import list_runs
from engine.system import paths
from tests.engine.cli.terminal import TerminalStream, footplate, run_in_this_process

SMALL = (str(paths.sample_dataset()), "--model", "mnist_cnn", "--image-size", "28", "--batch-size", "8")
RATE = RateFound(points=(), suggestion=None, why="It never fell.", remedy="Train longer.", smoothing=0.4, diverged=True)
BATCH = BatchFound(
    trials=(BatchTrial(size=8, fits=False),), largest=None, knee=None, why="8 is too much.", remedy="Shrink the images."
)


ONE = BatchTrial(size=8, fits=True, images_per_second=9.0, memory_bytes=1024, limit_bytes=2048, limit="memory")


@pytest.mark.parametrize(
    ("name", "found", "code", "lines"),
    [
        ("find-lr", RATE, FAILED, ["It never fell.", "Train longer."]),
        ("find-batch", BATCH, FAILED, ["8           too much", "8 is too much.", "Shrink the images."]),
        (
            "find-batch",
            msgspec.structs.replace(BATCH, trials=(ONE,), largest=8, knee=8),
            COMPLETED,
            [
                "8           1.0 KiB  2.0 KiB (memory)  9.0       knee, largest",
                "8 is too much.",
                "To train with the smallest of the fastest sizes: --batch-size 8",
            ],
        ),
    ],
)
def test_finder_prints_its_result_or_a_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str, found: object, code: int, lines: list[str]
) -> None:
    job = Job.from_fields(dataset="/data", devices=("cpu",))
    monkeypatch.setattr(train, "validate", lambda _options: (job, []))
    monkeypatch.setattr(children, "run_in_child", lambda _request, **_options: found)
    answer = run_in_this_process(name, "/data")
    assert (answer.code, answer.out.splitlines()[-len(lines) :]) == (code, lines)


@pytest.mark.parametrize("command", ["find-lr", "find-batch"])
def test_finder_refuses_devices_of_other_machines(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    job = Job.from_fields(dataset="/data", devices=("node1:cpu",))
    monkeypatch.setattr(train, "validate", lambda _options: (job, []))
    answer = run_in_this_process(command, "/data")
    assert (answer.code, "devices of other machines" in answer.err) == (BAD_REQUEST, True)


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


@pytest.mark.parametrize(
    ("problem", "refused", "code"),
    [
        (Problem("batch_size", "It is wrong."), None, BAD_REQUEST),
        (Problem("", "It is wrong."), None, FAILED),
        (Problem("batch_size", "It is wrong."), FAILED, FAILED),
        (None, None, BAD_REQUEST),  # ends without an answer
    ],
)
def test_child_refuses_a_request_or_ends(
    problem: Problem | None,
    refused: int | None,
    code: int,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages = [
        Progress(0.5, "Half of it", warnings=("It is odd.",)),
        *([Refused((problem,))] if problem is not None else []),
    ]
    interruptible: list[bool] = []

    def run_module(module: str, _decoder: object, *, request: FinderRequest, answers_interrupt: bool) -> Iterator[Any]:
        assert (module, request.finder) == ("engine.advisor", "rate")
        interruptible.append(answers_interrupt)
        yield from messages
        raise ChildFailed("signal 9")

    screen = TerminalStream()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(children, "_run_module", run_module)
    with pytest.raises(CommandError) as error:
        children.run_in_child(FinderRequest("rate", Job()), refused=refused, is_quiet=True)
    assert (error.value.code, interruptible) == (code, [False])
    printed = screen.getvalue()
    assert ("It is wrong." in printed, "The trial ended early: signal 9." in printed) == (bool(problem), not problem)
    assert ("footplate: It is odd." in printed, "Half of it" in printed) == (True, False)
    messages[1:] = [Done(7)]
    assert children.run_in_child(FinderRequest("rate", Job())) == 7
    assert screen.getvalue().endswith("Half of it: 50%\r\x1b[K")
