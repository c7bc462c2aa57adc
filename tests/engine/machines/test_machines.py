"""Runs on two machines through real ssh.

Results must equal those of one machine. Runs must recover from failures and clean up.
"""

from __future__ import annotations

import shlex
import shutil
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from engine.contract.events import LogLine, Planned, Restarting, StepMetrics, Validation, Warned
from engine.runs.folder import RunFolder
from engine.training.checkpointing.checkpoint_files import read_checkpoint
from tests.engine.machines.conftest import QUICK, SimulatedMachines, assert_same_training, events_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ON_TWO, ON_ONE = "node1:cpu,node1:cpu,node2:cpu,node2:cpu", "cpu,cpu,cpu,cpu"
SETTINGS = {
    "ddp": ("--strategy", "ddp"),
    "fsdp": ("--strategy", "fsdp"),
    "hsdp": ("--strategy", "hsdp", "--replicas", "2"),
    "ddp_pipeline": (
        "--strategy",
        "ddp_pipeline",
        "--replicas",
        "2",
        "--pipeline-schedule",
        "1f1b",
        "--microbatches",
        "2",
    ),
}
NAMED_S = 15.0


@pytest.mark.parametrize("setting", SETTINGS)
def test_two_machines_train_like_one(bed: SimulatedMachines, setting: str) -> None:
    flags = (*SETTINGS[setting], "--epochs", "3")
    remote, local = bed.train(ON_TWO, *flags), bed.train(ON_ONE, *flags)
    assert_same_training(remote, local, steps=18)
    assert {path.name for path in remote.checkpoints.iterdir()} == {path.name for path in local.checkpoints.iterdir()}
    assert events_of(remote, "predicted")
    assert [event.code for event in _warnings(remote)] == [event.code for event in _warnings(local)]
    assert bed.list_leftovers() == []


def test_head_may_train_too(bed: SimulatedMachines) -> None:
    local = bed.train("cpu,cpu", "--strategy", "ddp", "--epochs", "2")
    for devices in ("cpu,node1:cpu", "node2:cpu,cpu", "node1:cpu,node1:cpu"):
        assert_same_training(bed.train(devices, "--strategy", "ddp", "--epochs", "2"), local, steps=12)
        assert bed.list_leftovers() == []


def test_run_listens_only_on_chosen_address(bed: SimulatedMachines) -> None:
    for name in bed.names:
        as_debian = bed.folder / f"hosts-{name}"
        as_debian.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
        bed.reboot(name, over=(as_debian, Path("/etc/hosts")))
    run = bed.begin("node1:cpu,node2:cpu", "--strategy", "ddp")
    for name in bed.names:
        assert {one.rpartition(":")[0] for one in bed.find_listening_addresses(name)} == {bed.address(name)}
    assert bed.find_listening_addresses("head") == set()
    [text] = [event.text for event in events_of(run, "log") if isinstance(event, LogLine) and "meet" in event.text]
    port = text.split("port ")[1].split(",")[0]
    assert f"{bed.address('node1')}:{port}" in bed.find_listening_addresses("node1")
    bed.stop(run)
    assert bed.list_leftovers() == []
    for name in bed.names:
        bed.reboot(name)


def test_run_restarts_after_killed_node_or_worker(bed: SimulatedMachines) -> None:
    run = bed.begin("node1:cpu,node2:cpu", "--strategy", "ddp")
    for number, (name, target) in enumerate((("node2", "node"), ("node1", "worker"))):
        victims = {process.name(): process for process in bed.find_processes(name)}
        started = time.time()
        victims["footplate-node" if target == "node" else "footplate-w0"].kill()
        wait_until(lambda n=number: len(events_of(run, "restarting")) > n, "the restart", NAMED_S)  # type: ignore[misc]
        event = events_of(run, "restarting")[-1]
        assert isinstance(event, Restarting)
        assert ("node2" if target == "node" else "Rank 0") in event.cause
        assert event.time - started < NAMED_S
        _assert_resumes(run)
    bed.stop(run)
    assert bed.list_leftovers() == []


def test_devices_of_a_machine_belong_to_one_run(bed: SimulatedMachines) -> None:
    run = bed.begin("node1:cpu,node1:cpu", "--strategy", "ddp")
    line = f"footplate train {bed.images} {shlex.join(QUICK)} --devices cpu --epochs 1"
    with bed.start_on("node1", line) as local:
        assert local.stdout is not None
        wait_until(lambda: run.run_id in local.stdout.readline(), "the notice of the other run", 60)
        assert run.state() == "running"
        bed.stop(run)
        assert local.wait(120) == 0
    shutil.rmtree(bed.home_of("node1") / "runs")


