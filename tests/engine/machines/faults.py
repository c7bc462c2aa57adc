"""Random faults in runs on two machines: `python -m tests.engine.machines.faults --count 50 --seed 1` (as root).

Each run has one fault at a random time between its start and shortly after its end. It must end with the weights of an
undisturbed run, or with a clear failure if recovery is impossible. No processes or files may remain on any machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch

from engine.contract.events import RunFinished
from engine.runs.folder import ENDED, RunFolder
from engine.training.checkpointing.checkpoint_files import read_checkpoint
from tests.engine.machines.conftest import LIMIT, QUICK, SimulatedMachines, events_of
from tests.support.waiting import wait_until

Kind = Literal["node", "agent", "worker", "power", "cut", "disk"]
KINDS: tuple[Kind, ...] = ("node", "agent", "worker", "power", "cut", "disk")
FLAGS = (*QUICK, "--devices", "node1:cpu,node2:cpu", "--strategy", "ddp", "--epochs", "12")
DISK = "100m"
CUT_S, OFF_S, FULL_S = 5.0, 2.0, 2.0
CLOSE = 1e-4
"""Relative tolerance for weights. Sums may be computed in another order."""
END_S = 480.0  # a run retries saving its last state for five minutes
LEFT_S = 40.0


@dataclass(frozen=True)
class Fault:
    """Fault on `machine`, `after_s` seconds after the start of the run.

    `kind` is "node", "agent" or "worker" (this process is killed), "power" (all processes are killed), "cut" (the
    machine has no network) or "disk" (the disk is full). If `passes` is True, the fault is repaired after some seconds,
    otherwise after the run. If `fewer` is True, the run may continue on fewer devices.
    """

    kind: Kind
    machine: str
    after_s: float
    passes: bool
    fewer: bool

    @property
    def flags(self) -> tuple[str, ...]:
        if self.passes:
            return ()
        return ("--on-lost-device", "fewer") if self.fewer else ("--restarts", "0")


class FaultyMachines(SimulatedMachines):
    """Machines whose Footplate homes are on small disks.

    Attributes:
        expected: Final weights of an undisturbed run.
        seconds: Duration of the undisturbed run in seconds.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in self.names:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "none", self.home_of(name)], check=True
            )
            self.reboot(name)
        started = time.monotonic()
        self.expected = weights(self._run_to_end())
        self.seconds = time.monotonic() - started

    def close(self) -> None:
        super().close()
        for name in self.names:
            subprocess.run(["umount", "-l", self.home_of(name)], check=True)

    def _run_to_end(self) -> RunFolder:
        run = self.start_run()
        wait_until(lambda: run.state() in ENDED, "the end", END_S)
        assert run.state() == "completed", events_of(run, "failed")
        return run

    def start_run(self, *flags: str) -> RunFolder:
        started = self.footplate("train", str(self.images), *FLAGS, "--detach", *flags)
        assert started.returncode == 0, started.stderr
        return next(run for run in self.runs() if run.run_id == started.stdout.strip())

    def cause_fault(self, run: RunFolder, fault: Fault) -> bool:
        """Cause a fault, and repair it if it passes. Return False if the run has already ended."""
        filler = self.home_of(fault.machine) / "filler"
        match fault.kind:
            case "power":
                self.power_off(fault.machine)
            case "cut":
                self.unplug(fault.machine)
            case "disk":
                fill(filler)
            case _:
                return self._kill(run, fault)
        if fault.passes:
            time.sleep(
                {"power": OFF_S, "cut": CUT_S, "disk": FULL_S}[fault.kind]
            )  # simulates the time of the fault, which can't be awaited
            self.mend(fault)
        return True

    def mend(self, fault: Fault) -> None:
        match fault.kind:
            case "power":
                self.plug_in(fault.machine)
                self.boot(fault.machine)
            case "cut":
                self.plug_in(fault.machine)
            case "disk":
                (self.home_of(fault.machine) / "filler").unlink()
            case _:
                return

    def _kill(self, run: RunFolder, fault: Fault) -> bool:
        """Wait until a process of the fault's kind is running on the machine, and kill it.

        Returns False if the run ends first.
        """
        start = {"node": "footplate-node", "agent": "footplate-agent", "worker": "footplate-w"}[fault.kind]
        while run.state() not in ENDED:
            for process in self.find_processes(fault.machine):
                try:
                    if process.name().startswith(start):
                        process.kill()
                        return True
                except psutil.NoSuchProcess:
                    continue
        return False

    def list_fault_leftovers(self, fault: Fault) -> list[str]:
        """Return descriptions of the processes and files of runs that remain on all machines after `fault`.

        Temporary files of a machine that lost its node process or its power are left out. If the power isn't restored,
        the run's files on this machine can't be removed by the run. They are deleted here, so that later calls don't
        list them.
        """
        left = self.list_leftovers()
        if fault.kind == "power" and not fault.passes:
            shutil.rmtree(self.home_of(fault.machine) / "nodes", ignore_errors=True)
        scratch = [str(path) for name in self.names for path in self._runtime(name).rglob("node-*")]
        head = [" ".join(process.cmdline()) for process in self.find_processes("head")]
        return left + head + (scratch if fault.kind not in ("node", "power") else [])


