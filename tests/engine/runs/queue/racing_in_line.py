"""``python racing_in_line.py PROCESSES ROUNDS KILLS``: processes that all at once stand in line for devices drawn by
lot, again and again, while some of them are killed wherever they are; each of those is followed by a new one.

Who has its turn makes a file for each of its devices, which must not be there: so two on one device are found by what
has nothing to do with the queue. Prints how many turns there were, and how many were killed.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from engine.runs.queue.tickets import queue_folder
from tests.engine.runs.queue.lines import a_line, holders, standing

DEVICES = ("a", "b", "c")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def claim(path: Path) -> None:
    """Makes the device's file, or ends the process where a living one has it."""
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            try:
                owner = path.read_text()
            except FileNotFoundError:
                continue
            if owner and alive(int(owner)):
                print(f"{path.name} is both {owner}'s and {os.getpid()}'s", file=sys.stderr, flush=True)
                os._exit(3)
            path.unlink(missing_ok=True)  # of one that was killed
        else:
            os.write(descriptor, str(os.getpid()).encode())
            os.close(descriptor)
            return


def race(folder: Path, rounds: int, go: int, seed: int, said: int) -> None:
    lot = random.Random(seed)
    os.read(go, 1)  # all begin at once
    for number in range(rounds):
        devices = lot.sample(DEVICES, lot.randint(1, 2))
        line = a_line(f"{os.getpid()}-{number}", *devices)
        while not line.turn:
            line.step()
        for device in devices:
            claim(folder / device)
        os.write(said, b".")
        for device in devices:
            (folder / device).unlink()
        line.close()


def main(processes: int, rounds: int, kills: int) -> None:
    folder = queue_folder().parent / "devices"
    folder.mkdir()
    lot = random.Random(0)
    go, gate = os.pipe()
    heard, said = os.pipe()
    racers: set[int] = set()

    def begin() -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(gate)
                race(folder, rounds, go, os.getpid(), said)
                code = 0
            finally:
                os._exit(code)
        racers.add(pid)

    def reap(pid: int, options: int) -> None:
        """Has another racer begin where that one was killed."""
        nonlocal killed
        found, status = os.waitpid(pid, options)
        if found:
            racers.remove(pid)
            code = os.waitstatus_to_exitcode(status)
            assert code in (0, -signal.SIGKILL), code
            if code:
                killed += 1
                begin()

    for _ in range(processes):
        begin()
    turns = killed = 0
    os.write(gate, b"!" * (processes + kills))
    while racers:
        if select.select([heard], [], [], 0.01)[0]:
            turns += len(os.read(heard, 4096))
        if killed < kills and turns > processes:
            victim = lot.choice(sorted(racers))
            time.sleep(lot.random() * 0.002)  # to hit it wherever it is, in the code and out of it
            os.kill(victim, signal.SIGKILL)
            reap(victim, 0)
        for pid in list(racers):
            reap(pid, os.WNOHANG)
    assert standing() == {}
    assert holders() == {}
    print(turns, killed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
