"""Disks that fill up, break, slow down or vanish at random moments.

Reports must be correct, and no saved state may be lost.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

import psutil
import pytest
from _pytest.mark import ParameterSet

from engine.contract.events import CheckpointSaved, RunFinished
from engine.training.checkpointing.checkpoint_files import verify_checkpoint
from tests.faults.conftest import EPOCHS, Make, StartRun, Uninterrupted
from tests.faults.damage import (
    Gate,
    Listener,
    fill_disk,
    limit_files,
    make_read_only,
    mount,
    open_listener,
    unmount,
)
from tests.faults.real_runs import RealRun, assert_same_checkpoints

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
    ),
]

SEEDS = range(3)
"""Seeds for each kind of fault. There are 9 transient and 7 permanent kinds."""
STEPS = 6 * EPOCHS
SHORT_S = 0.2
SLOW_S = 0.6
"""Minimum time in seconds for writing a checkpoint to a slow disk."""

Fault = Callable[[RealRun], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def disk(separate_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the folder of the runs and return it. Faults of the tests affect the files in this folder."""
    runs = separate_home / "runs"
    runs.mkdir(parents=True)
    monkeypatch.setenv("BAD_DISK", str(runs.resolve()))
    monkeypatch.setenv("BAD_DISK_FAULT", str(_fault_file(separate_home)))
    return runs


def _fault_file(home: Path) -> Path:
    return home / "fault"


def disk_fault(what: str) -> Fault:
    @contextmanager
    def fault(run: RealRun) -> Iterator[None]:
        file = _fault_file(run.folder.path.parents[1])
        file.write_text(what)
        yield
        file.unlink()

    return fault


@contextmanager
def full(run: RealRun) -> Iterator[None]:
    filler = fill_disk(run.folder.path.parent)
    yield
    filler.unlink()


@contextmanager
def limit_file_sizes(run: RealRun) -> Iterator[None]:
    """Make writes to large files fail until the context ends, as with a quota.

    The worker can't write files of more than 50 kB. The supervisor can only append 50 more bytes to the log.
    """
    (worker,), supervisor = run.workers().values(), psutil.Process(run.pid)
    limit_files(worker, 50_000)
    limit_files(supervisor, run.folder.events_file.stat().st_size + 50)
    yield
    for process in (worker, supervisor):
        if process.is_running():
            limit_files(process, None)


def read_only_checkpoints(run: RealRun) -> AbstractContextManager[None]:
    return make_read_only(run.folder.checkpoints)


def read_only_run(run: RealRun) -> AbstractContextManager[None]:
    return make_read_only(run.folder.path)


REFUSALS: dict[str, Fault] = {
    "full": full,
    "quota": limit_file_sizes,
    "checkpoints read-only": read_only_checkpoints,
    "writes fail": disk_fault("write"),
    "syncs fail": disk_fault("sync"),
    "renames fail": disk_fault("rename"),
    "writes are torn": disk_fault("torn"),
}
PASSING = REFUSALS | {"run read-only": read_only_run, "slow": disk_fault("slow")}
ON_A_DISK_OF_ITS_OWN = ("full", "unmounted")


@pytest.fixture
def mounted(kind: str, disk: Path) -> Iterator[None]:
    if kind not in ON_A_DISK_OF_ITS_OWN:
        yield
        return
    mount("-t", "tmpfs", "-o", "size=8m", "footplate-test", str(disk))
    yield
    while disk.is_mount():
        unmount(disk)


def wait_for_random_step(run: RealRun, gate: Gate, random: Random) -> int:
    """Let the run train up to a random step, wait until it has, and return the step.

    The checkpoint of this step may still be unfinished.
    """
    step = random.randint(2, STEPS - 4)
    gate.permit_steps(step, run, saved=False)
    return step


def get_last_saved_step(client: Listener) -> int:
    """Return the step of the newest last.pt that the run has reported to the client."""
    return max(event.step for event in client.messages if isinstance(event, CheckpointSaved) and event.kind == "last")


def faults(kinds: dict[str, Fault], everyday: tuple[str, ...]) -> list[ParameterSet]:
    return [
        pytest.param(kind, seed, marks=() if kind in everyday and seed == SEEDS[0] else pytest.mark.long)
        for kind in kinds
        for seed in SEEDS
    ]


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize(("kind", "seed"), faults(PASSING, everyday=("slow", "writes fail")))
def test_temporary_disk_fault_loses_no_training(
    job: Make,
    start_run: StartRun,
    gate: Gate,
    stepwise: dict[str, str],
    uninterrupted: Uninterrupted,
    *,
    kind: str,
    seed: int,
) -> None:
    random = Random(f"{kind} {seed}")
    asked = job(epochs=EPOCHS, **stepwise)
    gate.permit_steps(1)
    run = start_run(asked)
    with open_listener(run) as client:
        step = wait_for_random_step(run, gate, random)
        with PASSING[kind](run):
            gate.permit_steps(random.randint(step + 2, STEPS))
            if kind == "slow":
                assert client.wait_for(CheckpointSaved, lambda event: event.step == step + 1).seconds > SLOW_S
            else:
                message = client.wait_for_warning("checkpoint_failed").message
                assert "could not be saved" in message
                assert "Training continues, and the last good checkpoint is kept." in message
                assert verify_checkpoint(run.last)
        gate.permit_all_steps()
        assert client.wait_for(RunFinished).outcome == "completed"
    run.completed()
    assert [event.n for event in run.logged] == list(range(1, run.last_n + 1))
    assert not run.partial_file().exists()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(asked))


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize("kind", ["unmounted"])
def test_unmounted_run_folder_stops_the_run(
    job: Make, start_run: StartRun, gate: Gate, stepwise: dict[str, str]
) -> None:
    gate.permit_steps(1)
    run = start_run(job(epochs=EPOCHS, **stepwise))
    with open_listener(run) as client:
        gate.permit_steps(3, run, saved=False)
        unmount(run.folder.path.parent)
        client.wait_for_warning("log_deleted")
        gate.permit_all_steps()
        assert client.wait_for(RunFinished).outcome == "stopped"
    run.wait_for_processes_to_end()


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize(("kind", "seed"), faults(REFUSALS, everyday=("syncs fail",)))
def test_lasting_disk_fault_loses_no_reported_checkpoint(
    job: Make,
    start_run: StartRun,
    gate: Gate,
    stepwise: dict[str, str],
    uninterrupted: Uninterrupted,
    *,
    kind: str,
    seed: int,
) -> None:
    asked = job(epochs=EPOCHS, **stepwise)
    gate.permit_steps(1)
    run = start_run(asked, save_again_s=SHORT_S)
    with open_listener(run) as client:
        wait_for_random_step(run, gate, Random(f"{kind} {seed}"))
        with REFUSALS[kind](run):
            gate.permit_all_steps()
            finished = client.wait_for(RunFinished)
            run.wait_for_processes_to_end()
            saved = get_last_saved_step(client)
            assert finished.outcome == "unsaved"
            assert f"The state after step {STEPS} wasn't saved; last.pt contains step {saved}." in finished.cause
            assert finished.cause.endswith("Free some space there or allow writing, then resume the run.")
            assert verify_checkpoint(run.last)
    before = run.last_n
    run.resume().completed(since=before)
    assert [event.n for event in run.logged] == list(range(1, run.last_n + 1))
    assert not run.partial_file().exists()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(asked))