def fill(path: Path) -> None:
    """Write to a file until the disk is full."""
    with path.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 16))
        except OSError:
            return


def weights(run: RunFolder) -> dict[str, Any]:
    state: dict[str, Any] = read_checkpoint(run.checkpoints / "last.pt")[0]["model"]
    return state


def draw(random_numbers: random.Random, kind: Kind, machines: tuple[str, ...], seconds: float) -> Fault:
    passes = kind in ("node", "agent", "worker") or random_numbers.random() < 0.5
    return Fault(
        kind=kind,
        machine=random_numbers.choice(machines),
        after_s=random_numbers.uniform(0.0, 1.1 * seconds),
        passes=passes,
        fewer=not passes and kind != "disk" and random_numbers.random() < 0.5,
    )


def draw_faults(seed: int, count: int, machines: tuple[str, ...], seconds: float) -> list[Fault]:
    """Draw `count` random faults on `machines`, at random times in runs that take about `seconds`.

    Each group of six consecutive faults has all six kinds.
    """
    random_numbers = random.Random(seed)
    kinds: list[Kind] = []
    while len(kinds) < count:
        kinds += random_numbers.sample(KINDS, len(KINDS))
    return [draw(random_numbers, kind, machines, seconds) for kind in kinds[:count]]


def train_with_fault(bed: FaultyMachines, fault: Fault) -> str:
    """Train a run with a fault, check the result of the run, and return a description of this result."""
    started = time.monotonic()
    run = bed.start_run(*fault.flags)
    while time.monotonic() < started + fault.after_s and run.state() not in ENDED:
        time.sleep(0.02)
    at_step = len(events_of(run, "step"))
    done = bed.cause_fault(run, fault)
    try:
        wait_until(lambda: run.state() in ENDED, "the end", END_S, describe_state=lambda: list(run.events())[-3:])
    finally:
        if not fault.passes:
            bed.mend(fault)
    end = run.last_event()
    assert isinstance(end, RunFinished)
    wait_until(
        lambda: not bed.list_fault_leftovers(fault),
        f"the cleanup after {end.outcome}: {end.cause}",
        LEFT_S,
        describe_state=lambda: bed.list_fault_leftovers(fault),
    )
    if end.outcome != "completed":
        assert end.cause
        assert fault.machine in end.cause or "Rank" in end.cause or "disk" in end.cause, end.cause
        assert not fault.passes or not at_step, f"it could have been mended: {end.outcome}: {end.cause}"
        assert not fault.fewer or not at_step, f"it could have gone on: {end.outcome}: {end.cause}"
        return f"{end.outcome}: {end.cause}"
    limit = CLOSE if events_of(run, "restarting") and fault.fewer else LIMIT
    torch.testing.assert_close(weights(run), bed.expected, rtol=limit, atol=limit)
    return f"completed, {len(events_of(run, 'restarting'))} restarts" + ("" if done else " (too late)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first", help="begin with this one of them")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fpb"))
    bed = FaultyMachines(folder)
    failed = 0
    try:
        drawn = draw_faults(options.seed, options.count, bed.names, bed.seconds)
        print(f"undisturbed: {bed.seconds:.1f} s", flush=True)
        for number, fault in enumerate(drawn[options.first :], options.first):
            started = time.monotonic()
            try:
                outcome = train_with_fault(bed, fault)
            except AssertionError as error:
                failed += 1
                outcome = f"FAILED {error}"
                for machine in bed.names:  # the next run must not find these files
                    shutil.rmtree(bed.home_of(machine) / "nodes", ignore_errors=True)
            print(f"{number} {fault}: {outcome} [{time.monotonic() - started:.1f} s]", flush=True)
    finally:
        bed.close()
        shutil.rmtree(folder)
    print(f"{options.count - options.first - failed} passed, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
