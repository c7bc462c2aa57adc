"""Resuming predictions after a full disk or a killed process."""

from __future__ import annotations

import csv
import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from msgspec import structs
from PIL import Image

from engine.contract.inference.prediction import PREDICTED, PredictRequest
from engine.contract.messages import Progress
from engine.inference.prediction import joining
from engine.inference.prediction.predict import predict
from engine.inference.trained_model import CannotLoad
from engine.system import file_locks
from tests.engine.cli.terminal import ROOT, command
from tests.engine.supervisor.supervised import wait_until_exited
from tests.support.trained_runs import TrainedRun
from tests.support.waiting import wait_until

linux_with_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


def make_images(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(folder / f"{number:06}.png")
    return [str(folder / f"{number:06}.png") for number in range(count)]


def lines_of(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.glob(".footplate/journal-*.jsonl"))


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and its children without cleanup."""
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for each in tree:
        each.kill()
    wait_until_exited(tree)
    process.communicate()


def rows_of(out: Path) -> list[str]:
    with open(out / "predictions.csv", newline="", encoding="utf-8") as stream:
        return [row["path"] for row in csv.DictReader(stream)]


@linux_with_compiler
@pytest.mark.long
def test_continuation_loses_and_repeats_no_row(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    library = tmp_path / "bad_disk.so"
    source = ROOT / "tests/support/bad_disk.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=120)
    files = make_images(tmp_path / "images", 600)
    Path(files[7]).write_bytes(b"broken")
    out, disk = tmp_path / "out", tmp_path / "fault"
    environment = {"LD_PRELOAD": str(library), "BAD_DISK": str(out), "BAD_DISK_FAULT": str(disk)}
    arguments = ("predict", str(trained("classification").run.path), str(tmp_path / "images"), "--checkpoint", "last")
    arguments = (*arguments, "--devices", "cpu", "--batch-size", "2", "--out", str(out))

    def start(**more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | more
        )

    disk.write_text("slow")
    process = start(**environment)
    wait_until(lambda: lines_of(out) > 20, "some rows", 60)
    disk.write_text("torn")
    output = process.communicate(timeout=120)[1]
    assert process.returncode == 3, output
    assert f"The disk of {out} is full. Free some space, then start it again with the same arguments" in output
    assert not (out / "predictions.csv").exists()
    torn = lines_of(out)
    assert 20 < torn < 600

    disk.write_text("slow")
    process = start(**environment)
    wait_until(lambda: lines_of(out) > torn + 20, "more rows", 60)
    kill(process)
    assert torn + 20 < lines_of(out) < 600

    process = start()
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0
    assert "Skipped" in output
    assert rows_of(out) == [file for file in files if file != files[7]]
    found = PREDICTED.decode((out / "predictions.json").read_bytes())
    assert (found.samples, found.predicted) == (600, 599)
    assert sorted(path.name for path in (out / ".footplate").iterdir()) == ["lock", "state.json"]


def test_results_of_other_predictions_are_not_overwritten(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    files, out, run = make_images(tmp_path / "images", 3), tmp_path / "out", tmp_path / "run"
    shutil.copytree(trained("classification").run.path, run)
    request = PredictRequest(
        run=str(run), checkpoint="last", paths=(str(tmp_path / "images"),), devices=("cpu",), out=str(out)
    )
    started = time.monotonic()
    results = predict(request, print)
    elapsed = time.monotonic() - started
    assert elapsed / 2 < PREDICTED.decode(results.read_bytes()).seconds < elapsed
    before = results.stat()
    with monkeypatch.context() as patch:  # as on file systems without locks
        patch.setattr(file_locks, "try_lock", refuse)
        assert predict(structs.replace(request, devices=("cpu", "cpu")), print) == results
    assert stat.S_IMODE((out / ".footplate").stat().st_mode) == 0o700
    moved = out.rename(tmp_path / "moved")
    assert predict(structs.replace(request, out=str(moved)), print) == moved / results.name
    moved.rename(out)
    with pytest.raises(CannotLoad, match="other predictions: different overlays, threshold"):
        predict(structs.replace(request, threshold=0.3, overlays=True), print)
    checkpoint = run / "checkpoints/last.pt"
    weights = checkpoint.read_bytes()
    torch.save(torch.load(checkpoint, weights_only=False) | {"step": 0}, checkpoint)
    with pytest.raises(CannotLoad, match="checkpoint has changed"):
        predict(request, print)
    checkpoint.write_bytes(weights)
    Path(files[1]).unlink()
    with pytest.raises(CannotLoad, match="files have changed"):
        predict(request, print)
    assert results.stat() == before
    (out / ".footplate/state.json").write_bytes(b"{")
    with pytest.raises(CannotLoad, match="is not empty"):
        predict(request, print)


def test_continuation_survives_torn_line(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "")

    files, out = make_images(tmp_path / "images", 5), tmp_path / "out"
    run = str(trained("classification").run.path)
    images = (str(tmp_path / "images"),)
    request = PredictRequest(run=run, checkpoint="last", paths=images, devices=("cpu",), out=str(out))
    with monkeypatch.context() as patch:
        patch.setattr(joining, "write_tables", fail)
        with pytest.raises(CannotLoad):
            predict(request, print)
    (journal,) = out.glob(".footplate/journal-*.jsonl")
    journal.write_bytes(journal.read_bytes()[:-20])
    reported: list[Progress] = []
    predict(request, reported.append)
    assert rows_of(out) == files
    assert reported[-1].what == "Predicting for the 1 left of 5"
    assert reported[-1].fraction == 1
    descriptor = file_locks.open_file(out / ".footplate/lock")
    assert file_locks.try_lock(descriptor)
    with pytest.raises(CannotLoad, match="Another process is writing predictions"):
        predict(request, print)
    os.close(descriptor)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_images_survive_two_kills(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    files = make_images(tmp_path / "images", 100_000)
    out = tmp_path / "out"
    arguments = ("predict", str(trained("classification").run.path), str(tmp_path / "images"), "--checkpoint", "last")
    arguments = (*arguments, "--devices", "cpu,cpu", "--batch-size", "32", "--out", str(out))
    for minimum in (20_000, 60_000):
        process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda minimum=minimum: lines_of(out) > minimum, f"{minimum} rows", 600)
        kill(process)
    result = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert rows_of(out) == files
