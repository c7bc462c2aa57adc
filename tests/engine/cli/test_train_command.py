"""``footplate train``: output, exit codes and Ctrl+C."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from engine.cli import children
from engine.cli.main import create_parser
from engine.cli.train import dataset_lines, validate
from engine.contract.events import EVENT, Chosen, RunFinished, RunStarted
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.runs.index import find_run
from tests.engine.cli.prepared_commands import DATASET, READ, use_report
from tests.engine.cli.terminal import command, footplate
from tests.engine.supervisor.supervised import make_images
from tests.support.clouds import make_clouds
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "images")


SMALL = ("--model", "mnist_cnn", "--batch-size", "8")


def test_failed_inspection_is_reported(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise children.ChildFailed("it was killed by SIGKILL (signal 9)")

    monkeypatch.setattr(children, "inspect", fail)
    _, problems = validate_arguments(str(images), *SMALL, "--devices", "cpu")
    (problem,) = [each for each in problems if each.field == "dataset"]
    assert problem.severity == "error"
    assert "could not be inspected: it was killed by SIGKILL (signal 9)." in problem.message


def test_unreadable_devices_matter_only_if_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise children.ChildFailed("it is gone")

    use_report(monkeypatch)
    monkeypatch.setattr(children, "read_snapshot", fail)
    for flags, messages in (((), []), (("--devices", "0"), ["This machine's devices could not be read: it is gone."])):
        _, problems = validate_arguments(DATASET, *SMALL, *flags)
        assert [each.message for each in errors(problems) if "read" in each.message] == messages


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "COCO, 2 classes, gray; 1230 train, 11 val (held out)"),
        ({"kind": "points"}, "COCO, 2 classes; 1230 train, 11 val (held out)"),
        ({"kind": "files"}, "COCO; 1230 train, 11 val (held out)"),
        ({"format": ""}, "not recognized"),
    ],
)
def test_dataset_is_described_in_a_line(changes: dict[str, Any], line: str) -> None:
    report = msgspec.structs.replace(READ, certain=True, **changes)
    assert dataset_lines(report) == [f"/data/trees: {line}"]


def test_train_on_two_devices_prints_checkpoints_and_returns_0(images: Path) -> None:
    arguments = ("--epochs", "2", "--name", "my run", "--devices", "cpu,cpu")
    answer = footplate("train", str(images), *SMALL, *arguments)
    assert answer.code == 0, answer.err
    assert "epoch 2: top1" in answer.out
    assert "Completed" in answer.out
    assert "2 classes, gray; 48 train, 12 val" in answer.err
    best = next(line for line in answer.out.splitlines() if line.endswith("best.pt") and line.startswith("/"))
    assert Path(best).is_file()
    listed = footplate("runs")
    assert listed.code == 0
    row = listed.out.splitlines()[1]
    assert all(cell in row for cell in ("my run", "mnist_cnn", "ddp", "completed", "Top-1 "))
    attached = footplate("attach", "my run")
    assert attached.code == 0
    assert "epoch 2: top1" in attached.out

    assert "Strategy: ddp." in answer.out
    run = find_run("last")
    assert run is not None
    job = run.job()
    assert job is not None
    assert job.parallel.strategy == "auto"
    choices = [event.choice for event in run.events() if isinstance(event, Chosen) and event.field == "strategy"]
    assert choices == ["ddp"]
    assert run.summary().strategy == "ddp"


@pytest.mark.long
def test_train_json_prints_the_log(images: Path) -> None:
    answer = footplate("train", str(images), *SMALL, "--epochs", "1", "--json")
    assert answer.code == 0, answer.err
    run = find_run("last")
    assert run is not None
    assert answer.out.encode() == run.events_file.read_bytes()
    events = [EVENT.decode(line) for line in answer.out.splitlines()]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert footplate("attach", "last", "--json").out == answer.out


@pytest.mark.long
def test_train_returns_3_after_a_failure(images: Path, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise RuntimeError('out of ideas')\n")
    answer = footplate("train", str(images), "--model", str(file), "--trust-model-file", "--image-size", "32")
    assert answer.code == 3, answer
    assert "out of ideas" in answer.out


def test_train_stops_at_ctrl_c_with_130(images: Path) -> None:
    process = subprocess.Popen(
        command("train", str(images), *SMALL, "--epochs", "100000", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == "step":
            break
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert '"outcome":"stopped"' in rest.splitlines()[-1]
    assert "Run " not in errors
    run = find_run("last")
    assert run is not None
    assert run.state() == "stopped"


@pytest.mark.long
def test_run_survives_its_terminal_until_stopped(images: Path) -> None:
    started = footplate("train", str(images), *SMALL, "--epochs", "100000", "--detach")
    assert started.code == 0, started.err
    run_id = started.out.strip()
    run = find_run(run_id)
    assert run is not None
    watching = subprocess.Popen(command("attach", run_id, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=120)
    assert watching.returncode == 0
    assert run.state() == "running"
    answer = footplate("stop", run_id[:20])
    assert answer.code == 0
    assert "stopped; its devices are free" in answer.out
    assert run.state() == "stopped"
    assert "is not running; it is stopped" in footplate("stop", run_id).out
    assert footplate("attach", run_id).code == 130


@pytest.mark.long
def test_train_returns_130_for_an_interrupted_run(images: Path) -> None:
    process = subprocess.Popen(
        command("train", str(images), *SMALL, "--epochs", "100000", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    run = find_run("last")
    assert run is not None
    content = run.supervisor()
    assert content is not None
    psutil.Process(content.pid).kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"interrupted" in errors
    for stale in Path(content.endpoint.removeprefix("unix:")).parent.glob("*.sock"):
        stale.unlink()


def test_train_flags_override_the_job_file(images: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'data.image_size = 32\n[model]\nname = "mnist_cnn"\npretrained = true\n[training]\nepochs = 7\nbatch_size = 8\n'
    )
    arguments = (str(images), "--job", str(file), "--epochs", "1", "--no-pretrained", "--image-size", "")
    job, problems = validate_arguments(*arguments)
    assert problems == []
    assert job == Job.from_fields(dataset=str(images), model="mnist_cnn", epochs=1, batch_size=8)


def validate_arguments(*arguments: str) -> tuple[Job | None, list[Problem]]:
    options, options.unknown = create_parser().parse_known_args(["train", *arguments])
    return validate(options)


@pytest.mark.parametrize(
    ("make", "arguments", "task", "model"),
    [
        (make_outlined, (), "instance_segmentation", "maskrcnn"),
        (make_outlined, ("--task", "detection"), "detection", "fasterrcnn"),
        (lambda folder, counts: make_masked(folder, counts, 64), (), "segmentation", "unet"),
        (
            lambda folder, counts: make_masked(folder, counts, 64),
            ("--task", "edge_detection"),
            "edge_detection",
            "hed_encoder",
        ),
        (make_clouds, (), "point_segmentation", "pointcnn"),
    ],
)
def test_train_detects_task_and_model(
    tmp_path: Path, make: Callable[..., Path], arguments: tuple[str, ...], task: str, model: str
) -> None:
    folder = make(tmp_path / "data", {"train": 6, "val": 3})
    job, problems = validate_arguments(str(folder), *arguments)
    assert not errors(problems), problems
    assert job is not None
    assert (job.task, job.model.name) == (task, model)


def test_train_makes_paths_absolute(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(images.parent)
    job, _ = validate_arguments(images.name, "--model", "mnist_cnn")
    assert job is not None
    assert job.data.dataset == str(images)
