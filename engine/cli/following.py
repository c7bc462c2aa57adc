"""Runs of other machines, named "HOST:RUN", for the commands that follow a run or tell it something."""

from __future__ import annotations

import atexit
import subprocess
import sys

import msgspec

from engine.cli.terminal import say
from engine.contract.hosts import Host, host
from engine.contract.nodes import Followed
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED

_GOODBYE_S = 5.0


def followed(where: Host, run: str) -> RunFolder | None:
    """What `where` calls `run`, which is followed until this process ends; None once it has been said why it is not."""
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.machines.follower", where.name, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=paths.PACKAGES,
        start_new_session=True,  # Ctrl-C is for this command
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        said = msgspec.json.decode(child.stdout.readline(), type=Followed)
    except NOT_DECODED:
        said = Followed(problem=f"{where.name}:{run} can't be followed.")
    if said.problem:
        say(f"footplate: {said.problem}", to=sys.stderr)
        child.stdin.close()
        child.wait(_GOODBYE_S)
        return None
    atexit.register(_end, child)
    return RunFolder(said.folder)


def split(name: str) -> tuple[Host | None, str]:
    """The machine and what it calls the run; None where no host of that name is listed."""
    machine, _, run = name.rpartition(":")
    return (host(machine) if machine else None), run


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    child.wait(_GOODBYE_S)
