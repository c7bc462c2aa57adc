"""Runs on several machines with a slow network, file system or disk. They must not fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.contract.events import CheckpointSaved
from tests.engine.machines.conftest import QUICK, SimulatedMachines, events_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ON_TWO = ("--devices", "node1:cpu,node2:cpu", "--strategy", "ddp", "--restarts", "0")


@pytest.fixture
def slow_bed(bed: SimulatedMachines, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedMachines]:
    library = bed.folder / "slow_disk.so"
    source = Path(__file__).parents[2] / "support/slow_disk.c"
    subprocess.run(["cc", "-O2", "-fPIC", "-shared", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))  # the head's processes inherit it; the machines' don't
    yield bed
    bed.remove_network_limits()


def test_checkpoint_may_take_longer_than_silence(slow_bed: SimulatedMachines) -> None:
    slow_bed.limit_network(20, 0.0005)  # 90 MB take 36 s
    larger = ("--model", "resnet18", "--image-size", "32", "--epochs", "1")
    run = slow_bed.train("node1:cpu,node1:cpu", "--strategy", "ddp", "--restarts", "0", *larger)
    [saved] = {event.path: event for event in events_of(run, "checkpoint") if isinstance(event, CheckpointSaved)
               and event.path.endswith("last.pt")}.values()  # fmt: skip
    assert (run.path / saved.path).stat().st_size == saved.bytes
    assert not events_of(run, "warning")
    assert slow_bed.list_leftovers() == []


def test_digest_of_dataset_may_take_longer_than_silence(
    slow_bed: SimulatedMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = slow_bed.folder / "many"
    for split, count in (("train", 600), ("val", 12)):
        for folder in (slow_bed.images / split).iterdir():
            (many / split / folder.name).mkdir(parents=True)
            image = next(folder.iterdir())
            for number in range(count // 3):
                os.link(image, many / split / folder.name / f"{number:06d}{image.suffix}")
    monkeypatch.setenv("SLOW_STAT_PATH", "/many/")
    monkeypatch.setenv("SLOW_STAT_US", "60000")
    done = slow_bed.footplate("train", str(many), *QUICK, *ON_TWO, "--epochs", "1", timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_slow_disk_of_head_loses_no_machine(slow_bed: SimulatedMachines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_SYNC_US", "9000000")
    run = slow_bed.begin("node1:cpu,node2:cpu", *ON_TWO[2:], "--checkpoint-minutes", "0.2")
    wait_until(
        lambda: len(events_of(run, "checkpoint")) > 4,
        "checkpoints",
        120,
        describe_state=lambda: list(run.events())[-5:],
    )
    assert run.state() == "running"
    slow_bed.stop(run)
    assert not events_of(run, "restarting")
    assert slow_bed.list_leftovers() == []