def test_short_network_failure_is_tolerated(bed: SimulatedMachines) -> None:
    run = bed.begin("node1:cpu,node2:cpu", "--strategy", "ddp")
    bed.unplug("node2")
    time.sleep(5)  # duration of the network failure, which can't be awaited
    bed.plug_in("node2")
    step = _step(run)
    wait_until(lambda: _step(run) > step + 20, "20 more steps", 30)
    assert not events_of(run, "restarting")
    bed.stop(run)
    assert bed.list_leftovers() == []


@pytest.mark.parametrize("how", ["power", "network"])
def test_run_restarts_when_lost_machine_returns(bed: SimulatedMachines, how: str) -> None:
    run = bed.begin("node1:cpu,node2:cpu", "--strategy", "ddp")
    started = time.time()
    if how == "power":
        bed.power_off("node2")
    else:
        bed.unplug("node2")
    wait_until(lambda: bool(events_of(run, "restarting")), "the restart", NAMED_S)
    event = events_of(run, "restarting")[0]
    assert isinstance(event, Restarting)
    assert "node2" in event.cause
    assert event.time - started < NAMED_S
    wait_until(lambda: not bed.find_processes("node1"), "the end of the processes of node1", 15)
    wait_until(
        lambda: any("node2" in getattr(one, "message", "") for one in events_of(run, "warning")), "the warning", 40
    )
    if how == "network":
        wait_until(lambda: not bed.find_processes("node2"), "the end of the processes of node2", 40)
    bed.plug_in("node2")
    if how == "power":
        bed.boot("node2")
    _assert_resumes(run)
    bed.stop(run)
    assert run.state() == "stopped"
    assert bed.list_leftovers() == []


def test_fewer_machines_train_like_fewer_devices(bed: SimulatedMachines) -> None:
    flags = ("--strategy", "ddp", "--epochs", "120", "--learning-rate", "0.0005")
    run = bed.begin(ON_TWO, *flags, "--on-lost-device", "fewer")
    bed.power_off("node2")
    wait_until(lambda: run.state() != "running", "the end", 300, describe_state=lambda: list(run.events())[-5:])
    assert run.state() == "completed"
    event = events_of(run, "restarting")[-1]
    assert isinstance(event, Restarting)
    assert "continues without node2, on 2 devices" in event.cause
    assert (event.devices, event.changes) == (("node1:cpu",) * 2, {"accumulation": 2})
    local = bed.train("cpu,cpu", *flags, "--accumulation", "2")
    losses, expected = (
        {one.step: one.measures["loss"] for one in events_of(each, "validation") if isinstance(one, Validation)}
        for each in (run, local)
    )
    resumed = [one.from_step for one in events_of(run, "planned") if isinstance(one, Planned)][-1]
    assert 0 < resumed < max(losses)
    assert losses == pytest.approx(expected, rel=1e-3)
    states = [read_checkpoint(each.checkpoints / "last.pt")[0]["model"] for each in (run, local)]
    torch.testing.assert_close(states[0], states[1], rtol=1e-3, atol=1e-4)
    shutil.rmtree(bed.home_of("node2") / "nodes")  # simulates a disk that lost its files in the power failure
    bed.plug_in("node2")
    bed.boot("node2")
    assert bed.list_leftovers() == []


def test_run_waits_for_required_machine(bed: SimulatedMachines) -> None:
    run = bed.begin(ON_TWO, *SETTINGS["hsdp"], "--on-lost-device", "fewer")
    bed.power_off("node2")
    wait_until(lambda: any("It is needed:" in one.message for one in _warnings(run)), "the warning", 120)
    bed.plug_in("node2")
    bed.boot("node2")
    _assert_resumes(run)
    bed.stop(run)
    assert bed.list_leftovers() == []


def _assert_resumes(run: RunFolder) -> None:
    """Wait for steps after the last restart, and check that they continue near the last checkpoint."""
    at = events_of(run, "restarting")[-1].time
    wait_until(
        lambda: any(event.time > at for event in events_of(run, "step")),
        "a later step",
        240,
        describe_state=lambda: list(run.events())[-5:],
    )
    steps = [event.step for event in events_of(run, "step") if isinstance(event, StepMetrics)]
    assert all(after > before - 40 for before, after in pairwise(steps))
    assert min(event.step for event in events_of(run, "step") if event.time > at) > 1  # type: ignore[attr-defined]


def _warnings(run: RunFolder) -> list[Warned]:
    return [event for event in events_of(run, "warning") if isinstance(event, Warned)]


def _step(run: RunFolder) -> int:
    return max(event.step for event in events_of(run, "step") if isinstance(event, StepMetrics))
