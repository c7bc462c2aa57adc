"""Processes that compete for random devices while some of them are killed: ``python -m … PROCESSES ROUNDS KILLS``.

A process that has obtained its devices creates a file for each of them. If the file already exists, two processes use
the same device. This check doesn't rely on the queue. Killed processes are replaced by new ones. The output is the
number of times that a device was used, and the number of killed processes.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from engine.runs.queue import list_holders
from engine.runs.queue.tickets import queue_folder
from tests.engine.runs.queue.slots import list_waits, make_slot

DEVICES = ("a", "b", "c")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def claim(path: Path) -> None:
    """Create the file of a device. Exit with an error if another live process has created it."""
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            try:
                owner = path.read_text()
            except FileNotFoundError:
                continue
            if owner and is_alive(int(owner)):
                print(f"{path.name} is both {owner}'s and {os.getpid()}'s", file=sys.stderr, flush=True)
                os._exit(3)
            path.unlink(missing_ok=True)  # its owner was killed
        else:
            os.write(descriptor, str(os.getpid()).encode())
            os.close(descriptor)
            return


def race(folder: Path, rounds: int, gate: int, seed: int, output: int) -> None:
    generator = random.Random(seed)
    os.read(gate, 1)  # all start together
    for number in range(rounds):
        devices = generator.sample(DEVICES, generator.randint(1, 2))
        slot = make_slot(f"{os.getpid()}-{number}", *devices)
        while not slot.has_devices:
            slot.poll()
        for device in devices:
            claim(folder / device)
        os.write(output, b".")
        for device in devices:
            (folder / device).unlink()
        slot.close()


def main(processes: int, rounds: int, kills: int) -> None:
    folder = queue_folder().parent / "devices"
    folder.mkdir()
    generator = random.Random(0)
    gate, opener = os.pipe()
    reader, output = os.pipe()
    racers: set[int] = set()
    uses = killed = 0

    def start() -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(opener)
                race(folder, rounds, gate, os.getpid(), output)
                code = 0
            finally:
                os._exit(code)
        racers.add(pid)

    def reap(pid: int, options: int) -> None:
        """Collect the exit of a racer, and start a new racer in place of a killed one.

        `options` are those of `os.waitpid`.
        """
        nonlocal killed
        reaped, status = os.waitpid(pid, options)
        if reaped:
            racers.remove(pid)
            code = os.waitstatus_to_exitcode(status)
            assert code in (0, -signal.SIGKILL), code
            if code:
                killed += 1
                start()

    for _ in range(processes):
        start()
    os.write(opener, b"!" * (processes + kills))
    while racers:
        if select.select([reader], [], [], 0.01)[0]:
            uses += len(os.read(reader, 4096))
        if killed < kills and uses > processes:
            victim = generator.choice(sorted(racers))
            time.sleep(generator.random() * 0.002)  # kill at a random point, inside or outside of the queue's code
            os.kill(victim, signal.SIGKILL)
            reap(victim, 0)
        for pid in list(racers):
            reap(pid, os.WNOHANG)
    assert list_waits() == {}
    assert list_holders() == {}
    print(uses, killed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
