"""``footplate train`` from the outside: what it prints, how it ends, and what Ctrl-C does."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from engine.contract.events import EVENT, RunFinished, RunStarted
from engine.contract.job import load_job
from engine.contract.runs import find_run, list_runs
from tests.engine.cli.terminal import command, footplate
from tests.engine.supervisor.supervised import make_pictures, wait_until


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return make_pictures(tmp_path / "pictures")


SMALL = ("--model", "mnist_cnn", "--batch-size", "8")


def test_that_a_training_ends_with_0_and_names_its_checkpoints(pictures: Path) -> None:
    answer = footplate("train", str(pictures), *SMALL, "--epochs", "2", "--name", "my run")
    assert answer.code == 0, answer.err
    assert "epoch 2: top1" in answer.out
    assert "Completed" in answer.out
    assert "2 classes, grey; 48 train, 12 val" in answer.err
    best = next(line for line in answer.out.splitlines() if line.endswith("best.pt") and line.startswith("/"))
    assert Path(best).is_file()
    listed = footplate("runs")
    assert listed.code == 0
    row = listed.out.splitlines()[1]
    assert all(word in row for word in ("my run", "mnist_cnn", "single", "completed", "top1"))
    told = footplate("attach", "my run")
    assert told.code == 0
    assert "epoch 2: top1" in told.out


def test_that_json_prints_the_events_as_they_stand_in_the_run_and_nothing_else(pictures: Path) -> None:
    answer = footplate("train", str(pictures), *SMALL, "--epochs", "1", "--json")
    assert answer.code == 0, answer.err
    run = find_run("last")
    assert run is not None
    assert answer.out.encode() == run.events_file.read_bytes()
    events = [EVENT.decode(line) for line in answer.out.splitlines()]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert footplate("attach", "last", "--json").out == answer.out


def test_that_a_failed_training_ends_with_3_and_the_cause(pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise RuntimeError('out of ideas')\n")
    answer = footplate("train", str(pictures), "--model", str(file), "--trust-model-file", "--image-size", "32")
    assert answer.code == 3, answer
    assert "out of ideas" in answer.out


def test_that_ctrl_c_stops_the_run_and_ends_with_130(pictures: Path) -> None:
    process = subprocess.Popen(
        command("train", str(pictures), *SMALL, "--epochs", "100000", "--json"),
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
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert '"outcome":"stopped"' in rest.splitlines()[-1]
    run = find_run("last")
    assert run is not None
    assert run.state() == "stopped"


def test_that_a_run_goes_on_when_the_terminal_is_killed_and_stop_ends_it(pictures: Path) -> None:
    started = footplate("train", str(pictures), *SMALL, "--epochs", "100000", "--detach")
    assert started.code == 0, started.err
    run_id = started.out.strip()
    run = find_run(run_id)
    assert run is not None
    watching = subprocess.Popen(command("attach", run_id, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)
    assert watching.returncode == 0
    assert run.state() == "running"
    answer = footplate("stop", run_id[:20])
    assert answer.code == 0
    assert "stopped; its devices are free" in answer.out
    assert run.state() == "stopped"
    assert "does not run; it is stopped" in footplate("stop", run_id).out
    assert footplate("attach", run_id).code == 130


def test_that_an_interrupted_run_is_told_with_130(pictures: Path) -> None:
    process = subprocess.Popen(
        command("train", str(pictures), *SMALL, "--epochs", "100000", "--json"),
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
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted" in errors
    for stale in Path(content.endpoint.removeprefix("unix:")).parent.glob("*.sock"):
        stale.unlink()


def test_that_a_job_file_gives_the_values_and_flags_override_them(pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        f'dataset = "{pictures}"\nmodel = "mnist_cnn"\nepochs = 100000\nbatch_size = 8\npretrained = true\n'
    )
    answer = footplate("train", "--job", str(file), "--epochs", "1", "--no-pretrained", "--lear", "1")
    assert answer.code == 2
    assert "Did you mean --learning-rate?" in answer.err or "no flag --lear" in answer.err
    assert list_runs() == []
    answer = footplate("train", "--job", str(file), "--epochs", "1", "--no-pretrained", "--detach")
    assert answer.code == 0, answer.err
    run = find_run(answer.out.strip())
    assert run is not None
    job, problems = load_job(run.job_file)
    assert problems == []
    assert job is not None
    assert (job.epochs, job.batch_size, job.pretrained) == (1, 8, False)
    wait_until(lambda: run.state() == "completed", "the end")
