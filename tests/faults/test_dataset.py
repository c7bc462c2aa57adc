"""Images that vanish, change or become unreadable during training."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.events import Failed, Restarting, Warned
from tests.engine.supervisor.supervised import make_images
from tests.faults.conftest import Make, StartRun, Uninterrupted
from tests.faults.damage import Gate
from tests.faults.real_runs import RealRun, assert_same_checkpoints
from tests.support.cases import mark_long_cases

pytestmark = pytest.mark.faults


StartPaused = Callable[..., RealRun]


@pytest.fixture
def start_paused(job: Make, start_run: StartRun, gate: Gate, stepwise: dict[str, str]) -> StartPaused:
    """Return a function that starts a run and waits until it pauses after its first epoch.

    By then, the run has read all images.
    """

    def start(dataset: Path, **fields: Any) -> RealRun:
        gate.permit_steps(8)
        run = start_run(job(dataset=str(dataset), epochs=4, **stepwise, **fields))
        gate.permit_steps(8, run)
        return run

    return start


def warnings(run: RealRun) -> list[str]:
    return [event.message for event in run.list_events(Warned) if event.code == "unreadable_picture"]


def vanish(image: Path) -> None:
    image.unlink()


def spoil(image: Path) -> None:
    image.write_bytes(image.read_bytes()[:40])


def become_a_folder(image: Path) -> None:
    image.unlink()
    image.mkdir()


LOST = {
    vanish: "it does not exist (a broken link, or removed in the meantime)",
    spoil: "it is not a readable image",
    become_a_folder: "it is",
}


@pytest.mark.parametrize("befalls", mark_long_cases(LOST, everyday=[vanish]))
def test_lost_image_is_reported_once_and_replaced(
    start_paused: StartPaused, gate: Gate, tmp_path: Path, befalls: Callable[[Path], None]
) -> None:
    dataset = make_images(tmp_path / "own")
    run = start_paused(dataset, picture_cache="off")
    befalls(dataset / "train/dark/3.png")
    gate.permit_all_steps()
    run.completed()
    (message,) = warnings(run)
    assert message.startswith("Skipping train/dark/3.png: ")
    assert LOST[befalls] in message


@pytest.mark.long
def test_changed_image_is_read_again(
    start_paused: StartPaused, gate: Gate, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    dataset = make_images(tmp_path / "own")
    run = start_paused(dataset, picture_cache="off")
    for image in (dataset / "train/dark").iterdir():
        Image.new("L", (28, 28), 255).save(image)
    gate.permit_all_steps()
    run.completed()
    assert warnings(run) == []
    expected = uninterrupted(run.job)
    with pytest.raises(AssertionError):
        assert_same_checkpoints(run.final_checkpoints, expected)


@pytest.mark.parametrize("cache", mark_long_cases(["disk", "memory"], everyday=["disk"]))
def test_cached_images_need_no_files(
    start_paused: StartPaused, gate: Gate, tmp_path: Path, uninterrupted: Uninterrupted, cache: str
) -> None:
    dataset = make_images(tmp_path / "own")
    run = start_paused(dataset, picture_cache=cache)
    dataset.rename(tmp_path / "elsewhere")
    gate.permit_all_steps()
    run.completed()
    assert warnings(run) == []
    (tmp_path / "elsewhere").rename(dataset)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run.job))


@pytest.mark.parametrize("left", mark_long_cases(["nothing", "an empty folder"], everyday=["nothing"]))
def test_lost_dataset_fails_the_run_until_it_is_back(
    start_paused: StartPaused, gate: Gate, tmp_path: Path, uninterrupted: Uninterrupted, left: str
) -> None:
    """Move the dataset away during the run. An unmounted disk would leave an empty folder in its place."""
    dataset = make_images(tmp_path / "own")
    run = start_paused(dataset, picture_cache="off")
    dataset.rename(tmp_path / "elsewhere")
    if left == "an empty folder":
        dataset.mkdir()
    gate.permit_all_steps()
    assert run.wait_for_end().outcome == "failed"
    (failed,) = run.list_events(Failed)
    assert failed.cause == (
        f"The dataset's folder {dataset} no longer exists: it was renamed or deleted, or its disk is gone. Put it "
        f"back, then resume the run."
    )
    assert failed.kind == "error"
    assert run.list_events(Restarting) == []
    assert warnings(run) == []
    if left == "an empty folder":
        dataset.rmdir()
    (tmp_path / "elsewhere").rename(dataset)
    before = run.last_n
    run.resume().completed(since=before)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run.job))


def make_idx(folder: Path) -> Path:
    """Write 48 training and 12 validation images in MNIST's format."""
    folder.mkdir()
    for name, count in (("train", 48), ("t10k", 12)):
        labels = np.arange(count, dtype=np.uint8) % 2
        pixels = np.broadcast_to((60 + 140 * labels)[:, None, None], (count, 28, 28)).astype(np.uint8)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + pixels.tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels.tobytes())
    return folder


@pytest.mark.long
def test_deleted_idx_file_stays_mapped(
    start_paused: StartPaused, gate: Gate, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    dataset = make_idx(tmp_path / "own")
    run = start_paused(dataset)
    images = dataset / "train-images-idx3-ubyte"
    content = images.read_bytes()
    images.unlink()
    gate.permit_all_steps()
    run.completed()
    images.write_bytes(content)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run.job))


@pytest.mark.long
def test_truncated_idx_file_fails_the_run_until_restored(
    start_paused: StartPaused, gate: Gate, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    """Truncate a memory-mapped file. This kills the process that reads it, and the next process reports the reason."""
    dataset = make_idx(tmp_path / "own")
    run = start_paused(dataset)
    images = dataset / "train-images-idx3-ubyte"
    content = images.read_bytes()
    with images.open("r+b") as stream:
        stream.truncate(100)
    gate.permit_all_steps()
    assert run.wait_for_end().outcome == "failed"
    (again,) = run.list_events(Restarting)
    assert "was killed by SIGBUS" in again.cause
    assert "a memory-mapped file (the dataset's idx file or the cache) was truncated, or its disk failed" in again.cause
    (failed,) = run.list_events(Failed)
    assert "train-images-idx3-ubyte can't be used: it is truncated: 37,632 bytes announced" in failed.cause
    images.write_bytes(content)
    before = run.last_n
    run.resume().completed(since=before)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run.job))
